//! XRC extended transport header.

use super::Qpn;
use super::bytes::{Fields, be24, from_be24};

/// Which shared receive queue an extended reliable connection's request is for (IBTA annex A14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xrceth {
    /// Number of the shared receive queue, 24 bits like a queue pair's.
    pub srq: Qpn,
}

impl Xrceth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    /// Reads a header; the reserved byte is ignored.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self { srq: Qpn::new(from_be24(bytes.at::<1, 3>())) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        bytes.put::<0, 1>([0]);
        bytes.put::<1, 3>(be24(self.srq.value()));
    }
}
