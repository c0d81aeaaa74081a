//! What a port does with UDP payload that arrived, whichever way it came.

use std::net::IpAddr;

use super::PortCounters;
use super::seal::{self, Headers, Refused};
use super::slots::Handover;
use crate::wire::{Arrival, ICRC_LEN};

/// UDP payload from one sender: a datagram, or several that were joined on the way or never cut.
pub(super) struct Arrived<'a> {
    /// The sender's address.
    pub(super) source: IpAddr,
    /// Which of the port's addresses it was sent to.
    pub(super) destination: IpAddr,
    /// The sender's UDP port.
    pub(super) source_port: u16,
    /// IPv4 type of service or IPv6 traffic class.
    pub(super) traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit, 0 where that is not known.
    pub(super) hop_limit: u8,
    /// The IPv4 ID of the first datagram, where the port saw it.
    pub(super) identification: Option<u16>,
    /// Bytes of each datagram but the last, where there are several.
    pub(super) segment: Option<usize>,
    /// The datagrams, with their ICRCs.
    pub(super) payload: &'a [u8],
}

impl Arrived<'_> {
    /// Hands those of its datagrams to `sink` that are sealed with a right ICRC and counts the others; returns how many it holds.
    /// What is for another slot goes there by `handover`, where there is one.
    pub(super) fn deliver(
        &self,
        handover: Option<&Handover>,
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> usize {
        let &Self { source, destination, source_port, traffic_class, hop_limit, .. } = self;
        let headers = Headers { source, destination, source_port };
        // IDs within a super-packet count up from that of its first; in one that the kernel or a card joined from single
        // datagrams, they may be any.
        let mut expected = self.identification.unwrap_or(0);
        let mut datagrams = 0;
        for frame in self.payload.chunks(self.segment.unwrap_or(self.payload.len()).max(1)) {
            let seen = self.identification.filter(|_| datagrams == 0);
            datagrams += 1;
            if let Some((handover, slot)) = handover.and_then(|to| Some((to, to.other_slot(frame)?))) {
                handover.give(slot, self, frame, counters);
                expected = expected.wrapping_add(1);
                continue;
            }
            match seal::open(&headers, expected, frame) {
                Ok((_, identification)) if seen.is_some_and(|seen| seen != identification) => {
                    counters.note(Refused::Icrc);
                }
                Ok((datagram, identification)) => {
                    expected = identification;
                    counters.received += 1;
                    counters.received_bytes += frame.len() as u64;
                    sink(Arrival { source, destination, source_port, traffic_class, hop_limit, datagram });
                }
                Err(refused) => counters.note(refused),
            }
            expected = expected.wrapping_add(1);
        }
        // A datagram without a byte is one all the same.
        if datagrams == 0 {
            counters.note(Refused::Malformed);
        }
        datagrams.max(1)
    }

    /// Hands it to `sink` as a single datagram, whatever its ICRC.
    pub(super) fn deliver_unchecked(&self, counters: &mut PortCounters, sink: &mut dyn FnMut(Arrival<'_>)) {
        let &Self { source, destination, source_port, traffic_class, hop_limit, payload, .. } = self;
        let Some((datagram, _)) = payload.split_last_chunk::<ICRC_LEN>() else {
            return counters.note(Refused::Malformed);
        };
        counters.received += 1;
        counters.received_bytes += payload.len() as u64;
        sink(Arrival { source, destination, source_port, traffic_class, hop_limit, datagram });
    }
}
