//! What the peer answers: acknowledges, NAKs, READ and ATOMIC answers become completions.

use super::inflight::Begun;
use super::requester::Requester;
use crate::qp::common::{Common, Outcome, Surroundings};
use crate::qp::gather::{self, ScatterError};
use crate::time::Instant;
use crate::wire::{Kind, NakCode, Packet, Psn, Syndrome};
use crate::work::{Completion, CompletionKind, Operation, Payload, SendFlags, Status};

/// Why a cumulative acknowledge stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// It covered all that it could.
    Through,
    /// A READ, ATOMIC or FLUSH before its PSN was never answered: an implied NAK (IBTA 9.7.5.2.4).
    Unanswered,
}

impl Requester {
    /// Takes an answer of the peer.
    pub(crate) fn on_response(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Outcome {
        let psn = packet.bth.psn;
        let ahead = psn.distance(self.queue.unacknowledged);
        if ahead < 0 || !psn.is_before(self.queue.sent_end) {
            common.counters.stale_responses += 1;
            return Outcome::Alive;
        }
        // A middle packet of a READ's answer has no AETH: it refuses nothing.
        let syndrome = packet.extensions.aeth.map_or(Syndrome::Ack { credits: 0 }, |aeth| aeth.syndrome);
        match packet.info.kind {
            Kind::Acknowledge => self.on_acknowledge(common, around, psn, syndrome),
            Kind::ReadResponse | Kind::AtomicAcknowledge if !matches!(syndrome, Syndrome::Ack { .. }) => {
                // Only an acknowledge packet can refuse (IBTA 9.7.5.1).
                self.fail_front(common, around, Status::BadResponseError, u32::from(syndrome.value()))
            }
            Kind::ReadResponse => self.on_read_response(common, around, psn, packet.payload),
            Kind::AtomicAcknowledge => {
                self.on_atomic_acknowledge(common, around, psn, packet.extensions.atomic_ack.unwrap_or(0))
            }
            _ => Outcome::Alive,
        }
    }

    fn on_acknowledge(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        psn: Psn,
        syndrome: Syndrome,
    ) -> Outcome {
        // A NAK acknowledges what comes before its PSN.
        let through = if matches!(syndrome, Syndrome::Ack { .. }) { psn.plus(1) } else { psn };
        if self.acknowledge_before(common, around, through) == Reached::Unanswered {
            return self.on_gap(common, around.now);
        }
        match syndrome {
            Syndrome::Ack { .. } => {
                if self.lacks_the_rest() {
                    self.rewind(common, around.now);
                }
                Outcome::Alive
            }
            Syndrome::ReceiverNotReady { timer } => {
                common.counters.rcvd_rnr_err += 1;
                if self.retry.waits_for_receiver() || self.wait_for_receiver(around.now, timer) {
                    return Outcome::Alive;
                }
                common.counters.retry_rnr_exceeded_err += 1;
                self.fail_front(common, around, Status::RnrRetryExceededError, u32::from(syndrome.value()))
            }
            Syndrome::Nak(NakCode::SequenceError) => {
                common.counters.rcvd_seq_err += 1;
                self.on_sequence_error(common, around.now)
            }
            Syndrome::Nak(code) => {
                common.counters.rcvd_fatal_nak += 1;
                let status = match code {
                    NakCode::RemoteAccess => Status::RemoteAccessError,
                    NakCode::RemoteOperational => Status::RemoteOperationError,
                    _ => Status::RemoteInvalidRequestError,
                };
                self.fail_front(common, around, status, u32::from(syndrome.value()))
            }
            Syndrome::Reserved(value) => self.fail_front(common, around, Status::BadResponseError, u32::from(value)),
        }
    }

    /// The peer lacks the oldest packet that is not acknowledged: send it again, and perhaps what follows it (see
    /// `probe.rs`), unless nothing was sent since that was done. A packet that was sent before an RNR wait began draws
    /// such a NAK too; the wait goes on.
    fn on_sequence_error(&mut self, common: &mut Common, now: Instant) -> Outcome {
        if self.queue.in_flight() > 0 && !self.retry.waits_for_receiver() {
            self.rewound_for = None;
            if !self.send_only_oldest(common, now) {
                self.rewind(common, now);
            }
        }
        Outcome::Alive
    }

    /// An answer is missing before one that came: go back, once. Answers to packets sent before the cursor went
    /// back show the same gap again and again; if the repetition is lost too, the probe finds out.
    fn on_gap(&mut self, common: &mut Common, now: Instant) -> Outcome {
        if self.rewound_for != Some(self.queue.unacknowledged) {
            common.counters.implied_nak += 1;
            self.rewind(common, now);
            self.rewound_for = Some(self.queue.unacknowledged);
        } else {
            common.counters.stale_responses += 1;
        }
        Outcome::Alive
    }

    /// Completes SENDs and WRITEs whose packets all come before `end`, up to a READ or ATOMIC.
    fn acknowledge_before(&mut self, common: &mut Common, around: &mut Surroundings<'_>, end: Psn) -> Reached {
        let before = self.queue.unacknowledged;
        let reached = loop {
            let Some((begun, wqe)) = self.queue.front().and_then(|wqe| Some((wqe.begun?, wqe))) else {
                break Reached::Through;
            };
            if !self.queue.unacknowledged.is_before(end) {
                break Reached::Through;
            }
            if wqe.request.operation.is_answered() {
                break Reached::Unanswered;
            }
            if !wqe.last(begun).is_before(end) {
                self.queue.acknowledge_to(end);
                break Reached::Through;
            }
            self.complete_front(common, around);
        };
        if self.queue.unacknowledged != before {
            self.on_progress(around.now);
        }
        reached
    }

    /// More is acknowledged than before.
    fn on_progress(&mut self, now: Instant) {
        let unacknowledged = self.queue.unacknowledged;
        while self.fetches.front().is_some_and(|last| last.is_before(unacknowledged)) {
            self.fetches.pop_front();
        }
        self.rewound_for = None;
        self.retry.on_progress(now, unacknowledged, self.queue.is_busy());
    }

    /// The oldest request is done, and so are those behind it that were carried out here already.
    pub(super) fn complete_front(&mut self, common: &mut Common, around: &mut Surroundings<'_>) {
        self.complete_one(common, around);
        while self.queue.front().is_some_and(|wqe| wqe.request.operation.is_local() && wqe.begun.is_some()) {
            self.complete_one(common, around);
        }
    }

    fn complete_one(&mut self, common: &mut Common, around: &mut Surroundings<'_>) {
        let Some(wqe) = self.queue.pop() else { return };
        if !common.signal_all && !wqe.request.flags.contains(SendFlags::SIGNALED) {
            return;
        }
        let completion = Completion {
            id: wqe.request.id,
            kind: CompletionKind::from(&wqe.request.operation),
            byte_length: wqe.length,
            ..Completion::default()
        };
        common.complete_send(completion, around.events);
    }

    /// The oldest request, if it is one whose next answer has `psn`, and whether that is a fetching ATOMIC.
    fn awaits(&self, psn: Psn) -> Option<(Begun, bool)> {
        let wqe = self.queue.front()?;
        let begun = wqe.begun?;
        let is_due = psn == self.queue.unacknowledged && wqe.request.operation.is_answered();
        is_due.then_some((begun, wqe.request.operation.is_atomic()))
    }

    /// One packet of a READ's answer, or the answer without data of an ATOMIC WRITE or FLUSH.
    fn on_read_response(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        psn: Psn,
        payload: &[u8],
    ) -> Outcome {
        // An answer acknowledges what comes before it.
        let reached = self.acknowledge_before(common, around, psn);
        let Some((begun, is_atomic)) = self.awaits(psn) else {
            if reached == Reached::Unanswered {
                return self.on_gap(common, around.now);
            }
            return self.fail_front(common, around, Status::BadResponseError, 0);
        };
        let Some(wqe) = self.queue.front().filter(|_| !is_atomic) else {
            return self.fail_front(common, around, Status::BadResponseError, 0);
        };
        // Only the size is checked, not whether the packet calls itself first or last: after a retry that depends
        // on where the request it answers began.
        let index = psn.distance(begun.first).cast_unsigned();
        let offset = u64::from(index) * u64::from(common.mtu());
        let asked = if wqe.request.operation.fetches() { u64::from(wqe.length) } else { 0 };
        let expected = asked.saturating_sub(offset).min(u64::from(common.mtu()));
        if payload.len() as u64 != expected {
            return self.fail_front(common, around, Status::LocalLengthError, 0);
        }
        let is_last = index + 1 == wqe.packets;
        if let Payload::Memory(list) = &wqe.request.payload
            && let Err(error) = gather::scatter(around.memory, common.pd, list, offset, payload)
        {
            return self.fail_front(common, around, status_of(error), 0);
        }
        if is_last {
            self.complete_front(common, around);
        } else {
            self.queue.acknowledge_to(psn.plus(1));
        }
        self.on_progress(around.now);
        Outcome::Alive
    }

    /// The answer of an ATOMIC: what was there before.
    fn on_atomic_acknowledge(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        psn: Psn,
        original: u64,
    ) -> Outcome {
        let reached = self.acknowledge_before(common, around, psn);
        let Some((_, is_atomic)) = self.awaits(psn) else {
            if reached == Reached::Unanswered {
                return self.on_gap(common, around.now);
            }
            return self.fail_front(common, around, Status::BadResponseError, 0);
        };
        let Some(wqe) = self.queue.front().filter(|_| is_atomic) else {
            return self.fail_front(common, around, Status::BadResponseError, 0);
        };
        debug_assert!(!matches!(wqe.request.operation, Operation::Read(_)));
        // The program finds the number in its own byte order, as `ibv_post_send(3)` has it.
        if let Payload::Memory(list) = &wqe.request.payload
            && let Err(error) = gather::scatter(around.memory, common.pd, list, 0, &original.to_ne_bytes())
        {
            return self.fail_front(common, around, status_of(error), 0);
        }
        self.complete_front(common, around);
        self.on_progress(around.now);
        Outcome::Alive
    }
}

/// The completion status of an answer that could not be placed.
fn status_of(error: ScatterError) -> Status {
    match error {
        ScatterError::TooLong => Status::LocalLengthError,
        ScatterError::Access(_) => Status::LocalProtectionError,
    }
}
