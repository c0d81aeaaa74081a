//! Queue pairs by number.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::qp::{HoldBudget, QpInit, QueuePair};
use crate::wire::Qpn;

/// The queue pairs of an endpoint; one at `index` has the number `slot << 16 | FIRST + index`.
#[derive(Debug)]
pub(super) struct QueuePairs {
    slot: u8,
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

    pub(super) fn new(slot: u8, hold_budget: HoldBudget) -> Self {
        Self { slot, hold_budget, pairs: Vec::new(), free: VecDeque::new() }
    }

    /// Where the queue pair `qpn` would be, if it is one of this endpoint's.
    #[inline]
    pub(super) fn find(&self, qpn: Qpn) -> Option<usize> {
        let number = qpn.value();
        if number >> 16 != u32::from(self.slot) {
            return None;
        }
        let index = (number & 0xffff).checked_sub(Self::FIRST)? as usize;
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
        // The index is below 2^16.
        let qpn = Qpn::new(u32::from(self.slot) << 16 | (Self::FIRST + index as u32));
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
