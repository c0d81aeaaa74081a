//! The send queue: requests from posting to completion, and where each stands in PSN space.

use std::collections::VecDeque;

use crate::qp::segment;
use crate::wire::Psn;
use crate::work::{SendRequest, Status};

/// A posted request.
#[derive(Debug)]
pub(super) struct Wqe {
    pub(super) request: SendRequest,
    /// Bytes of its message.
    pub(super) length: u32,
    /// PSNs that it takes: its own packets, or those of the READ response; none when it is carried out here.
    pub(super) packets: u32,
    /// Set when its first packet is made, or when it is carried out here.
    pub(super) begun: Option<Begun>,
    /// Set when it turned out that it cannot be sent: it fails with this once all before it are done.
    pub(super) refused: Option<Status>,
}

/// Where a request that was begun stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    /// The PSN of its first packet.
    pub(super) first: Psn,
    /// The cost (see [`SendQueue::cost`]) of all that came before it.
    position: u64,
}

impl Wqe {
    /// The PSN of its last packet.
    pub(super) fn last(&self, begun: Begun) -> Psn {
        begun.first.plus(self.packets).minus(1)
    }
}

/// A place in the send queue: packet `packet` of request `index`. One past the end: everything is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) index: usize,
    pub(super) packet: u32,
}

/// Requests in the order they were posted, the oldest unfinished one in front.
#[derive(Debug)]
pub(super) struct SendQueue {
    ring: VecDeque<Wqe>,
    mtu: u32,
    /// Where the next packet comes from.
    pub(super) cursor: Cursor,
    /// The oldest PSN that is not acknowledged.
    pub(super) unacknowledged: Psn,
    /// One past the newest PSN ever sent.
    pub(super) sent_end: Psn,
    /// The PSN of the next request to begin.
    next: Psn,
    /// The cost of all requests begun so far.
    position: u64,
}

impl SendQueue {
    /// What a packet costs the peer's buffer beside its payload: headers and the kernel's bookkeeping. Measured on Linux
    /// 6.18: 832 bytes for a packet of 40 that comes alone, nearly nothing for one in a run.
    pub(super) const PACKET_COST: u64 = 512;

    pub(super) fn new(first: Psn, mtu: u32) -> Self {
        Self {
            ring: VecDeque::new(),
            mtu,
            cursor: Cursor::default(),
            unacknowledged: first,
            sent_end: first,
            next: first,
            position: 0,
        }
    }

    /// The PSN of the next request to begin.
    pub(super) fn next_psn(&self) -> Psn {
        self.next
    }

    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Adds a request whose message has `length` bytes.
    pub(super) fn push(&mut self, request: SendRequest, length: u32) {
        let packets = if request.operation.is_local() { 0 } else { segment::packets(length, self.mtu) };
        self.ring.push_back(Wqe { request, length, packets, begun: None, refused: None });
    }

    /// The oldest unfinished request.
    pub(super) fn front(&self) -> Option<&Wqe> {
        self.ring.front()
    }

    /// The request at `index`.
    pub(super) fn get(&self, index: usize) -> Option<&Wqe> {
        self.ring.get(index)
    }

    /// Notes that the request at `index` cannot be sent (any more).
    pub(super) fn refuse(&mut self, index: usize, status: Status) {
        if let Some(wqe) = self.ring.get_mut(index) {
            wqe.refused = Some(status);
        }
    }

    /// Whether a request before `index` waits for an answer of its own.
    pub(super) fn awaits_answer_before(&self, index: usize) -> bool {
        self.ring.iter().take(index).any(|wqe| wqe.request.operation.is_answered())
    }

    /// Gives the request at `index`, the first that was not begun, its PSNs.
    pub(super) fn begin(&mut self, index: usize) -> Option<Begun> {
        let wqe = self.ring.get_mut(index)?;
        if wqe.begun.is_none() {
            wqe.begun = Some(Begun { first: self.next, position: self.position });
            self.next = self.next.plus(wqe.packets);
            self.position += Self::cost(wqe, wqe.packets, self.mtu);
        }
        wqe.begun
    }

    /// The newest request that was begun and has packets, with its index.
    pub(super) fn newest_begun(&self) -> Option<(usize, &Wqe)> {
        let begun = self.ring.partition_point(|wqe| wqe.begun.is_some());
        let index = self.ring.range(..begun).rposition(|wqe| wqe.packets > 0)?;
        Some((index, self.ring.get(index)?))
    }

    /// Whether a request was begun and is not finished.
    pub(super) fn is_busy(&self) -> bool {
        self.front().is_some_and(|wqe| wqe.begun.is_some())
    }

    /// The PSN at the cursor.
    pub(super) fn cursor_psn(&self) -> Psn {
        match self.get(self.cursor.index).and_then(|wqe| wqe.begun) {
            Some(begun) => begun.first.plus(self.cursor.packet),
            None => self.next,
        }
    }

