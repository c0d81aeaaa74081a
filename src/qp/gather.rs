//! Payload between registered memory and a packet, through a scatter/gather list.

use crate::memory::{Access, AccessError, PdNumber, Table};
use crate::work::Sge;

/// Why bytes could not be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScatterError {
    /// The list is too short for them.
    TooLong,
    /// An element names memory that may not be used so.
    Access(AccessError),
}

/// A piece of an element: where a packet's bytes lie in memory and in the packet.
struct Piece {
    lkey: u32,
    address: u64,
    start: usize,
    end: usize,
}

/// The pieces of `list` that hold the `length` bytes from `offset` on, as far as the list reaches.
fn pieces(list: &[Sge], offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut skip = offset;
    let mut start = 0;
    list.iter().filter_map(move |sge| {
        let here = u64::from(sge.length);
        if skip >= here {
            skip -= here;
            return None;
        }
        if start == length {
            return None;
        }
        let available = usize::try_from(here - skip).unwrap_or(usize::MAX);
        let end = start + available.min(length - start);
        let piece = Piece { lkey: sge.lkey, address: sge.address.wrapping_add(skip), start, end };
        (skip, start) = (0, end);
        Some(piece)
    })
}

/// Fills `room` with the bytes of `list` from `offset` on.
///
/// The list must reach so far: requests are checked when they are posted.
pub(crate) fn gather(
    memory: &Table,
    pd: PdNumber,
    list: &[Sge],
    offset: u64,
    room: &mut [u8],
) -> Result<(), AccessError> {
    for piece in pieces(list, offset, room.len()) {
        let length = (piece.end - piece.start) as u64;
        let span = memory.resolve(piece.lkey, pd, piece.address, length, Access::empty())?;
        span.copy_out(&mut room[piece.start..piece.end])?;
    }
    Ok(())
}

/// Places `bytes` at `offset` of `list`.
pub(crate) fn scatter(
    memory: &Table,
    pd: PdNumber,
    list: &[Sge],
    offset: u64,
    bytes: &[u8],
) -> Result<(), ScatterError> {
    let mut placed = 0;
    for piece in pieces(list, offset, bytes.len()) {
        let length = (piece.end - piece.start) as u64;
        let span =
            memory.resolve(piece.lkey, pd, piece.address, length, Access::LOCAL_WRITE).map_err(ScatterError::Access)?;
        span.copy_in(&bytes[piece.start..piece.end]).map_err(ScatterError::Access)?;
        placed = piece.end;
    }
    if placed == bytes.len() { Ok(()) } else { Err(ScatterError::TooLong) }
}

/// Whether every element of `list` names memory that may be used with `access`; empty elements name none.
pub(crate) fn check(memory: &Table, pd: PdNumber, list: &[Sge], access: Access) -> Result<(), AccessError> {
    list.iter()
        .filter(|sge| sge.length > 0)
        .try_for_each(|sge| memory.resolve(sge.lkey, pd, sge.address, u64::from(sge.length), access).map(drop))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::memory::{Buffer, Region};

    fn table_of(bytes: &[u8]) -> (Table, PdNumber, u32, Arc<Buffer>) {
        let mut table = Table::new(ChaCha12Rng::seed_from_u64(7));
        let pd = table.allocate_pd();
        let buffer = Arc::new(Buffer::zeroed(bytes.len()));
        buffer.span(0, bytes.len()).unwrap().copy_in(bytes).unwrap();
        let region = Region::owned(Arc::clone(&buffer), 0, Access::LOCAL_WRITE, pd);
        let key = table.register(region).unwrap();
        (table, pd, key, buffer)
    }

    /// Every offset and length of a message over elements with boundaries anywhere, an empty one among them
    /// (scenario 16).
    #[test]
    fn boundaries_may_be_anywhere_and_elements_empty() {
        let bytes: Vec<u8> = (0..64).collect();
        let (table, pd, lkey, _buffer) = table_of(&bytes);
        let sge = |address, length| Sge { address, length, lkey };
        let list = [sge(10, 5), Sge { address: 999, length: 0, lkey: 0 }, sge(40, 1), sge(0, 7)];
        let message: Vec<u8> = [&bytes[10..15], &bytes[40..41], &bytes[0..7]].concat();
        for offset in 0..=message.len() {
            for length in 0..=message.len() - offset {
                let mut room = vec![0xaa; length];
                gather(&table, pd, &list, offset as u64, &mut room).unwrap();
                assert_eq!(room, message[offset..offset + length], "{offset}+{length}");
            }
        }
    }

    #[test]
    fn what_was_gathered_scatters_back() {
        let (table, pd, lkey, buffer) = table_of(&[0; 32]);
        let sge = |address, length| Sge { address, length, lkey };
        let list = [sge(1, 3), sge(0, 0), sge(8, 4)];
        scatter(&table, pd, &list, 2, b"xyz").unwrap();
        let mut all = [0; 32];
        buffer.span(0, 32).unwrap().copy_out(&mut all).unwrap();
        assert_eq!((&all[..4], &all[8..12]), (&b"\0\0\0x"[..], &b"yz\0\0"[..]));
        assert_eq!(scatter(&table, pd, &list, 5, b"abc"), Err(ScatterError::TooLong));
        assert_eq!(scatter(&table, pd, &[], 0, b""), Ok(()));
    }

    #[test]
    fn a_wrong_key_is_found_before_and_while_copying() {
        let (table, pd, lkey, _buffer) = table_of(&[0; 32]);
        let list = [Sge { address: 30, length: 4, lkey }];
        assert_eq!(check(&table, pd, &list, Access::empty()), Err(AccessError::OutOfRange));
        assert_eq!(gather(&table, pd, &list, 0, &mut [0; 4]), Err(AccessError::OutOfRange));
        let list = [Sge { address: 0, length: 4, lkey: lkey ^ 1 }];
        assert_eq!(scatter(&table, pd, &list, 0, &[0; 4]), Err(ScatterError::Access(AccessError::UnknownKey)));
    }
}
