//! Packets made by hand, and what an endpoint answers to them: one side is the engine, the other is the test.

use std::net::IpAddr;

use uroce::time::Instant;
use uroce::wire::{
    Aeth, Arrival, AtomicEth, Bth, Extensions, Feth, Opcode, Packet, Placement, Psn, Qpn, Reth, Selectivity, Syndrome,
    emit_headers, pad_of,
};

use super::pair::{Pair, Side};

/// A packet in the making.
#[derive(Clone, Debug)]
pub struct Craft {
    pub bth: Bth,
    pub extensions: Extensions,
    pub payload: Vec<u8>,
}

impl Craft {
    /// A packet that is right but for what the test changes.
    pub fn new(opcode: Opcode, destination: Qpn, psn: u32) -> Self {
        let bth = Bth {
            opcode,
            solicited: false,
            migration: false,
            pad: 0,
            version: 0,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            destination,
            ack_request: true,
            psn: Psn::new(psn),
        };
        Self { bth, extensions: Extensions::default(), payload: Vec::new() }
    }

    pub fn reth(mut self, address: u64, rkey: u32, length: u32) -> Self {
        self.extensions.reth = Some(Reth { address, rkey, length });
        self
    }

    pub fn atomic(mut self, address: u64, rkey: u32, swap_add: u64) -> Self {
        self.extensions.atomic = Some(AtomicEth { address, rkey, swap_add, compare: 0 });
        self
    }

    pub fn flush(mut self, placement: Placement, selectivity: Selectivity) -> Self {
        self.extensions.flush = Some(Feth { placement, selectivity });
        self
    }

    pub fn syndrome(mut self, syndrome: Syndrome) -> Self {
        self.extensions.aeth = Some(Aeth { syndrome, msn: 0 });
        self
    }

    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self.bth.pad = pad_of(payload.len());
        self
    }

    /// From the BTH to the end of the pad.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 80];
        let header = emit_headers(&self.bth, &self.extensions, &mut bytes).unwrap();
        bytes.truncate(header);
        bytes.extend_from_slice(&self.payload);
        bytes.resize(bytes.len() + usize::from(self.bth.pad), 0);
        bytes
    }
}

/// Hands `side` a datagram that comes from `source`.
pub fn deliver(side: &mut Side, now: Instant, source: IpAddr, datagram: &[u8]) {
    let destination = side.address;
    let arrival = Arrival { source, destination, source_port: 0xc000, traffic_class: 0, hop_limit: 64, datagram };
    side.endpoint.on_packet(now, &arrival);
}

/// The datagrams that `side` has to send now.
pub fn drain(side: &mut Side, now: Instant) -> Vec<Vec<u8>> {
    let mut room = vec![0; uroce::wire::MAX_DATAGRAM];
    std::iter::from_fn(|| {
        let transmit = side.endpoint.poll_transmit(now, &mut room)?;
        Some(room[..transmit.length].to_vec())
    })
    .collect()
}

/// What the engine answered: opcode, PSN, and the verdict where there is one.
pub type Answer = (Opcode, u32, Option<Syndrome>);

/// Side B of a pair, with the test in the place of side A.
pub struct Victim {
    pub pair: Pair,
    /// The PSN of the next request to it.
    pub psn: u32,
}

impl Victim {
    pub fn new(pair: Pair, psn: u32) -> Self {
        Self { pair, psn }
    }

    /// A packet to the victim's queue pair with the PSN that it expects.
    pub fn request(&self, opcode: Opcode) -> Craft {
        Craft::new(opcode, self.pair.b.qpn, self.psn)
    }

    /// Hands the victim a datagram from `source`, and nothing else.
    pub fn push_from(&mut self, source: IpAddr, datagram: &[u8]) {
        deliver(&mut self.pair.b, self.pair.now, source, datagram);
    }

    /// Hands the victim a packet from its peer's address, and nothing else.
    pub fn push(&mut self, packet: &Craft) {
        self.push_from(self.pair.a.address, &packet.bytes());
    }

    /// The datagrams that the victim has to send now.
    pub fn drain(&mut self) -> Vec<Vec<u8>> {
        drain(&mut self.pair.b, self.pair.now)
    }

    /// The answers that the victim has to send now.
    pub fn answers(&mut self) -> Vec<Answer> {
        self.drain()
            .iter()
            .map(|datagram| {
                let packet = Packet::parse(datagram).unwrap();
                let syndrome = packet.extensions.aeth.map(|aeth| aeth.syndrome);
                (packet.bth.opcode, packet.bth.psn.value(), syndrome)
            })
            .collect()
    }

    /// Hands the victim a packet; what it answers.
    pub fn ask(&mut self, packet: &Craft) -> Vec<Answer> {
        self.push(packet);
        self.answers()
    }
}
