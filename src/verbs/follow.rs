//! Following the interface of an open device: which addresses it has, and whether its link works.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use super::device::{Device, LinkState};
use crate::driver::{Driver, quietly};
use crate::error::{Error, Result};
use crate::event::AsyncEvent;
use crate::port::{self, Interface, InterfaceChanges, Slot, interfaces};

/// What stands at an index of the table of GIDs that has none.
const NONE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Where an open device is on the network, as of now.
#[derive(Debug)]
pub(super) struct Place {
    gids: RwLock<Vec<IpAddr>>,
    state: RwLock<LinkState>,
}

impl Place {
    pub(super) fn new(gids: Vec<IpAddr>, state: LinkState) -> Arc<Self> {
        Arc::new(Self { gids: RwLock::new(gids), state: RwLock::new(state) })
    }

    /// The table of GIDs, as addresses; an unspecified one stands for an index without a GID.
    pub(super) fn gids(&self) -> Vec<IpAddr> {
        self.gids.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the link works.
    pub(super) fn state(&self) -> LinkState {
        *self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the interface's state, or that it is gone; returns the event that this is, if it changed.
    fn follow_state(&self, interface: Option<&Interface>) -> Option<AsyncEvent> {
        let now = interface.map_or(LinkState::Down, LinkState::of);
        let before = std::mem::replace(&mut *self.state.write().unwrap_or_else(PoisonError::into_inner), now);
        match (before == LinkState::Active, now == LinkState::Active) {
            (false, true) => Some(AsyncEvent::PortActive),
            (true, false) => Some(AsyncEvent::PortError),
            _ => None,
        }
    }

    /// Takes over the interface's addresses; returns whether that changed the table.
    fn follow_addresses(&self, driver: &Driver, slot: Option<&Slot>, interface: Option<&Interface>) -> bool {
        let current = interface.map(Device::addresses_of).unwrap_or_default();
        let before = self.gids();
        let mut table = retain(&before, &current);
        if table == before {
            return false;
        }
        let wanted: Vec<IpAddr> = table.iter().copied().filter(|gid| *gid != NONE).collect();
        // Here, where waiting for others holds up nobody. What cannot be had is left out below.
        let _ = slot.map_or(Ok(()), |slot| slot.prepare(&wanted));
        let taken = driver.set_addresses(&wanted);
        // An address whose port is busy is none of ours.
        table.iter_mut().filter(|gid| !taken.contains(gid)).for_each(|gid| *gid = NONE);
        driver.command(|endpoint, _| endpoint.set_gids(table.clone()));
        *self.gids.write().unwrap_or_else(PoisonError::into_inner) = table;
        true
    }
}

/// The table `before`, with `current` as its addresses: those that stay keep their index, those that are gone leave it
/// free, and new ones take the first free index, as the kernel does it (`ib_cache_gid_add`).
fn retain(before: &[IpAddr], current: &[IpAddr]) -> Vec<IpAddr> {
    let mut table: Vec<IpAddr> = before.iter().map(|gid| if current.contains(gid) { *gid } else { NONE }).collect();
    for address in current {
        if table.contains(address) {
            continue;
        }
        match table.iter_mut().find(|gid| **gid == NONE) {
            Some(free) => *free = *address,
            None => table.push(*address),
        }
    }
    table
}

/// A thread that follows the interface until this is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Follows the interface of this index. Its addresses only when `addresses`: a program that named its own keeps them.
    pub(super) fn start(
        driver: Arc<Driver>,
        place: Arc<Place>,
        slot: Option<Arc<Slot>>,
        index: u32,
        addresses: bool,
    ) -> Result<Self> {
        let system = |error| Error::system("following the network interface", error);
        let changes = InterfaceChanges::watch().map_err(system)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| system(error.into()))?;
        let stop = Arc::new(stop);
        let stopped = Arc::clone(&stop);
        let thread = quietly("uroce-link", move || {
            follow(
                changes,
                &stopped,
                |interface| {
                    let event = place.follow_state(interface);
                    let changed = addresses && place.follow_addresses(&driver, slot.as_deref(), interface);
                    let events = event.into_iter().chain(changed.then_some(AsyncEvent::GidChange));
                    events.for_each(|event| driver.command(|endpoint, _| endpoint.push_event(event)));
                },
                index,
            );
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It fails only at 2^64 - 2 unread wake-ups.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which it has reported itself.
            let _ = thread.join();
        }
    }
}

/// Shows the interface of this index to `look` after each change of the network, `None` when it is gone, until `stop`.
fn follow(mut changes: InterfaceChanges, stop: &OwnedFd, look: impl Fn(Option<&Interface>), index: u32) {
    loop {
        // Changes between opening and watching are seen by looking once.
        if let Ok(all) = interfaces() {
            look(all.iter().find(|interface| interface.index == index));
        }
        let ready = port::wait(&[stop.as_raw_fd(), changes.as_raw_fd()], &[], None);
        let stopped = rustix::io::read(stop, &mut [0; 8]).is_ok();
        if stopped || ready.is_err() || changes.take().is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_index() {
        let address = |n: u8| IpAddr::from([192, 0, 2, n]);
        let table = [address(1), address(2), address(3)];
        assert_eq!(retain(&table, &table), table);
        let without = retain(&table, &[address(3), address(1)]);
        assert_eq!(without, [address(1), NONE, address(3)]);
        let refilled = retain(&without, &[address(1), address(3), address(4), address(5)]);
        assert_eq!(refilled, [address(1), address(4), address(3), address(5)]);
        assert_eq!(retain(&table, &[]), [NONE; 3]);
    }
}