    /// Moves the cursor past `count` packets.
    pub(super) fn advance(&mut self, count: u32) {
        let packets = self.get(self.cursor.index).map_or(0, |wqe| wqe.packets);
        self.cursor.packet += count;
        if self.cursor.packet >= packets {
            self.cursor = Cursor { index: self.cursor.index + 1, packet: 0 };
        }
        let reached = self.cursor_psn();
        if self.sent_end.is_before(reached) {
            self.sent_end = reached;
        }
    }

    /// Moves the cursor back to the oldest packet that is not acknowledged.
    pub(super) fn rewind(&mut self) {
        self.cursor = self.oldest();
    }

    /// The place of the oldest packet that is not acknowledged.
    pub(super) fn oldest(&self) -> Cursor {
        let begun = self.front().and_then(|wqe| wqe.begun);
        let packet = begun.map_or(0, |begun| self.unacknowledged.distance(begun.first).cast_unsigned());
        Cursor { index: 0, packet }
    }

    /// Notes that everything before `psn`, a PSN of the front request, is acknowledged.
    pub(super) fn acknowledge_to(&mut self, psn: Psn) {
        self.unacknowledged = psn;
        let reached = self.oldest();
        if self.cursor.index == 0 && self.cursor.packet < reached.packet {
            // The answer is to packets sent before the cursor went back: no need to send them again.
            self.cursor = reached;
        }
    }

    /// Takes the front request out; all its packets are acknowledged.
    pub(super) fn pop(&mut self) -> Option<Wqe> {
        let wqe = self.ring.pop_front()?;
        if let Some(begun) = wqe.begun {
            self.unacknowledged = wqe.last(begun).plus(1);
        }
        self.cursor = match self.cursor.index.checked_sub(1) {
            Some(index) => Cursor { index, packet: self.cursor.packet },
            None => Cursor::default(),
        };
        Some(wqe)
    }

    /// What the first `packets` packets of `wqe` cost: bytes that may lie in the peer's buffer, or in ours for a READ.
    fn cost(wqe: &Wqe, packets: u32, mtu: u32) -> u64 {
        let bytes = (u64::from(packets) * u64::from(mtu)).min(u64::from(wqe.length));
        bytes + u64::from(packets) * Self::PACKET_COST
    }

    /// The cost of everything before `cursor`.
    fn position_of(&self, cursor: Cursor) -> u64 {
        match self.get(cursor.index).and_then(|wqe| Some((wqe, wqe.begun?))) {
            Some((wqe, begun)) => begun.position + Self::cost(wqe, cursor.packet, self.mtu),
            None => self.position,
        }
    }

    /// The cost of everything that was acknowledged: grows, and never shrinks.
    pub(super) fn acknowledged(&self) -> u64 {
        self.position_of(self.oldest())
    }

    /// The cost of what was sent and is not acknowledged.
    pub(super) fn in_flight(&self) -> u64 {
        self.position_of(self.cursor).saturating_sub(self.acknowledged())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Operation, Sge};

    fn queue_of(lengths: &[u32]) -> SendQueue {
        let mut queue = SendQueue::new(Psn::new(0xff_fffe), 1024);
        for (id, &length) in lengths.iter().enumerate() {
            let sge = Sge { address: 0, length, lkey: 1 };
            queue.push(SendRequest::new(id as u64, Operation::Send, &[sge]), length);
        }
        queue
    }

    #[test]
    fn requests_take_consecutive_psns_across_the_wrap() {
        let mut queue = queue_of(&[3000, 0, 1]);
        let firsts: Vec<_> = (0..3).map(|index| queue.begin(index).unwrap().first.value()).collect();
        assert_eq!(firsts, [0xff_fffe, 1, 2]);
        assert_eq!(queue.begin(0).unwrap().first.value(), 0xff_fffe, "beginning again changes nothing");
    }

    #[test]
    fn what_is_in_flight_follows_cursor_and_acknowledges() {
        let mut queue = queue_of(&[3000, 10]);
        queue.begin(0);
        queue.advance(1);
        queue.advance(1);
        assert_eq!(queue.in_flight(), 2048 + 2 * SendQueue::PACKET_COST);
        queue.acknowledge_to(Psn::new(0xff_ffff));
        assert_eq!(queue.in_flight(), 1024 + SendQueue::PACKET_COST);
        queue.rewind();
        assert_eq!((queue.in_flight(), queue.cursor_psn().value()), (0, 0xff_ffff));
        queue.acknowledge_to(Psn::new(0));
        assert_eq!(queue.cursor_psn().value(), 0, "an acknowledge overtakes a cursor that went back");
        queue.advance(1);
        assert_eq!(queue.cursor, Cursor { index: 1, packet: 0 });
        assert_eq!(queue.pop().map(|wqe| wqe.request.id), Some(0));
        assert_eq!((queue.in_flight(), queue.cursor), (0, Cursor::default()));
        assert_eq!(queue.acknowledged(), 3000 + 3 * SendQueue::PACKET_COST);
    }
}
