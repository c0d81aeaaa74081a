//! Answering newcomers for the slot of an open device.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use crate::driver::quietly;
use crate::error::{Error, Result};
use crate::port::{Slot, wait};

/// A thread that answers until this is dropped. One of its own: whoever opens a device waits for it, and all others that may
/// answer can be waiting likewise.
#[derive(Debug)]
pub(super) struct Attendant {
    slot: Arc<Slot>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Attendant {
    pub(super) fn start(slot: Arc<Slot>) -> Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::system("an eventfd for the thread that answers newcomers", error.into()))?;
        let stop = Arc::new(stop);
        let (stopped, asked) = (Arc::clone(&stop), Arc::clone(&slot));
        let thread = quietly("uroce-slot", move || {
            let readable = [asked.as_raw_fd(), stopped.as_raw_fd()];
            while wait(&readable, &[], None).is_ok() && rustix::io::read(&*stopped, &mut [0; 8]).is_err() {
                asked.answer();
            }
        })?;
        Ok(Self { slot, stop, thread: Some(thread) })
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        // It fails only at 2^64 - 2 unread wake-ups.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which it has reported itself.
            let _ = thread.join();
        }
    }
}
