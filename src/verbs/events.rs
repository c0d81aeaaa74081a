//! Asynchronous events of a context.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::context::Registry;
use crate::error::Result;
use crate::event::AsyncEvent;

/// The asynchronous events of a context (`ibv_get_async_event(3)`), in the order they happened.
///
/// All handles of a context share one queue: an event is taken once. The descriptor is readable while there are events;
/// wait on it as you like, but do not read from it.
///
/// ```
/// use uroce::verbs::Context;
///
/// let events = Context::open("uroce_lo")?.events();
/// assert_eq!(events.poll(), None);
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AsyncEvents {
    registry: Arc<Registry>,
}

impl AsyncEvents {
    pub(super) fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    /// The oldest event, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<AsyncEvent> {
        self.registry.events.pop()
    }

    /// Waits for an event up to `timeout`, for ever when that is `None`. Returns `None` when the time is over.
    ///
    /// # Errors
    /// [`Error::System`](crate::error::Error::System) when waiting fails.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        self.registry.events.wait(timeout)
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registry.events.as_fd()
    }
}

impl AsRawFd for AsyncEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
