//! RDMA over Converged Ethernet v2 in user space.
#![deny(unsafe_code)]

pub mod port;
pub mod time;
pub mod wire;
