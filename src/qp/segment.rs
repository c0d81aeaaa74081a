//! A message cut into packets, and the opcode of each.

use crate::wire::{Opcode, Position};
use crate::work::Operation;

/// Packets of a message of `length` bytes: at least one.
pub(crate) fn packets(length: u32, mtu: u32) -> u32 {
    length.div_ceil(mtu).max(1)
}

/// Where in its message packet `index` of `packets` stands.
pub(crate) fn position(index: u32, packets: u32) -> Position {
    match (index == 0, index + 1 == packets) {
        (true, true) => Position::Only,
        (true, false) => Position::First,
        (false, true) => Position::Last,
        (false, false) => Position::Middle,
    }
}

/// The opcode of a request's packet at `position`, on RC (see [`Opcode::of`] for other transports); `None` when it has no
/// packet. A request that is answered is always one packet.
pub(crate) fn request_opcode(operation: &Operation, position: Position) -> Option<Opcode> {
    use Position::{First, Last, Middle, Only};
    Some(match (operation, position) {
        (Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_), First) => Opcode::RC_SEND_FIRST,
        (Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_), Middle) => {
            Opcode::RC_SEND_MIDDLE
        }
        (Operation::Send, Last) => Opcode::RC_SEND_LAST,
        (Operation::Send, Only) => Opcode::RC_SEND_ONLY,
        (Operation::SendImmediate(_), Last) => Opcode::RC_SEND_LAST_IMM,
        (Operation::SendImmediate(_), Only) => Opcode::RC_SEND_ONLY_IMM,
        (Operation::SendInvalidate(_), Last) => Opcode::RC_SEND_LAST_INVALIDATE,
        (Operation::SendInvalidate(_), Only) => Opcode::RC_SEND_ONLY_INVALIDATE,
        (Operation::Write(_) | Operation::WriteImmediate(..), First) => Opcode::RC_WRITE_FIRST,
        (Operation::Write(_) | Operation::WriteImmediate(..), Middle) => Opcode::RC_WRITE_MIDDLE,
        (Operation::Write(_), Last) => Opcode::RC_WRITE_LAST,
        (Operation::Write(_), Only) => Opcode::RC_WRITE_ONLY,
        (Operation::WriteImmediate(..), Last) => Opcode::RC_WRITE_LAST_IMM,
        (Operation::WriteImmediate(..), Only) => Opcode::RC_WRITE_ONLY_IMM,
        (Operation::Read(_), _) => Opcode::RC_READ_REQUEST,
        (Operation::CompareAndSwap { .. }, _) => Opcode::RC_COMPARE_SWAP,
        (Operation::FetchAndAdd { .. }, _) => Opcode::RC_FETCH_ADD,
        (Operation::AtomicWrite(_), _) => Opcode::RC_ATOMIC_WRITE,
        (Operation::Flush(_), _) => Opcode::RC_FLUSH,
        (Operation::BindWindow(_) | Operation::FastRegister(_) | Operation::LocalInvalidate(_), _) => return None,
    })
}

/// The opcode of a READ response's packet at `position`.
pub(crate) fn response_opcode(position: Position) -> Opcode {
    match position {
        Position::First => Opcode::RC_READ_RESPONSE_FIRST,
        Position::Middle => Opcode::RC_READ_RESPONSE_MIDDLE,
        Position::Last => Opcode::RC_READ_RESPONSE_LAST,
        Position::Only => Opcode::RC_READ_RESPONSE_ONLY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_nothing_takes_a_packet() {
        for (length, expected) in [(0, 1), (1, 1), (1024, 1), (1025, 2), (4096, 4), (1 << 31, 1 << 21)] {
            assert_eq!(packets(length, 1024), expected, "{length}");
        }
    }

    #[test]
    fn the_ends_of_a_message_are_marked() {
        assert_eq!(position(0, 1), Position::Only);
        let of_three: Vec<_> = (0..3).map(|index| position(index, 3)).collect();
        assert_eq!(of_three, [Position::First, Position::Middle, Position::Last]);
    }

    #[test]
    fn what_comes_along_travels_with_the_last_packet() {
        let invalidate = Operation::SendInvalidate(1);
        assert_eq!(request_opcode(&invalidate, Position::First), Some(Opcode::RC_SEND_FIRST));
        assert_eq!(request_opcode(&invalidate, Position::Last), Some(Opcode::RC_SEND_LAST_INVALIDATE));
        assert_eq!(request_opcode(&invalidate, Position::Only), Some(Opcode::RC_SEND_ONLY_INVALIDATE));
    }
}
