//! The sending half: posted requests become packets.

use std::collections::VecDeque;

use super::inflight::{Cursor, SendQueue, Wqe};
use super::request::{self, Cut};
use super::retry::Retry;
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, Event};
use crate::memory::Access;
use crate::qp::common::{Common, Outcome, Surroundings};
use crate::qp::gather;
use crate::qp::timer::Timer;
use crate::qp::{Attributes, State};
use crate::time::Instant;
use crate::wire::Psn;
use crate::work::{Completion, CompletionKind, Operation, Payload, SendFlags, SendRequest, Status};

/// What the peer is asked: the send queue and all that is known of its way.
///
/// Inputs: [`post`](Self::post), [`on_timeout`](Self::on_timeout), and `on_response` (in `completer.rs`);
/// output: [`poll_transmit`](Self::poll_transmit).
#[derive(Debug)]
pub(crate) struct Requester {
    pub(super) queue: SendQueue,
    pub(super) retry: Retry,
    /// The last PSNs of READ pieces and ATOMICs that were sent and not answered, at most `max_rd_atomic`.
    pub(super) fetches: VecDeque<Psn>,
    /// The PSN up to which a gap in the answers was acted on; only progress beyond it makes another gap news.
    pub(super) rewound_for: Option<Psn>,
    /// The newest packet is to be sent again, to learn whether the tail was lost.
    probe_due: bool,
    /// The cost sent since an acknowledge was last asked for.
    unasked: u64,
    /// A loss was seen since the endpoint last asked.
    lost: bool,
    /// The program waits for the event that the queue is drained.
    drain_pending: bool,
}

/// What the packet at the cursor is.
#[derive(Clone, Copy, Debug)]
struct Next {
    cursor: Cursor,
    /// PSNs that it takes: more than one for a READ.
    psns: u32,
    /// What it costs of the window.
    cost: u64,
}

impl Requester {
    /// An acknowledge is asked for at least as often as this much was sent, so that the window keeps moving.
    const ASK_EVERY: u64 = 60 * 1024;
    /// Bytes that one READ request asks for at most, whatever the message: its answer is not paced by
    /// acknowledges, and must fit the receive buffer of a process without privilege.
    const READ_PIECE: u32 = 64 * 1024;

    pub(crate) fn new(attributes: &Attributes, mtu: u32) -> Self {
        Self {
            queue: SendQueue::new(attributes.send_psn.unwrap_or_default(), mtu),
            retry: Retry::new(attributes),
            fetches: VecDeque::new(),
            rewound_for: None,
            probe_due: false,
            unasked: 0,
            lost: false,
            drain_pending: false,
        }
    }

    /// Takes over attributes that changed while the connection lives.
    pub(crate) fn configure(&mut self, attributes: &Attributes) {
        self.retry.configure(attributes);
    }

    /// Asks for an event when what was begun is finished.
    pub(crate) fn drain(&mut self) {
        self.drain_pending = true;
    }

    /// The cost of what was sent and is not acknowledged.
    pub(crate) fn in_flight(&self) -> u64 {
        self.queue.in_flight()
    }

