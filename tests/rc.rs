//! Reliable connection between two endpoints on a simulated network.

mod common;

#[path = "rc/operations.rs"]
mod operations;
