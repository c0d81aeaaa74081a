//! The sockets of multicast groups: one for each, because a socket that is bound to an address of this host hears of
//! no group, and one that is bound to all of them would hear what is for other processes.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::epoll;

use super::local::{set_receive_options, socket_address};
use super::receive::Receiver;
use crate::port::interface::index_of;
use crate::port::sys::{self, ReceiveBatch};
use crate::port::{PortCounters, membership};
use crate::wire::{Arrival, UDP_PORT};

/// The groups that were joined.
pub(super) struct Groups {
    receivers: Vec<Receiver>,
    /// One descriptor that stands for all of their sockets, which come and go.
    poll: OwnedFd,
    /// Which one the next burst is received for first.
    turn: usize,
    /// Whether the last look found something.
    had_last: bool,
}

impl Groups {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { receivers: Vec::new(), poll: epoll::create(epoll::CreateFlags::CLOEXEC)?, turn: 0, had_last: false })
    }

    /// Readable when something arrived for a group.
    pub(super) fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Joins `group` on the interfaces of `addresses`.
    pub(super) fn join(&mut self, group: IpAddr, addresses: &[IpAddr]) -> io::Result<()> {
        if self.receivers.iter().any(|receiver| receiver.address == group) {
            return Ok(());
        }
        let socket = membership::join(group, addresses)?;
        set_receive_options(&socket, group)?;
        // The other processes of this host that are members share the port.
        socket.set_reuse_address(true)?;
        // Only what comes in where it was joined.
        let (level, option) = match group {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL),
        };
        let _ = sys::set_option(socket.as_fd(), level, option, 0);
        socket.bind(&socket_address(group, UDP_PORT, scope(group, addresses)?).into())?;
        epoll::add(&self.poll, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        self.receivers.push(Receiver::new(group, socket));
        Ok(())
    }

    /// Ends that; closing the socket takes it out of the poll set.
    pub(super) fn leave(&mut self, group: IpAddr) {
        self.receivers.retain(|receiver| receiver.address != group);
    }

    /// Whether something was there for a group when it was last looked at.
    pub(super) fn had_last(&self) -> bool {
        self.had_last
    }

    /// Receives a burst for one of the groups.
    pub(super) fn receive(
        &mut self,
        batch: &mut ReceiveBatch,
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        let count = self.receivers.len();
        for _ in 0..count {
            let turn = self.turn % count;
            self.turn = turn + 1;
            let Some(receiver) = self.receivers.get_mut(turn) else { break };
            let datagrams = receiver.receive(batch, None, counters, sink)?;
            if datagrams > 0 {
                self.had_last = true;
                return Ok(datagrams);
            }
        }
        self.had_last = false;
        Ok(0)
    }
}

/// The interface index with which a socket is bound to a group: an IPv6 group of a link or an interface needs one.
fn scope(group: IpAddr, addresses: &[IpAddr]) -> io::Result<u32> {
    let is_narrow = |v6: Ipv6Addr| matches!(v6.octets(), [0xff, flags_and_scope, ..] if flags_and_scope & 0xf <= 2);
    match group {
        IpAddr::V6(v6) if is_narrow(v6) => match addresses.iter().find(|address| address.is_ipv6()) {
            Some(address) => index_of(*address),
            None => Ok(0),
        },
        _ => Ok(0),
    }
}
