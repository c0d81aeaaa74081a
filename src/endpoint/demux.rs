//! Queue pairs by number.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::qp::{HoldBudget, QpInit, QueuePair};
use crate::wire::Qpn;

/// The queue pairs of an endpoint. Their numbers count up in the slot from a random one on and around, so that what a peer
/// still sends to a process that was restarted does not meet a queue pair of its next life.
#[derive(Debug)]
pub(super) struct QueuePairs {
    slot: u8,
    /// The place in the slot of the one at index 0.
    start: usize,
    hold_budget: HoldBudget,
    pairs: Vec<Option<Box<QueuePair>>>,
    /// Indices that were used, the one free the longest in front: a number is not given out again soon, so that
    /// stray packets of its last connection do not meet the next one.
    free: VecDeque<usize>,
}

impl QueuePairs {
    /// The first number that the kernel's rxe gives out; those below are reserved.
    const FIRST: u32 = 17;
    /// Numbers in a slot.
    const NUMBERS: usize = (1 << 16) - Self::FIRST as usize;
    /// A number rests while fewer than this many were used.
    const REST: usize = 1024;

    /// No queue pairs; `start` is any number, drawn by lot.
    pub(super) fn new(slot: u8, start: u32, hold_budget: HoldBudget) -> Self {
        let start = start as usize % Self::NUMBERS;
        Self { slot, start, hold_budget, pairs: Vec::new(), free: VecDeque::new() }
    }

    /// Where the queue pair `qpn` would be, if it is one of this endpoint's.
    #[inline]
    pub(super) fn find(&self, qpn: Qpn) -> Option<usize> {
        let number = qpn.value();
        if number >> 16 != u32::from(self.slot) {
            return None;
        }
        let place = (number & 0xffff).checked_sub(Self::FIRST)? as usize;
        let index = (place + Self::NUMBERS - self.start) % Self::NUMBERS;
        self.get(index).map(|_| index)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&QueuePair> {
        self.pairs.get(index)?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut QueuePair> {
        self.pairs.get_mut(index)?.as_deref_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuePair> {
        self.pairs.iter().filter_map(Option::as_deref)
    }

    /// Where the queue pairs are that report to the completion queue `cq`.
    pub(super) fn completing_on(&self, cq: u32) -> Vec<usize> {
        let places = self.pairs.iter().enumerate();
        places.filter(|(_, pair)| pair.as_ref().is_some_and(|pair| pair.completes_on(cq))).map(|(at, _)| at).collect()
    }

    /// Makes a queue pair.
    pub(super) fn insert(&mut self, init: QpInit) -> Result<Qpn> {
        let index = if self.free.len() < Self::REST && self.pairs.len() < Self::NUMBERS {
            self.pairs.push(None);
            self.pairs.len() - 1
        } else {
            self.free.pop_front().ok_or(Error::Full { what: "the table of queue pairs", limit: Self::NUMBERS })?
        };
        let place = (self.start + index) % Self::NUMBERS;
        // The place is below 2^16.
        let qpn = Qpn::new(u32::from(self.slot) << 16 | (Self::FIRST + place as u32));
        self.pairs[index] = Some(Box::new(QueuePair::new(qpn, init, self.hold_budget.clone())));
        Ok(qpn)
    }

    /// Takes a queue pair out.
    pub(super) fn remove(&mut self, index: usize) -> Option<Box<QueuePair>> {
        let pair = self.pairs.get_mut(index)?.take()?;
        self.free.push_back(index);
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::PdNumber;
    use crate::queue::CompletionQueue;

    #[test]
    fn numbers_go_around_the_slot_and_are_found_again() {
        let cq = Arc::new(CompletionQueue::new(1, 1).unwrap());
        let start = QueuePairs::NUMBERS as u32 - 2;
        let mut pairs = QueuePairs::new(3, start, HoldBudget::new(0));
        let numbers = [0, 1, 2].map(|index| {
            let qpn = pairs.insert(QpInit::new(PdNumber(1), Arc::clone(&cq), Arc::clone(&cq))).unwrap();
            assert_eq!(pairs.find(qpn), Some(index));
            qpn.value()
        });
        assert_eq!(numbers, [0x3_fffe, 0x3_ffff, 0x3_0011]);
        for stranger in [0x3_0012, 0x3_fffd, 0x3_0010, 0x3_0000, 0x2_ffff, 1] {
            assert_eq!(pairs.find(Qpn::new(stranger)), None, "{stranger:#x}");
        }
    }
}
