//! The receiving half: requests of the peer, executed once and in order.

use super::held::{Held, HoldBudget};
use super::replay::{Executed, ExecutedKind, Replay};
use super::reply::{ACK, ReadReply, Replies, Reply, Sent};
use crate::event::{AsyncEvent, Event};
use crate::qp::Attributes;
use crate::qp::common::{Common, Outcome, Surroundings};
use crate::qp::incoming::{Incoming, Refusal};
use crate::qp::segment;
use crate::wire::{Kind, NakCode, Packet, Psn, Syndrome};
use crate::work::Status;

/// What the peer asks for: the message that is coming in, and the answers owed.
///
/// Input: [`on_request`](Self::on_request); output: [`poll_transmit`](Self::poll_transmit).
#[derive(Debug)]
pub(crate) struct Responder {
    /// The PSN of the next request.
    pub(super) expected: Psn,
    /// Messages completed, modulo 2^24.
    pub(super) msn: u32,
    pub(super) incoming: Incoming,
    pub(super) replies: Replies,
    pub(super) replay: Replay,
    /// A NAK for the expected PSN was sent, and this is the newest PSN seen since. What follows on it was on its way
    /// already and draws no other NAK. A PSN that is not newer was sent again: the requester went back, and the
    /// expected packet was lost again.
    nak_sent: Option<Psn>,
    /// The expected packet came and was refused for want of a receive request.
    waits_for_receive: bool,
    /// What arrived before its turn.
    held: Held,
}

impl Responder {
    pub(crate) fn new(attributes: &Attributes, budget: HoldBudget) -> Self {
        Self {
            expected: attributes.receive_psn.unwrap_or_default(),
            msn: 0,
            incoming: Incoming::default(),
            replies: Replies::default(),
            replay: Replay::new(depth(attributes)),
            nak_sent: None,
            waits_for_receive: false,
            held: Held::new(budget),
        }
    }

    /// Takes over attributes that changed while the connection lives.
    pub(crate) fn configure(&mut self, attributes: &Attributes) {
        self.replay.resize(depth(attributes));
    }

    /// The PSN of the next request.
    pub(crate) fn next_psn(&self) -> Psn {
        self.expected
    }

