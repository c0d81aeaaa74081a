//! Asynchronous events of a context.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Registry;
use crate::error::Result;
use crate::event::AsyncEvent;

/// The asynchronous events of a context (`ibv_get_async_event(3)`), in the order they happened.
///
/// | event | `ibv_event_type` | what happened |
/// | --- | --- | --- |
/// | [`CqError`](AsyncEvent::CqError) | 0 | a completion queue overran; what reports there fails, too |
/// | [`QpFatal`](AsyncEvent::QpFatal) | 1 | a queue pair failed, and a completion cannot tell: its completion queue overran |
/// | [`QpRequestError`](AsyncEvent::QpRequestError) | 2 | the peer broke the rules, or our receive request was at fault: NAK, and the queue pair is in error |
/// | [`QpAccessError`](AsyncEvent::QpAccessError) | 3 | the peer touched memory it may not: NAK, and the queue pair is in error |
/// | [`CommunicationEstablished`](AsyncEvent::CommunicationEstablished) | 4 | the first packet came in in RTR |
/// | [`SendQueueDrained`](AsyncEvent::SendQueueDrained) | 5 | SQD: what was begun is finished |
/// | [`DeviceFatal`](AsyncEvent::DeviceFatal) | 8 | the port failed; open the device again |
/// | [`SrqError`](AsyncEvent::SrqError) | 14 | the completion queue of a shared receive queue of an XRC domain overran |
/// | [`SrqLimitReached`](AsyncEvent::SrqLimitReached) | 15 | fewer requests wait than the limit; once for each arming |
/// | [`QpLastWqeReached`](AsyncEvent::QpLastWqeReached) | 16 | a queue pair in error takes nothing more from its shared receive queue |
///
/// Where the kernel's rxe raises none for a peer that is refused access, ours do, as the specification asks (IBTA 11.6.3). There
/// are no paths to migrate to (6, 7), no LIDs and no subnet manager (11, 13, 17), and the partition keys never change (12).
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

    /// As [`wait`](Self::wait), but a signal whose handler runs in this thread ends it.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); with EINTR when a signal interrupts it.
    pub fn wait_interruptible(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        self.registry.events.wait_until(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
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
