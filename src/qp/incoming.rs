//! A message of the peer on its way in: the packets of a SEND or WRITE, placed in a receive request or in memory.
//!
//! What RC and UC share. What comes of a packet that is refused is the service's to say.

use super::State;
use super::common::{Common, Surroundings};
use super::gather::{self, ScatterError};
use super::request::MAX_MESSAGE;
use crate::event::{AsyncEvent, Event};
use crate::memory::{Access, AccessError};
use crate::queue::Taken;
use crate::wire::{Info, Kind, NakCode, Packet, Position, Reth};
use crate::work::{Completion, CompletionKind, Status, Tag};

/// The message of which a part has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Message {
    /// None: a message begins next.
    #[default]
    None,
    /// A SEND, `filled` bytes of which are in the receive request.
    Send { filled: u64 },
    /// A WRITE; `remaining` bytes go to `address`.
    Write { address: u64, rkey: u32, remaining: u32, length: u32 },
}

/// Why a request cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no receive request: the peer shall wait and try again.
    NotReady,
    /// The connection ends with this NAK; a receive request that was taken completes with the status, if any.
    Fatal(NakCode, Option<Status>),
}

/// The rules of the transport were broken.
pub(crate) const INVALID: Refusal = Refusal::Fatal(NakCode::InvalidRequest, None);
/// Memory that may not be touched was.
pub(crate) const DENIED: Refusal = Refusal::Fatal(NakCode::RemoteAccess, None);

/// What comes of a request to memory that could not be touched so.
pub(crate) fn refusal(error: AccessError) -> Refusal {
    match error {
        // An address that is aligned only in the region's own numbering cannot be changed atomically.
        AccessError::Misaligned => INVALID,
        _ => DENIED,
    }
}

/// The message that is coming in, and the receive request that it fills.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    message: Message,
    /// Taken from the queue, and not completed yet.
    current: Option<Taken>,
    /// A packet of this connection came in.
    established: bool,
}

impl Incoming {
    /// Whether a request of this kind and position may come now: a message begins only when none is under way, and goes on
    /// with packets of its own kind.
    pub(crate) fn fits_order(&self, info: &Info) -> bool {
        match (info.position.is_first(), info.kind) {
            (true, _) => self.message == Message::None,
            (false, Kind::Send) => matches!(self.message, Message::Send { .. }),
            (false, Kind::Write) => matches!(self.message, Message::Write { .. }),
            (false, _) => false,
        }
    }

    /// Whether a part of a message has arrived, and not all.
    pub(crate) fn is_busy(&self) -> bool {
        self.message != Message::None
    }

    /// Places one packet of a SEND or WRITE that [fits](Self::fits_order). Returns whether its message is complete.
    pub(crate) fn place(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Result<bool, Refusal> {
        check_size(packet.info.position, packet.payload.len(), common.mtu())?;
        match packet.info.kind {
            Kind::Send => self.send(common, around, packet)?,
            Kind::Write => self.write(common, around, packet)?,
            _ => return Err(INVALID),
        }
        Ok(packet.info.position.is_last())
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
        self.message = Message::None;
        // At most 2^31.
        self.complete(common, around, packet, CompletionKind::Receive, filled as u32);
        Ok(())
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
            let holder = common.holder();
            let span = around.memory.resolve_remote(rkey, holder, address, u64::from(carried), Access::REMOTE_WRITE);
            span.and_then(|span| span.copy_in(packet.payload)).map_err(refusal)?;
        }
        if !is_last {
            let address = address.wrapping_add(u64::from(carried));
            self.message = Message::Write { address, rkey, remaining: remaining - carried, length };
            return Ok(());
        }
        self.message = Message::None;
        if packet.extensions.immediate.is_some() {
            self.complete(common, around, packet, CompletionKind::ReceiveWriteImmediate, length);
        }
        Ok(())
    }

    /// Reports the receive request that the message consumed.
    fn complete(
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

    /// Reports the receive request that a message was filling as failed.
    pub(crate) fn fail(&mut self, common: &Common, around: &mut Surroundings<'_>, status: Status) {
        if let Some(taken) = self.current.take() {
            let failed = Completion { status, kind: CompletionKind::Receive, ..Completion::default() };
            common.complete_taken(&taken, failed, around.events);
        }
    }

    /// Forgets the message; the receive request that it was filling is there for the next one.
    pub(crate) fn abandon(&mut self) {
        self.message = Message::None;
    }

    /// Forgets the message and reports the receive request that it was filling as flushed.
    pub(crate) fn flush(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        self.message = Message::None;
        if let Some(taken) = self.current.take() {
            common.flush_taken(&taken, around.events);
        }
    }

    /// Reports the first packet of a connection that waits in RTR.
    pub(crate) fn note_arrival(&mut self, common: &Common, around: &mut Surroundings<'_>) {
        let is_first = !std::mem::replace(&mut self.established, true);
        if is_first && common.state == State::ReadyToReceive {
            around.events.push_back(Event::Async(AsyncEvent::CommunicationEstablished(common.qpn)));
        }
    }
}

/// Whether the queue pair lets its peer do this at all (IBTA C9-88).
pub(crate) fn check_rights(common: &Common, access: Access) -> Result<(), Refusal> {
    if common.attributes.access.unwrap_or_default().contains(access) { Ok(()) } else { Err(INVALID) }
}

/// Whether all the memory that a WRITE or READ names may be touched. No bytes need no key (IBTA C9-88).
pub(crate) fn check_range(
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
        .map_err(refusal)
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
