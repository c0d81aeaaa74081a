//! The progress thread: it runs the engine for programs that sleep, and stands back while one polls.
//!
//! A thread that waits for the port beside a program that polls it wakes up for every datagram only to find it taken, and
//! takes the lock and the processor from the program. So it counts what the program does: after [`BUSY_POLLS`] polls
//! that came fast enough it leaves the port alone and looks again every [`REST`]. It is back at once when a completion
//! queue is armed, because the program is then about to sleep.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};

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

/// Starts the thread, which waits on `readable`: the port's descriptors and the wake-up.
pub(super) fn spawn(shared: Arc<Shared>, readable: Vec<RawFd>) -> Result<JoinHandle<()>> {
    // A thread inherits the mask. Signals are for the program's own threads: one that is waiting in a system call
    // may count on being interrupted.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let mask = mask.map_err(|error| Error::system("the signal mask", error.into()))?;
    let thread = std::thread::Builder::new().name("uroce".into()).spawn(move || run(&shared, &readable));
    let restored = mask.thread_set_mask();
    let thread = thread.map_err(|error| Error::system("the progress thread", error))?;
    restored.map_err(|error| Error::system("the signal mask", error.into()))?;
    Ok(thread)
}

fn run(shared: &Shared, readable: &[RawFd]) {
    let mut seen = Seen::now(shared);
    while !shared.stopping.load(Ordering::SeqCst) {
        let now = Seen::now(shared);
        if seen.polling_until(&now) {
            seen = now;
            rest(shared, now.arms);
        } else {
            if now.arms != seen.arms || now.at - seen.at >= REST {
                seen = now;
            }
            serve(shared, readable);
        }
        shared.calm();
    }
}

/// What the program had done at some time.
#[derive(Clone, Copy)]
struct Seen {
    at: Instant,
    polls: u64,
    arms: u64,
}

impl Seen {
    fn now(shared: &Shared) -> Self {
        Self {
            at: Instant::now(),
            polls: shared.polls.load(Ordering::Relaxed),
            arms: shared.arms.load(Ordering::SeqCst),
        }
    }

    /// Whether the program has polled all the time from here to `now`.
    fn polling_until(&self, now: &Self) -> bool {
        let polls = now.polls.wrapping_sub(self.polls);
        let covered = BUSY_INTERVAL.saturating_mul(u32::try_from(polls).unwrap_or(u32::MAX));
        now.arms == self.arms && polls >= BUSY_POLLS && covered >= now.at - self.at
    }
}

/// Leaves the port to the program for a while, unless a completion queue has been armed since `arms` was read.
fn rest(shared: &Shared, arms: u64) {
    shared.resting.store(true, Ordering::SeqCst);
    if shared.arms.load(Ordering::SeqCst) == arms {
        wait(&[shared.wake.as_raw_fd()], &[], Some(REST));
    }
    shared.resting.store(false, Ordering::SeqCst);
}

/// Runs the engine, then sleeps until there is more to do.
fn serve(shared: &Shared, readable: &[RawFd]) {
    let mut engine = shared.lock();
    let more = engine.progress(BURSTS);
    shared.collect(&mut engine);
    let Watch { timer, backlog } = engine.watch();
    let writable = if backlog { engine.port.backlog_descriptors() } else { Vec::new() };
    let now = engine.now();
    let broken = engine.is_broken();
    drop(engine);
    shared.deliver();
    let timeout = match timer {
        _ if more => Some(Duration::ZERO),
        // A port without a descriptor to wait on for its backlog is asked again later.
        _ if backlog && writable.is_empty() => Some(REST),
        timer => timer.map(|timer| timer.since(now)),
    };
    // A broken port may be ready for ever: only a wake-up counts then.
    let wake = [shared.wake.as_raw_fd()];
    wait(if broken { &wake } else { readable }, &writable, timeout);
}

/// Waits; an error counts as a wake-up, and a pause keeps it from becoming a busy loop.
fn wait(readable: &[RawFd], writable: &[RawFd], timeout: Option<Duration>) {
    if port::wait(readable, writable, timeout).is_err() {
        std::thread::sleep(REST);
    }
}
