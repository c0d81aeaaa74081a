//! Datagram extended transport header.

use super::Qpn;
use super::bytes::{Fields, be24, from_be24};

/// Who sent a datagram, and the key that lets it in (IBTA 9.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The Q_Key that must equal the receiving queue pair's.
    pub qkey: u32,
    /// The sender's queue pair: where an answer goes.
    pub source: Qpn,
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads a header; the reserved byte is ignored.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self { qkey: u32::from_be_bytes(bytes.at::<0, 4>()), source: Qpn::new(from_be24(bytes.at::<5, 3>())) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        bytes.put::<0, 4>(self.qkey.to_be_bytes());
        bytes.put::<4, 1>([0]);
        bytes.put::<5, 3>(be24(self.source.value()));
    }
}
