//! Several processes on one address: which of them a packet is for.
//!
//! A queue pair number is `slot << 16 | n`. Each open device (in whatever process) has a *slot* of its interface, so the high
//! byte of the destination says whose a packet is. For each address there is a group of UDP sockets on port 4791,
//! one for each slot, and a filter in the kernel that picks the socket by that byte; a packet socket filters by it itself.
//!
//! There is no daemon, and nobody in charge who could be missed:
//!
//! - A slot is held by holding a name: an abstract Unix socket (`unix(7)`) `uroce-1/INTERFACE/SLOT`, INTERFACE being its index.
//!   The kernel keeps a name to one holder in a network namespace, and frees it when that ends, however it ends.
//! - All sockets of a group lie in an *envelope*: a Unix socket in whose receive queue they wait as one message that is only
//!   ever peeked at. Each holder of a slot has the same envelope open, so no socket of the group closes before the last of
//!   them ends: places in the group never move, whoever is killed. When the last one ends, nothing is left.
//! - Whoever connects to a slot's name is given the envelopes of its addresses. So a newcomer asks all holders at once, and
//!   any that still answers will do. Slots are taken one after the other, under a name that serves as a lock.
//!
//! # Trust
//! Every user of the network namespace can take a slot, whatever its user id, as every one could take port 4791; those who share
//! an address can read and forge what is for each other. Give those who must not a network namespace of their own.

mod ask;
mod group;
mod handover;
mod name;
mod room;
#[cfg(test)]
mod tests;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;

use group::Group;
pub(super) use handover::Handover;
use name::Opening;

/// How long a newcomer waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a busy port is tried again: a process that ends frees its name and its sockets one after the other.
const ENDING: Duration = Duration::from_millis(200);

/// Why a slot, or an address for it, could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// When every slot of the interface is taken.
    #[error("all {} slots of the interface are taken; end a program that has it open", Slot::COUNT - 1)]
    Full,
    /// When processes that hold the address, or the turn to take a slot, do not answer: stopped, or hung.
    #[error("{what}: no answer from {}; continue it (kill -CONT) or end it", list(.pids))]
    Silent {
        /// What was asked for.
        what: String,
        /// The processes; 0 stands for one of another PID namespace.
        pids: Vec<u32>,
    },
    /// When the system refused; the text says what to do.
    #[error(transparent)]
    System(#[from] io::Error),
}

fn list(pids: &[u32]) -> String {
    let pids: Vec<_> = pids.iter().map(|pid| format!("process {pid}")).collect();
    pids.join(", ")
}

/// The place of one open device among those that share its interface.
///
/// Give it to [`UdpPort::share`](super::UdpPort::share) or [`PacketPort::share`](super::PacketPort::share), and have a thread
/// call [`answer`](Self::answer) whenever its [`descriptor`](AsRawFd::as_raw_fd) can be read, or newcomers get no address that
/// only this one has.
pub struct Slot {
    number: u8,
    interface: u32,
    /// In front of the name, so that the sockets are closed when the name is free.
    groups: Mutex<Vec<Group>>,
    handover: Handover,
    /// Bound to the name, and listening.
    listener: OwnedFd,
}

impl Slot {
    /// Slots of an interface, and sockets of an address. Slot 0 belongs to queue pair 1 and is nobody's; the filter sends
    /// there what is for slots beyond.
    pub const COUNT: u8 = 128;

    /// Takes a slot of the interface of this index that nobody has, with `addresses` of it.
    ///
    /// It is drawn by lot: what is still on its way to a process that ended is unlikely to meet the next one.
    ///
    /// # Errors
    /// [`SlotError`] says what is wrong and what to do; waiting for others is bounded to a few seconds.
    pub fn take(interface: u32, addresses: &[IpAddr]) -> Result<Arc<Self>, SlotError> {
        let _turn = Opening::wait(PATIENCE)?;
        let (number, listener) = free_slot(interface)?;
        let slot = Self {
            number,
            interface,
            groups: Mutex::default(),
            handover: Handover::open(interface, number)?,
            listener,
        };
        *slot.groups() = obtain(interface, number, addresses)?;
        name::listen(&slot.listener)?;
        Ok(Arc::new(slot))
    }

