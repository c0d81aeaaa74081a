//! Queue pairs: sans-IO machines.
#![forbid(unsafe_code)]

#[path = "../pending/qp.rs"]
mod pending;
mod state;

pub use pending::{Capacity, QpInit};
pub use state::{AddressVector, Attributes, Mask, Mtu, QpType, State};
