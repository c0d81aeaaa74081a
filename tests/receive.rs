//! The receiving side and what queue pairs share: shared receive queues, completion queues, events, on a simulated network.

mod common;

#[path = "receive/bench.rs"]
mod bench;
#[path = "receive/completions.rs"]
mod completions;
#[path = "receive/events.rs"]
mod events;
#[path = "receive/live.rs"]
mod live;
#[path = "receive/shared.rs"]
mod shared;
#[path = "receive/traffic.rs"]
mod traffic;
