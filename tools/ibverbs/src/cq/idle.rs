//! Threads that poll in vain let others run.
//!
//! Programs poll as if a device did the work. Here it is a process, their peer perhaps, that needs a processor: on one core a
//! thread that polls on keeps it until its time slice ends, and a round trip takes milliseconds.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a thread polls in vain before it gives way. A peer on a processor of its own answers within that; whoever gives way to
/// a program that computes is not back for a time slice, of milliseconds.
const PATIENCE: Duration = Duration::from_micros(60);
/// Polls in vain from one look at the clock to the next: a look costs a tenth of a poll.
const POLLS_PER_LOOK: u32 = 8;

/// Polls in vain so far, and when they were counted first.
#[derive(Clone, Copy)]
struct Idle {
    polls: u32,
    since: Option<Instant>,
}

impl Idle {
    const NOT: Self = Self { polls: 0, since: None };
}

thread_local! {
    static IDLE: Cell<Idle> = const { Cell::new(Idle::NOT) };
}

/// Notes that this thread polled, and what it got.
pub(super) fn polled(completions: usize) {
    // At the end of the thread, when its variables are gone, nothing needs to be noted.
    let _ = IDLE.try_with(|idle| idle.set(if completions > 0 { Idle::NOT } else { next(idle.get()) }));
}

fn next(mut idle: Idle) -> Idle {
    idle.polls = idle.polls.wrapping_add(1);
    if idle.polls.is_multiple_of(POLLS_PER_LOOK) {
        let now = Instant::now();
        let since = *idle.since.get_or_insert(now);
        if now.duration_since(since) >= PATIENCE {
            std::thread::yield_now();
        }
    }
    idle
}
