//! The receiving half: requests of the peer, executed once and in order.

use super::replay::{Executed, ExecutedKind, Replay};
use super::reply::{ACK, ReadReply, Replies, Reply, Sent};
use super::request::MAX_MESSAGE;
use crate::event::{AsyncEvent, Event};
use crate::memory::Access;
use crate::qp::common::{Common, Outcome, Surroundings};
use crate::qp::gather::{self, ScatterError};
use crate::qp::segment;
use crate::qp::{Attributes, State};
use crate::queue::ReceiveQueue;
use crate::wire::{AtomicEth, Kind, NakCode, Packet, Position, Psn, Reth, Syndrome};
use crate::work::{Completion, CompletionKind, ReceiveRequest, Status, Tag};

/// What the peer asks for: the receive queue, the message that is coming in, and the answers owed.
///
/// Inputs: [`post`](Self::post) and [`on_request`](Self::on_request); output: [`poll_transmit`](Self::poll_transmit).
#[derive(Debug)]
pub(crate) struct Responder {
    receives: ReceiveQueue,
    /// The PSN of the next request.
    expected: Psn,
    /// Messages completed, modulo 2^24.
    msn: u32,
    message: Message,
    /// The receive request that the message is filling.
    current: Option<ReceiveRequest>,
    replies: Replies,
    replay: Replay,
    /// A NAK for the expected PSN was sent, and this is the newest PSN seen since. What follows on it was on its way
    /// already and draws no other NAK. A PSN that is not newer was sent again: the requester went back, and the
    /// expected packet was lost again.
    nak_sent: Option<Psn>,
    /// A packet of this connection came in.
    established: bool,
}

/// The message of which a part has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// None: a message begins next.
    None,
    /// A SEND, `filled` bytes of which are in the receive request.
    Send { filled: u64 },
    /// A WRITE; `remaining` bytes go to `address`.
    Write { address: u64, rkey: u32, remaining: u32, length: u32 },
}

/// Why a request cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// There is no receive request: the peer shall wait and try again.
    NotReady,
    /// The connection ends with this NAK; a receive request that was taken completes with the status, if any.
    Fatal(NakCode, Option<Status>),
}

/// The rules of the transport were broken.
const INVALID: Refusal = Refusal::Fatal(NakCode::InvalidRequest, None);
/// Memory that may not be touched was.
const DENIED: Refusal = Refusal::Fatal(NakCode::RemoteAccess, None);

impl Responder {
    pub(crate) fn new(attributes: &Attributes, receives: ReceiveQueue) -> Self {
        Self {
            receives,
            expected: attributes.receive_psn.unwrap_or_default(),
            msn: 0,
            message: Message::None,
            current: None,
            replies: Replies::default(),
            replay: Replay::new(depth(attributes)),
            nak_sent: None,
            established: false,
        }
    }

    /// Adds a receive request.
    pub(crate) fn post(&mut self, request: ReceiveRequest) -> crate::error::Result<()> {
        self.receives.push(request)
    }

    /// Starts a connection with these attributes; the receive requests posted before stay.
    pub(crate) fn connect(&mut self, attributes: &Attributes) {
        let receives = std::mem::replace(&mut self.receives, ReceiveQueue::new(0, 0));
        *self = Self::new(attributes, receives);
    }

    /// Takes over attributes that changed while the connection lives.
    pub(crate) fn configure(&mut self, attributes: &Attributes) {
        self.replay.resize(depth(attributes));
    }

