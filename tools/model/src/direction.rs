//! One direction of a connection: requests from one queue pair, and what they must do at the other.

use std::collections::VecDeque;

use uroce::wire::{Placement, Selectivity};
use uroce::work::{
    Completion, CompletionKind, Flush, Operation, Payload, ReceiveRequest, Remote, SendFlags, SendRequest, Sge,
    SgeList, Status, Tag,
};

use crate::host::Area;
use crate::keys::{self, Key};
use crate::plan::Verb;
use crate::random::Random;

/// The first bytes of every area: cells of atomics, then the place that [`Verb::WriteHot`] overwrites.
const CELLS: usize = 64;
const HOT: usize = 64;
/// What every operation of a direction shares, in order.
pub(crate) const SHARED: usize = CELLS + HOT;

/// Ids of receive requests that are for one message start here; below are those of send requests: the direction, and in the low
/// 16 bits the index.
pub(crate) const RECEIVES: u64 = 1 << 32;

/// Memory of one queue pair, and what it holds before any request changes it.
pub(crate) struct End {
    pub(crate) area: Area,
    pub(crate) image: Vec<u8>,
    used: usize,
}

impl End {
    pub(crate) fn new(area: Area) -> Self {
        let image = vec![0; area.len()];
        Self { area, image, used: SHARED }
    }

    /// Bytes that requests of these lengths need at one end.
    pub(crate) fn needs(lengths: impl Iterator<Item = usize>) -> usize {
        SHARED + lengths.map(|length| length.max(8) + 40).sum::<usize>()
    }

    /// A place for `length` bytes that nothing else uses, with a gap behind it.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        let offset = self.used;
        self.used = (self.used + length + 16).next_multiple_of(8);
        offset
    }

    /// A place that holds these bytes.
    pub(crate) fn hold(&mut self, bytes: &[u8]) -> usize {
        let offset = self.place(bytes.len());
        self.area.write(offset, bytes);
        self.image[offset..offset + bytes.len()].copy_from_slice(bytes);
        offset
    }

    /// A place as a list of one to three elements, perhaps with empty ones.
    pub(crate) fn list(&self, offset: usize, length: usize, random: &mut Random) -> SgeList {
        if random.once_in(2) {
            return SgeList::from_slice(&[self.area.sge(offset, length)]);
        }
        let mut cuts = [0, random.below(length + 1), random.below(length + 1), length];
        cuts.sort_unstable();
        cuts.windows(2).map(|cut| self.area.sge(offset + cut[0], cut[1] - cut[0])).collect()
    }
}

/// A request that was posted, and what must come of it.
pub(crate) struct Op {
    pub(crate) verb: Verb,
    pub(crate) kind: CompletionKind,
    pub(crate) length: usize,
    pub(crate) is_signalled: bool,
    /// What it puts into the requester's memory.
    pub(crate) near: Option<(usize, Vec<u8>)>,
    /// What it puts into the responder's memory.
    pub(crate) far: Option<(usize, Vec<u8>)>,
    /// What the shared part of the responder's memory holds after it.
    pub(crate) shared: [u8; SHARED],
    /// What a SEND carries.
    pub(crate) sent: Vec<u8>,
    /// What the receive request that it consumes reports.
    pub(crate) message: Option<Message>,
}

/// What a receive request reports of the message that consumed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: CompletionKind,
    pub(crate) tag: Tag,
    pub(crate) is_solicited: bool,
}

impl Op {
    /// Whether a completion reports this message.
    pub(crate) fn is_received_as(&self, completion: &Completion) -> bool {
        self.message.is_some_and(|message| {
            (completion.kind, completion.tag, completion.solicited) == (message.kind, message.tag, message.is_solicited)
                && completion.byte_length == self.length as u32
        })
    }

    /// How it fails, if it does.
    pub(crate) fn failure(&self) -> Option<Status> {
        match self.verb {
            Verb::WriteUnknownKey | Verb::ReadOutOfRange | Verb::WriteStaleKey => Some(Status::RemoteAccessError),
            Verb::AtomicMisaligned => Some(Status::RemoteInvalidRequestError),
            Verb::SendUnknownKey => Some(Status::LocalProtectionError),
            _ => None,
        }
    }
}

/// The requests of a direction, and the receive requests for them.
#[derive(Default)]
pub(crate) struct Direction {
    pub(crate) ops: Vec<Op>,
    shared: Option<[u8; SHARED]>,
    /// Not posted yet.
    pub(crate) receives: VecDeque<ReceiveRequest>,
    pub(crate) receives_posted: usize,
    messages: u64,
    /// Whether its messages may consume any receive.
    pub(crate) is_pooled: bool,
    /// Keys that its sender opened for the other end.
    pub(crate) keys: Vec<Key>,
    /// The key that the request made last opens, once it is posted.
    opening: Option<Key>,
}

/// The key that a request is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    None,
    /// Of a window or fast region that is to be opened.
    Allocated(u32),
    /// One that the peer opened.
    Opened(Key),
}

