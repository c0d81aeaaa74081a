//! A whole packet, from the BTH to the end of the pad.

use super::bytes::{take, take_mut};
use super::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Headers, Info, Reth, WireError, Xrceth};

/// The extended transport headers of a packet: those that its opcode has are `Some`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Shared receive queue of an extended reliable connection.
    pub xrceth: Option<Xrceth>,
    /// Sender and Q_Key of a datagram.
    pub deth: Option<Deth>,
    /// What a FLUSH does.
    pub flush: Option<Feth>,
    /// Remote memory.
    pub reth: Option<Reth>,
    /// Operands of an atomic operation.
    pub atomic: Option<AtomicEth>,
    /// Verdict of the responder.
    pub aeth: Option<Aeth>,
    /// Answer of an atomic operation: what was there before.
    pub atomic_ack: Option<u64>,
    /// Immediate data, read as big-endian.
    pub immediate: Option<u32>,
    /// The R_Key that a SEND invalidates.
    pub invalidate: Option<u32>,
}

/// A packet whose form is right: known opcode, all its headers there, payload and pad where they may be.
///
/// What only a queue pair can tell is not checked: keys, PSNs, order of opcodes, payload against path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// What the opcode table says of the packet.
    pub info: &'static Info,
    /// The headers behind the BTH.
    pub extensions: Extensions,
    /// What follows them; the pad is cut off.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Takes a datagram apart. It reaches from the BTH to the end of the pad; the ICRC is already cut off.
    ///
    /// # Errors
    /// Says which rule of form the packet breaks; drop and count it.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let (header, after_bth) =
            datagram.split_first_chunk().ok_or(WireError::TooShort { needed: Bth::LEN, found: datagram.len() })?;
        let bth = Bth::parse(header)?;
        let info = bth.opcode.info().ok_or(WireError::UnknownOpcode(bth.opcode))?;
        if !datagram.len().is_multiple_of(4) {
            return Err(WireError::Unaligned(datagram.len()));
        }
        let (extensions, body) = Extensions::parse(info.headers, after_bth)
            .ok_or(WireError::TooShort { needed: info.header_length, found: datagram.len() })?;
        let length =
            body.len().checked_sub(usize::from(bth.pad)).ok_or(WireError::Pad { pad: bth.pad, body: body.len() })?;
        if !info.payload.allows(length) {
            return Err(WireError::Payload { opcode: bth.opcode, length });
        }
        let payload = body.get(..length).unwrap_or(body);
        Ok(Self { bth, info, extensions, payload })
    }
}

/// Writes the BTH and those extension headers that its opcode asks for, and returns how many bytes that took.
///
/// A header that the opcode asks for and `extensions` lacks is written as zeros. Payload and pad
/// ([`pad_of`]) follow by the caller. `None`: `room` is too short, or the opcode is not in the table.
#[inline]
pub fn emit_headers(bth: &Bth, extensions: &Extensions, room: &mut [u8]) -> Option<usize> {
    let info = bth.opcode.info()?;
    let mut rest = room;
    bth.emit(take_mut(&mut rest)?);
    extensions.emit(info.headers, rest)?;
    Some(info.header_length)
}

/// Bytes of pad that a payload of `payload_length` bytes needs, 0 to 3.
#[must_use]
#[inline]
pub const fn pad_of(payload_length: usize) -> u8 {
    // At most 3.
    (payload_length.wrapping_neg() & 3) as u8
}

impl Extensions {
    /// Reads the headers of `headers` off the front of `rest`; `None` when they do not all fit.
    #[inline]
    fn parse(headers: Headers, mut rest: &[u8]) -> Option<(Self, &[u8])> {
        let mut extensions = Self::default();
        if headers.is_empty() {
            return Some((extensions, rest));
        }
        if headers.contains(Headers::XRCETH) {
            extensions.xrceth = Some(Xrceth::parse(take(&mut rest)?));
        }
        if headers.contains(Headers::DETH) {
            extensions.deth = Some(Deth::parse(take(&mut rest)?));
        }
        if headers.contains(Headers::FETH) {
            extensions.flush = Some(Feth::parse(take(&mut rest)?));
        }
        if headers.contains(Headers::RETH) {
            extensions.reth = Some(Reth::parse(take(&mut rest)?));
        }
        if headers.contains(Headers::ATOMIC_ETH) {
            extensions.atomic = Some(AtomicEth::parse(take(&mut rest)?));
        }
        if headers.contains(Headers::AETH) {
            extensions.aeth = Some(Aeth::parse(take(&mut rest)?));
        }
        if headers.contains(Headers::ATOMIC_ACK_ETH) {
            extensions.atomic_ack = Some(AtomicAckEth::parse(take(&mut rest)?).original);
        }
        if headers.contains(Headers::IMM) {
            extensions.immediate = Some(u32::from_be_bytes(*take(&mut rest)?));
        }
        if headers.contains(Headers::IETH) {
            extensions.invalidate = Some(u32::from_be_bytes(*take(&mut rest)?));
        }
        Some((extensions, rest))
    }

    /// Writes the headers of `headers`; `None` when `rest` is too short for them.
    #[inline]
    fn emit(&self, headers: Headers, mut rest: &mut [u8]) -> Option<()> {
        if headers.is_empty() {
            return Some(());
        }
        if headers.contains(Headers::XRCETH) {
            self.xrceth.unwrap_or_default().emit(take_mut(&mut rest)?);
        }
        if headers.contains(Headers::DETH) {
            self.deth.unwrap_or_default().emit(take_mut(&mut rest)?);
        }
        if headers.contains(Headers::FETH) {
            self.flush.unwrap_or_default().emit(take_mut(&mut rest)?);
        }
        if headers.contains(Headers::RETH) {
            self.reth.unwrap_or_default().emit(take_mut(&mut rest)?);
        }
        if headers.contains(Headers::ATOMIC_ETH) {
            self.atomic.unwrap_or_default().emit(take_mut(&mut rest)?);
        }
        if headers.contains(Headers::AETH) {
            self.aeth.unwrap_or_default().emit(take_mut(&mut rest)?);
        }
        if headers.contains(Headers::ATOMIC_ACK_ETH) {
            AtomicAckEth { original: self.atomic_ack.unwrap_or_default() }.emit(take_mut(&mut rest)?);
        }
        if headers.contains(Headers::IMM) {
            *take_mut(&mut rest)? = self.immediate.unwrap_or_default().to_be_bytes();
        }
        if headers.contains(Headers::IETH) {
            *take_mut(&mut rest)? = self.invalidate.unwrap_or_default().to_be_bytes();
        }
        Some(())
    }
}