    /// The cost of what was acknowledged so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.queue.acknowledged()
    }

    /// Whether a loss was seen since the last call.
    pub(crate) fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    /// When the next timer fires.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.retry.timers.next()
    }

    /// Adds a request to the send queue.
    pub(crate) fn post(&mut self, common: &Common, request: SendRequest) -> Result<()> {
        let length = request::check(common, &request)?;
        let limit = common.capacity.max_send_wr as usize;
        if self.queue.len() >= limit {
            return Err(Error::Full { what: "the send queue", limit });
        }
        self.queue.push(request, length);
        Ok(())
    }

    /// Whether there is a packet to send, the window of `room` bytes permitting.
    pub(crate) fn wants_transmit(&self, common: &Common, room: u64) -> bool {
        self.probe_due || self.next(common, self.queue.cursor, room).is_some()
    }

    /// Whether only a window of `room` bytes holds the next packet back.
    pub(crate) fn is_held_by_window(&self, common: &Common, room: u64) -> bool {
        self.next(common, self.queue.cursor, u64::MAX).is_some_and(|next| !self.fits(&next, room))
    }

    /// The next packet, written to `room`; its length without the ICRC. `window` is what may still be sent to the
    /// peer, by all queue pairs together.
    pub(crate) fn poll_transmit(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        window: u64,
        room: &mut [u8],
    ) -> Option<usize> {
        if std::mem::take(&mut self.probe_due)
            && let Some(next) = self.newest()
        {
            common.counters.tail_probes += 1;
            return self.emit(common, around, next, true, room);
        }
        let next = self.next(common, self.queue.cursor, window)?;
        if !self.begin(common, around, next.cursor.index) {
            return None;
        }
        let after = self.after(&next);
        let window_after = window.saturating_sub(next.cost);
        self.unasked += next.cost;
        let asks = self.unasked >= Self::ASK_EVERY || self.next(common, after, window_after).is_none();
        let length = self.emit(common, around, next, asks, room)?;
        self.queue.advance(next.psns);
        if asks {
            self.unasked = 0;
        }
        Some(length)
    }

    /// What the packet at `cursor` is, when it may be sent now.
    fn next(&self, common: &Common, cursor: Cursor, window: u64) -> Option<Next> {
        if self.retry.waits_for_receiver() {
            return None;
        }
        let wqe = self.queue.get(cursor.index).filter(|wqe| wqe.refused.is_none())?;
        match common.state {
            State::ReadyToSend => {}
            State::SendQueueDrained if wqe.begun.is_some() => {}
            _ => return None,
        }
        let next = self.at(common, cursor, wqe);
        let operation = &wqe.request.operation;
        // A depth of zero refuses posting; what was posted before it became zero must not wait for ever.
        let depth = usize::from(common.attributes.max_rd_atomic.unwrap_or(0)).max(1);
        if operation.fetches() && self.fetches.len() >= depth {
            return None;
        }
        if wqe.begun.is_none()
            && wqe.request.flags.contains(SendFlags::FENCE)
            && self.queue.fetches_before(cursor.index)
        {
            return None;
        }
        self.fits(&next, window).then_some(next)
    }

    /// Whether the window lets the packet go. A queue pair with nothing in flight may always send one, or peers
    /// that stopped answering the others could stop it.
    fn fits(&self, next: &Next, window: u64) -> bool {
        next.cost <= window || (self.queue.cursor == next.cursor && self.queue.in_flight() == 0)
    }

    /// The packet at `cursor`, which is one of `wqe`.
    fn at(&self, common: &Common, cursor: Cursor, wqe: &Wqe) -> Next {
        let mtu = common.mtu();
        let psns = match wqe.request.operation {
            Operation::Read(_) => {
                // Pieces have fixed borders, so that a retry never asks for more than the request it repeats.
                let piece = Self::READ_PIECE / mtu;
                (piece - cursor.packet % piece).min(wqe.packets - cursor.packet)
            }
            _ => 1,
        };
        let rest = u64::from(wqe.length).saturating_sub(u64::from(cursor.packet) * u64::from(mtu));
        let bytes = rest.min(u64::from(psns) * u64::from(mtu));
        Next { cursor, psns, cost: bytes + u64::from(psns) * SendQueue::PACKET_COST }
    }

    /// The place after `next`.
    fn after(&self, next: &Next) -> Cursor {
        let packets = self.queue.get(next.cursor.index).map_or(0, |wqe| wqe.packets);
        let packet = next.cursor.packet + next.psns;
        if packet >= packets {
            Cursor { index: next.cursor.index + 1, packet: 0 }
        } else {
            Cursor { packet, ..next.cursor }
        }
    }

    /// The newest packet that was sent, when it is one of a SEND or WRITE.
    fn newest(&self) -> Option<Next> {
        let (index, wqe) = self.queue.newest_begun()?;
        let begun = wqe.begun?;
        let packet = u32::try_from(self.queue.sent_end.minus(1).distance(begun.first)).ok()?;
        let is_answered_by_ack = !wqe.request.operation.fetches() && packet < wqe.packets;
        is_answered_by_ack.then_some(Next { cursor: Cursor { index, packet }, psns: 1, cost: 0 })
    }

    /// Gives the request its PSNs, when it has none; false when it cannot be sent at all.
    fn begin(&mut self, common: &Common, around: &Surroundings<'_>, index: usize) -> bool {
        let Some(wqe) = self.queue.get(index) else { return false };
        if wqe.begun.is_some() {
            return true;
        }
        if let Payload::Memory(list) = &wqe.request.payload {
            let access = if wqe.request.operation.fetches() { Access::LOCAL_WRITE } else { Access::empty() };
            if gather::check(around.memory, common.pd, list, access).is_err() {
                self.queue.refuse(index, Status::LocalProtectionError);
                return false;
            }
        }
        self.queue.begin(index);
        true
    }

    /// Writes the packet; `None` when its request cannot be sent.
    fn emit(
        &mut self,
        common: &mut Common,
        around: &Surroundings<'_>,
        next: Next,
        asks: bool,
        room: &mut [u8],
    ) -> Option<usize> {
        let wqe = self.queue.get(next.cursor.index)?;
        let psn = wqe.begun?.first.plus(next.cursor.packet);
        let fetches = wqe.request.operation.fetches();
        let cut = Cut { packet: next.cursor.packet, psns: next.psns, psn, asks };
        match request::emit(common, around.memory, wqe, &cut, room) {
            Ok(length) => {
                self.note_sent(common, around.now, psn, next, fetches);
                Some(length)
            }
            Err(status) => {
                self.queue.refuse(next.cursor.index, status);
                None
            }
        }
    }

    /// Counts a packet and starts what waits for its answer.
    fn note_sent(&mut self, common: &mut Common, now: Instant, psn: Psn, next: Next, fetches: bool) {
        common.counters.sent_pkts += 1;
        let is_again = psn.is_before(self.queue.sent_end);
        common.counters.retransmitted_pkts += u64::from(is_again);
        if fetches {
            self.fetches.push_back(psn.plus(next.psns - 1));
        }
        self.retry.on_sent(now, psn, is_again);
    }

    /// Goes back to the oldest packet that is not acknowledged. While an RNR wait lasts the cursor is there already.
    pub(super) fn rewind(&mut self, common: &mut Common, now: Instant) {
        if !self.queue.is_busy() || self.retry.waits_for_receiver() {
            return;
        }
        common.counters.completer_retry_err += 1;
        self.lost = true;
        self.restart(now);
    }

    /// Sends again from the oldest packet that is not acknowledged.
    fn restart(&mut self, now: Instant) {
        self.queue.rewind();
        self.fetches.clear();
        self.unasked = 0;
        self.retry.on_rewind(now);
    }

    /// Waits as an RNR NAK asks, then goes back. False when no retry is left.
    #[must_use]
    pub(super) fn wait_for_receiver(&mut self, now: Instant, timer_code: u8) -> bool {
        self.restart(now);
        self.probe_due = false;
        self.retry.wait_for_receiver(now, timer_code)
    }

    /// Runs the timers that are due.
    pub(crate) fn on_timeout(&mut self, common: &mut Common, around: &mut Surroundings<'_>) -> Outcome {
        while let Some(timer) = self.retry.timers.expired(around.now) {
            match timer {
                // Waiting is over; the cursor went back when it began.
                Timer::ReceiverNotReady => {}
                Timer::Ack => {
                    common.counters.ack_timeouts += 1;
                    if !self.retry.take_retry() {
                        common.counters.retry_exceeded_err += 1;
                        return self.fail_front(common, around, Status::RetryExceededError, 0);
                    }
                    self.rewind(common, around.now);
                }
                Timer::Probe => self.probe(common, around.now),
            }
        }
        Outcome::Alive
    }

    /// The first time, asks with the newest packet: what the peer lacks before it, it will NAK, and nothing is sent
    /// in vain. A peer that NAKed this gap before stays silent, so the second time everything is sent again. A READ
    /// or ATOMIC at the tail is not asked for again at once: its answer may be long, and merely late.
    fn probe(&mut self, common: &mut Common, now: Instant) {
        if !self.queue.is_busy() {
            return;
        }
        if self.retry.probes == 0 && self.queue.cursor_psn() == self.queue.sent_end {
            self.probe_due = self.newest().is_some();
        } else {
            self.rewound_for = None;
            self.queue.rewind();
            self.fetches.clear();
            self.unasked = 0;
            self.lost = true;
            common.counters.tail_probes += 1;
        }
        self.retry.probes += 1;
        self.retry.restart_probe(now);
    }

    /// Fails the request that cannot be sent, once all before it are done.
    pub(crate) fn settle(&mut self, common: &mut Common, around: &mut Surroundings<'_>) -> Outcome {
        if let Some(status) = self.queue.front().and_then(|wqe| wqe.refused) {
            return self.fail_front(common, around, status, 0);
        }
        if common.state == State::SendQueueDrained && self.drain_pending && !self.queue.is_busy() {
            self.drain_pending = false;
            around.events.push_back(Event::Async(AsyncEvent::SendQueueDrained(common.qpn)));
        }
        Outcome::Alive
    }

    /// Reports the oldest request as failed; the queue pair must go to the error state.
    pub(super) fn fail_front(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        status: Status,
        vendor_error: u32,
    ) -> Outcome {
        if let Some(wqe) = self.queue.pop() {
            let kind = CompletionKind::from(&wqe.request.operation);
            let failed = Completion { id: wqe.request.id, status, kind, vendor_error, ..Completion::default() };
            common.complete_send(failed, around.events);
        }
        Outcome::Failed
    }

    /// Reports everything posted as flushed, in order, and forgets the connection.
    pub(crate) fn flush(&mut self, common: &Common, events: &mut VecDeque<Event>) {
        while let Some(wqe) = self.queue.pop() {
            let kind = CompletionKind::from(&wqe.request.operation);
            let flushed = Completion { id: wqe.request.id, status: Status::FlushError, kind, ..Completion::default() };
            common.complete_send(flushed, events);
        }
        self.fetches.clear();
        self.retry.timers.stop_all();
        self.probe_due = false;
    }
}
