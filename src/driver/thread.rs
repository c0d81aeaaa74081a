//! The progress thread: it runs the engine for programs that sleep, and stands back while one polls.
//!
//! A thread that waits for the port beside a program that polls it wakes up for every datagram only to find it taken, and
//! takes the lock and the processor from the program. So it counts what the program does: after [`BUSY_POLLS`] polls
//! that came fast enough it leaves the port alone and looks again every [`REST`]. It is back at once when a completion
//! queue is armed, because the program is then about to sleep. A program's thread that [sleeps](super::sleep) in the driver
//! runs the engine itself; this one then leaves it alone, too.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use super::Shared;
use super::engine::Watch;
use crate::error::{Error, Result};
use crate::port;

/// So many polls make a program one that polls. Programs that sleep poll a few times after each wake-up.
const BUSY_POLLS: u64 = 16;
/// Polls further apart than this do not.
const BUSY_INTERVAL: Duration = Duration::from_micros(100);
/// How long a program that has stopped polling goes unserved, at most.
const REST: Duration = Duration::from_millis(1);
/// Bursts received before the lock is given back.
const BURSTS: usize = 8;

/// Starts the thread.
pub(super) fn spawn(shared: Arc<Shared>) -> Result<JoinHandle<()>> {
    quietly("uroce", move || run(&shared))
}

/// Starts a thread of the library that no signal interrupts.
pub(crate) fn quietly(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    // A thread inherits the mask. Signals are for the program's own threads: one that is waiting in a system call
    // may count on being interrupted.
    let mut blocked = SigSet::all();
    // But those of faults are the thread's own: a handler may know what to do (`memory::guard`).
    blocked.remove(Signal::SIGSEGV);
    blocked.remove(Signal::SIGBUS);
    let mask = blocked.thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let mask = mask.map_err(|error| Error::system("the signal mask", error.into()))?;
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    let restored = mask.thread_set_mask();
    let thread = thread.map_err(|error| Error::system(format!("the thread {name}"), error))?;
    restored.map_err(|error| Error::system("the signal mask", error.into()))?;
    Ok(thread)
}

fn run(shared: &Shared) {
    let mut seen = Seen::now(shared);
    while !shared.stopping.load(Ordering::SeqCst) {
        let now = Seen::now(shared);
        match seen.duty(&now) {
            Duty::Serve => {
                if seen.is_stale(&now) {
                    seen = now;
                }
                serve(shared);
            }
            Duty::Rest => {
                seen = now;
                rest(shared, now, Some(REST));
            }
            Duty::Doze => {
                seen = now;
                shared.dozing.store(true, Ordering::SeqCst);
                rest(shared, now, None);
                shared.dozing.store(false, Ordering::SeqCst);
            }
        }
        shared.wake.calm();
    }
}

/// What the thread has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// When nobody else runs the engine.
    Serve,
    /// When the program did so until now, and may stop without a word.
    Rest,
    /// When a thread of the program has taken this one's place for a while, and will give it back.
    Doze,
}

/// What the program had done at some time.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    at: Instant,
    polls: u64,
    arms: u64,
    turns: u64,
    relieved: bool,
    depended_on: bool,
}

impl Seen {
    pub(super) fn now(shared: &Shared) -> Self {
        Self {
            at: Instant::now(),
            polls: shared.polls.load(Ordering::Relaxed),
            arms: shared.arms.load(Ordering::SeqCst),
            turns: shared.turns.load(Ordering::SeqCst),
            relieved: shared.relieved.load(Ordering::SeqCst),
            depended_on: shared.dependents.load(Ordering::SeqCst) > 0,
        }
    }

    /// What to do at `now`, judging by what the program has done from here on.
    fn duty(&self, now: &Self) -> Duty {
        let same_turn = self.turns == now.turns;
        if now.relieved {
            return if self.relieved && same_turn { Duty::Doze } else { Duty::Rest };
        }
        let waiting = !same_turn && !now.depended_on;
        if self.arms == now.arms && (waiting || self.polling_until(now)) { Duty::Rest } else { Duty::Serve }
    }

    /// Whether the program has polled all the time from here to `now`.
    pub(super) fn polling_until(&self, now: &Self) -> bool {
        let polls = now.polls.wrapping_sub(self.polls);
        let covered = BUSY_INTERVAL.saturating_mul(u32::try_from(polls).unwrap_or(u32::MAX));
        polls >= BUSY_POLLS && covered >= now.at - self.at
    }

