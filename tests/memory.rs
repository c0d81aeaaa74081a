//! Keys that come and go while a connection works, and the operations on memory beyond READ, WRITE and the fetching atomics.

mod common;

#[path = "memory/atomic_write.rs"]
mod atomic_write;
#[path = "memory/bench.rs"]
mod bench;
#[path = "memory/fast.rs"]
mod fast;
#[path = "memory/flush.rs"]
mod flush;
#[path = "memory/local.rs"]
mod local;
#[path = "memory/windows.rs"]
mod windows;
