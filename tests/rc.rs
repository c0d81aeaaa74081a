//! Reliable connection between endpoints on a simulated network.

mod common;

#[path = "rc/duplicates.rs"]
mod duplicates;
#[path = "rc/faults.rs"]
mod faults;
#[path = "rc/forged.rs"]
mod forged;
#[path = "rc/held.rs"]
mod held;
#[path = "rc/hostile.rs"]
mod hostile;
#[path = "rc/largest.rs"]
mod largest;
#[path = "rc/limits.rs"]
mod limits;
#[path = "rc/operations.rs"]
mod operations;
#[path = "rc/peers.rs"]
mod peers;
#[path = "rc/retry.rs"]
mod retry;
#[path = "rc/states.rs"]
mod states;
#[path = "rc/traffic.rs"]
mod traffic;
