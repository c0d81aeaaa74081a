//! The completions of one end, and how it waits for them.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use uroce::verbs::{Arm, Completion, CompletionChannel, CompletionQueue, Context};

/// How long the peer may be silent, once connected.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a polling end gives way, in case there are more programs than processors, and looks at the clock.
const POLLS_PER_PAUSE: u32 = 64;
/// After so many polls in vain it sleeps: the peer is slow, and may need this very processor.
const POLLS_PER_NAP: u32 = 1024;

/// A completion queue, polled or slept on.
pub(super) struct Inbox {
    cq: CompletionQueue,
    channel: CompletionChannel,
    /// Whether to sleep at once, instead of polling.
    events: bool,
}

impl Inbox {
    /// A queue for `capacity` completions.
    pub(super) fn new(context: &Context, capacity: usize, events: bool) -> Result<Self> {
        let channel = context.create_completion_channel()?;
        let cq = context.create_cq(capacity, Some(&channel))?;
        if events {
            cq.arm(Arm::Any);
        }
        Ok(Self { cq, channel, events })
    }

    /// The queue.
    pub(super) fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    /// Waits for completions; never returns without one.
    pub(super) fn next(&self, completions: &mut [Completion]) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        let mut polls = 0_u32;
        loop {
            let count = self.cq.poll(completions);
            if count > 0 {
                return Ok(count);
            }
            polls = polls.wrapping_add(1);
            if self.events {
                if self.channel.wait(Some(PATIENCE))?.is_some() {
                    self.cq.arm(Arm::Any);
                }
            } else if polls.is_multiple_of(POLLS_PER_NAP) {
                // Polled once more before it sleeps: what came before it was armed would not wake it.
                self.cq.arm(Arm::Any);
                let count = self.cq.poll(completions);
                if count > 0 {
                    return Ok(count);
                }
                self.channel.wait(Some(PATIENCE))?;
            } else if polls.is_multiple_of(POLLS_PER_PAUSE) {
                std::thread::yield_now();
            } else {
                continue;
            }
            if Instant::now() > deadline {
                bail!(
                    "no message for {} s: the peer is gone, or UDP port 4791 is closed on the way",
                    PATIENCE.as_secs()
                );
            }
        }
    }
}
