//! Queue pairs: sans-IO machines.
#![forbid(unsafe_code)]

mod state;

pub use state::{AddressVector, Attributes, Mask, Mtu, QpType, State};
