//! Benches that several test binaries share; none uses all of it.
#![allow(dead_code, unreachable_pub)]

pub mod craft;
pub mod mesh;
pub mod pair;
pub mod watch;
