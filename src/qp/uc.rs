//! Unreliable connection: messages of any length, each whole or not at all, and nobody hears of those that are lost.

use super::Attributes;
use super::common::{Common, Outcome, Surroundings};
use super::incoming::{Incoming, Refusal};
use super::request;
use super::sender::Sender;
use super::service::Service;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::time::Instant;
use crate::wire::{Arrival, Kind, NakCode, Packet, Psn, Transport};
use crate::work::{Operation, SendRequest, Status};

/// The UC service of a queue pair.
#[derive(Debug)]
pub(crate) struct UnreliableConnection {
    sender: Sender,
    receiver: Receiver,
}

impl UnreliableConnection {
    pub(crate) fn new(common: &Common) -> Self {
        Self { sender: Sender::new(&common.attributes), receiver: Receiver::new(&common.attributes) }
    }
}

impl Service for UnreliableConnection {
    fn transport(&self) -> Transport {
        Transport::Uc
    }

    fn accepts(&self, common: &Common, arrival: &Arrival<'_>, _packet: &Packet<'_>, dropped: &mut Counters) -> bool {
        common.is_from_peer(arrival.source, arrival.destination, dropped)
    }

    fn start_receiving(&mut self, common: &Common) {
        self.receiver = Receiver::new(&common.attributes);
    }

    fn start_sending(&mut self, common: &Common) {
        self.sender = Sender::new(&common.attributes);
    }

    fn configure(&mut self, _common: &Common) {}

    fn drain(&mut self) {
        self.sender.drain();
    }

    fn post(&mut self, common: &Common, around: &mut Surroundings<'_>, request: SendRequest) -> Result<()> {
        use Operation::{Send, SendImmediate, Write, WriteImmediate};
        if !matches!(request.operation, Send | SendImmediate(_) | Write(_) | WriteImmediate(..)) {
            return Err(Error::invalid("opcode", "UC carries SEND and WRITE, with and without immediate data"));
        }
        request::check_connected(&request)?;
        let length = request::check(common, &request)?;
        self.sender.post(common, around.now, request, (length, common.mtu()), None)
    }

    fn on_packet(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        _arrival: &Arrival<'_>,
        packet: &Packet<'_>,
    ) -> Outcome {
        self.receiver.incoming.note_arrival(common, around);
        self.receiver.on_request(common, around, packet)
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
        [Some(self.sender.next_psn()), Some(self.receiver.expected)]
    }

    fn is_draining(&self) -> bool {
        self.sender.is_draining()
    }

    fn flush_sends(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        self.sender.flush(common, around);
    }

    fn flush(&mut self, common: &Common, around: &mut Surroundings<'_>, _keep_replies: bool) {
        self.sender.flush(common, around);
        self.receiver.incoming.flush(common, around);
    }
}

/// The receiving half (IBTA 9.8.2.2): messages whose packets all came, in order; of any other nothing is reported, and the
/// receive request that it began to fill is there for the next.
#[derive(Debug)]
struct Receiver {
    /// The PSN of the next packet.
    expected: Psn,
    /// Whether the rest of the present message is dropped.
    dropping: bool,
    incoming: Incoming,
}

impl Receiver {
    /// A packet at most this far behind the expected one is late, or came twice. The specification begins a message
    /// with any first packet, whatever its PSN; on InfiniBand nothing arrives twice or out of order, on Ethernet
    /// a message then could be delivered twice. What is farther behind is a peer that lost count, and is followed.
    const LATE: i32 = 1 << 16;

    fn new(attributes: &Attributes) -> Self {
        Self { expected: attributes.receive_psn.unwrap_or_default(), dropping: false, incoming: Incoming::default() }
    }

    /// Takes a packet of the peer.
    fn on_request(&mut self, common: &mut Common, around: &mut Surroundings<'_>, packet: &Packet<'_>) -> Outcome {
        if !matches!(packet.info.kind, Kind::Send | Kind::Write) {
            return Outcome::Alive;
        }
        let ahead = packet.bth.psn.distance(self.expected);
        if (-Self::LATE..0).contains(&ahead) {
            common.counters.duplicate_request += 1;
            return Outcome::Alive;
        }
        common.counters.out_of_seq_request += u64::from(ahead != 0);
        self.expected = packet.bth.psn.plus(1);
        if packet.info.position.is_first() {
            if self.incoming.is_busy() {
                // The end of the last message is missing.
                self.drop_message(common);
            }
            self.dropping = false;
        } else if self.dropping {
            return Outcome::Alive;
        } else if ahead != 0 || !self.incoming.fits_order(packet.info) {
            self.drop_message(common);
            return Outcome::Alive;
        }
        match self.incoming.place(common, around, packet) {
            Ok(_) => Outcome::Alive,
            // The receive request is the program's own fault.
            Err(Refusal::Fatal(NakCode::RemoteOperational, Some(status @ Status::LocalProtectionError))) => {
                self.incoming.fail(common, around, status);
                Outcome::Failed
            }
            Err(_) => {
                self.drop_message(common);
                Outcome::Alive
            }
        }
    }

    /// Nothing more of this message is taken.
    fn drop_message(&mut self, common: &mut Common) {
        common.counters.dropped_messages += 1;
        self.incoming.abandon();
        self.dropping = true;
    }
}
