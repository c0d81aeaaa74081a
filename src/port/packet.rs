//! Packet sockets (AF_PACKET): the port that sees and writes whole frames. It takes CAP_NET_RAW.
//!
//! It writes the headers that it computes the ICRC for, and reads those that came, so no field of them is a guess. Runs leave
//! and arrive as one super-packet (`PACKET_VNET_HDR`, segmentation of UDP). Addresses, routes and neighbours are the kernel's.
//!
//! It does not reach other addresses of its own host, except on the loopback interface: what leaves through an interface
//! does not come back through it. For the same reason it does not hear what it sends to a multicast group itself.

mod filter;
mod headers;
mod link;
mod neighbours;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use link::Link;
use neighbours::HopIndex;
use socket2::Socket;

use super::arrived::Arrived;
use super::interface::{Interface, interfaces};
use super::membership;
use super::queue::Queue;
use super::slots::Slot;
use super::sys::ReceiveBatch;
use super::{Port, PortCounters};
use crate::wire::net::{Ethernet, Ip, Udp};
use crate::wire::{Arrival, Flow, UDP_PORT};

/// How many messages one call takes from the socket.
const BURST: usize = 16;

/// A port over a packet socket. See the [module](self).
pub struct PacketPort {
    addresses: Vec<IpAddr>,
    /// What it shares its addresses by; `None`: they are its own.
    slot: Option<Arc<Slot>>,
    link: Link,
    interface_index: u32,
    queue: Queue<HopIndex>,
    batch: ReceiveBatch,
    counters: PortCounters,
    /// UDP sockets that keep the kernel from answering. See [`link::hold_port`].
    holders: Vec<Socket>,
    /// Sockets that are members of multicast groups, so that the interface and the network deliver those here.
    members: HashMap<IpAddr, Socket>,
}

impl PacketPort {
    /// Opens a port on the interface of that name, for those of its addresses, which are this port's alone.
    ///
    /// # Errors
    /// There is no such interface, or an address is not its own; the program lacks CAP_NET_RAW; UDP port 4791 of an address
    /// is busy. The text says which, and what to do.
    pub fn open(interface: &str, addresses: &[IpAddr]) -> io::Result<Self> {
        Self::over(&find(interface)?, addresses, None)
    }

    /// The same for what is for `slot`; the rest is for other processes.
    ///
    /// # Errors
    /// As [`open`](Self::open), or an address is not among those that `slot` has.
    pub fn share(interface: &str, addresses: &[IpAddr], slot: Arc<Slot>) -> io::Result<Self> {
        Self::over(&find(interface)?, addresses, Some(slot))
    }

    fn over(interface: &Interface, addresses: &[IpAddr], slot: Option<Arc<Slot>>) -> io::Result<Self> {
        if let Some(foreign) = addresses.iter().find(|&&address| !interface.has(address)) {
            let own: Vec<String> = interface.addresses.iter().map(|own| own.address.to_string()).collect();
            let text = format!("{foreign} is not an address of {}, which has {}", interface.name, own.join(", "));
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        }
        let hold = |&address| link::hold_port(address, interface.index, slot.as_deref());
        Ok(Self {
            addresses: addresses.to_vec(),
            link: Link::open(interface, addresses, slot.as_deref().map(Slot::number))?,
            interface_index: interface.index,
            queue: Queue::new(),
            batch: ReceiveBatch::new(),
            counters: PortCounters::default(),
            holders: addresses.iter().map(hold).collect::<io::Result<_>>()?,
            slot,
            members: HashMap::new(),
        })
    }
}

