//! A program's thread that waits for an event runs the engine meanwhile.
//!
//! Were the progress thread to do it, each event would cost two wake-ups, that thread's and the program's. So the thread
//! that waits takes the progress thread's place, one at a time; the others sleep on what they wait for alone.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::thread::{Pause, Seen, run_engine};
use super::{Driver, Shared};
use crate::error::{Error, Result};
use crate::port;

impl Driver {
    /// Sleeps until `ready`, which is when `descriptor` becomes readable, or until `deadline`; `None`: for ever. It may
    /// return early. The engine runs in this thread, unless another thread sleeps here already.
    ///
    /// # Errors
    /// [`Error::System`] when the port is broken, so that nothing will come any more, when waiting fails, or with EINTR when
    /// a signal interrupts it.
    pub fn sleep(&self, descriptor: impl AsFd, deadline: Option<Instant>, ready: impl Fn() -> bool) -> Result<()> {
        let shared = &*self.shared;
        let descriptor = descriptor.as_fd().as_raw_fd();
        let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let Some(_turn) = Turn::take(shared) else {
            return depend(shared, || wait(&[descriptor], &[], left()), ready);
        };
        let alone = [shared.wake.as_raw_fd(), descriptor];
        let mut seen = Seen::now(shared);
        loop {
            // Another thread of the program may be polling.
            let now = Seen::now(shared);
            let polling = seen.polling_until(&now);
            if polling || seen.is_stale(&now) {
                seen = now;
            }
            let pause = if polling { Pause::rest() } else { run_engine(shared) };
            if ready() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(());
            }
            if pause.broken {
                return shared.lock().check();
            }
            let timeout = [pause.timeout, left()].into_iter().flatten().min();
            let readable: SmallVec<[RawFd; 8]> = shared.readable().iter().copied().chain([descriptor]).collect();
            wait(if polling { &alone } else { &readable }, &pause.writable, timeout)?;
            shared.wake.calm();
            if ready() {
                return Ok(());
            }
        }
    }
}

/// Waits while another thread of the program runs the engine.
fn depend(shared: &Shared, wait: impl FnOnce() -> Result<()>, ready: impl Fn() -> bool) -> Result<()> {
    // Counted first, so that whoever gives up the turn knows that someone depends on the progress thread.
    shared.dependents.fetch_add(1, Ordering::SeqCst);
    let result = if shared.relieved.load(Ordering::SeqCst) && !ready() { wait() } else { Ok(()) };
    shared.dependents.fetch_sub(1, Ordering::SeqCst);
    result
}

fn wait(readable: &[RawFd], writable: &[RawFd], timeout: Option<Duration>) -> Result<()> {
    port::wait_interruptible(readable, writable, timeout)
        .map(drop)
        .map_err(|error| Error::system("waiting for an event", error))
}

/// The progress thread's place, taken until dropped.
struct Turn<'a>(&'a Shared);

impl<'a> Turn<'a> {
    fn take(shared: &'a Shared) -> Option<Self> {
        if shared.relieved.swap(true, Ordering::SeqCst) {
            return None;
        }
        if !shared.resting.load(Ordering::SeqCst) {
            // It waits for the port, with an idea of the next timer that nobody keeps up to date now.
            shared.wake.kick();
        }
        Some(Self(shared))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Self(shared) = self;
        shared.turns.fetch_add(1, Ordering::SeqCst);
        shared.relieved.store(false, Ordering::SeqCst);
        // A program that comes back soon need not wake the progress thread each time.
        if shared.dozing.load(Ordering::SeqCst) || shared.dependents.load(Ordering::SeqCst) > 0 {
            shared.wake.kick();
        }
    }
}
