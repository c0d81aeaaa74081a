//! Packet sequence numbers: 24 bits that wrap.

use core::fmt;

/// A packet sequence number, 0 to 0xff_ffff, compared and counted modulo 2^24 (IBTA 9.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// One more than the largest PSN.
    pub const SPACE: u32 = 1 << 24;
    /// Half the space: of two PSNs at most this far apart, it is known which comes first.
    pub const HALF: u32 = 1 << 23;

    /// The low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & (Self::SPACE - 1))
    }

    /// The number, below 2^24.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The PSN `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The PSN `count` packets earlier.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// How many packets after `earlier` this one is; negative when it comes before. In -2^23 .. 2^23.
    #[must_use]
    pub const fn distance(self, earlier: Self) -> i32 {
        // Shift the 24-bit difference to the top so that its sign bit becomes that of an i32.
        (self.0.wrapping_sub(earlier.0) << 8).cast_signed() >> 8
    }

    /// Whether this PSN comes strictly before `other`.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
