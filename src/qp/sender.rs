//! The send queue of a service without acknowledges: UC and UD.

use std::collections::VecDeque;

use super::common::{Common, Outcome, Surroundings};
use super::gather;
use super::pace::Pace;
use super::request::{self, Cut};
use super::segment;
use super::{Attributes, State};
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, Event};
use crate::memory::Access;
use crate::time::Instant;
use crate::wire::{Flow, Psn};
use crate::work::{Completion, CompletionKind, Payload, SendFlags, SendRequest, Status};

/// Requests that become packets, once and in order. A request is done when its last packet is handed to the port: nobody
/// will ever say more about it (IBTA 9.8.2.1, 9.8.3.1).
#[derive(Debug)]
pub(crate) struct Sender {
    ring: VecDeque<Posted>,
    /// The next packet of the front request.
    packet: u32,
    /// The PSN of the next packet.
    next: Psn,
    pace: Pace,
    /// Where the last packet goes.
    flow: Option<Flow>,
    /// The program waits for the event that the queue is drained.
    drain_pending: bool,
}

/// A posted request.
#[derive(Debug)]
struct Posted {
    request: SendRequest,
    /// Payload bytes of a full packet.
    mtu: u32,
    /// Bytes of its message.
    length: u32,
    /// Packets that it takes.
    packets: u32,
    /// Where they go.
    flow: Option<Flow>,
}

impl Sender {
    pub(crate) fn new(attributes: &Attributes) -> Self {
        Self {
            ring: VecDeque::new(),
            packet: 0,
            next: attributes.send_psn.unwrap_or_default(),
            pace: Pace::default(),
            flow: None,
            drain_pending: false,
        }
    }

    /// Where the last packet goes.
    pub(crate) fn flow(&self) -> Option<Flow> {
        self.flow
    }

    /// The PSN of the next packet.
    pub(crate) fn next_psn(&self) -> Psn {
        self.next
    }

    /// Whether a message was begun and is not finished.
    pub(crate) fn is_draining(&self) -> bool {
        self.packet > 0
    }

    /// Asks for an event when what was begun is finished.
    pub(crate) fn drain(&mut self) {
        self.drain_pending = true;
    }

    /// Adds a request whose message has `length` bytes, in packets of up to `mtu`, that go the way of `flow`.
    pub(crate) fn post(
        &mut self,
        common: &Common,
        now: Instant,
        request: SendRequest,
        (length, mtu): (u32, u32),
        flow: Option<Flow>,
    ) -> Result<()> {
        let limit = common.capacity.max_send_wr as usize;
        if self.ring.len() >= limit {
            return Err(Error::Full { what: "the send queue", limit });
        }
        self.ring.push_back(Posted { request, mtu, length, packets: segment::packets(length, mtu), flow });
        self.pace.refresh(now);
        Ok(())
    }

    /// When it goes on sending by itself.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.pace.until().filter(|_| !self.ring.is_empty())
    }

    /// Ends a rest that is over.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        self.pace.refresh(now);
    }

    /// Whether there is a packet to send.
    pub(crate) fn wants_transmit(&self, common: &Common) -> bool {
        let may_send = match common.state {
            State::ReadyToSend => true,
            State::SendQueueDrained => self.packet > 0,
            _ => false,
        };
        may_send && !self.ring.is_empty() && !self.pace.rests()
    }

    /// The next packet, written to `room`; its length without the ICRC.
    pub(crate) fn poll_transmit(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        room: &mut [u8],
    ) -> (Option<usize>, Outcome) {
        if !self.wants_transmit(common) {
            return (None, Outcome::Alive);
        }
        let Some(front) = self.ring.front() else { return (None, Outcome::Alive) };
        if self.packet == 0
            && let Payload::Memory(list) = &front.request.payload
            && gather::check(around.memory, common.pd, list, Access::empty()).is_err()
        {
            return (None, self.fail(common, around, Status::LocalProtectionError));
        }
        let cut = Cut {
            mtu: front.mtu,
            length: front.length,
            packets: front.packets,
            packet: self.packet,
            psns: 1,
            psn: self.next,
            asks: false,
            rxe_flush: false,
        };
        match request::emit(common, around.memory, &front.request, &cut, room) {
            Ok(length) => {
                common.counters.sent_pkts += 1;
                self.flow = front.flow.or(common.flow);
                self.next = self.next.plus(1);
                self.packet += 1;
                self.pace.spend(around.now, length);
                if self.packet == cut.packets {
                    self.complete(common, around, Status::Success);
                }
                (Some(length), Outcome::Alive)
            }
            Err(status) => (None, self.fail(common, around, status)),
        }
    }

    /// The front request failed: the send queue stops, the receive queue goes on (IBTA 10.3.1.7).
    fn fail(&mut self, common: &Common, around: &mut Surroundings<'_>, status: Status) -> Outcome {
        self.complete(common, around, status);
        Outcome::SendFailed
    }

    /// Reports the end of the front request.
    fn complete(&mut self, common: &Common, around: &mut Surroundings<'_>, status: Status) {
        self.packet = 0;
        let Some(Posted { request, length, .. }) = self.ring.pop_front() else { return };
        let is_silent = !common.signal_all && !request.flags.contains(SendFlags::SIGNALED);
        if status == Status::Success && is_silent {
            return;
        }
        let kind = CompletionKind::from(&request.operation);
        let done = Completion { id: request.id, status, kind, byte_length: length, ..Completion::default() };
        common.complete_send(done, around.events);
    }

    /// Tells that the queue is drained, when that was asked for.
    pub(crate) fn settle(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        if common.state == State::SendQueueDrained && self.drain_pending && self.packet == 0 {
            self.drain_pending = false;
            around.events.push_back(Event::Async(AsyncEvent::SendQueueDrained(common.qpn)));
        }
    }

    /// Reports everything posted as flushed, in order.
    pub(crate) fn flush(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        self.packet = 0;
        for posted in self.ring.drain(..) {
            common.flush_send(&posted.request, around.events);
        }
    }
}
