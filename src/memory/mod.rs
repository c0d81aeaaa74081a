//! Registered memory: the only home of raw payload pointers.
//!
//! An address, a length and a key from a work request or from the wire are an allegation until
//! [`Table::resolve`] has checked them, exactly once, into a [`Span`]; a span is reached only through copies.

mod region;
mod table;

pub use region::{Buffer, Region, Span};
pub use table::{AccessError, Table};

bitflags::bitflags! {
    /// What a region allows: `ibv_access_flags`, with the same values. Local reading is always allowed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Receives, READ answers and atomic answers may be placed here.
        const LOCAL_WRITE = 1;
        /// The peer may WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// The peer may READ.
        const REMOTE_READ = 1 << 2;
        /// The peer may do ATOMICs.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const MW_BIND = 1 << 4;
        /// Addresses count from the start of the region.
        const ZERO_BASED = 1 << 5;
        /// Accesses may be reordered; uroce does nothing different.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// The rights that a peer can be given.
    pub const REMOTE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ).union(Self::REMOTE_ATOMIC);

    /// Whether the combination is allowed: a peer may change only what may be changed locally (IBTA 10.6.3.1).
    #[must_use]
    pub fn is_consistent(self) -> bool {
        !self.intersects(Self::REMOTE_WRITE | Self::REMOTE_ATOMIC) || self.contains(Self::LOCAL_WRITE)
    }
}

/// A protection domain's number: keys of one are worthless in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PdNumber(pub u32);
