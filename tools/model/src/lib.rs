//! Endpoints on a simulated network, held against a model of what RDMA promises.
//!
//! A [`Plan`] says everything that happens: hosts, connections, the network's faults, and the steps of the programs. It is
//! drawn from a seed ([`Plan::draw`]), [run] as often as wanted with the same history, [shrunk](shrink) when it fails, and
//! kept as JSON with its story, so that what once failed is run for ever.
//!
//! What is checked on every run:
//! - RC and XRC: every request is executed at most once, in order; where nothing in the plan excuses a failure, exactly once.
//! - UC: a message arrives whole and in order, or not at all, and at most once.
//! - UD: a datagram arrives unaltered, and never more often than the network copied it.
//! - Where nothing was lost and receives were there, all of it arrived.
//! - Memory of both ends is what the model says, to the byte, those bytes included that nobody may touch.
//! - Completions come in order, once, with the right kind, length and immediate data; after the first failure come flushes.
//! - A failure has a cause in the plan that allows it.
//! - At the end nothing is in flight, no timer runs, and destroying everything leaves nothing.

mod campaign;
mod check;
mod direction;
mod draw;
mod host;
mod judge;
mod keys;
mod open;
mod plan;
mod pool;
mod random;
mod shared;
mod shrink;
mod trace;
mod uc;
mod ud;
mod world;

pub use campaign::{Progress, attempt, campaign, explain};
pub use plan::{Connection, Plan, Service, Step, Verb, Weather};
pub use random::Random;
pub use shrink::shrink;
pub use world::{Outcome, Stats, run};
