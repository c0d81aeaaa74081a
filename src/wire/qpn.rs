//! Queue pair numbers: 24 bits.

use core::fmt;

/// A queue pair number, 0 to 0xff_ffff.
///
/// uroce numbers its own as `slot << 16 | n`: the slot names the process that shares the address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services interface: connection management.
    pub const GSI: Self = Self(1);
    /// The destination of a multicast packet (IBTA 9.6.1).
    pub const MULTICAST: Self = Self(0xff_ffff);

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

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}