    /// The number: the high byte of queue pair numbers.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Gets hold of further addresses of the interface, so that a port can take them without waiting; what cannot be had is left
    /// out. Addresses that are not among them any more are given up.
    ///
    /// # Errors
    /// Only when it is not this process's turn in time; nothing has changed then.
    pub fn prepare(&self, addresses: &[IpAddr]) -> Result<(), SlotError> {
        let missing: Vec<IpAddr> = {
            let mut groups = self.groups();
            groups.retain(|group| addresses.contains(&group.address));
            addresses.iter().copied().filter(|address| groups.iter().all(|group| group.address != *address)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let _turn = Opening::wait(PATIENCE)?;
        for address in missing {
            // One that is busy elsewhere must not keep the others out.
            if let Ok(groups) = obtain(self.interface, self.number, &[address]) {
                self.groups().extend(groups);
            }
        }
        Ok(())
    }

    /// Tells whoever asked which addresses this process has; without waiting.
    pub fn answer(&self) {
        ask::answer(&self.listener, &self.groups());
    }

    /// The slot's socket on port 4791 of `address`, with nothing in it: what was there was for a process that has ended.
    pub(super) fn socket(&self, address: IpAddr) -> io::Result<Socket> {
        let groups = self.groups();
        let group = groups.iter().find(|group| group.address == address).ok_or_else(|| {
            let text = format!("UDP port 4791 of {address} is not among those this process shares");
            io::Error::new(io::ErrorKind::AddrNotAvailable, text)
        })?;
        group.socket(self.number)
    }

    /// Datagrams that other processes of the interface hand over, and that go to them.
    pub(super) fn handover(&self) -> &Handover {
        &self.handover
    }

    /// A thread that panicked with it left a list of groups, which is sound.
    fn groups(&self) -> MutexGuard<'_, Vec<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for Slot {
    /// Readable when a newcomer asks: then [`answer`](Slot::answer).
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("number", &self.number).field("interface", &self.interface).finish_non_exhaustive()
    }
}

/// A slot that nobody has, and the socket that holds its name.
fn free_slot(interface: u32) -> Result<(u8, OwnedFd), SlotError> {
    // The keys of a hasher are random, and all that is asked here is not to be the same twice.
    let first = RandomState::new().build_hasher().finish() % u64::from(Slot::COUNT - 1);
    let first = u8::try_from(first).unwrap_or(0);
    for step in 0..Slot::COUNT - 1 {
        let number = 1 + (first + step) % (Slot::COUNT - 1);
        match name::hold(&name::slot(interface, number)?) {
            Ok(listener) => return Ok((number, listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(SlotError::Full)
}

/// The groups of `addresses`: new ones where nobody has the port, else those of the holders of other slots than `own`.
fn obtain(interface: u32, own: u8, addresses: &[IpAddr]) -> Result<Vec<Group>, SlotError> {
    let mut groups = Vec::new();
    let started = Instant::now();
    // To be tried first: where the port is free, nobody needs to be waited for.
    while let Some(busy) = create_free(addresses, &mut groups)? {
        let silent = ask::collect(ask::members(interface, own)?, addresses, &mut groups)?;
        if addresses.iter().all(|address| groups.iter().any(|group| group.address == *address)) {
            break;
        }
        if !silent.is_empty() {
            return Err(SlotError::Silent { what: busy.to_string(), pids: silent });
        }
        if started.elapsed() > ENDING {
            return Err(busy.into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(groups)
}

/// Makes groups of those `addresses` that have none and whose port is free; gives what the system says of one that is not.
fn create_free(addresses: &[IpAddr], groups: &mut Vec<Group>) -> io::Result<Option<io::Error>> {
    let mut busy = None;
    for &address in addresses {
        if groups.iter().any(|group| group.address == address) {
            continue;
        }
        match Group::create(address) {
            Ok(group) => groups.push(group),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => busy = Some(error),
            Err(error) => return Err(error),
        }
    }
    Ok(busy)
}
