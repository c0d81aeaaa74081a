//! The tail probe: when nothing was heard for about two round trips, one packet asks what became of the others.
//!
//! The ack timeout that programs set is long (67 ms is usual), and what was lost behind the last packet that arrives
//! shows by nothing else. A probe costs one packet and no retry, so it may be wrong: the peer is often merely slow.

use super::inflight::Cursor;
use super::requester::{Next, Requester};
use crate::qp::common::Common;
use crate::time::Instant;

/// Which packet is to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// The newest: a peer that lacks something before it says so with a NAK, one that has all acknowledges all.
    Newest,
    /// The oldest that is not acknowledged: a peer that has NAKed it, and stays silent until it comes, takes it.
    Oldest,
}

impl Requester {
    /// Nothing was heard for a while: chooses what to ask with. In turn the newest packet and the oldest; but a READ or
    /// ATOMIC is only asked for again after three times the wait, since its answer may be long, and on its way.
    pub(super) fn probe(&mut self, common: &mut Common, now: Instant) {
        if !self.queue.is_busy() {
            return;
        }
        let turn = self.retry.probes;
        self.retry.probes += 1;
        self.retry.restart_probe(now);
        // Another gap in the answers is news again.
        self.rewound_for = None;
        self.lost |= turn > 0;
        let awaits_answer = self.queue.front().is_some_and(|wqe| wqe.request.operation.is_answered());
        self.probe_due = if turn.is_multiple_of(2) && self.newest().is_some() {
            Some(Probe::Newest)
        } else if awaits_answer && turn < 2 {
            None
        } else {
            Some(Probe::Oldest)
        };
        common.counters.tail_probes += u64::from(self.probe_due.is_some());
    }

    /// Answers a NAK by sending only the packet that is missing, to a peer that may have kept those behind it; false for
    /// a peer that is known to drop them, and for a READ or ATOMIC, whose answer would not tell.
    pub(super) fn send_only_oldest(&mut self, common: &mut Common, now: Instant) -> bool {
        let is_answered = self.queue.front().is_none_or(|wqe| wqe.request.operation.is_answered());
        if self.peer_holds == Some(false) || is_answered {
            return false;
        }
        common.counters.completer_retry_err += 1;
        self.lost = true;
        self.probe_due = Some(Probe::Oldest);
        self.retry.on_rewind(now);
        true
    }

    /// The packet that the probe sends again.
    pub(super) fn probe_packet(&mut self, common: &Common, probe: Probe) -> Option<Next> {
        match probe {
            Probe::Newest => self.newest(),
            Probe::Oldest => {
                let cursor = self.queue.oldest();
                let wqe = self.queue.get(cursor.index).filter(|wqe| wqe.begun.is_some())?;
                if !wqe.request.operation.is_answered() {
                    self.probed = Some(self.queue.unacknowledged);
                }
                Some(self.at(common, cursor, wqe))
            }
        }
    }

    /// The newest packet that was sent, when it is one of a SEND or WRITE.
    fn newest(&self) -> Option<Next> {
        let (index, wqe) = self.queue.newest_begun()?;
        let begun = wqe.begun?;
        let packet = u32::try_from(self.queue.sent_end.minus(1).distance(begun.first)).ok()?;
        let is_answered_by_ack = !wqe.request.operation.is_answered() && packet < wqe.packets;
        is_answered_by_ack.then_some(Next { cursor: Cursor { index, packet }, psns: 1, cost: 0 })
    }

    /// Whether what was just acknowledged is the oldest packet that was sent again alone, and nothing behind it: then the
    /// peer has not the rest either. An acknowledge that jumps further says that it keeps what arrives early.
    pub(super) fn lacks_the_rest(&mut self) -> bool {
        let Some(end) = self.probed.map(|psn| psn.plus(1)) else { return false };
        if self.queue.unacknowledged.is_before(end) {
            return false;
        }
        self.probed = None;
        let jumps = self.queue.unacknowledged != end;
        if jumps {
            self.peer_holds = Some(true);
        } else if self.queue.is_busy() && self.peer_holds.is_none() {
            self.peer_holds = Some(false);
        }
        !jumps && self.queue.is_busy()
    }
}
