//! A reliable connection: a requester and a responder that know nothing of each other.

use super::{Requester, Responder};
use crate::counters::Counters;
use crate::error::Result;
use crate::qp::QpType;
use crate::qp::common::{Common, Outcome, Surroundings};
use crate::qp::service::Service;
use crate::time::Instant;
use crate::wire::{Arrival, Packet, Psn, Transport};
use crate::work::SendRequest;

/// The RC service of a queue pair, and the XRC service: an initiator uses only the requester, a target only the responder.
#[derive(Debug)]
pub(crate) struct ReliableConnection {
    requester: Requester,
    responder: Responder,
    transport: Transport,
    /// A request was sent ahead of an acknowledge that is owed.
    yielded: bool,
}

impl ReliableConnection {
    pub(crate) fn new(common: &Common) -> Self {
        Self {
            requester: Requester::new(&common.attributes, common.mtu()),
            responder: Responder::new(&common.attributes, common.hold_budget.clone()),
            transport: common.qp_type.transport(),
            yielded: false,
        }
    }
}

impl Service for ReliableConnection {
    fn transport(&self) -> Transport {
        self.transport
    }

    fn accepts(&self, common: &Common, arrival: &Arrival<'_>, _packet: &Packet<'_>, dropped: &mut Counters) -> bool {
        common.is_from_peer(arrival.source, arrival.destination, dropped)
    }

    fn start_receiving(&mut self, common: &Common) {
        self.responder = Responder::new(&common.attributes, common.hold_budget.clone());
    }

    fn start_sending(&mut self, common: &Common) {
        self.requester = Requester::new(&common.attributes, common.mtu());
    }

    fn configure(&mut self, common: &Common) {
        self.requester.configure(&common.attributes);
        self.responder.configure(&common.attributes);
    }

    fn drain(&mut self) {
        self.requester.drain();
    }

    fn post(&mut self, common: &Common, _around: &mut Surroundings<'_>, request: SendRequest) -> Result<()> {
        self.requester.post(common, request)
    }

    fn on_packet(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
    ) -> Outcome {
        self.responder.note_arrival(common, around);
        if packet.info.kind.is_request() {
            if common.qp_type == QpType::XrcInitiator {
                common.counters.wrong_transport += 1;
                return Outcome::Alive;
            }
            self.responder.on_request(common, around, packet, arrival.datagram)
        } else if common.state.awaits_answers() {
            self.requester.on_response(common, around, packet)
        } else {
            common.counters.stale_responses += 1;
            Outcome::Alive
        }
    }

    fn on_timeout(&mut self, common: &mut Common, around: &mut Surroundings<'_>) -> Outcome {
        self.requester.on_timeout(common, around)
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.requester.next_timeout()
    }

    fn settle(&mut self, common: &mut Common, around: &mut Surroundings<'_>) -> Outcome {
        self.requester.settle(common, around)
    }

    fn wants_transmit(&self, common: &Common, window: u64) -> bool {
        self.responder.wants_transmit() || self.requester.wants_transmit(common, window)
    }

    fn is_held_by_window(&self, common: &Common, window: u64) -> bool {
        self.requester.is_held_by_window(common, window)
    }

    fn owes_only_acknowledge(&self, common: &Common, window: u64) -> bool {
        self.responder.owes_only_acknowledge() && !self.requester.wants_transmit(common, window)
    }

    fn poll_transmit(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        window: u64,
        room: &mut [u8],
    ) -> (Option<usize>, Outcome) {
        // A request is awaited more eagerly than an acknowledge: one goes ahead.
        if !self.yielded && self.responder.owes_only_acknowledge() {
            let length = self.requester.poll_transmit(common, around, window, room);
            self.yielded = length.is_some();
            if self.yielded {
                return (length, Outcome::Alive);
            }
        }
        self.yielded = false;
        match self.responder.poll_transmit(common, around, room) {
            Some((length, outcome)) => (Some(length), outcome),
            None => (self.requester.poll_transmit(common, around, window, room), Outcome::Alive),
        }
    }

    fn psns(&self) -> [Option<Psn>; 2] {
        [Some(self.requester.next_psn()), Some(self.responder.next_psn())]
    }

    fn is_draining(&self) -> bool {
        self.requester.is_draining()
    }

    fn in_flight(&self) -> u64 {
        self.requester.in_flight()
    }

    fn acknowledged(&self) -> u64 {
        self.requester.acknowledged()
    }

    fn take_loss(&mut self) -> bool {
        self.requester.take_loss()
    }

    fn flush(&mut self, common: &Common, around: &mut Surroundings<'_>, keep_replies: bool) {
        self.requester.flush(common, around.events);
        self.responder.flush(common, around);
        if !keep_replies {
            self.responder.forget_replies();
        }
    }
}
