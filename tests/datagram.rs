//! Unreliable connection and unreliable datagram between endpoints on a simulated network: at most once, in order, and
//! silent about what is lost.

mod common;

#[path = "datagram/captures.rs"]
mod captures;
#[path = "datagram/hostile.rs"]
mod hostile;
#[path = "datagram/multicast.rs"]
mod multicast;
#[path = "datagram/states.rs"]
mod states;
#[path = "datagram/uc.rs"]
mod uc;
#[path = "datagram/ud.rs"]
mod ud;