impl Subject {
    fn opened(self) -> Key {
        let Self::Opened(key) = self else { unreachable!("what needs a key is posted with one") };
        key
    }
}

/// What a request is made of.
pub(crate) struct Made {
    pub(crate) operation: Operation,
    pub(crate) payload: Payload,
    pub(crate) near: Option<(usize, Vec<u8>)>,
    pub(crate) far: Option<(usize, Vec<u8>)>,
    pub(crate) sent: Vec<u8>,
}

impl Direction {
    pub(crate) fn new(is_pooled: bool) -> Self {
        Self { is_pooled, ..Self::default() }
    }

    /// The next request of this verb; [`posted`](Self::posted) when the queue pair took it.
    pub(crate) fn make(
        &mut self,
        verb: Verb,
        length: usize,
        random: &mut Random,
        ends: (&mut End, &mut End),
        counter: &Area,
        key: Subject,
    ) -> (SendRequest, Op, Option<ReceiveRequest>) {
        let (near, far) = ends;
        let before = self.shared.unwrap_or([0; SHARED]);
        let mut shared = before;
        let immediate = random.bits() as u32;
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, !random.once_in(4) || verb.opens());
        flags.set(SendFlags::FENCE, random.once_in(8));
        flags.set(SendFlags::SOLICITED, random.once_in(8));
        let made = match verb {
            Verb::Read => read(length, random, near, far),
            Verb::CompareAndSwap | Verb::FetchAndAdd => atomic(verb, random, near, far, &mut shared),
            Verb::Count => {
                // What it finds is checked for all connections together.
                let target = near.place(8);
                let operation = Operation::FetchAndAdd { remote: counter.remote(0), add: 1 };
                let payload = Payload::Memory(near.list(target, 8, random));
                Made { operation, payload, near: Some((target, Vec::new())), far: None, sent: Vec::new() }
            }
            Verb::AtomicWrite => atomic_write(random, near, far, &mut shared),
            Verb::Flush => flush(length, random, far),
            _ if verb.opens() => {
                let Subject::Allocated(allocated) = key else { unreachable!("what opens has something to open") };
                let (made, key) = keys::open(verb, allocated, length, self.ops.len(), near);
                self.opening = Some(key);
                made
            }
            Verb::WriteThroughKey | Verb::WriteStaleKey => keys::write(&key.opened(), random, near, far),
            _ if verb.is_bad() => bad(verb, length, near, far),
            _ => outbound(verb, length, immediate, random, (near, far, self.is_pooled), &mut shared),
        };
        let message = message(verb, immediate, flags, key);
        let made = match message {
            // A SEND that also closes a key.
            Some(Message { tag: Tag::Invalidated(rkey), .. }) => {
                Made { operation: Operation::SendInvalidate(rkey), ..made }
            }
            _ => made,
        };
        let id = RECEIVES + self.messages;
        let receive = message.filter(|_| !self.is_pooled).map(|message| match (message.kind, &made.far) {
            (CompletionKind::Receive, Some((offset, bytes))) => {
                let length = bytes.len() + random.below(9);
                ReceiveRequest { id, sges: far.list(*offset, length, random) }
            }
            _ => ReceiveRequest::new(id, &[]),
        });
        let Made { operation, payload, near, far, sent } = made;
        let length = payload.length() as usize;
        let is_signalled = flags.contains(SendFlags::SIGNALED);
        let kind = CompletionKind::from(&operation);
        let op = Op { verb, kind, length, is_signalled, near, far, shared, sent, message };
        let request = SendRequest {
            id: self.ops.len() as u64,
            operation,
            payload,
            flags: SendFlags::empty(),
            srq: None,
            destination: None,
        };
        (request.with_flags(flags), op, receive)
    }

    /// The queue pair took the request.
    pub(crate) fn posted(&mut self, op: Op, receive: Option<ReceiveRequest>) {
        self.shared = Some(op.shared);
        if op.verb.opens() {
            self.keys.extend(self.opening.take());
        }
        self.ops.push(op);
        self.messages += u64::from(receive.is_some());
        self.receives.extend(receive);
    }
}

/// What is received of a request, if anything: what fails consumes nothing.
fn message(verb: Verb, immediate: u32, flags: SendFlags, key: Subject) -> Option<Message> {
    use CompletionKind::{Receive, ReceiveWriteImmediate};
    let (kind, tag) = match verb {
        Verb::Send => (Receive, Tag::None),
        Verb::SendImmediate => (Receive, Tag::Immediate(immediate)),
        Verb::SendInvalidate => (Receive, Tag::Invalidated(key.opened().rkey)),
        Verb::WriteImmediate => (ReceiveWriteImmediate, Tag::Immediate(immediate)),
        _ => return None,
    };
    Some(Message { kind, tag, is_solicited: flags.contains(SendFlags::SOLICITED) })
}

