//! What a thread does that polls in vain.
//!
//! Programs poll as if a device did the work meanwhile. Here the peer's processor does it, and on one machine that may be the
//! one that this thread holds: with more processes than processors (four ranks of MPI on two) every message would then wait for
//! the end of a time slice, milliseconds each way. So a thread that found nothing for a while lets others run.

use std::cell::Cell;

/// Polls in a row that find nothing before the thread gives way. A yield that nobody takes costs about as much as a poll.
const POLLS_PER_PAUSE: u32 = 16;

thread_local! {
    /// Polls in a row that found nothing, in all queues of the thread.
    static IN_VAIN: Cell<u32> = const { Cell::new(0) };
}

/// The thread has polled, and found this many completions.
pub(super) fn polled(found: usize) {
    let polls = if found > 0 { 0 } else { IN_VAIN.get() + 1 };
    IN_VAIN.set(polls % POLLS_PER_PAUSE);
    if polls == POLLS_PER_PAUSE {
        std::thread::yield_now();
    }
}
