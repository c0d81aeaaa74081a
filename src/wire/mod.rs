//! Bytes to values and back: every header that RoCE v2 puts on the wire.
//!
//! No allocation, no I/O, no panic on any input: a header is parsed from an array of exactly its
//! length, so an access out of range cannot be written down.
#![forbid(unsafe_code)]

mod aeth;
mod atomic;
mod bth;
mod bytes;
mod deth;
mod error;
mod feth;
mod flow;
mod gid;
mod grh;
pub mod icrc;
pub mod net;
mod opcode;
mod packet;
mod psn;
mod qpn;
mod reth;
mod xrceth;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use error::WireError;
pub use feth::{Feth, Placement, Selectivity};
pub use flow::{Arrival, Flow};
pub use gid::Gid;
pub use grh::{Grh, GrhKind};
pub use opcode::{Headers, Info, Kind, Opcode, PayloadRule, Position, Transport};
pub use packet::{Extensions, Packet, emit_headers, pad_of};
pub use psn::Psn;
pub use qpn::Qpn;
pub use reth::Reth;
pub use xrceth::{SrqNumber, Xrceth};

/// The UDP destination port of RoCE v2 (IBTA A17.3.1).
pub const UDP_PORT: u16 = 4791;
/// Bytes of the invariant CRC that closes every packet.
pub const ICRC_LEN: usize = 4;
/// The longest datagram, from the BTH to the ICRC: 4096 bytes of payload and the longest headers in front of it.
pub const MAX_DATAGRAM: usize = 4096 + 80 + ICRC_LEN;

#[cfg(test)]
mod tests;
