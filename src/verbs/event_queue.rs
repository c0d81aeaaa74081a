//! A queue that a program can sleep on: the events themselves, and an eventfd that counts them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::error::{Error, Result};

/// Events in order. The descriptor is readable while there are any.
#[derive(Debug)]
pub(super) struct EventQueue<T> {
    events: Mutex<VecDeque<T>>,
    descriptor: OwnedFd,
}

impl<T> EventQueue<T> {
    /// An empty queue.
    ///
    /// # Errors
    /// [`Error::System`] when there is no descriptor left.
    pub(super) fn new() -> Result<Self> {
        // A semaphore: one read takes one event, as one read from the kernel's channels does. Blocking, because
        // programs decide that themselves, with fcntl(2).
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)
            .map_err(|error| Error::system("an eventfd", error.into()))?;
        Ok(Self { events: Mutex::new(VecDeque::new()), descriptor })
    }

    /// Adds an event.
    pub(super) fn push(&self, event: T) {
        let mut events = self.lock();
        events.push_back(event);
        // It would block only at 2^64 - 2 events.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes the oldest event.
    pub(super) fn pop(&self) -> Option<T> {
        let mut events = self.lock();
        let event = events.pop_front()?;
        // Counter and queue change together under the lock, so this does not block.
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        Some(event)
    }

    /// Takes the oldest event, after waiting for one up to `timeout`; `None`: for ever.
    ///
    /// # Errors
    /// [`Error::System`] when waiting fails; an interruption by a signal does not count.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Result<Option<T>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            match self.wait_until(deadline) {
                Err(error) if error.is_interruption() => {}
                result => return result,
            }
        }
    }

    /// As [`wait`](Self::wait), but an interruption by a signal counts.
    ///
    /// # Errors
    /// [`Error::System`] when waiting fails; with EINTR when a signal interrupts it.
    pub(super) fn wait_until(&self, deadline: Option<Instant>) -> Result<Option<T>> {
        loop {
            if let Some(event) = self.pop() {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            // Too long for a timespec: for ever.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], left.as_ref()) {
                Ok(_) => {}
                Err(error) => return Err(Error::system("waiting for an event", error.into())),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_in_order_and_the_descriptor_counts_them() {
        let queue = EventQueue::new().unwrap();
        queue.push(1);
        queue.push(2);
        assert_eq!(queue.wait(None).unwrap(), Some(1));
        assert_eq!(queue.pop(), Some(2));
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.wait(Some(Duration::from_millis(1))).unwrap(), None);
    }

    #[test]
    fn a_sleeper_wakes_up() {
        let queue = EventQueue::new().unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| queue.wait(None).unwrap());
            queue.push(7);
            assert_eq!(sleeper.join().unwrap(), Some(7));
        });
    }
}
