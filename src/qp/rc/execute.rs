//! A request of the peer, executed: in its turn, once, and only as far as it is allowed.

use super::replay::{Executed, ExecutedKind};
use super::reply::{ACK, ReadReply, Reply};
use super::request::MAX_MESSAGE;
use super::responder::Responder;
use crate::memory::Access;
use crate::qp::common::{Common, Surroundings};
use crate::qp::gather::{self, ScatterError};
use crate::qp::segment;
use crate::wire::{AtomicEth, Kind, NakCode, Packet, Position, Reth};
use crate::work::{Completion, CompletionKind, Status, Tag};

/// The message of which a part has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// None: a message begins next.
    None,
    /// A SEND, `filled` bytes of which are in the receive request.
    Send { filled: u64 },
    /// A WRITE; `remaining` bytes go to `address`.
    Write { address: u64, rkey: u32, remaining: u32, length: u32 },
}

/// Why a request cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no receive request: the peer shall wait and try again.
    NotReady,
    /// The connection ends with this NAK; a receive request that was taken completes with the status, if any.
    Fatal(NakCode, Option<Status>),
}

/// The rules of the transport were broken.
pub(super) const INVALID: Refusal = Refusal::Fatal(NakCode::InvalidRequest, None);
/// Memory that may not be touched was.
pub(super) const DENIED: Refusal = Refusal::Fatal(NakCode::RemoteAccess, None);

impl Responder {
    /// Executes the request with the expected PSN.
    pub(super) fn execute(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        self.enter_srq(common, around, packet)?;
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
            Kind::AtomicWrite => self.atomic_write(common, around, packet)?,
            Kind::Flush => self.flush_memory(common, around, packet)?,
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

    /// Has an XRC target work for the shared receive queue that the request names: one of its domain (IBTA A14.3.1). All packets
    /// of a message name the same.
    fn enter_srq(
        &mut self,
        common: &mut Common,
        around: &Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let (Some(domain), Some(xrceth)) = (common.xrcd, packet.extensions.xrceth) else { return Ok(()) };
        if self.message != Message::None && common.srq != Some(xrceth.srq) {
            return Err(INVALID);
        }
        common.pd = around.srqs.pd_in(domain, xrceth.srq).ok_or(INVALID)?;
        common.srq = Some(xrceth.srq);
        Ok(())
    }

    /// A message is complete.
    pub(super) fn finish(&mut self) {
        self.message = Message::None;
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    /// One packet of a SEND.
    fn send(&mut self, common: &mut Common, around: &mut Surroundings<'_>, packet: &Packet<'_>) -> Result<(), Refusal> {
        if self.current.is_none() {
            self.current = Some(common.take_receive(around).ok_or(Refusal::NotReady)?);
        }
        let filled = if let Message::Send { filled } = self.message { filled } else { 0 };
        let (list, pd) =
            self.current.as_ref().map_or((&[][..], common.pd), |taken| (&taken.request.sges[..], taken.pd));
        gather::scatter(around.memory, pd, list, filled, packet.payload).map_err(|error| match error {
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
            && around.memory.invalidate(rkey, common.holder()).is_err()
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
        let Some(taken) = self.current.take() else { return };
        let tag = match (packet.extensions.immediate, packet.extensions.invalidate) {
            (Some(immediate), _) => Tag::Immediate(immediate),
            (None, Some(rkey)) => Tag::Invalidated(rkey),
            (None, None) => Tag::None,
        };
        let solicited = packet.bth.solicited;
        let done = Completion { kind, byte_length, tag, solicited, ..Completion::default() };
        common.complete_taken(&taken, done, around.events);
    }

    /// One packet of a WRITE.
    fn write(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        if packet.extensions.immediate.is_some() && self.current.is_none() {
            self.current = Some(common.take_receive(around).ok_or(Refusal::NotReady)?);
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
            let span =
                around.memory.resolve_remote(rkey, common.holder(), address, u64::from(carried), Access::REMOTE_WRITE);
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
        self.replay.push(Executed { first, last, kind: ExecutedKind::Read { pd: common.pd, address, rkey, length } });
        self.replies.push(Reply::Read(ReadReply {
            psn: first,
            last,
            pd: common.pd,
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
            .resolve_remote(request.rkey, common.holder(), request.address, 8, Access::REMOTE_ATOMIC)
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
    pub(super) fn check_depth(&self) -> Result<(), Refusal> {
        if self.replies.new_fetches() >= self.replay.capacity() { Err(INVALID) } else { Ok(()) }
    }
}

/// Whether the queue pair lets its peer do this at all (IBTA C9-88).
pub(super) fn check_rights(common: &Common, access: Access) -> Result<(), Refusal> {
    if common.attributes.access.unwrap_or_default().contains(access) { Ok(()) } else { Err(INVALID) }
}

/// Whether all the memory that a WRITE or READ names may be touched. No bytes need no key (IBTA C9-88).
pub(super) fn check_range(
    common: &Common,
    around: &Surroundings<'_>,
    reth: Reth,
    access: Access,
) -> Result<(), Refusal> {
    if u64::from(reth.length) > MAX_MESSAGE {
        return Err(INVALID);
    }
    if reth.length == 0 {
        return Ok(());
    }
    around
        .memory
        .resolve_remote(reth.rkey, common.holder(), reth.address, u64::from(reth.length), access)
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
