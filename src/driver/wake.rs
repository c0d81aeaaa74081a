//! What wakes the thread that sleeps in charge of the engine.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Error, Result};

/// Nobody has kicked.
const CALM: u8 = 0;
/// A thread is about to write to the descriptor.
const KICKING: u8 = 1;
/// The descriptor can be read.
const KICKED: u8 = 2;
/// A thread is about to read from it.
const CALMING: u8 = 3;

/// A descriptor that sleepers wait on, and that costs a system call only when it is not readable already.
///
/// Each state has one thread that goes on to the next, in a ring. With a mere flag, a thread that was interrupted between setting it
/// and writing left a descriptor behind that was readable and not known to be: whoever waited on it was awake for ever.
///
/// The types are those of the system, and in a test those of a scheduler that tries interleavings.
#[derive(Debug)]
pub(super) struct Wake<B = OwnedFd, S = AtomicU8> {
    bell: B,
    state: S,
}

impl Wake {
    /// # Errors
    /// [`Error::System`] when the descriptor cannot be made.
    pub(super) fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::system("an eventfd for the progress thread", error.into()))?;
        Ok(Self { bell, state: AtomicU8::new(CALM) })
    }
}

impl<B: Bell, S: State> Wake<B, S> {
    /// Wakes whoever waits. When a kick is on its way already, or just being taken back, that is enough: who is woken looks at
    /// everything after [`calm`](Self::calm).
    pub(super) fn kick(&self) {
        if self.state.proceed(CALM, KICKING) {
            self.bell.ring();
            self.state.set(KICKED);
        }
    }

    /// Takes back a kick. Of one that is being given the descriptor may stay readable: then the next call takes it.
    pub(super) fn calm(&self) {
        if self.state.is(KICKED) && self.state.proceed(KICKED, CALMING) {
            self.bell.silence();
            self.state.set(CALM);
        }
    }
}

impl AsRawFd for Wake {
    /// Readable after a kick.
    fn as_raw_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

/// What is heard by those who wait, until it is silenced.
pub(super) trait Bell {
    fn ring(&self);
    fn silence(&self);
}

impl Bell for OwnedFd {
    fn ring(&self) {
        // It fails only at 2^64 - 2 unread wake-ups.
        let _ = rustix::io::write(self, &1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(self, &mut [0; 8]);
    }
}

/// A state that threads share.
pub(super) trait State {
    fn is(&self, state: u8) -> bool;
    fn set(&self, state: u8);
    /// Whether it was `from`, and is `to` now.
    fn proceed(&self, from: u8, to: u8) -> bool;
}

impl State for AtomicU8 {
    fn is(&self, state: u8) -> bool {
        self.load(Ordering::SeqCst) == state
    }

    fn set(&self, state: u8) {
        self.store(state, Ordering::SeqCst);
    }

    fn proceed(&self, from: u8, to: u8) -> bool {
        self.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use shuttle::sync::atomic as scheduled;
    use shuttle::thread;

    use super::*;
    use crate::port::wait;

    #[test]
    fn a_kick_wakes_until_it_is_taken_back() {
        let wake = Wake::new().unwrap();
        let is_readable = || wait(&[wake.as_raw_fd()], &[], Some(Duration::ZERO)).unwrap();
        for _ in 0..3 {
            assert!(!is_readable());
            wake.kick();
            wake.kick();
            assert!(is_readable());
            wake.calm();
            wake.calm();
        }
    }

    /// An eventfd.
    impl Bell for scheduled::AtomicU64 {
        fn ring(&self) {
            self.fetch_add(1, Ordering::SeqCst);
        }

        fn silence(&self) {
            self.store(0, Ordering::SeqCst);
        }
    }

    impl State for scheduled::AtomicU8 {
        fn is(&self, state: u8) -> bool {
            self.load(Ordering::SeqCst) == state
        }

        fn set(&self, state: u8) {
            self.store(state, Ordering::SeqCst);
        }

        fn proceed(&self, from: u8, to: u8) -> bool {
            self.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        }
    }

    type Scheduled = Wake<scheduled::AtomicU64, scheduled::AtomicU8>;

    /// Whatever the order of kicks and calms: in the end the descriptor is silent, and the next kick is heard.
    #[test]
    fn kicks_and_calms_of_many_threads_leave_nothing_behind() {
        let history = || {
            let wake =
                Arc::new(Scheduled { bell: scheduled::AtomicU64::new(0), state: scheduled::AtomicU8::new(CALM) });
            let calls: [fn(&Scheduled); 4] = [Wake::kick, Wake::kick, Wake::calm, Wake::calm];
            let threads = calls.map(|call| {
                let wake = Arc::clone(&wake);
                thread::spawn(move || (0..3).for_each(|_| call(&wake)))
            });
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let is_heard = || wake.bell.load(Ordering::SeqCst) > 0;
            wake.calm();
            assert!(!is_heard(), "nobody kicks, and yet it wakes");
            wake.kick();
            assert!(is_heard(), "a kick that wakes nobody");
        };
        shuttle::check_random(history, 3000);
        // Few changes of thread at the worst places.
        shuttle::check_pct(history, 3000, 3);
    }

    /// Who waits for a cause and is kicked when it is there does not sleep on.
    #[test]
    fn no_cause_is_missed() {
        let history = || {
            let wake =
                Arc::new(Scheduled { bell: scheduled::AtomicU64::new(0), state: scheduled::AtomicU8::new(CALM) });
            let causes = Arc::new(scheduled::AtomicU64::new(0));
            let kickers = [(); 2].map(|()| {
                let (wake, causes) = (Arc::clone(&wake), Arc::clone(&causes));
                thread::spawn(move || {
                    for _ in 0..2 {
                        causes.fetch_add(1, Ordering::SeqCst);
                        wake.kick();
                    }
                })
            });
            // As the progress thread: look at everything, sleep until the bell rings, take that back.
            while causes.load(Ordering::SeqCst) < 4 {
                while wake.bell.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
                wake.calm();
            }
            kickers.into_iter().for_each(|kicker| kicker.join().unwrap());
        };
        shuttle::check_random(history, 3000);
    }
}
