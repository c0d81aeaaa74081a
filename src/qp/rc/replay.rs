//! What a responder remembers of READs, ATOMICs and FLUSHes, to answer a request that comes again (IBTA 9.7.5.1.4).

use std::collections::VecDeque;

use crate::memory::PdNumber;
use crate::wire::Psn;

/// A READ or ATOMIC that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Executed {
    /// Its first PSN.
    pub(super) first: Psn,
    /// Its last PSN.
    pub(super) last: Psn,
    pub(super) kind: ExecutedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecutedKind {
    /// A READ: its bytes are read again from memory.
    Read {
        /// Whose memory it read.
        pd: PdNumber,
        /// Where it began.
        address: u64,
        rkey: u32,
        length: u32,
    },
    /// An ATOMIC: it is never executed twice, so its answer is kept.
    Atomic {
        /// What was there before.
        original: u64,
    },
    /// An ATOMIC WRITE or a FLUSH, which is answered without data.
    Done,
}

/// The newest executed READs and ATOMICs, as many as may be outstanding.
#[derive(Debug)]
pub(super) struct Replay {
    executed: VecDeque<Executed>,
    capacity: usize,
}

impl Replay {
    pub(super) fn new(capacity: usize) -> Self {
        Self { executed: VecDeque::with_capacity(capacity), capacity }
    }

    /// How many are remembered.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes how many are remembered; the oldest go first.
    pub(super) fn resize(&mut self, capacity: usize) {
        let excess = self.executed.len().saturating_sub(capacity);
        self.executed.drain(..excess);
        self.capacity = capacity;
    }

    /// Remembers one, and forgets the oldest when there are too many.
    pub(super) fn push(&mut self, executed: Executed) {
        if self.executed.len() >= self.capacity {
            self.executed.pop_front();
        }
        self.executed.push_back(executed);
    }

    /// The one that `psn` belongs to.
    pub(super) fn find(&self, psn: Psn) -> Option<Executed> {
        let holds = |one: &&Executed| !psn.is_before(one.first) && !one.last.is_before(psn);
        self.executed.iter().rev().find(holds).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(first: u32, last: u32) -> Executed {
        let kind = ExecutedKind::Read { pd: PdNumber(1), address: 0, rkey: 1, length: 1 };
        Executed { first: Psn::new(first), last: Psn::new(last), kind }
    }

    #[test]
    fn a_psn_finds_its_request_until_it_is_forgotten() {
        let mut replay = Replay::new(2);
        replay.push(read(0xff_fffe, 1));
        replay.push(read(2, 2));
        assert_eq!(replay.find(Psn::new(0)), Some(read(0xff_fffe, 1)));
        assert_eq!(replay.find(Psn::new(3)), None);
        replay.push(read(3, 9));
        assert_eq!(replay.find(Psn::new(0)), None);
        assert_eq!(replay.find(Psn::new(2)), Some(read(2, 2)));
        assert_eq!(replay.find(Psn::new(9)), Some(read(3, 9)));
        replay.resize(1);
        assert_eq!((replay.find(Psn::new(2)), replay.find(Psn::new(9))), (None, Some(read(3, 9))));
    }
}
