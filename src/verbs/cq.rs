//! Completion queues.

use std::sync::Arc;

use super::channel::{CompletionChannel, Sink};
use super::context::ContextInner;
use crate::error::{Error, Result};
use crate::queue::{self, Arm};
use crate::work::Completion;

/// A completion queue (`ibv_create_cq(3)`). Clones are the same queue.
///
/// A program that polls it runs the engine in its own thread. One that sleeps arms it, and waits on its
/// [`CompletionChannel`].
///
/// ```
/// use uroce::verbs::{Completion, Context};
///
/// let cq = Context::open("uroce_lo")?.create_cq(16, None)?;
/// let mut completions = [Completion::default(); 8];
/// assert_eq!(cq.poll(&mut completions), 0);
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    inner: Arc<CqInner>,
}

impl CompletionQueue {
    pub(super) fn new(
        context: &Arc<ContextInner>,
        capacity: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self> {
        if channel.is_some_and(|channel| !channel.belongs_to(context)) {
            return Err(Error::invalid("channel", "it belongs to another context"));
        }
        let queue = Arc::new(queue::CompletionQueue::new(capacity, context.next_cq_number())?);
        let inner = Arc::new(CqInner { queue, channel: channel.cloned(), context: Arc::clone(context) });
        if let Some(channel) = channel {
            context.registry.connect(inner.queue.number(), Arc::downgrade(&inner), channel.sink());
        }
        Ok(Self { inner })
    }

    /// Takes up to as many completions as `completions` has room for, the oldest first; returns how many.
    ///
    /// When the queue is empty it runs the engine once, unless another thread is at it; it never waits.
    pub fn poll(&self, completions: &mut [Completion]) -> usize {
        let taken = self.take(completions);
        if taken > 0 || completions.is_empty() {
            return taken;
        }
        self.inner.context.driver.poll();
        self.take(completions)
    }

    /// Takes the oldest completion, if there is one. As [`poll`](Self::poll).
    #[must_use]
    pub fn poll_one(&self) -> Option<Completion> {
        self.inner.queue.pop().or_else(|| {
            self.inner.context.driver.poll();
            self.inner.queue.pop()
        })
    }

    /// Asks for one event on the channel when the next completion arrives (`ibv_req_notify_cq(3)`). What is in the queue
    /// already does not count: poll once more after arming. Without a channel it does nothing.
    pub fn arm(&self, arm: Arm) {
        if let Some(channel) = &self.inner.channel {
            self.inner.queue.arm(arm);
            channel.armed();
        }
    }

    /// How many completions fit. One more is lost, and the queue in error ([`overflowed`](Self::overflowed)).
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.queue.capacity()
    }

    /// Whether a completion was lost for want of room.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.inner.queue.overflowed()
    }

    /// The number that asynchronous events name it by; unique in its context.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.queue.number()
    }

    /// The channel that it reports to.
    #[must_use]
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.inner.channel.as_ref()
    }

    /// The engine's side of it.
    pub(super) fn queue(&self) -> Arc<queue::CompletionQueue> {
        Arc::clone(&self.inner.queue)
    }

    pub(super) fn belongs_to(&self, context: &Arc<ContextInner>) -> bool {
        Arc::ptr_eq(&self.inner.context, context)
    }

    /// Pops the ring, without a lock.
    fn take(&self, completions: &mut [Completion]) -> usize {
        let popped = std::iter::from_fn(|| self.inner.queue.pop());
        completions.iter_mut().zip(popped).map(|(place, completion)| *place = completion).count()
    }
}

impl From<Arc<CqInner>> for CompletionQueue {
    fn from(inner: Arc<CqInner>) -> Self {
        Self { inner }
    }
}

/// A completion queue and what it stands on.
#[derive(Debug)]
pub(super) struct CqInner {
    queue: Arc<queue::CompletionQueue>,
    channel: Option<CompletionChannel>,
    context: Arc<ContextInner>,
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if self.channel.is_some() {
            self.context.registry.disconnect(self.queue.number());
        }
    }
}

/// A completion queue's way to its channel, as the registry keeps it.
pub(super) type Connection = (std::sync::Weak<CqInner>, Arc<Sink>);
