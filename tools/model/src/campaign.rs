//! Many plans on all processors, and what to say of one that fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::plan::Plan;
use crate::shrink::shrink;
use crate::world::{Outcome, Stats, run};

/// Runs that shrinking may take.
const ATTEMPTS: usize = 400;
/// Packets of a failing run that are shown.
const PACKETS_SHOWN: usize = 60;

/// How far a campaign is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Plans begun before this one.
    pub begun: u64,
    /// Plans that failed.
    pub failed: usize,
    /// What those that ended well did.
    pub stats: Stats,
}

/// Runs the plans of the seeds from `first` on, on `jobs` threads, while `more` says so. Returns what was done, and the seeds
/// that failed with the reason, in order.
pub fn campaign(first: u64, jobs: usize, more: impl Fn(&Progress) -> bool + Sync) -> (Stats, Vec<(u64, String)>) {
    let next = AtomicU64::new(0);
    let done = Mutex::new((Stats::default(), Vec::new()));
    let work = || {
        loop {
            let begun = next.fetch_add(1, Ordering::Relaxed);
            let progress = {
                let (stats, failures): &(_, Vec<_>) = &done.lock().unwrap_or_else(PoisonError::into_inner);
                Progress { begun, failed: failures.len(), stats: *stats }
            };
            if !more(&progress) {
                return;
            }
            let seed = first.wrapping_add(begun);
            let outcome = attempt(&Plan::draw(seed));
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome {
                Ok(stats) => done.0 += stats,
                Err(error) => done.1.push((seed, error)),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work);
        }
    });
    let (stats, mut failures) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort();
    (stats, failures)
}

/// Runs a plan; a panic is a failure.
///
/// # Errors
/// What is not as the model says.
pub fn attempt(plan: &Plan) -> Result<Stats, String> {
    match catch_unwind(AssertUnwindSafe(|| run(plan, false))) {
        Ok(Outcome { error: None, stats, .. }) => Ok(stats),
        Ok(Outcome { error: Some(error), .. }) => Err(error),
        Err(_) => Err("a panic, whose message was printed before".to_owned()),
    }
}

/// Shrinks a plan that fails, and says what is left of it: the plan as JSON, and the last packets.
#[must_use]
pub fn explain(plan: &Plan) -> String {
    let small = shrink(plan, ATTEMPTS);
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&small, true)));
    let (error, trace) =
        outcome.map_or((Some("a panic".to_owned()), Vec::new()), |outcome| (outcome.error, outcome.trace));
    let json = serde_json::to_string_pretty(&small).expect("a plan is plain data");
    let last = &trace[trace.len().saturating_sub(PACKETS_SHOWN)..];
    format!(
        "Shrunk from {} steps to {}, it fails with: {}\n{json}\nIts last packets, of {}:\n{}",
        plan.steps.len(),
        small.steps.len(),
        error.unwrap_or_default(),
        trace.len(),
        last.join("\n")
    )
}
