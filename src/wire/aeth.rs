//! ACK extended transport header.

use super::bytes::{Fields, be24, from_be24};

/// A responder's verdict and how many messages it has completed (IBTA 9.3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aeth {
    /// The verdict.
    pub syndrome: Syndrome,
    /// Message sequence number: messages completed since the connection began, modulo 2^24.
    pub msn: u32,
}

impl Aeth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    /// Reads a header.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [syndrome] = bytes.at::<0, 1>();
        Self { syndrome: Syndrome::from(syndrome), msn: from_be24(bytes.at::<1, 3>()) }
    }

    /// Writes the header; only the low 24 bits of `msn` count.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        bytes.put::<0, 1>([self.syndrome.value()]);
        bytes.put::<1, 3>(be24(self.msn));
    }
}

/// What an AETH says of the request (IBTA 9.7.5, table 43). Every byte has a meaning, and goes back to that byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All up to this PSN arrived and is done.
    Ack {
        /// Receive requests the responder has left, coded in 5 bits (IBTA table 46); 31: it does not count credits.
        credits: u8,
    },
    /// The responder has no receive request for the message: wait, then send it again.
    ReceiverNotReady {
        /// The least time to wait, coded in 5 bits (IBTA table 45).
        timer: u8,
    },
    /// The request was refused.
    Nak(NakCode),
    /// A byte that the specification leaves undefined.
    Reserved(u8),
}

/// Why a request was refused (IBTA table 44).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A PSN is missing before this one: go back to it. The only one that the connection survives.
    SequenceError = 0,
    /// The request makes no sense: wrong opcode order, wrong length, an operation that is not enabled.
    InvalidRequest = 1,
    /// Key, address, length or rights do not fit the responder's memory.
    RemoteAccess = 2,
    /// The responder failed through no fault of the request.
    RemoteOperational = 3,
    /// A request of a reliable datagram that makes no sense.
    InvalidRdRequest = 4,
}

impl Default for Syndrome {
    /// An ACK with a credit count of 0, the byte 0.
    fn default() -> Self {
        Self::Ack { credits: 0 }
    }
}

const KIND_ACK: u8 = 0x00;
const KIND_RECEIVER_NOT_READY: u8 = 0x20;
const KIND_NAK: u8 = 0x60;
const KIND: u8 = 0xe0;
const VALUE: u8 = 0x1f;

impl Syndrome {
    /// The credit count of a responder that does not use end-to-end flow control.
    pub const NO_CREDITS: u8 = 31;

    /// The byte on the wire; of `credits` and `timer` the low five bits count.
    #[must_use]
    pub const fn value(self) -> u8 {
        match self {
            Self::Ack { credits } => KIND_ACK | credits & VALUE,
            Self::ReceiverNotReady { timer } => KIND_RECEIVER_NOT_READY | timer & VALUE,
            Self::Nak(code) => KIND_NAK | code as u8,
            Self::Reserved(value) => value,
        }
    }
}

impl From<u8> for Syndrome {
    #[inline]
    fn from(value: u8) -> Self {
        match (value & KIND, value & VALUE) {
            (KIND_ACK, credits) => Self::Ack { credits },
            (KIND_RECEIVER_NOT_READY, timer) => Self::ReceiverNotReady { timer },
            (KIND_NAK, 0) => Self::Nak(NakCode::SequenceError),
            (KIND_NAK, 1) => Self::Nak(NakCode::InvalidRequest),
            (KIND_NAK, 2) => Self::Nak(NakCode::RemoteAccess),
            (KIND_NAK, 3) => Self::Nak(NakCode::RemoteOperational),
            (KIND_NAK, 4) => Self::Nak(NakCode::InvalidRdRequest),
            _ => Self::Reserved(value),
        }
    }
}

impl From<Syndrome> for u8 {
    fn from(syndrome: Syndrome) -> Self {
        syndrome.value()
    }
}
