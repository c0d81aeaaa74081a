//! Completion queues.

use std::sync::Arc;
use std::time::Duration;

use super::batch::Batch;
use super::channel::{CompletionChannel, Sink};
use super::context::ContextInner;
use super::limits::completion_vectors;
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
        vector: u32,
    ) -> Result<Self> {
        let vectors = completion_vectors();
        if vector >= vectors {
            return Err(Error::invalid("comp_vector", format!("{vector}; there are {vectors}, from 0")));
        }
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
        let taken = self.poll_each(completions.len());
        completions.iter_mut().zip(taken).map(|(place, completion)| *place = completion).count()
    }

    /// As [`poll`](Self::poll), for up to `count` completions, each taken when the iterator comes to it.
    pub fn poll_each(&self, count: usize) -> impl Iterator<Item = Completion> {
        let mut first = if count > 0 { self.poll_one() } else { None };
        let available = if first.is_some() { count } else { 0 };
        std::iter::from_fn(move || first.take().or_else(|| self.pop())).take(available)
    }

    /// Starts to take completions one by one, with what only a batch tells of them (`ibv_start_poll(3)`). `None` when there is
    /// none; as [`poll`](Self::poll), it runs the engine once then. Dropping the batch ends it (`ibv_end_poll(3)`): what it has
    /// not come to stays in the queue.
    #[must_use]
    pub fn start_poll(&self) -> Option<Batch<'_>> {
        Some(Batch::new(self, self.poll_one()?))
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

    /// Changes how many completions fit, while it is used (`ibv_resize_cq(3)`). What waits stays in its order.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is out of range, or more completions wait.
    pub fn resize(&self, capacity: usize) -> Result<()> {
        self.inner.context.driver.command(|_, _| self.inner.queue.resize(capacity))
    }

    /// How many completions, and how long, an event is held back (`ibv_modify_cq(3)`). Events are never held back here: a
    /// program that sleeps is woken at once, and one that wants fewer events arms less often.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for anything but a count of at most 1 and no time.
    pub fn moderate(&self, count: u16, period: Duration) -> Result<()> {
        if count <= 1 && period.is_zero() {
            return Ok(());
        }
        Err(Error::Unsupported("moderation of completion events (count 1 and period 0 are what there is)".into()))
    }

    /// Whether a completion was lost for want of room. What was there before can be polled; nothing is added any more, and every
    /// queue pair that reports here goes to the error state ([`AsyncEvent::CqError`](super::AsyncEvent::CqError), then
    /// [`AsyncEvent::QpFatal`](super::AsyncEvent::QpFatal) for each).
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

    /// The next completion that is there; never runs the engine.
    pub(super) fn pop(&self) -> Option<Completion> {
        self.inner.queue.pop()
    }

    /// The context it was made from.
    pub(super) fn context(&self) -> &ContextInner {
        &self.inner.context
    }

    /// The engine's side of it.
    pub(super) fn queue(&self) -> Arc<queue::CompletionQueue> {
        Arc::clone(&self.inner.queue)
    }

    pub(super) fn belongs_to(&self, context: &Arc<ContextInner>) -> bool {
        Arc::ptr_eq(&self.inner.context, context)
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
