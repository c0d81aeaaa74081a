//! XRC extended transport header.

use core::fmt;

use super::bytes::{Fields, be24, from_be24};

/// The number of a shared receive queue, 24 bits like a queue pair's (`ibv_get_srq_num(3)`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SrqNumber(u32);

impl SrqNumber {
    /// The low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// The number, below 2^24.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for SrqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl fmt::Display for SrqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// Which shared receive queue an extended reliable connection's request is for (IBTA annex A14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xrceth {
    /// Number of the shared receive queue.
    pub srq: SrqNumber,
}

impl Xrceth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    /// Reads a header; the reserved byte is ignored.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self { srq: SrqNumber::new(from_be24(bytes.at::<1, 3>())) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        bytes.put::<0, 1>([0]);
        bytes.put::<1, 3>(be24(self.srq.value()));
    }
}
