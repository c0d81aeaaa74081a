//! Frames in and out. A port knows IP, UDP and the ICRC; it knows nothing of queue pairs.

mod arrived;
pub mod fault;
pub mod interface;
mod ip;
mod membership;
mod message;
mod netlink;
pub mod packet;
pub mod pcap;
mod queue;
mod random;
mod seal;
pub mod sim;
pub mod slots;
mod sys;
#[cfg(test)]
mod tests;
pub mod udp;

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

pub use fault::{Fault, FaultConfig, FaultCounters};
pub use interface::{Interface, InterfaceAddress, InterfaceChanges, interfaces};
pub use packet::PacketPort;
pub use pcap::Capture;
pub use sim::{Network, SimConfig, SimCounters, SimDatagram, SimPort, Verdict};
pub use slots::{Slot, SlotError};
pub use udp::UdpPort;

use crate::wire::{Arrival, Flow};

/// A way to the network. Transmitting is `room`, fill, `commit`, again and again, then `flush`.
///
/// Consecutive commits of one flow and one length (only the last may be shorter) form a *run*,
/// which a port hands to the kernel in one call where it can.
pub trait Port: Send {
    /// The local addresses that this port sends from and receives for.
    fn addresses(&self) -> &[IpAddr];

    /// Where to write the next datagram: at least [`MAX_DATAGRAM`](crate::wire::MAX_DATAGRAM) bytes.
    ///
    /// `None` when the transmit buffer is full: flush first. Called again before the commit, it gives the same bytes, unchanged.
    fn room(&mut self) -> Option<&mut [u8]>;

    /// Takes the first `length` bytes of what [`room`](Port::room) gave, BTH to pad, as a datagram of `flow`,
    /// and seals it with the ICRC.
    ///
    /// # Panics
    /// When `length` does not fit in the room that was given (a bug of the caller, never of a peer).
    fn commit(&mut self, flow: &Flow, length: usize);

    /// Sends what was committed.
    ///
    /// What the kernel has no room for now stays queued: see [`backlog`](Port::backlog). What it refuses
    /// (no route, for instance) is dropped and counted, as a wire would lose it.
    ///
    /// # Errors
    /// The port is broken for good (its descriptor, its ring).
    fn flush(&mut self) -> io::Result<()>;

    /// Whether committed datagrams still wait for room in the kernel after the last [`flush`](Port::flush). Flush again when
    /// one of the [`backlog_descriptors`](Port::backlog_descriptors) can be written.
    fn backlog(&self) -> bool;

    /// Takes a burst of arrived datagrams, without waiting, and hands those that were sealed with a right ICRC to `sink`.
    ///
    /// Returns how many it took, with those that it dropped and counted. Zero: nothing was found; a port of several
    /// addresses may not have looked at all of them, but does within a few calls.
    ///
    /// # Errors
    /// The port is broken for good.
    fn receive(&mut self, sink: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize>;

    /// The descriptors to wait on with `poll(2)`: readable when something arrived. Empty for a simulated port.
    fn descriptors(&self) -> Vec<RawFd>;

    /// The descriptors to wait on with `poll(2)` while there is a [`backlog`](Port::backlog): writable when the kernel has room
    /// again. Empty when there is none, or where the port can only be asked to flush again later.
    fn backlog_descriptors(&self) -> Vec<RawFd>;

    /// Has what is sent to a multicast group delivered here, too, from now on: tells the network (IGMP, MLD). What this host
    /// itself sends to the group comes as well, where the network is one that can do so.
    ///
    /// # Errors
    /// There is no local address of the group's family, the kernel refused, or the port has no groups.
    fn join(&mut self, group: IpAddr) -> io::Result<()>;

    /// Ends that.
    fn leave(&mut self, group: IpAddr);

    /// Takes those of `addresses` that it does not have, and gives up its others. One that cannot be taken, because its UDP
    /// port is busy for instance, is left out: [`addresses`](Port::addresses) says what it has now. What waited to be sent may
    /// be lost; the [`descriptors`](Port::descriptors) may be others afterwards.
    fn set_addresses(&mut self, addresses: &[IpAddr]);

    /// What the port counted.
    fn counters(&self) -> PortCounters;
}

/// What a port saw and dropped. Datagrams, not system calls, unless the name says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortCounters {
    /// Datagrams handed to the network.
    pub sent: u64,
    /// Bytes of them, BTH to ICRC.
    pub sent_bytes: u64,
    /// Datagrams handed to the sink.
    pub received: u64,
    /// Bytes of them, BTH to ICRC.
    pub received_bytes: u64,
    /// System calls that sent something.
    pub send_calls: u64,
    /// System calls that received something.
    pub receive_calls: u64,
    /// Datagrams the kernel refused to send.
    pub send_errors: u64,
    /// Datagrams dropped for a wrong ICRC.
    pub icrc_errors: u64,
    /// Datagrams dropped as too short, too long, or not RoCE v2.
    pub malformed: u64,
    /// Datagrams the kernel dropped because the receive buffer was full (`SO_RXQ_OVFL`), where it tells.
    pub receive_overflow: u64,
    /// Datagrams that came here and were for another process of the address, which got them (see [`slots`]). Zero between uroce
    /// peers.
    pub handed_over: u64,
    /// Those that it did not get: it had no room, or is gone.
    pub handover_errors: u64,
}

impl PortCounters {
    /// Counts a frame that was dropped on arrival.
    fn note(&mut self, refused: seal::Refused) {
        match refused {
            seal::Refused::Malformed => self.malformed += 1,
            seal::Refused::Icrc => self.icrc_errors += 1,
        }
    }
}

/// Waits until one of `readable` can be read or one of `writable` written, or until `timeout` passes (`None`: for ever).
/// Returns whether any became ready. This is `ppoll(2)`, so the timeout is exact to the nanosecond clock.
///
/// # Errors
/// Those of `ppoll(2)`; an interruption by a signal is none, but `Ok(false)`.
pub fn wait(readable: &[RawFd], writable: &[RawFd], timeout: Option<Duration>) -> io::Result<bool> {
    match sys::poll(readable, writable, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        result => result,
    }
}

/// As [`wait`], for a caller to whom an interruption by a signal matters: it is an error of the kind
/// [`Interrupted`](io::ErrorKind::Interrupted).
///
/// # Errors
/// Those of `ppoll(2)`.
pub fn wait_interruptible(readable: &[RawFd], writable: &[RawFd], timeout: Option<Duration>) -> io::Result<bool> {
    sys::poll(readable, writable, timeout)
}
