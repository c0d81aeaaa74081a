//! What the integration tests share.
//!
//! Every test binary compiles all of it and uses its part; hence the two lints.
#![allow(dead_code, unreachable_pub)]

pub mod agent;
pub mod craft;
pub mod guest;
pub mod mesh;
pub mod pair;
pub mod pattern;
pub mod watch;
