//! Datagrams that came to one slot and are for another.
//!
//! The kernel, or a card, joins datagrams of one UDP flow into one before it picks a socket by the first of them. A uroce peer
//! uses another flow for another slot; of other peers, what is joined may be for several.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::net::{self, RecvFlags, SendFlags, SocketType};

use super::{Slot, name};
use crate::port::PortCounters;
use crate::port::arrived::Arrived;
use crate::wire::{Arrival, MAX_DATAGRAM, Qpn};

/// Bytes in front of a datagram: both addresses, the source port, the traffic class, the hop limit.
const HEAD: usize = 16 + 16 + 2 + 1 + 1;
/// Datagrams taken in one call.
const BURST: usize = 16;

/// Where a slot takes what came to others, and gives what came to it.
pub(in crate::port) struct Handover {
    interface: u32,
    number: u8,
    socket: OwnedFd,
}

impl Handover {
    pub(super) fn open(interface: u32, number: u8) -> io::Result<Self> {
        let socket = name::socket(SocketType::DGRAM)?;
        net::bind(&socket, &name::handover(interface, number)?)?;
        Ok(Self { interface, number, socket })
    }

    /// Readable when another slot has handed something over.
    pub(in crate::port) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The other slot that `frame`, a datagram with its ICRC, is for. `None`: it is for this one, for all, or for nobody.
    pub(in crate::port) fn other_slot(&self, frame: &[u8]) -> Option<u8> {
        let &[slot, middle, low] = frame.get(5..)?.first_chunk()?;
        let is_for_all = Qpn::new(u32::from_be_bytes([0, slot, middle, low])) == Qpn::MULTICAST;
        (slot != self.number && (1..Slot::COUNT).contains(&slot) && !is_for_all).then_some(slot)
    }

    /// Gives `frame`, one of the datagrams of `arrived`, to the slot that it is for. One that has no room for it now, or is
    /// nobody's, does not get it: that is counted, and the peer's to make good, as what a wire loses.
    pub(in crate::port) fn give(&self, slot: u8, arrived: &Arrived<'_>, frame: &[u8], counters: &mut PortCounters) {
        let mut message = [0; HEAD + MAX_DATAGRAM];
        let length = HEAD + frame.len();
        let Some(body) = message.get_mut(HEAD..length) else {
            counters.malformed += 1;
            return;
        };
        body.copy_from_slice(frame);
        let octets = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        message[..16].copy_from_slice(&octets(arrived.source));
        message[16..32].copy_from_slice(&octets(arrived.destination));
        message[32..34].copy_from_slice(&arrived.source_port.to_be_bytes());
        message[34] = arrived.traffic_class;
        message[35] = arrived.hop_limit;
        let bytes = message.get(..length).unwrap_or(&message);
        let given = name::handover(self.interface, slot)
            .and_then(|to| Ok(net::sendto(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to)?));
        match given {
            Ok(_) => counters.handed_over += 1,
            Err(_) => counters.handover_errors += 1,
        }
    }

    /// Takes a burst of what others have handed over, for one of `addresses`; returns how many datagrams.
    pub(in crate::port) fn take(
        &self,
        addresses: &[IpAddr],
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> usize {
        let mut message = [0; HEAD + MAX_DATAGRAM];
        for taken in 0..BURST {
            let Ok((length, _)) = net::recv(&self.socket, &mut message[..], RecvFlags::DONTWAIT) else { return taken };
            let Some(arrived) = message.get(..length).and_then(parse) else {
                counters.malformed += 1;
                continue;
            };
            if addresses.contains(&arrived.destination) {
                arrived.deliver(None, counters, sink);
            }
        }
        BURST
    }
}

fn parse(message: &[u8]) -> Option<Arrived<'_>> {
    let (source, rest) = message.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    let (&[high, low, traffic_class, hop_limit], payload) = rest.split_first_chunk()?;
    Some(Arrived {
        source: Ipv6Addr::from(*source).to_canonical(),
        destination: Ipv6Addr::from(*destination).to_canonical(),
        source_port: u16::from_be_bytes([high, low]),
        traffic_class,
        hop_limit,
        // What it was is known where it was cut out, and not worth telling: the ICRC is checked with any.
        identification: None,
        segment: None,
        payload,
    })
}