/// A SEND or WRITE.
fn outbound(
    verb: Verb,
    length: usize,
    immediate: u32,
    random: &mut Random,
    (near, far, is_pooled): (&mut End, &mut End, bool),
    shared: &mut [u8; SHARED],
) -> Made {
    let length = if verb == Verb::WriteHot { length.min(HOT) } else { length };
    let bytes = random.bytes(length);
    let payload = if length <= 512 && random.once_in(3) {
        Payload::Inline(bytes.as_slice().into())
    } else {
        let source = near.hold(&bytes);
        Payload::Memory(near.list(source, length, random))
    };
    let is_send = matches!(verb, Verb::Send | Verb::SendImmediate | Verb::SendInvalidate);
    let sent = if is_send { bytes.clone() } else { Vec::new() };
    let (target, placed) = if is_send && is_pooled {
        (0, None)
    } else if verb == Verb::WriteHot {
        shared[CELLS..CELLS + length].copy_from_slice(&bytes);
        (CELLS, None)
    } else {
        // A receive request may be 8 bytes longer.
        let target = far.place(length + 8);
        (target, Some((target, bytes)))
    };
    let remote = far.area.remote(target);
    let operation = match verb {
        Verb::Send => Operation::Send,
        Verb::SendImmediate => Operation::SendImmediate(immediate),
        Verb::WriteImmediate => Operation::WriteImmediate(remote, immediate),
        _ => Operation::Write(remote),
    };
    Made { operation, payload, near: None, far: placed, sent }
}

fn read(length: usize, random: &mut Random, near: &mut End, far: &mut End) -> Made {
    let bytes = random.bytes(length);
    let source = far.hold(&bytes);
    let target = near.place(length);
    let payload = Payload::Memory(near.list(target, length, random));
    Made {
        operation: Operation::Read(far.area.remote(source)),
        payload,
        near: Some((target, bytes)),
        far: None,
        sent: Vec::new(),
    }
}

/// What was in the cell tells whether every atomic before was executed, once.
fn atomic(verb: Verb, random: &mut Random, near: &mut End, far: &End, shared: &mut [u8; SHARED]) -> Made {
    let cell = 8 * random.below(CELLS / 8);
    let place = &mut shared[cell..cell + 8];
    let before = place.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let remote = far.area.remote(cell);
    let (operation, after) = if verb == Verb::FetchAndAdd {
        let add = random.bits();
        (Operation::FetchAndAdd { remote, add }, before.wrapping_add(add))
    } else {
        let compare = if random.once_in(2) { before } else { random.bits() };
        let swap = random.bits();
        (Operation::CompareAndSwap { remote, compare, swap }, if compare == before { swap } else { before })
    };
    place.copy_from_slice(&after.to_le_bytes());
    let target = near.place(8);
    let payload = Payload::Memory(near.list(target, 8, random));
    Made { operation, payload, near: Some((target, before.to_le_bytes().to_vec())), far: None, sent: Vec::new() }
}

/// Eight bytes at once, which what comes after finds there.
fn atomic_write(random: &mut Random, near: &mut End, far: &End, shared: &mut [u8; SHARED]) -> Made {
    let cell = 8 * random.below(CELLS / 8);
    let bytes = random.bytes(8);
    shared[cell..cell + 8].copy_from_slice(&bytes);
    let source = near.hold(&bytes);
    let payload = Payload::Memory(near.list(source, 8, random));
    Made { operation: Operation::AtomicWrite(far.area.remote(cell)), payload, near: None, far: None, sent: Vec::new() }
}

/// It changes nothing.
fn flush(length: usize, random: &mut Random, far: &End) -> Made {
    let length = length.min(far.area.len()) as u32;
    let selectivity = random.pick(&[Selectivity::Range, Selectivity::Region]);
    let flush = Flush { remote: far.area.remote(0), length, placement: Placement::GLOBAL_VISIBILITY, selectivity };
    let payload = Payload::Memory(SgeList::new());
    Made { operation: Operation::Flush(flush), payload, near: None, far: None, sent: Vec::new() }
}

/// What must fail, and change nothing.
fn bad(verb: Verb, length: usize, near: &mut End, far: &mut End) -> Made {
    let length = length.max(1);
    let place = near.place(length);
    let mut sge = near.area.sge(place, length);
    let remote = far.area.remote(0);
    let unknown = Remote { rkey: 0, ..remote };
    let operation = match verb {
        Verb::WriteUnknownKey => Operation::Write(unknown),
        Verb::ReadOutOfRange => Operation::Read(far.area.remote(far.area.len() - length + 1)),
        Verb::AtomicMisaligned => {
            sge.length = 8;
            Operation::FetchAndAdd { remote: far.area.remote(4), add: 1 }
        }
        _ => {
            sge = Sge { lkey: 0, ..sge };
            Operation::Send
        }
    };
    Made { operation, payload: Payload::Memory(SgeList::from_slice(&[sge])), near: None, far: None, sent: Vec::new() }
}
