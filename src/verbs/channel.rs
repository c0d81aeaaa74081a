//! Completion channels: what a program sleeps on until a completion queue has something.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::context::ContextInner;
use super::cq::{CompletionQueue, CqInner};
use super::event_queue::EventQueue;
use crate::error::Result;

/// A completion channel (`ibv_create_comp_channel(3)`): armed completion queues report here.
///
/// The descriptor is readable while there are events; wait on it as you like (`poll(2)`, `epoll(7)`, an async runtime),
/// but do not read from it. Events need no acknowledge: what they name is reference counted.
///
/// The sequence that misses nothing: arm the queue, poll it until it is empty, then wait; arm again after each event.
///
/// ```
/// use std::time::Duration;
/// use uroce::verbs::{Arm, Context};
///
/// let context = Context::open("uroce_lo")?;
/// let channel = context.create_completion_channel()?;
/// let cq = context.create_cq(16, Some(&channel))?;
/// cq.arm(Arm::Any);
/// assert!(cq.poll_one().is_none());
/// assert!(channel.wait(Some(Duration::from_millis(1)))?.is_none(), "nothing was posted");
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    inner: Arc<ChannelInner>,
}

impl CompletionChannel {
    pub(super) fn new(context: Arc<ContextInner>) -> Result<Self> {
        let sink = Arc::new(EventQueue::new()?);
        Ok(Self { inner: Arc::new(ChannelInner { sink, waited_on: AtomicBool::new(false), context }) })
    }

    /// The completion queue that fired first, if one did.
    #[must_use]
    pub fn poll(&self) -> Option<CompletionQueue> {
        std::iter::from_fn(|| self.inner.sink.pop()).find_map(|cq| cq.upgrade()).map(CompletionQueue::from)
    }

    /// Waits for a completion queue to fire, up to `timeout`, for ever when that is `None`. Returns `None` when the time is
    /// over. Events of queues that have been dropped since are passed over.
    ///
    /// The engine runs in this thread meanwhile, which wakes up sooner than one that waits on the descriptor.
    ///
    /// # Errors
    /// [`Error::System`](crate::error::Error::System) when the device is broken, or when waiting fails; an interruption by a
    /// signal does not count.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CompletionQueue>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            match self.wait_until(deadline) {
                Err(error) if error.is_interruption() => {}
                result => return result,
            }
        }
    }

    /// As [`wait`](Self::wait), but a signal whose handler runs in this thread ends it.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); with EINTR when a signal interrupts it.
    pub fn wait_interruptible(&self, timeout: Option<Duration>) -> Result<Option<CompletionQueue>> {
        self.wait_until(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<Option<CompletionQueue>> {
        let inner = &*self.inner;
        inner.waited_on.store(true, Ordering::Relaxed);
        loop {
            if let Some(cq) = self.poll() {
                return Ok(Some(cq));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            inner.context.driver.sleep(self, deadline, || !inner.sink.is_empty())?;
        }
    }

    /// A queue of this channel was armed: the program is about to sleep. If it does so in [`wait`](Self::wait), as it did
    /// before, it runs the engine itself then.
    pub(super) fn armed(&self) {
        if !self.inner.waited_on.load(Ordering::Relaxed) {
            self.inner.context.driver.attend();
        }
    }

    /// Where the engine's events for a queue of this channel go.
    pub(super) fn sink(&self) -> Arc<Sink> {
        Arc::clone(&self.inner.sink)
    }

    pub(super) fn belongs_to(&self, context: &Arc<ContextInner>) -> bool {
        Arc::ptr_eq(&self.inner.context, context)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.sink.as_fd()
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Events of completion queues, which they do not keep alive.
pub(super) type Sink = EventQueue<Weak<CqInner>>;

#[derive(Debug)]
struct ChannelInner {
    sink: Arc<Sink>,
    /// Whether the program has waited here, and not on the descriptor.
    waited_on: AtomicBool,
    context: Arc<ContextInner>,
}
