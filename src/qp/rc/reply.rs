//! What a responder owes the peer, in order, and the packets that pay it.

use std::collections::VecDeque;

use super::replay::Executed;
use crate::memory::{Access, Holder, PdNumber, Table};
use crate::qp::common::Common;
use crate::qp::segment;
use crate::wire::{Aeth, Extensions, NakCode, Opcode, Position, Psn, Syndrome, emit_headers, pad_of};

/// One thing owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// An acknowledge of everything up to a PSN, or a NAK of that PSN.
    Acknowledge { psn: Psn, syndrome: Syndrome },
    /// What is left of a READ's answer.
    Read(ReadReply),
    /// An ATOMIC's answer; `is_again` as for a READ.
    Atomic { psn: Psn, original: u64, msn: u32, is_again: bool },
}

/// What is left of a READ's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadReply {
    /// The PSN of the next packet.
    pub(super) psn: Psn,
    /// The PSN of the last packet.
    pub(super) last: Psn,
    /// Whose memory it reads.
    pub(super) pd: PdNumber,
    pub(super) address: u64,
    pub(super) rkey: u32,
    /// Bytes left.
    pub(super) remaining: u32,
    /// Whether the next packet is the first of this answer.
    pub(super) is_first: bool,
    pub(super) msn: u32,
    /// Whether it was answered before: the request came again.
    pub(super) is_again: bool,
}

impl ReadReply {
    /// The answer to an ATOMIC WRITE or FLUSH: that of a READ of nothing.
    pub(super) fn empty(pd: PdNumber, psn: Psn, msn: u32) -> Self {
        Self { psn, last: psn, pd, address: 0, rkey: 0, remaining: 0, is_first: true, msn, is_again: false }
    }
}

impl Reply {
    fn psn(&self) -> Psn {
        match self {
            Self::Acknowledge { psn, .. } | Self::Atomic { psn, .. } => *psn,
            Self::Read(read) => read.psn,
        }
    }

    /// Whether it is an RNR NAK, which a sequence error of the same PSN must not hide: the peer would send all again at once.
    fn outlasts(&self, psn: Psn, syndrome: Syndrome) -> bool {
        let waits = matches!(self, Self::Acknowledge { syndrome: Syndrome::ReceiverNotReady { .. }, .. });
        waits && self.psn() == psn && syndrome == Syndrome::Nak(NakCode::SequenceError)
    }

    /// Whether it answers a READ or ATOMIC that was just executed.
    fn is_new_fetch(&self) -> bool {
        match self {
            Self::Acknowledge { .. } => false,
            Self::Read(ReadReply { is_again, .. }) | Self::Atomic { is_again, .. } => !is_again,
        }
    }
}

/// What a reply packet turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// A packet of this length.
    Packet(usize),
    /// A packet of this length, a NAK: memory that a READ was granted is gone, but the READ came again. Perhaps the
    /// network doubled it and the peer has its answer for long, so the connection goes on.
    Refused(usize),
    /// A packet of this length, a NAK that ends the connection: memory that a READ was granted is gone.
    Fatal(usize),
}

/// Replies in the order of their PSNs. Bounded: for each READ or ATOMIC that may be outstanding one answer and one answer
/// again, and an acknowledge behind each of these.
#[derive(Debug, Default)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
}

impl Replies {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether nothing is owed but an acknowledge.
    pub(super) fn are_only_acknowledge(&self) -> bool {
        matches!(self.queue.front(), Some(Reply::Acknowledge { syndrome: Syndrome::Ack { .. }, .. }) if self.queue.len() == 1)
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// How many READs and ATOMICs wait for their first answer. Repeated ones do not count: the network may have
    /// doubled them after the peer had its answer and sent the next.
    pub(super) fn new_fetches(&self) -> usize {
        self.queue.iter().filter(|reply| reply.is_new_fetch()).count()
    }

    /// Owes an acknowledge or a NAK. True when that saves a packet: of two in a row, only the one with the later PSN
    /// says anything, since each acknowledges all before it. Of two NAKs of one PSN, the one that asks to wait stays: behind a
    /// packet that no receive was there for, others that overtook each other look like a gap.
    pub(super) fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) -> bool {
        let reply = Reply::Acknowledge { psn, syndrome };
        match self.queue.back_mut() {
            Some(last @ Reply::Acknowledge { .. }) => {
                if !psn.is_before(last.psn()) && !last.outlasts(psn, syndrome) {
                    *last = reply;
                }
                true
            }
            _ => {
                self.queue.push_back(reply);
                false
            }
        }
    }

    /// Owes the answer of a request that was just executed.
    pub(super) fn push(&mut self, reply: Reply) {
        self.queue.push_back(reply);
    }

    /// Owes an answer of `executed` again: in its place by PSN, before any acknowledge of it, and instead of any other
    /// answer of it, so that a peer that asks for one READ in many pieces fills no memory. What replaces a first answer
    /// is one, or a peer that asks for each READ twice would never have too many.
    pub(super) fn repeat(&mut self, executed: &Executed, mut reply: Reply) {
        let is_of_executed = |other: &Reply| {
            let psn = other.psn();
            !matches!(other, Reply::Acknowledge { .. })
                && !psn.is_before(executed.first)
                && !executed.last.is_before(psn)
        };
        if self.queue.iter().any(|other| is_of_executed(other) && other.is_new_fetch())
            && let Reply::Read(ReadReply { is_again, .. }) | Reply::Atomic { is_again, .. } = &mut reply
        {
            *is_again = false;
        }
        self.queue.retain(|other| !is_of_executed(other));
        let from = reply.psn();
        let place = self.queue.iter().position(|other| !other.psn().is_before(from)).unwrap_or(self.queue.len());
        self.queue.insert(place, reply);
    }

