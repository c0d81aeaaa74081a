//! Reliable connection between endpoints on a simulated network.

mod common;

#[path = "rc/faults.rs"]
mod faults;
#[path = "rc/operations.rs"]
mod operations;
#[path = "rc/retry.rs"]
mod retry;
#[path = "rc/traffic.rs"]
mod traffic;
