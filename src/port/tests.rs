//! What the tests of several ports share.

use std::net::IpAddr;

use crate::wire::{Bth, Flow, Opcode, Psn, Qpn};

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(super) fn flow(source: &str, destination: &str, source_port: u16) -> Flow {
    Flow {
        source: ip(source),
        destination: ip(destination),
        source_port,
        traffic_class: 0,
        hop_limit: 64,
    }
}

/// A datagram of `length` bytes with a BTH in front, whose PSN is `seed`, and bytes that differ with it.
pub(super) fn datagram(seed: u32, length: usize) -> Vec<u8> {
    let bth = Bth {
        opcode: Opcode::UC_SEND_ONLY,
        solicited: false,
        migration: false,
        pad: 0,
        version: 0,
        pkey: 0xffff,
        fecn: false,
        becn: false,
        destination: Qpn::new(0x1_0011),
        ack_request: false,
        psn: Psn::new(seed),
    };
    let mut bytes: Vec<u8> = (0..length)
        .map(|i| (i as u8).wrapping_mul(31) ^ seed as u8)
        .collect();
    if let Some(head) = bytes.first_chunk_mut() {
        bth.emit(head);
    }
    bytes
}