    /// Writes the next packet to `room`.
    pub(super) fn poll_transmit(&mut self, common: &Common, memory: &Table, msn: u32, room: &mut [u8]) -> Option<Sent> {
        match *self.queue.front()? {
            Reply::Acknowledge { psn, syndrome } => {
                self.queue.pop_front();
                emit_acknowledge(common, psn, syndrome, msn, room).map(Sent::Packet)
            }
            Reply::Atomic { psn, original, msn, .. } => {
                self.queue.pop_front();
                let aeth = Some(Aeth { syndrome: ACK, msn });
                let extensions = Extensions { aeth, atomic_ack: Some(original), ..Extensions::default() };
                let bth = common.header(Opcode::RC_ATOMIC_ACKNOWLEDGE, psn);
                emit_headers(&bth, &extensions, room).map(Sent::Packet)
            }
            Reply::Read(read) => self.read_response(common, memory, read, room),
        }
    }

    /// The next packet of the READ answer in front.
    fn read_response(&mut self, common: &Common, memory: &Table, read: ReadReply, room: &mut [u8]) -> Option<Sent> {
        let length = read.remaining.min(common.mtu());
        let span = if length == 0 {
            None
        } else {
            let holder = Holder { pd: read.pd, qpn: common.qpn };
            match memory.resolve_remote(read.rkey, holder, read.address, u64::from(length), Access::REMOTE_READ) {
                Ok(span) => Some(span),
                Err(_) => return self.refuse_read(common, &read, room),
            }
        };
        let is_last = read.psn == read.last;
        let position = match (read.is_first, is_last) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        let carried = length as usize;
        let mut bth = common.header(segment::response_opcode(position), read.psn);
        bth.pad = pad_of(carried);
        let aeth = Some(Aeth { syndrome: ACK, msn: read.msn });
        let header = emit_headers(&bth, &Extensions { aeth, ..Extensions::default() }, room)?;
        let end = header + carried;
        if let Some(span) = span
            && span.copy_out(room.get_mut(header..end)?).is_err()
        {
            return self.refuse_read(common, &read, room);
        }
        let total = end + usize::from(bth.pad);
        room.get_mut(end..total)?.fill(0);
        self.queue.pop_front();
        if !is_last {
            self.queue.push_front(Reply::Read(ReadReply {
                psn: read.psn.plus(1),
                address: read.address.wrapping_add(u64::from(length)),
                remaining: read.remaining - length,
                is_first: false,
                ..read
            }));
        }
        Some(Sent::Packet(total))
    }

    /// NAKs the READ in front, whose memory went away after it was granted.
    fn refuse_read(&mut self, common: &Common, read: &ReadReply, room: &mut [u8]) -> Option<Sent> {
        let refused = Syndrome::Nak(NakCode::RemoteAccess);
        let length = emit_acknowledge(common, read.psn, refused, read.msn, room);
        if read.is_again {
            self.queue.pop_front();
            length.map(Sent::Refused)
        } else {
            self.queue.clear();
            length.map(Sent::Fatal)
        }
    }
}

/// An acknowledge without end-to-end credits, as the kernel's rxe sends it.
pub(super) const ACK: Syndrome = Syndrome::Ack { credits: Syndrome::NO_CREDITS };

/// Writes an acknowledge packet.
fn emit_acknowledge(common: &Common, psn: Psn, syndrome: Syndrome, msn: u32, room: &mut [u8]) -> Option<usize> {
    let bth = common.header(Opcode::RC_ACKNOWLEDGE, psn);
    let aeth = Some(Aeth { syndrome, msn });
    emit_headers(&bth, &Extensions { aeth, ..Extensions::default() }, room)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzz target `pair`: with packets out of order, and no receive posted, a peer sent 128 packets 4,000 times
    /// without ever waiting, since in each run a sequence error took the place of the RNR NAK.
    #[test]
    fn a_sequence_error_does_not_hide_an_rnr_nak() {
        let (psn, rnr) = (Psn::new(0xff_ffff), Syndrome::ReceiverNotReady { timer: 5 });
        let owed = |syndromes: &[(Psn, Syndrome)]| {
            let mut replies = Replies::default();
            for &(psn, syndrome) in syndromes {
                replies.acknowledge(psn, syndrome);
            }
            assert_eq!(replies.queue.len(), 1);
            replies.queue.pop_front().map(|reply| match reply {
                Reply::Acknowledge { psn, syndrome } => (psn, syndrome),
                other => panic!("{other:?}"),
            })
        };
        let gap = Syndrome::Nak(NakCode::SequenceError);
        assert_eq!(owed(&[(psn, rnr), (psn, gap)]), Some((psn, rnr)));
        // A receive came, and with it the turn of what followed.
        assert_eq!(owed(&[(psn, rnr), (psn.plus(1), gap)]), Some((psn.plus(1), gap)));
        let ack = Syndrome::Ack { credits: Syndrome::NO_CREDITS };
        assert_eq!(owed(&[(psn, rnr), (psn, ack)]), Some((psn, ack)));
    }
}
