//! Completions taken one by one (the extended interface of `ibv_create_cq_ex(3)`).

use std::ops::Deref;
use std::time::SystemTime;

use super::cq::CompletionQueue;
use crate::work::Completion;

/// Completions of a queue, taken one by one ([`CompletionQueue::start_poll`]): it is the completion at hand, whose fields can
/// be read as its own.
///
/// ```
/// use uroce::verbs::{Context, Status};
///
/// let cq = Context::open("uroce_lo")?.create_cq(16, None)?;
/// if let Some(mut batch) = cq.start_poll() {
///     loop {
///         println!("request {} ended at {:?}: {}", batch.id, batch.time_of_day(), batch.status.as_str());
///         if !batch.advance() {
///             break;
///         }
///     }
/// }
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Debug)]
pub struct Batch<'queue> {
    queue: &'queue CompletionQueue,
    current: Completion,
}

impl<'queue> Batch<'queue> {
    pub(super) fn new(queue: &'queue CompletionQueue, current: Completion) -> Self {
        Self { queue, current }
    }

    /// Goes on to the next completion (`ibv_next_poll(3)`); false when none is there, and the one at hand stays. One that comes
    /// after that is taken by a later call. The engine does not run meanwhile, unless another thread sees to it.
    #[must_use]
    pub fn advance(&mut self) -> bool {
        match self.queue.pop() {
            Some(next) => {
                self.current = next;
                true
            }
            None => false,
        }
    }

    /// When it ended, in nanoseconds of the clock that [`Context::now`](super::Context::now) reads
    /// (`ibv_wc_read_completion_ts(3)`).
    #[must_use]
    pub fn timestamp_ns(&self) -> u64 {
        self.current.timestamp.as_nanos()
    }

    /// When it ended, as time of day (`ibv_wc_read_completion_wallclock_ns(3)`).
    #[must_use]
    pub fn time_of_day(&self) -> SystemTime {
        self.queue.context().driver.time_of_day(self.current.timestamp)
    }
}

impl Deref for Batch<'_> {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        &self.current
    }
}
