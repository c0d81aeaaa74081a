//! Asking the holders of slots for the groups of their addresses, and answering.
//!
//! Who connects has asked. The answer is one message for each address, with the envelope of its group, and a last one
//! that has none; a connection that ends without that was to a process that ended.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SocketFlags, SocketType};

use super::Slot;
use super::group::{Group, receive_descriptors, send_descriptors};
use super::name;
use crate::port::sys;

/// Bytes of a message: an IPv6 address, or an IPv4 one mapped into that.
const LEN: usize = 16;
/// The last message.
const END: [u8; LEN] = [0; LEN];

/// How long is waited for answers.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who holds a slot, and has been asked.
pub(super) struct Member {
    connection: OwnedFd,
    /// Whether it has so many newcomers waiting that it cannot be asked.
    is_full: bool,
}

/// Asks every holder of a slot of this interface, apart from `own`.
pub(super) fn members(interface: u32, own: u8) -> io::Result<Vec<Member>> {
    let mut members = Vec::new();
    let mut connection = name::socket(SocketType::SEQPACKET)?;
    for slot in (1..Slot::COUNT).filter(|slot| *slot != own) {
        let is_full = match net::connect(&connection, &name::slot(interface, slot)?) {
            Ok(()) => false,
            Err(Errno::AGAIN) => true,
            // Nobody has the name, or one who has not begun to listen, or ends just now.
            Err(_) => continue,
        };
        let next = name::socket(SocketType::SEQPACKET)?;
        members.push(Member { connection: std::mem::replace(&mut connection, next), is_full });
    }
    Ok(members)
}

/// Adds the groups of `wanted` to `groups` as `members` have them; ends when all are there or everybody has answered. Gives
/// the processes that have not within [`PATIENCE`].
pub(super) fn collect(mut members: Vec<Member>, wanted: &[IpAddr], groups: &mut Vec<Group>) -> io::Result<Vec<u32>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        members.retain(|member| member.is_full || take_answers(&member.connection, wanted, groups));
        let is_missing = |address: &IpAddr| groups.iter().all(|group| group.address != *address);
        let left = deadline.saturating_duration_since(Instant::now());
        if !wanted.iter().any(is_missing) || members.is_empty() || left.is_zero() {
            return Ok(members.iter().map(|member| name::pid(&member.connection)).collect());
        }
        let waiting: Vec<RawFd> =
            members.iter().filter(|member| !member.is_full).map(|member| member.connection.as_raw_fd()).collect();
        sys::poll(&waiting, &[], Some(left))?;
    }
}

/// Takes what has been answered; returns whether more is to come.
fn take_answers(connection: &OwnedFd, wanted: &[IpAddr], groups: &mut Vec<Group>) -> bool {
    loop {
        let mut message = END;
        match receive_descriptors(connection, &mut message, RecvFlags::empty()) {
            Ok((LEN, mut descriptors)) if message != END => {
                let address = Ipv6Addr::from(message).to_canonical();
                let is_new = wanted.contains(&address) && groups.iter().all(|group| group.address != address);
                if let Some(envelope) = descriptors.pop().filter(|_| is_new) {
                    groups.push(Group::given(address, envelope));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
}

/// Answers all who have asked. Who does not take the answer is not waited for.
pub(super) fn answer(listener: &OwnedFd, groups: &[Group]) {
    while let Ok(connection) = net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        let told = groups.iter().try_for_each(|group| {
            let address = match group.address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            send_descriptors(&connection, &address.octets(), &[group.envelope()])
        });
        let _ = told.and_then(|()| send_descriptors(&connection, &END, &[]));
    }
}