    /// Whether an answer is owed.
    pub(crate) fn wants_transmit(&self) -> bool {
        !self.replies.is_empty()
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

    /// Takes a request of the peer.
    pub(crate) fn on_request(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Outcome {
        match packet.bth.psn.distance(self.expected) {
            0 => {}
            1.. => {
                common.counters.out_of_seq_request += 1;
                let psn = packet.bth.psn;
                let is_new_gap = self.nak_sent.is_none_or(|newest| !newest.is_before(psn));
                self.nak_sent = Some(psn);
                if is_new_gap {
                    common.counters.send_seq_err += 1;
                    self.acknowledge(common, self.expected, Syndrome::Nak(NakCode::SequenceError));
                }
                return Outcome::Alive;
            }
            _ => {
                common.counters.duplicate_request += 1;
                self.repeat(common, packet);
                return Outcome::Alive;
            }
        }
        match self.execute(common, around, packet) {
            Ok(()) => {
                self.nak_sent = None;
                Outcome::Alive
            }
            Err(Refusal::NotReady) => {
                // Packets behind it are already on their way; they draw no NAK of their own.
                self.nak_sent = Some(self.expected);
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
        if let (Some(status), Some(request)) = (status, self.current.take()) {
            let failed = Completion { id: request.id, status, kind: CompletionKind::Receive, ..Completion::default() };
            common.complete_receive(failed, around.events);
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
    fn acknowledge(&mut self, common: &mut Common, psn: Psn, syndrome: Syndrome) {
        common.counters.ack_deferred += u64::from(self.replies.acknowledge(psn, syndrome));
    }

    /// Executes the request with the expected PSN.
    fn execute(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let position = packet.info.position;
        let continues = match packet.info.kind {
            Kind::Send => matches!(self.message, Message::Send { .. }),
            Kind::Write => matches!(self.message, Message::Write { .. }),
            _ => false,
        };
        let fits_order = if position.is_first() { self.message == Message::None } else { continues };
        if !fits_order {
            return Err(INVALID);
        }
        let mut psns = 1;
        match packet.info.kind {
            Kind::Send => {
                check_size(position, packet.payload.len(), common.mtu())?;
                self.send(common, around, packet)?;
            }
            Kind::Write => {
                check_size(position, packet.payload.len(), common.mtu())?;
                self.write(common, around, packet)?;
            }
            Kind::ReadRequest => psns = self.read(common, around, packet.extensions.reth.ok_or(INVALID)?)?,
            Kind::CompareSwap | Kind::FetchAdd => {
                self.atomic(common, around, packet.info.kind, packet.extensions.atomic.ok_or(INVALID)?)?;
            }
            _ => return Err(INVALID),
        }
        let done = self.expected.plus(psns - 1);
        self.expected = done.plus(1);
        let is_answered = !matches!(packet.info.kind, Kind::Send | Kind::Write);
        if packet.bth.ack_request && !is_answered {
            self.acknowledge(common, done, ACK);
        }
        Ok(())
    }

    /// A message is complete.
    fn finish(&mut self) {
        self.message = Message::None;
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    /// One packet of a SEND.
    fn send(&mut self, common: &Common, around: &mut Surroundings<'_>, packet: &Packet<'_>) -> Result<(), Refusal> {
        if self.current.is_none() {
            self.current = Some(self.receives.pop().ok_or(Refusal::NotReady)?);
        }
        let filled = if let Message::Send { filled } = self.message { filled } else { 0 };
        let list = self.current.as_ref().map_or(&[][..], |request| &request.sges);
        gather::scatter(around.memory, common.pd, list, filled, packet.payload).map_err(|error| match error {
            ScatterError::TooLong => Refusal::Fatal(NakCode::InvalidRequest, Some(Status::LocalLengthError)),
            ScatterError::Access(_) => Refusal::Fatal(NakCode::RemoteOperational, Some(Status::LocalProtectionError)),
        })?;
        let filled = filled + packet.payload.len() as u64;
        if filled > MAX_MESSAGE {
            return Err(Refusal::Fatal(NakCode::InvalidRequest, Some(Status::LocalLengthError)));
        }
        if !packet.info.position.is_last() {
            self.message = Message::Send { filled };
            return Ok(());
        }
        if let Some(rkey) = packet.extensions.invalidate
            && around.memory.invalidate(rkey, common.pd).is_err()
        {
            return Err(Refusal::Fatal(NakCode::RemoteAccess, Some(Status::LocalProtectionError)));
        }
        self.finish();
        // At most 2^31.
        self.complete_receive(common, around, packet, CompletionKind::Receive, filled as u32);
        Ok(())
    }

    /// Reports the receive request that the message consumed.
    fn complete_receive(
        &mut self,
        common: &Common,
        around: &mut Surroundings<'_>,
        packet: &Packet<'_>,
        kind: CompletionKind,
        byte_length: u32,
    ) {
        let Some(request) = self.current.take() else { return };
        let tag = match (packet.extensions.immediate, packet.extensions.invalidate) {
            (Some(immediate), _) => Tag::Immediate(immediate),
            (None, Some(rkey)) => Tag::Invalidated(rkey),
            (None, None) => Tag::None,
        };
        let solicited = packet.bth.solicited;
        let done = Completion { id: request.id, kind, byte_length, tag, solicited, ..Completion::default() };
        common.complete_receive(done, around.events);
    }

    /// One packet of a WRITE.
    fn write(&mut self, common: &Common, around: &mut Surroundings<'_>, packet: &Packet<'_>) -> Result<(), Refusal> {
        if packet.extensions.immediate.is_some() && self.current.is_none() {
            self.current = Some(self.receives.pop().ok_or(Refusal::NotReady)?);
        }
        let (address, rkey, remaining, length) = match (packet.extensions.reth, self.message) {
            (Some(reth), _) => {
                check_rights(common, Access::REMOTE_WRITE)?;
                check_range(common, around, reth, Access::REMOTE_WRITE)?;
                (reth.address, reth.rkey, reth.length, reth.length)
            }
            (None, Message::Write { address, rkey, remaining, length }) => (address, rkey, remaining, length),
            (None, _) => return Err(INVALID),
        };
        let carried = packet.payload.len() as u32;
        let is_last = packet.info.position.is_last();
        if if is_last { carried != remaining } else { carried >= remaining } {
            return Err(INVALID);
        }
        if carried > 0 {
            let span = around.memory.resolve(rkey, common.pd, address, u64::from(carried), Access::REMOTE_WRITE);
            span.map_err(|_| DENIED)?.copy_in(packet.payload);
        }
        if !is_last {
            let address = address.wrapping_add(u64::from(carried));
            self.message = Message::Write { address, rkey, remaining: remaining - carried, length };
            return Ok(());
        }
        self.finish();
        if packet.extensions.immediate.is_some() {
            self.complete_receive(common, around, packet, CompletionKind::ReceiveWriteImmediate, length);
        }
        Ok(())
    }

    /// A READ: owes its answer. Returns the PSNs that the answer takes.
    fn read(&mut self, common: &Common, around: &Surroundings<'_>, reth: Reth) -> Result<u32, Refusal> {
        check_rights(common, Access::REMOTE_READ)?;
        self.check_depth()?;
        check_range(common, around, reth, Access::REMOTE_READ)?;
        let psns = segment::packets(reth.length, common.mtu());
        let (first, last) = (self.expected, self.expected.plus(psns - 1));
        let Reth { address, rkey, length } = reth;
        self.finish();
        self.replay.push(Executed { first, last, kind: ExecutedKind::Read { address, rkey, length } });
        self.replies.push(Reply::Read(ReadReply {
            psn: first,
            last,
            address,
            rkey,
            remaining: length,
            is_first: true,
            msn: self.msn,
            is_again: false,
        }));
        Ok(psns)
    }

    /// An ATOMIC: executed here and now, and its answer kept.
    fn atomic(
        &mut self,
        common: &Common,
        around: &Surroundings<'_>,
        kind: Kind,
        request: AtomicEth,
    ) -> Result<(), Refusal> {
        check_rights(common, Access::REMOTE_ATOMIC)?;
        self.check_depth()?;
        if !request.address.is_multiple_of(8) {
            return Err(INVALID);
        }
        let cell = around
            .memory
            .resolve(request.rkey, common.pd, request.address, 8, Access::REMOTE_ATOMIC)
            .map_err(|_| DENIED)?;
        let original = match kind {
            Kind::CompareSwap => cell.compare_and_swap(request.compare, request.swap_add),
            _ => cell.fetch_and_add(request.swap_add),
        };
        // An address that is aligned only in the region's own numbering cannot be changed atomically.
        let original = original.ok_or(INVALID)?;
        let psn = self.expected;
        self.finish();
        self.replay.push(Executed { first: psn, last: psn, kind: ExecutedKind::Atomic { original } });
        self.replies.push(Reply::Atomic { psn, original, msn: self.msn, is_again: false });
        Ok(())
    }

    /// More READs and ATOMICs at a time than were agreed on are refused (IBTA C9-60).
    fn check_depth(&self) -> Result<(), Refusal> {
        if self.replies.new_fetches() >= self.replay.capacity() { Err(INVALID) } else { Ok(()) }
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
            (ExecutedKind::Read { address, rkey, length }, Kind::ReadRequest) => {
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

    /// Reports every receive request as flushed, in order. Answers that are owed stay, so that the NAK that caused
    /// this reaches the peer.
    pub(crate) fn flush(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        self.message = Message::None;
        let current = self.current.take();
        let waiting = std::iter::from_fn(|| self.receives.pop());
        for request in current.into_iter().chain(waiting) {
            let (id, status, kind) = (request.id, Status::FlushError, CompletionKind::Receive);
            common.complete_receive(Completion { id, status, kind, ..Completion::default() }, around.events);
        }
    }

    /// Owes nothing any more.
    pub(crate) fn forget_replies(&mut self) {
        self.replies.clear();
    }

    /// Reports the first packet of a connection that waits in RTR.
    pub(crate) fn note_arrival(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        let is_first = !std::mem::replace(&mut self.established, true);
        if is_first && common.state == State::ReadyToReceive {
            around.events.push_back(Event::Async(AsyncEvent::CommunicationEstablished(common.qpn)));
        }
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

/// Whether the queue pair lets its peer do this at all (IBTA C9-88).
fn check_rights(common: &Common, access: Access) -> Result<(), Refusal> {
    if common.attributes.access.unwrap_or_default().contains(access) { Ok(()) } else { Err(INVALID) }
}

/// Whether all the memory that a WRITE or READ names may be touched. No bytes need no key (IBTA C9-88).
fn check_range(common: &Common, around: &Surroundings<'_>, reth: Reth, access: Access) -> Result<(), Refusal> {
    if u64::from(reth.length) > MAX_MESSAGE {
        return Err(INVALID);
    }
    if reth.length == 0 {
        return Ok(());
    }
    around
        .memory
        .resolve(reth.rkey, common.pd, reth.address, u64::from(reth.length), access)
        .map(drop)
        .map_err(|_| DENIED)
}

/// A packet that is not the last of its message is full, a last one is not empty, none is longer than the path MTU
/// (IBTA C9-89; scenario 6).
fn check_size(position: Position, payload: usize, mtu: u32) -> Result<(), Refusal> {
    let mtu = mtu as usize;
    let fits = match position {
        Position::First | Position::Middle => payload == mtu,
        Position::Last => (1..=mtu).contains(&payload),
        Position::Only => payload <= mtu,
    };
    if fits { Ok(()) } else { Err(INVALID) }
}
