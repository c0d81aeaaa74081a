//! Unreliable datagram: one packet a message, to any queue pair, each request with a destination of its own.

use super::common::{Common, Outcome, Surroundings};
use super::gather::{self, ScatterError};
use super::request;
use super::route;
use super::sender::Sender;
use super::service::Service;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::queue::Taken;
use crate::time::Instant;
use crate::wire::{Arrival, Deth, Flow, Grh, Packet, Psn, Qpn, Transport};
use crate::work::{Completion, CompletionKind, Operation, SendRequest, Status, Tag};

/// The UD service of a queue pair.
#[derive(Debug)]
pub(crate) struct UnreliableDatagram {
    sender: Sender,
    /// Taken from the queue for a datagram that it was too small for, and there for the next.
    current: Option<Taken>,
}

impl UnreliableDatagram {
    pub(crate) fn new(common: &Common) -> Self {
        Self { sender: Sender::new(&common.attributes), current: None }
    }

    /// Places a datagram in a receive request: the header that says where it came from, then its payload.
    fn receive(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
    ) -> Option<Outcome> {
        let taken = self.current.take().or_else(|| common.take_receive(around))?;
        let sges = &taken.request.sges;
        let length = Grh::LEN + packet.payload.len();
        let room: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
        if room < length as u64 {
            self.current = Some(taken);
            return None;
        }
        let &Arrival { source, destination, traffic_class, hop_limit, datagram, .. } = arrival;
        let grh = Grh { source, destination, traffic_class, hop_limit };
        let header = grh.emit(datagram.len());
        let place = |offset, bytes| gather::scatter(around.memory, taken.pd, sges, offset, bytes);
        let placed = place(0, &header).and_then(|()| place(Grh::LEN as u64, packet.payload));
        let (status, outcome) = match placed {
            Ok(()) => (Status::Success, Outcome::Alive),
            Err(ScatterError::TooLong) => (Status::LocalLengthError, Outcome::Failed),
            Err(ScatterError::Access(_)) => (Status::LocalProtectionError, Outcome::Failed),
        };
        let completion = Completion {
            status,
            kind: CompletionKind::Receive,
            // At most a packet.
            byte_length: length as u32,
            source_qpn: deth(packet).source,
            tag: packet.extensions.immediate.map_or(Tag::None, Tag::Immediate),
            solicited: packet.bth.solicited,
            grh: Some(grh.kind()),
            ..Completion::default()
        };
        common.complete_taken(&taken, completion, around.events);
        Some(outcome)
    }
}

/// The header that every datagram has.
fn deth(packet: &Packet<'_>) -> Deth {
    packet.extensions.deth.unwrap_or_default()
}

impl Service for UnreliableDatagram {
    fn transport(&self) -> Transport {
        Transport::Ud
    }

    /// Anyone who knows the Q_Key is let in. What is for a group has the group's number, and nothing else has it.
    fn accepts(&self, common: &Common, arrival: &Arrival<'_>, packet: &Packet<'_>, dropped: &mut Counters) -> bool {
        let is_for_group = packet.bth.destination == Qpn::MULTICAST;
        let is_right_address = is_for_group == arrival.destination.is_multicast();
        let is_right_key = common.attributes.qkey == Some(deth(packet).qkey);
        dropped.wrong_address += u64::from(!is_right_address);
        dropped.bad_qkey += u64::from(is_right_address && !is_right_key);
        is_right_address && is_right_key
    }

    fn start_receiving(&mut self, _common: &Common) {}

    fn start_sending(&mut self, common: &Common) {
        self.sender = Sender::new(&common.attributes);
    }

    fn configure(&mut self, _common: &Common) {}

    fn drain(&mut self) {
        self.sender.drain();
    }

    fn post(&mut self, common: &Common, around: &mut Surroundings<'_>, request: SendRequest) -> Result<()> {
        if !matches!(request.operation, Operation::Send | Operation::SendImmediate(_)) {
            return Err(Error::invalid("opcode", "UD carries SEND, with and without immediate data"));
        }
        let Some(destination) = &request.destination else {
            return Err(Error::invalid("ah", "on UD every request needs a destination"));
        };
        let is_group = destination.address.destination.is_multicast();
        if is_group != (destination.qpn == Qpn::MULTICAST) {
            let reason = format!("{} at {}", destination.qpn, destination.address.destination);
            let rule = format!("{reason}; a group has the number {}, and no other address has it", Qpn::MULTICAST);
            return Err(Error::invalid("remote_qpn", rule));
        }
        let flow = route::datagram(common.qpn, destination.qpn, &destination.address, around.gids)?;
        let length = request::check(common, &request)?;
        let most = around.mtu.bytes();
        if length > most {
            let reason = format!("{length} bytes; a UD message is one packet, of at most {most}");
            return Err(Error::invalid("sg_list", reason));
        }
        self.sender.post(common, around.now, request, (length, most), Some(flow))
    }

    fn on_packet(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
    ) -> Outcome {
        let fits_link = packet.payload.len() <= around.mtu.bytes() as usize;
        let outcome = if fits_link { self.receive(common, around, arrival, packet) } else { None };
        outcome.unwrap_or_else(|| {
            // No receive request, or one that is too small: nobody is told (IBTA 9.8.3.2).
            common.counters.dropped_messages += 1;
            Outcome::Alive
        })
    }

    fn on_timeout(&mut self, _common: &mut Common, around: &mut Surroundings<'_>) -> Outcome {
        self.sender.on_timeout(around.now);
        Outcome::Alive
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.sender.next_timeout()
    }

    fn settle(&mut self, common: &mut Common, around: &mut Surroundings<'_>) -> Outcome {
        self.sender.settle(common, around);
        Outcome::Alive
    }

    fn wants_transmit(&self, common: &Common, _window: u64) -> bool {
        self.sender.wants_transmit(common)
    }

    fn is_held_by_window(&self, _common: &Common, _window: u64) -> bool {
        false
    }

    fn poll_transmit(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        _window: u64,
        room: &mut [u8],
    ) -> (Option<usize>, Outcome) {
        self.sender.poll_transmit(common, around, room)
    }

    fn psns(&self) -> [Option<Psn>; 2] {
        [Some(self.sender.next_psn()), None]
    }

    fn is_draining(&self) -> bool {
        self.sender.is_draining()
    }

    fn way(&self, _common: &Common) -> Option<Flow> {
        self.sender.flow()
    }

    fn flush_sends(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        self.sender.flush(common, around);
    }

    fn flush(&mut self, common: &Common, around: &mut Surroundings<'_>, _keep_replies: bool) {
        self.sender.flush(common, around);
        if let Some(taken) = self.current.take() {
            common.flush_taken(&taken, around.events);
        }
    }
}
