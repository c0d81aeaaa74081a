//! Requests that arrived before their turn, kept until what is missing before them has come.
//!
//! A responder may drop them, and the kernel's rxe does; then all of them must be sent again. Keeping them changes
//! nothing on the wire: the gap is NAKed once, and when it is filled the acknowledge jumps to the newest request that
//! is executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::wire::Psn;

/// Bytes that all queue pairs of an endpoint may hold together; shared by what holds them.
#[derive(Clone, Debug)]
pub(crate) struct HoldBudget(Arc<AtomicUsize>);

impl HoldBudget {
    /// A budget of `bytes`; with none, nothing is held.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Takes `bytes`, if there are so many.
    fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The packets of one queue pair that wait for their turn.
#[derive(Debug)]
pub(super) struct Held {
    /// By PSN, ascending.
    packets: Vec<(Psn, Box<[u8]>)>,
    budget: HoldBudget,
}

impl Held {
    /// A peer that has this many packets in flight behind a gap is far ahead; what comes beyond is dropped.
    const MOST: usize = 128;
    /// So many PSNs ahead no requester is that waits for acknowledges: READs of 64 KiB in 256-byte packets included.
    const FARTHEST: u32 = 8192;

    pub(super) fn new(budget: HoldBudget) -> Self {
        Self { packets: Vec::new(), budget }
    }

    /// Keeps a packet, BTH to pad, that comes `ahead` PSNs before its turn, unless one with this PSN is there or there is no
    /// room.
    pub(super) fn push(&mut self, psn: Psn, ahead: u32, datagram: &[u8]) {
        if ahead > Self::FARTHEST {
            return;
        }
        let place = self.packets.partition_point(|(other, _)| other.is_before(psn));
        let is_known = self.packets.get(place).is_some_and(|(other, _)| *other == psn);
        if !is_known && self.packets.len() < Self::MOST && self.budget.take(datagram.len()) {
            self.packets.insert(place, (psn, datagram.into()));
        }
    }

    /// The packet whose turn it is, if it is here. Those whose turn is over are dropped.
    pub(super) fn take(&mut self, expected: Psn) -> Option<Box<[u8]>> {
        let late = self.packets.partition_point(|(psn, _)| psn.is_before(expected));
        for (_, datagram) in self.packets.drain(..late) {
            self.budget.give_back(datagram.len());
        }
        let is_due = self.packets.first().is_some_and(|(psn, _)| *psn == expected);
        let (_, datagram) = is_due.then(|| self.packets.remove(0))?;
        self.budget.give_back(datagram.len());
        Some(datagram)
    }

    /// The newest PSN that is held.
    pub(super) fn newest(&self) -> Option<Psn> {
        self.packets.last().map(|(psn, _)| *psn)
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        for (_, datagram) in self.packets.drain(..) {
            self.budget.give_back(datagram.len());
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(value: u32) -> Psn {
        Psn::new(value)
    }

    #[test]
    fn packets_come_out_in_their_turn_across_the_wrap() {
        let mut held = Held::new(HoldBudget::new(100));
        for value in [1, 0xff_ffff, 3, 1] {
            held.push(psn(value), 1, &[value as u8]);
        }
        assert_eq!(held.take(psn(0xff_fffe)), None);
        assert_eq!(held.take(psn(0xff_ffff)).as_deref(), Some(&[0xff][..]));
        assert_eq!(held.take(psn(0)), None);
        assert_eq!(held.newest(), Some(psn(3)));
        assert_eq!(held.take(psn(2)), None, "the turn of 1 is over");
        assert_eq!(held.take(psn(3)).as_deref(), Some(&[3][..]));
        assert_eq!(held.newest(), None);
    }

    #[test]
    fn what_is_held_is_bounded_and_comes_back_to_the_budget() {
        let budget = HoldBudget::new(10);
        let mut held = Held::new(budget.clone());
        held.push(psn(1), 1, &[0; 6]);
        held.push(psn(2), 2, &[0; 6]);
        assert_eq!(held.newest(), Some(psn(1)), "no room for the second");
        held.push(psn(9), Held::FARTHEST + 1, &[0; 1]);
        assert_eq!(held.newest(), Some(psn(1)), "too far ahead to be true");
        drop(held);
        assert!(budget.take(10));
        let mut none = Held::new(HoldBudget::new(0));
        none.push(psn(1), 1, &[0; 1]);
        assert_eq!(none.newest(), None, "switched off");
    }
}