    /// Whether it is time to judge by what the program does from `now` on.
    pub(super) fn is_stale(&self, now: &Self) -> bool {
        now.arms != self.arms || now.at - self.at >= REST
    }
}

/// Leaves the engine to the program for a while, unless it has armed a completion queue, or given up its turn, since `seen`.
fn rest(shared: &Shared, seen: Seen, timeout: Option<Duration>) {
    shared.resting.store(true, Ordering::SeqCst);
    let now = Seen::now(shared);
    if (now.arms, now.turns, now.relieved) == (seen.arms, seen.turns, seen.relieved) {
        wait(&[shared.wake.as_raw_fd()], &[], timeout);
    }
    shared.resting.store(false, Ordering::SeqCst);
}

/// Runs the engine, then sleeps until there is more to do.
fn serve(shared: &Shared) {
    let pause = run_engine(shared);
    let wake = [shared.wake.as_raw_fd()];
    let readable = shared.readable();
    wait(if pause.broken { &wake } else { &readable }, &pause.writable, pause.timeout);
}

/// How long whoever runs the engine may sleep.
pub(super) struct Pause {
    /// Until the next timer; `None`: for ever.
    pub(super) timeout: Option<Duration>,
    /// Until one of these can be written.
    pub(super) writable: Vec<RawFd>,
    /// Whether the port is broken: its descriptors may be ready for ever.
    pub(super) broken: bool,
}

impl Pause {
    /// While the program polls.
    pub(super) fn rest() -> Self {
        Self { timeout: Some(REST), writable: Vec::new(), broken: false }
    }
}

/// Runs the engine for someone who is going to sleep.
pub(super) fn run_engine(shared: &Shared) -> Pause {
    let mut engine = shared.lock();
    let more = engine.progress(BURSTS);
    shared.collect(&mut engine);
    let Watch { timer, backlog } = engine.watch();
    let writable = if backlog { engine.port.backlog_descriptors() } else { Vec::new() };
    let now = engine.now();
    let broken = engine.check().is_err();
    drop(engine);
    shared.deliver();
    let timeout = match timer {
        _ if more => Some(Duration::ZERO),
        // A port without a descriptor to wait on for its backlog is asked again later.
        _ if backlog && writable.is_empty() => Some(REST),
        timer => timer.map(|timer| timer.since(now)),
    };
    Pause { timeout, writable, broken }
}

/// Waits; an error counts as a wake-up, and a pause keeps it from becoming a busy loop.
fn wait(readable: &[RawFd], writable: &[RawFd], timeout: Option<Duration>) {
    if port::wait(readable, writable, timeout).is_err() {
        std::thread::sleep(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_serves_unless_the_program_does() {
        let start = Instant::now();
        let seen = Seen { at: start, polls: 0, arms: 0, turns: 0, relieved: false, depended_on: false };
        let later = Seen { at: start + REST, ..seen };
        let duty = |now| seen.duty(&now);
        assert_eq!(duty(later), Duty::Serve);
        assert_eq!(duty(Seen { polls: 15, ..later }), Duty::Serve, "a few polls after a wake-up");
        assert_eq!(duty(Seen { polls: 16, ..later }), Duty::Rest);
        assert_eq!(duty(Seen { polls: 16, at: start + 2 * REST, ..later }), Duty::Serve, "too slow");
        assert_eq!(duty(Seen { polls: 500, arms: 1, ..later }), Duty::Serve, "about to sleep");
        assert_eq!(duty(Seen { turns: 1, ..later }), Duty::Rest, "it may come back");
        assert_eq!(duty(Seen { turns: 1, depended_on: true, ..later }), Duty::Serve);
        assert_eq!(duty(Seen { relieved: true, ..later }), Duty::Rest);
        let seen = Seen { relieved: true, ..seen };
        assert_eq!(seen.duty(&Seen { relieved: true, ..later }), Duty::Doze);
        assert_eq!(seen.duty(&Seen { relieved: true, turns: 1, ..later }), Duty::Rest);
        assert_eq!(seen.duty(&Seen { turns: 1, ..later }), Duty::Rest);
    }
}
