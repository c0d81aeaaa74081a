//! The sending half: posted requests become packets.

use std::collections::VecDeque;

use super::inflight::{Cursor, SendQueue, Wqe};
use super::probe::Probe;
use super::retry::Retry;
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, Event};
use crate::memory::Access;
use crate::qp::common::{Common, Outcome, Surroundings};
use crate::qp::gather;
use crate::qp::request::{self, Cut};
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
    /// The last PSNs of READ pieces, ATOMICs and FLUSHes that were sent and not answered, at most `max_rd_atomic`.
    pub(super) fetches: VecDeque<Psn>,
    /// The PSN up to which a gap in the answers was acted on; only progress beyond it makes another gap news.
    pub(super) rewound_for: Option<Psn>,
    /// A packet is to be sent again, to learn what became of those that were not acknowledged.
    pub(super) probe_due: Option<Probe>,
    /// Whether the peer keeps what arrives before its turn, so that only what is missing must be sent again; `None`
    /// while that is not known.
    pub(super) peer_holds: Option<bool>,
    /// The oldest packet, which was sent again alone.
    pub(super) probed: Option<Psn>,
    /// The cost sent since an acknowledge was last asked for.
    unasked: u64,
    /// A loss was seen since the endpoint last asked.
    pub(super) lost: bool,
    /// Whether FLUSHes get the ICRC of the kernel's rxe. Each that must be sent again tries the other rule; the one that was
    /// answered is kept.
    rxe_flush: bool,
    /// The program waits for the event that the queue is drained.
    drain_pending: bool,
}

/// What the packet at the cursor is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) cursor: Cursor,
    /// PSNs that it takes: more than one for a READ.
    pub(super) psns: u32,
    /// What it costs of the window.
    pub(super) cost: u64,
}

impl Requester {
    /// An acknowledge is asked for at least as often as this much was sent, so that the window keeps moving.
    const ASK_EVERY: u64 = 60 * 1024;
    /// What the answer to one READ request may cost, whatever the message: it is not paced by acknowledges, and must
    /// fit our receive buffer. Three of them fit the usual window, so that one is always on its way.
    const READ_PIECE_COST: u32 = 64 * 1024;

    pub(crate) fn new(attributes: &Attributes, mtu: u32) -> Self {
        Self {
            queue: SendQueue::new(attributes.send_psn.unwrap_or_default(), mtu),
            retry: Retry::new(attributes),
            fetches: VecDeque::new(),
            rewound_for: None,
            probe_due: None,
            probed: None,
            peer_holds: None,
            unasked: 0,
            lost: false,
            rxe_flush: false,
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

    /// Whether the event that the queue is drained is yet to come.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain_pending
    }

    /// The PSN of the next new request.
    pub(crate) fn next_psn(&self) -> Psn {
        self.queue.next_psn()
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
        request::check_connected(&request)?;
        let length = request::check(common, &request)?;
        let limit = common.capacity.max_send_wr as usize;
        if self.queue.len() >= limit {
            return Err(Error::Full { what: "the send queue", limit });
        }
        self.queue.push(request, length);
        Ok(())
    }

    /// Whether there is a packet to send, the window of `room` bytes permitting, or something to carry out before.
    pub(crate) fn wants_transmit(&self, common: &Common, room: u64) -> bool {
        self.probe_due.is_some() || self.is_local_due(common) || self.next(common, self.queue.cursor, room).is_some()
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
        if let Some(probe) = self.probe_due.take()
            && let Some(next) = self.probe_packet(common, probe)
        {
            return self.emit(common, around, next, true, room);
        }
        self.carry_out(common, around);
        let next = self.next(common, self.queue.cursor, window)?;
        if !self.begin(common, around, next.cursor.index) {
            // What was sent before it did not ask for an acknowledge, since more was to follow.
            let newest = self.probe_packet(common, Probe::Newest).filter(|_| self.queue.in_flight() > 0)?;
            return self.emit(common, around, newest, true, room);
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
        let wqe = self.due(common, cursor.index)?;
        let operation = &wqe.request.operation;
        if operation.is_local() {
            return None;
        }
        let next = self.at(common, cursor, wqe);
        // A depth of zero refuses posting; what was posted before it became zero must not wait for ever.
        let depth = usize::from(common.attributes.max_rd_atomic.unwrap_or(0)).max(1);
        if operation.is_answered() && self.fetches.len() >= depth {
            return None;
        }
        self.fits(&next, window).then_some(next)
    }

    /// The request at `index`, when neither the queue pair's state nor what it waits for holds it back.
    pub(super) fn due(&self, common: &Common, index: usize) -> Option<&Wqe> {
        if self.retry.waits_for_receiver() {
            return None;
        }
        let wqe = self.queue.get(index).filter(|wqe| wqe.refused.is_none())?;
        if wqe.begun.is_some() {
            return common.state.awaits_answers().then_some(wqe);
        }
        let is_fenced = wqe.request.flags.contains(SendFlags::FENCE) && self.queue.awaits_answer_before(index);
        (common.state == State::ReadyToSend && !is_fenced).then_some(wqe)
    }

    /// Whether the window lets the packet go. A queue pair with nothing in flight may always send one, or peers
    /// that stopped answering the others could stop it.
    fn fits(&self, next: &Next, window: u64) -> bool {
        next.cost <= window || (self.queue.cursor == next.cursor && self.queue.in_flight() == 0)
    }

    /// The packet at `cursor`, which is one of `wqe`.
    pub(super) fn at(&self, common: &Common, cursor: Cursor, wqe: &Wqe) -> Next {
        let mtu = common.mtu();
        let psns = match wqe.request.operation {
            Operation::Read(_) => {
                // Pieces have fixed borders, so that a retry never asks for more than the request it repeats.
                let piece = Self::READ_PIECE_COST / (mtu + SendQueue::PACKET_COST as u32);
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
        let is_answered = wqe.request.operation.is_answered();
        let is_flush = matches!(wqe.request.operation, Operation::Flush(_));
        self.rxe_flush ^= is_flush && psn.is_before(self.queue.sent_end);
        let cut = Cut {
            mtu: common.mtu(),
            length: wqe.length,
            packets: wqe.packets,
            packet: next.cursor.packet,
            psns: next.psns,
            psn,
            asks,
            rxe_flush: self.rxe_flush,
        };
        match request::emit(common, around.memory, &wqe.request, &cut, room) {
            Ok(length) => {
                self.note_sent(common, around.now, psn, next, is_answered);
                Some(length)
            }
            Err(status) => {
                self.queue.refuse(next.cursor.index, status);
                None
            }
        }
    }

    /// Counts a packet and starts what waits for its answer.
    fn note_sent(&mut self, common: &mut Common, now: Instant, psn: Psn, next: Next, is_answered: bool) {
        common.counters.sent_pkts += 1;
        let is_again = psn.is_before(self.queue.sent_end);
        common.counters.retransmitted_pkts += u64::from(is_again);
        let last = psn.plus(next.psns - 1);
        // A probe asks again for what is outstanding already.
        if is_answered && !self.fetches.contains(&last) {
            self.fetches.push_back(last);
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
        self.probed = None;
        self.retry.on_rewind(now);
    }

    /// Waits as an RNR NAK asks, then goes back. False when no retry is left.
    #[must_use]
    pub(super) fn wait_for_receiver(&mut self, now: Instant, timer_code: u8) -> bool {
        self.restart(now);
        self.probe_due = None;
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
            common.flush_send(&wqe.request, events);
        }
        self.fetches.clear();
        self.retry.timers.stop_all();
        self.probe_due = None;
    }
}