    /// Whether an answer is owed.
    pub(crate) fn wants_transmit(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether nothing is owed but an acknowledge.
    pub(crate) fn owes_only_acknowledge(&self) -> bool {
        self.replies.are_only_acknowledge()
    }

    /// The next answer, written to `room`.
    pub(crate) fn poll_transmit(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        room: &mut [u8],
    ) -> Option<(usize, Outcome)> {
        let sent = self.replies.poll_transmit(common, around.memory, self.msn, room)?;
        common.counters.sent_pkts += 1;
        Some(match sent {
            Sent::Packet(length) => (length, Outcome::Alive),
            Sent::Refused(length) => {
                common.counters.send_fatal_nak += 1;
                (length, Outcome::Alive)
            }
            Sent::Fatal(length) => {
                common.counters.send_fatal_nak += 1;
                around.events.push_back(Event::Async(AsyncEvent::QpAccessError(common.qpn)));
                (length, Outcome::Failed)
            }
        })
    }

    /// Takes a request of the peer: a packet, and the datagram that it was parsed from.
    pub(crate) fn on_request(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        packet: &Packet<'_>,
        datagram: &[u8],
    ) -> Outcome {
        match packet.bth.psn.distance(self.expected) {
            0 => match self.take_turn(common, around, packet) {
                Outcome::Alive => self.catch_up(common, around),
                failed => failed,
            },
            ahead @ 1.. => {
                common.counters.out_of_seq_request += 1;
                let psn = packet.bth.psn;
                if self.nak_sent.is_none_or(|newest| !newest.is_before(psn)) {
                    self.report_gap(common);
                }
                self.nak_sent = Some(psn);
                if !self.waits_for_receive {
                    self.held.push(psn, ahead.cast_unsigned(), datagram);
                }
                Outcome::Alive
            }
            _ => {
                common.counters.duplicate_request += 1;
                self.repeat(common, packet);
                Outcome::Alive
            }
        }
    }

    /// NAKs the expected PSN: it is missing.
    fn report_gap(&mut self, common: &mut Common) {
        common.counters.send_seq_err += 1;
        self.acknowledge(common, self.expected, Syndrome::Nak(NakCode::SequenceError));
    }

    /// Executes what was held and has its turn now, and acknowledges all of it at once.
    fn catch_up(&mut self, common: &mut Common, around: &mut Surroundings<'_>) -> Outcome {
        let before = self.expected;
        while let Some(datagram) = self.held.take(self.expected) {
            // It was well formed when it came.
            let Ok(packet) = Packet::parse(&datagram) else { continue };
            if self.take_turn(common, around, &packet) == Outcome::Failed {
                return Outcome::Failed;
            }
            if self.waits_for_receive {
                return Outcome::Alive;
            }
        }
        if self.expected != before {
            self.acknowledge(common, self.expected.minus(1), ACK);
        }
        if let Some(newest) = self.held.newest() {
            self.report_gap(common);
            self.nak_sent = Some(newest);
        }
        Outcome::Alive
    }

    /// Executes the request whose turn it is, or refuses it.
    fn take_turn(&mut self, common: &mut Common, around: &mut Surroundings<'_>, packet: &Packet<'_>) -> Outcome {
        match self.execute(common, around, packet) {
            Ok(()) => {
                self.nak_sent = None;
                self.waits_for_receive = false;
                Outcome::Alive
            }
            Err(Refusal::NotReady) => {
                // Packets behind it are already on their way; they draw no NAK of their own, and all come again.
                self.nak_sent = Some(self.expected);
                self.waits_for_receive = true;
                self.held.clear();
                common.counters.send_rnr_err += 1;
                let timer = common.attributes.min_rnr_timer.unwrap_or(0);
                self.acknowledge(common, self.expected, Syndrome::ReceiverNotReady { timer });
                Outcome::Alive
            }
            Err(Refusal::Fatal(code, status)) => self.refuse(common, around, code, status),
        }
    }

    /// Ends the connection with a NAK, after the answers that are owed.
    fn refuse(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        code: NakCode,
        status: Option<Status>,
    ) -> Outcome {
        common.counters.send_fatal_nak += 1;
        self.acknowledge(common, self.expected, Syndrome::Nak(code));
        if let Some(status) = status {
            self.incoming.fail(common, around, status);
        }
        let event = if code == NakCode::RemoteAccess {
            AsyncEvent::QpAccessError(common.qpn)
        } else {
            AsyncEvent::QpRequestError(common.qpn)
        };
        around.events.push_back(Event::Async(event));
        Outcome::Failed
    }

    /// Owes an acknowledge or NAK.
    pub(super) fn acknowledge(&mut self, common: &mut Common, psn: Psn, syndrome: Syndrome) {
        common.counters.ack_deferred += u64::from(self.replies.acknowledge(psn, syndrome));
    }

    /// A request that was executed before: acknowledged or answered again.
    fn repeat(&mut self, common: &mut Common, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        if matches!(packet.info.kind, Kind::Send | Kind::Write) {
            self.acknowledge(common, self.expected.minus(1), ACK);
            return;
        }
        let answer =
            self.replay.find(psn).and_then(|executed| Some((executed, self.answer_again(common, executed, packet)?)));
        match answer {
            Some((executed, reply)) => self.replies.repeat(&executed, reply),
            None => common.counters.replay_missing += 1,
        }
    }

    /// The answer to a READ or ATOMIC that comes again: of a READ perhaps only the end.
    fn answer_again(&self, common: &Common, executed: Executed, packet: &Packet<'_>) -> Option<Reply> {
        let psn = packet.bth.psn;
        match (executed.kind, packet.info.kind) {
            (ExecutedKind::Atomic { original }, Kind::CompareSwap | Kind::FetchAdd) => {
                Some(Reply::Atomic { psn, original, msn: self.msn, is_again: true })
            }
            (ExecutedKind::Done, Kind::AtomicWrite | Kind::Flush) => {
                Some(Reply::Read(ReadReply { is_again: true, ..ReadReply::empty(common.pd, psn, self.msn) }))
            }
            (ExecutedKind::Read { pd, address, rkey, length }, Kind::ReadRequest) => {
                let again = packet.extensions.reth?;
                let skipped = u64::from(psn.distance(executed.first).cast_unsigned()) * u64::from(common.mtu());
                let left = u64::from(length).checked_sub(skipped)?;
                let is_part = again.rkey == rkey
                    && again.address == address.wrapping_add(skipped)
                    && u64::from(again.length) <= left;
                let last = psn.plus(segment::packets(again.length, common.mtu()) - 1);
                is_part.then_some(Reply::Read(ReadReply {
                    psn,
                    last,
                    pd,
                    address: again.address,
                    rkey,
                    remaining: again.length,
                    is_first: true,
                    msn: self.msn,
                    is_again: true,
                }))
            }
            _ => None,
        }
    }

    /// Reports the receive request that a message was filling as flushed. Answers that are owed stay, so that the NAK
    /// that caused this reaches the peer.
    pub(crate) fn flush(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        self.incoming.flush(common, around);
        self.held.clear();
    }

    /// Owes nothing any more.
    pub(crate) fn forget_replies(&mut self) {
        self.replies.clear();
    }

    /// Reports the first packet of a connection that waits in RTR.
    pub(crate) fn note_arrival(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        self.incoming.note_arrival(common, around);
    }
}

/// How many READs and ATOMICs of the peer may be outstanding. The kernel's rxe rounds the depth up to a power of two on
/// both sides, so a peer may exceed the agreed one; none at all stays none.
fn depth(attributes: &Attributes) -> usize {
    match attributes.max_dest_rd_atomic {
        None | Some(0) => 0,
        Some(agreed) => usize::from(agreed).next_power_of_two(),
    }
}
