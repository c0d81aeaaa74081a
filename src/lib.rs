//! RDMA over Converged Ethernet v2 in user space.
#![deny(unsafe_code)]

mod congestion;
pub mod counters;
pub mod driver;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod memory;
pub mod port;
pub mod qp;
pub mod queue;
pub mod time;
pub mod verbs;
pub mod wire;
pub mod work;
