//! Who sends next, and whose timer fires next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::time::Instant;

/// Queue pairs that have something to send, in turn.
#[derive(Debug, Default)]
pub(super) struct Ready {
    queue: VecDeque<usize>,
    /// By index: whether it is in the queue.
    queued: Vec<bool>,
    /// Packets that the front one has sent in this turn.
    spent: u32,
}

impl Ready {
    pub(super) fn contains(&self, index: usize) -> bool {
        self.queued.get(index).copied().unwrap_or(false)
    }

    /// Adds one, unless it waits already.
    pub(super) fn push(&mut self, index: usize) {
        if self.queued.len() <= index {
            self.queued.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.queued[index], true) {
            self.queue.push_back(index);
        }
    }

    /// Those that have something to send.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = usize> {
        self.queue.iter().copied()
    }

    /// Whose turn it is.
    pub(super) fn front(&self) -> Option<usize> {
        self.queue.front().copied()
    }

    /// The front one sent a packet; after `quantum` of them its turn ends.
    pub(super) fn spend(&mut self, quantum: u32) {
        self.spent += 1;
        if self.spent >= quantum {
            self.spent = 0;
            self.queue.rotate_left(1.min(self.queue.len()));
        }
    }

    /// The front one has nothing to send.
    pub(super) fn pop(&mut self) {
        self.spent = 0;
        if let Some(index) = self.queue.pop_front() {
            self.queued[index] = false;
        }
    }

    /// Takes one out that no longer exists.
    pub(super) fn remove(&mut self, index: usize) {
        if self.contains(index) {
            self.queued[index] = false;
            self.queue.retain(|&other| other != index);
            self.spent = 0;
        }
    }
}

/// The earliest deadline of each queue pair. A deadline that moves to later stays noted early: whoever it wakes for
/// nothing notes the later one, which is cheaper than a change of the heap with every acknowledge.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
    /// By index: the earliest deadline that is in the heap.
    noted: Vec<Option<Instant>>,
}

impl Deadlines {
    /// The queue pair at `index` is to be woken at `at`.
    pub(super) fn note(&mut self, index: usize, at: Instant) {
        if self.noted.len() <= index {
            self.noted.resize(index + 1, None);
        }
        if self.noted[index].is_none_or(|known| at < known) {
            self.noted[index] = Some(at);
            self.heap.push(Reverse((at, index)));
        }
    }

    /// When the next one is to be woken.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|&Reverse((at, _))| at)
    }

    /// One that is due; what it waits for now is to be noted anew.
    pub(super) fn pop(&mut self, now: Instant) -> Option<usize> {
        while let Some(&Reverse((at, index))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if self.noted.get(index).copied().flatten() == Some(at) {
                self.noted[index] = None;
                return Some(index);
            }
            // An earlier deadline stood for this one.
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_end_after_a_quantum() {
        let mut ready = Ready::default();
        for index in [3, 5, 3] {
            ready.push(index);
        }
        assert_eq!(ready.front(), Some(3));
        ready.spend(2);
        assert_eq!(ready.front(), Some(3));
        ready.spend(2);
        assert_eq!(ready.front(), Some(5));
        ready.pop();
        assert_eq!((ready.front(), ready.contains(5)), (Some(3), false));
        ready.remove(3);
        assert_eq!(ready.front(), None);
    }

    #[test]
    fn a_deadline_that_moves_to_later_wakes_early_once() {
        let at = Instant::from_nanos;
        let mut deadlines = Deadlines::default();
        deadlines.note(0, at(10));
        deadlines.note(0, at(20));
        deadlines.note(1, at(15));
        deadlines.note(1, at(12));
        assert_eq!(deadlines.next(), Some(at(10)));
        assert_eq!(deadlines.pop(at(9)), None);
        assert_eq!(deadlines.pop(at(10)), Some(0));
        deadlines.note(0, at(20));
        assert_eq!(deadlines.pop(at(30)), Some(1));
        assert_eq!(deadlines.pop(at(30)), Some(0));
        assert_eq!(deadlines.pop(at(30)), None);
        assert_eq!(deadlines.next(), None);
    }
}
