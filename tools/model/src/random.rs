//! Random numbers of a plan.

/// Numbers of a seed, or read from bytes that were given: then few bytes are one choice, and a change of one byte is one
/// other choice, as a fuzzer likes it.
#[derive(Clone, Debug)]
pub struct Random(Source);

#[derive(Clone, Debug)]
enum Source {
    /// SplitMix64: small, the same everywhere and for ever.
    Seed(u64),
    /// What is left of the bytes, the first last; behind them come zeros.
    Given(Vec<u8>),
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(Source::Seed(seed))
    }

    /// The choices that `bytes` stand for.
    #[must_use]
    pub fn given(bytes: &[u8]) -> Self {
        Self(Source::Given(bytes.iter().rev().copied().collect()))
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.take(8)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        let width = if end <= 1 << 8 { 1 } else { 3 };
        (self.take(width) % end as u64) as usize
    }

    /// As many bytes as given of the number, where bytes are given.
    fn take(&mut self, width: usize) -> u64 {
        match &mut self.0 {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }
            Source::Given(bytes) => (0..width).fold(0, |word, _| word << 8 | u64::from(bytes.pop().unwrap_or(0))),
        }
    }

    /// True once in `odds` times.
    pub fn once_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    /// One of `choices`, which is not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// As many random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}
