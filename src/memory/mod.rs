//! Registered memory: the only home of raw payload pointers.
//!
//! An address, a length and a key from a work request or from the wire are an allegation until
//! [`Table::resolve`] (the program's own) or [`Table::resolve_remote`] (a peer's) has checked them, exactly once, into a
//! [`Span`]; a span is reached only through copies.

mod fast;
mod guard;
mod region;
mod table;
mod window;

use crate::wire::Qpn;

pub use fast::FastRegister;
pub(crate) use guard::watch;
pub(crate) use region::populate;
pub use region::{Buffer, Region, Span};
pub use table::{AccessError, Table};
pub use window::{WindowBind, WindowType};

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
        /// Pages are looked up when they are touched. uroce copies through the processor's own page tables, so every region
        /// is one; the implicit one is [`Region::implicit`].
        const ON_DEMAND = 1 << 6;
        /// The peer may FLUSH to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// The peer may FLUSH to persistence: memory that maps a file only.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Accesses may be reordered; uroce does nothing different.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// The rights that a peer is usually given.
    pub const REMOTE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ).union(Self::REMOTE_ATOMIC);
    /// The rights to change memory.
    pub const CHANGES: Self = Self::LOCAL_WRITE.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);
    /// The rights to FLUSH.
    pub const FLUSH: Self = Self::FLUSH_GLOBAL.union(Self::FLUSH_PERSISTENT);

    /// Whether the combination is allowed: a peer may change only what may be changed locally (IBTA 10.6.3.1).
    #[must_use]
    pub fn is_consistent(self) -> bool {
        !self.intersects(Self::REMOTE_WRITE | Self::REMOTE_ATOMIC) || self.contains(Self::LOCAL_WRITE)
    }
}

/// A protection domain's number: keys of one are worthless in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PdNumber(pub u32);

/// Who shows a key: a queue pair and its protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The domain.
    pub pd: PdNumber,
    /// The queue pair: a type 2 window opens for one only.
    pub qpn: Qpn,
}

/// The key with the next low byte, which the owner of a window or fast region chooses (`ibv_inc_rkey(3)`).
///
/// ```
/// assert_eq!(uroce::memory::next_key(0x1234_56ff), 0x1234_5600);
/// ```
#[must_use]
pub const fn next_key(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}
