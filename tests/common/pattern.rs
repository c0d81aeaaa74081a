//! The fill pattern of the guest's agent (`tools/guest/agent/memory.c`): a stream of pseudo-random
//! bytes that a seed fixes, so that both ends can fill and check memory without sending it.

/// Fills `bytes` with the pattern of `seed`.
pub fn fill(bytes: &mut [u8], seed: u64) {
    for (index, chunk) in (0u64..).zip(bytes.chunks_mut(8)) {
        let word = word(seed, index).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// The index of the first byte that is not what [`fill`] writes; `None` when all are.
pub fn mismatch(bytes: &[u8], seed: u64) -> Option<usize> {
    (0u64..).zip(bytes.chunks(8)).find_map(|(index, chunk)| {
        let word = word(seed, index).to_le_bytes();
        let at = chunk.iter().zip(word).position(|(have, want)| *have != want)?;
        Some(index as usize * 8 + at)
    })
}

/// Bytes 8 × `index` to 8 × `index` + 7 of the pattern, little-endian: an output of splitmix64.
fn word(seed: u64, index: u64) -> u64 {
    let z = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
