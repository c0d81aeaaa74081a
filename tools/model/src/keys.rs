//! Keys that a program opens for its peer with a work request: type 2B windows and fast regions. The peer writes through an
//! open key once, and closes it with SEND with invalidate; from then on it is stale.

use uroce::memory::{Access, FastRegister, WindowBind, next_key};
use uroce::work::{Completion, Operation, Payload, SgeList, Status};

use crate::direction::{End, Made};
use crate::plan::Verb;
use crate::random::Random;

/// The most that a key opens: a page.
const MAX: usize = 4096;

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The peer did nothing with it.
    Unused,
    /// The peer wrote through it.
    Written,
    /// The peer invalidated it.
    Stale,
}

/// A key that the sender of a direction opens for the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) rkey: u32,
    /// Which request of the direction opens it.
    opened_by: usize,
    offset: usize,
    length: usize,
    pub(crate) state: Use,
}

/// The key that a request of the peer can be for, once the one that opens it is known to be done.
pub(crate) fn choose(keys: &[Key], sends: &[Completion], verb: Verb) -> Option<usize> {
    let is_open =
        |key: &Key| sends.iter().any(|done| done.id == key.opened_by as u64 && done.status == Status::Success);
    keys.iter().position(|key| {
        let fits = match verb {
            Verb::WriteThroughKey => key.state == Use::Unused,
            Verb::SendInvalidate => key.state != Use::Stale,
            _ => key.state == Use::Stale,
        };
        fits && is_open(key)
    })
}

/// The request that opens a key to `length` bytes; `allocated` is the key of the window or fast region as it is.
pub(crate) fn open(verb: Verb, allocated: u32, length: usize, request: usize, near: &mut End) -> (Made, Key) {
    let length = length.clamp(1, MAX);
    let offset = near.place(length);
    let rkey = next_key(allocated);
    let sge = near.area.sge(offset, length);
    let (lkey, address, length_of) = (sge.lkey, sge.address, length as u64);
    let operation = if verb == Verb::OpenWindow {
        let access = Access::REMOTE;
        Operation::BindWindow(WindowBind { window: allocated, rkey, lkey, address, length: length_of, access })
    } else {
        let access = Access::LOCAL_WRITE | Access::REMOTE;
        Operation::FastRegister(FastRegister { key: rkey, lkey, address, length: length_of, iova: address, access })
    };
    let made = Made { operation, payload: Payload::Memory(SgeList::new()), near: None, far: None, sent: Vec::new() };
    (made, Key { rkey, opened_by: request, offset, length, state: Use::Unused })
}

/// A WRITE of all that a key opens; through a stale one it changes nothing.
pub(crate) fn write(key: &Key, random: &mut Random, near: &mut End, far: &End) -> Made {
    let bytes = random.bytes(key.length);
    let source = near.hold(&bytes);
    let payload = Payload::Memory(near.list(source, key.length, random));
    let remote = uroce::work::Remote { rkey: key.rkey, ..far.area.remote(key.offset) };
    let placed = (key.state != Use::Stale).then_some((key.offset, bytes));
    Made { operation: Operation::Write(remote), payload, near: None, far: placed, sent: Vec::new() }
}