fn find(name: &str) -> io::Result<Interface> {
    let all = interfaces()?;
    let names: Vec<&str> = all.iter().map(|interface| interface.name.as_str()).collect();
    let missing = || {
        let text = format!("there is no network interface {name}; there are {}", names.join(", "));
        io::Error::new(io::ErrorKind::NotFound, text)
    };
    let found = all.iter().find(|interface| interface.name == name).ok_or_else(missing)?;
    if found.mac.is_none() {
        let text = format!("{name} is not an Ethernet interface; use the udp port");
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    Ok(found.clone())
}

impl Port for PacketPort {
    fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.queue.room()
    }

    fn commit(&mut self, flow: &Flow, length: usize) {
        self.queue.commit(flow, length, &mut self.link, &mut self.counters);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.queue.flush(&mut self.link, &mut self.counters)?;
        if !self.queue.backlog() {
            self.link.neighbours.shrink();
        }
        Ok(())
    }

    fn backlog(&self) -> bool {
        self.queue.backlog()
    }

    fn receive(&mut self, sink: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        let count = match self.batch.receive(self.link.socket.as_fd(), BURST) {
            // The interface was taken down; when it is up again, the socket goes on.
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => 0,
            result => result?,
        };
        if count == 0 {
            // Nothing else to do, or it was the neighbour table that woke the caller, or another slot.
            self.link.neighbours.update();
            let handover = self.slot.as_deref().map(Slot::handover);
            return Ok(handover.map_or(0, |handover| handover.take(&self.addresses, &mut self.counters, sink)));
        }
        self.counters.receive_calls += 1;
        let handover = self.slot.as_deref().map(Slot::handover);
        let mut datagrams = 0;
        for message in self.batch.messages(count) {
            let arrived = Some(message.bytes).filter(|_| !message.truncated).and_then(parse);
            datagrams += match arrived {
                Some(arrived) if is_for(arrived.destination, &self.addresses) => {
                    arrived.deliver(handover, &mut self.counters, sink)
                }
                // For an address of this host that another port serves.
                Some(_) => 1,
                None => {
                    self.counters.malformed += 1;
                    1
                }
            };
        }
        Ok(datagrams)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let handover = self.slot.iter().map(|slot| slot.handover().descriptor());
        [self.link.socket.as_raw_fd(), self.link.neighbours.descriptor()].into_iter().chain(handover).collect()
    }

    fn backlog_descriptors(&self) -> Vec<RawFd> {
        // What waits for a neighbour goes on when `descriptors` say that the neighbour table changed.
        let waits_for_room = self.queue.full_ways().any(|hop| self.link.neighbours.is_known(hop));
        if waits_for_room { vec![self.link.socket.as_raw_fd()] } else { Vec::new() }
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        if !self.members.contains_key(&group) {
            self.members.insert(group, membership::join(group, &self.addresses)?);
        }
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) {
        self.members.remove(&group);
    }

    fn set_addresses(&mut self, addresses: &[IpAddr]) {
        let known = std::mem::take(&mut self.addresses);
        let mut kept: Vec<(IpAddr, Socket)> = known.into_iter().zip(self.holders.drain(..)).collect();
        for &address in addresses {
            let holder = match kept.iter().position(|(own, _)| *own == address) {
                Some(place) => kept.swap_remove(place).1,
                None => match link::hold_port(address, self.interface_index, self.slot.as_deref()) {
                    Ok(holder) => holder,
                    Err(_) => continue,
                },
            };
            self.addresses.push(address);
            self.holders.push(holder);
        }
        self.link.addresses.clone_from(&self.addresses);
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Whether a port of these addresses takes what is sent to `destination`.
fn is_for(destination: IpAddr, addresses: &[IpAddr]) -> bool {
    destination.is_multicast() || addresses.contains(&destination)
}

/// Takes apart what the socket delivered; `None`: it is not UDP to port 4791, or its lengths are wrong.
fn parse(bytes: &[u8]) -> Option<Arrived<'_>> {
    let (segment, frame) = headers::split_offload(bytes)?;
    let (_, packet) = Ethernet::split(frame).ok()?;
    let (ip, packet) = Ip::split(packet).ok()?;
    let (udp, payload) = Udp::split(packet).ok()?;
    let identification = match ip {
        Ip::V4(ip) => Some(ip.identification),
        Ip::V6(_) => None,
    };
    (udp.destination_port == UDP_PORT).then_some(Arrived {
        source: ip.source(),
        destination: ip.destination(),
        source_port: udp.source_port,
        traffic_class: ip.traffic_class(),
        hop_limit: ip.hop_limit(),
        identification,
        segment,
        payload,
    })
}

impl fmt::Debug for PacketPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketPort").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
