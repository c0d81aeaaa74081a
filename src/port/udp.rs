//! UDP sockets: the port that needs no privilege.
//!
//! It receives on port 4791 of each of its addresses and transmits from sockets of its own, one for each source port that
//! flows ask for. Runs of datagrams go to the kernel in one call (`UDP_SEGMENT`) and come from it likewise (`UDP_GRO`).
//!
//! The ICRC covers fields of an IP header that the kernel writes, so this port builds on how it does: an unconnected socket
//! that may not fragment has DF set and an IPv4 ID of 0, and the datagrams cut from a run count it up from there.

mod group;
mod local;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use group::Groups;
use local::Local;
pub(super) use local::{explain, open, socket_address};
use transmit::SocketIndex;

use super::queue::Queue;
use super::slots::Slot;
use super::sys::ReceiveBatch;
use super::{Port, PortCounters};
use crate::wire::{Arrival, Flow};

/// A port over UDP sockets. See the [module](self).
pub struct UdpPort {
    addresses: Vec<IpAddr>,
    /// What it shares its addresses by; `None`: they are its own.
    slot: Option<Arc<Slot>>,
    locals: Vec<Local>,
    groups: Groups,
    queue: Queue<SocketIndex>,
    batch: ReceiveBatch,
    counters: PortCounters,
    /// Which address had something last.
    turn: usize,
    /// Calls of `receive`.
    looks: u32,
}

impl UdpPort {
    /// How often all addresses are looked at, in calls of `receive`.
    const LOOK_AT_ALL: u32 = 8;

    /// Takes UDP port 4791 of each of `addresses`, for itself alone.
    ///
    /// # Errors
    /// An address is not this host's; or its port 4791 is busy, because another RoCE v2 program or the kernel's
    /// `rdma_rxe` holds it. The text names the address.
    pub fn bind(addresses: &[IpAddr]) -> io::Result<Self> {
        Self::open(addresses, None)
    }

    /// Receives on port 4791 of each of `addresses` what is for `slot`, and leaves the rest to other processes.
    ///
    /// # Errors
    /// An address is not among those that `slot` has.
    pub fn share(addresses: &[IpAddr], slot: Arc<Slot>) -> io::Result<Self> {
        Self::open(addresses, Some(slot))
    }

    fn open(addresses: &[IpAddr], slot: Option<Arc<Slot>>) -> io::Result<Self> {
        let local = |&address| local_of(address, slot.as_deref());
        Ok(Self {
            addresses: addresses.to_vec(),
            locals: addresses.iter().map(local).collect::<io::Result<_>>()?,
            slot,
            groups: Groups::new()?,
            queue: Queue::new(),
            batch: ReceiveBatch::new(),
            counters: PortCounters::default(),
            turn: 0,
            looks: 0,
        })
    }

    /// Bytes that the kernel keeps for each address until they are received, its own overhead included (`SO_RCVBUF`); the
    /// least of them. What comes beyond is lost.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        let sizes = self.locals.iter().map(|local| local.receiver.socket.recv_buffer_size());
        sizes.reduce(|a, b| Ok(a?.min(b?))).unwrap_or(Ok(0))
    }
}

/// The sockets of one address.
fn local_of(address: IpAddr, slot: Option<&Slot>) -> io::Result<Local> {
    let scope = super::interface::scope_of(address)?;
    match slot {
        None => Local::bind(address, scope),
        Some(slot) => Local::over(slot.socket(address)?, address, scope),
    }
}

impl Port for UdpPort {
    fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.queue.room()
    }

    fn commit(&mut self, flow: &Flow, length: usize) {
        self.queue.commit(flow, length, &mut self.locals, &mut self.counters);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.queue.flush(&mut self.locals, &mut self.counters)
    }

    fn backlog(&self) -> bool {
        self.queue.backlog()
    }

    fn receive(&mut self, sink: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        // A program that polls looks often and mostly in vain, and each look at an address is a system call: usually only
        // the address that had something last is looked at, every eighth time all of them, from another one on.
        self.looks = self.looks.wrapping_add(1);
        let count = self.locals.len();
        let is_for_all = self.looks.is_multiple_of(Self::LOOK_AT_ALL);
        let handover = self.slot.as_deref().map(Slot::handover);
        let tries = if is_for_all { count } else { 1 };
        for _ in 0..tries {
            if tries > 1 {
                self.turn = (self.turn + 1) % count;
            }
            let Some(local) = self.locals.get_mut(self.turn) else { break };
            let datagrams = local.receiver.receive(&mut self.batch, handover, &mut self.counters, sink)?;
            if datagrams > 0 {
                return Ok(datagrams);
            }
        }
        if is_for_all || self.groups.had_last() {
            let datagrams = self.groups.receive(&mut self.batch, &mut self.counters, sink)?;
            if datagrams > 0 {
                return Ok(datagrams);
            }
        }
        let handover = handover.filter(|_| is_for_all);
        Ok(handover.map_or(0, |handover| handover.take(&self.addresses, &mut self.counters, sink)))
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let receivers = self.locals.iter().map(|local| local.receiver.socket.as_raw_fd());
        let handover = self.slot.iter().map(|slot| slot.handover().descriptor());
        receivers.chain([self.groups.descriptor()]).chain(handover).collect()
    }

    fn backlog_descriptors(&self) -> Vec<RawFd> {
        let full = self.queue.full_ways();
        let socket = |(local, transmitter): SocketIndex| Some(self.locals.get(local)?.socket(transmitter).as_raw_fd());
        let mut sockets: Vec<RawFd> = full.filter_map(socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        sockets
    }

    fn set_addresses(&mut self, addresses: &[IpAddr]) {
        // What waits to be sent names its socket by place, and places change.
        let _ = self.queue.flush(&mut self.locals, &mut self.counters);
        self.queue = Queue::new();
        let mut kept = std::mem::take(&mut self.locals);
        for &address in addresses {
            let local = match kept.iter().position(|local| local.address == address) {
                Some(place) => Ok(kept.swap_remove(place)),
                None => local_of(address, self.slot.as_deref()),
            };
            self.locals.extend(local);
        }
        self.addresses = self.locals.iter().map(|local| local.address).collect();
        self.turn = 0;
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.groups.join(group, &self.addresses)
    }

    fn leave(&mut self, group: IpAddr) {
        self.groups.leave(group);
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl fmt::Debug for UdpPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpPort").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
