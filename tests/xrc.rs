//! Extended reliable connections between endpoints on a simulated network. The kernel's rxe has none, so both ends are ours;
//! what the headers must be is written down here, packet by packet.

mod common;

#[path = "xrc/bench.rs"]
mod bench;
#[path = "xrc/hostile.rs"]
mod hostile;
#[path = "xrc/operations.rs"]
mod operations;
#[path = "xrc/rules.rs"]
mod rules;
#[path = "xrc/traffic.rs"]
mod traffic;
