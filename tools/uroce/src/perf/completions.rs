//! The completion queue of one end, and how it waits: polling, but not for ever where there are more programs than
//! processors; or sleeping, if the plan says so.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use uroce::verbs::{Arm, Completion, CompletionChannel, CompletionQueue, Context, Status};

use super::plan::{Measure, Operation, Plan, Role};

/// The completion queue and how to wait for it.
pub(super) struct Completions {
    cq: CompletionQueue,
    channel: CompletionChannel,
    taken: [Completion; Completions::BURST],
    /// Whether to sleep at once, instead of polling.
    events: bool,
    awaited: Awaited,
    /// Polls in vain before it sleeps.
    patient_polls: u32,
    context: Context,
    /// Datagrams that had come when this end looked last.
    received: u64,
    /// Polls in a row that found nothing.
    idle: u32,
    /// Since about when.
    since: Instant,
}

/// What ends a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// A completion.
    Completion,
    /// Nothing that this end would be told of: it serves a peer that writes or reads its memory.
    Requests,
    /// What the peer writes into its memory.
    Memory,
}

impl Awaited {
    fn new(plan: &Plan, role: Role) -> Self {
        match plan.operation {
            Operation::Send => Self::Completion,
            Operation::Write if plan.measure == Measure::Lat => Self::Memory,
            _ if role == Role::Client || plan.bidirectional => Self::Completion,
            _ => Self::Requests,
        }
    }
}

impl Completions {
    const BURST: usize = 64;
    /// A program that polls in vain gives way so often, in case there are more programs than processors.
    const POLLS_PER_PAUSE: u32 = 64;
    /// Where the time of each message counts, it goes on polling for longer before it sleeps, lest both ends always wait for each
    /// other to wake up.
    const PAUSES_PER_NAP_IN_TURNS: u32 = 32;
    /// A program that polls looks at the clock so often.
    const POLLS_PER_LOOK: u32 = 1024;
    /// How long a sleeping program sleeps before it looks at the conversation.
    const NAP: Duration = Duration::from_millis(2);
    /// How long nothing may complete.
    const PATIENCE: Duration = Duration::from_secs(20);

    pub(super) fn new(
        context: Context,
        cq: CompletionQueue,
        channel: CompletionChannel,
        plan: &Plan,
        role: Role,
    ) -> Self {
        if plan.events {
            cq.arm(Arm::Any);
        }
        let taken = [Completion::default(); Self::BURST];
        let (events, awaited, since) = (plan.events, Awaited::new(plan, role), Instant::now());
        let pauses = if plan.measure == Measure::Lat { Self::PAUSES_PER_NAP_IN_TURNS } else { 1 };
        let patient_polls = pauses * Self::POLLS_PER_PAUSE;
        Self { cq, channel, taken, events, awaited, patient_polls, context, received: 0, idle: 0, since }
    }

    /// Polls, and pauses a little when nothing is there, by sleeping if the plan says so; returns how many
    /// [`get`](Self::get) has.
    ///
    /// # Errors
    /// A request failed.
    pub(super) fn poll(&mut self) -> Result<usize> {
        let mut count = self.cq.poll(&mut self.taken);
        if count == 0 {
            count = self.pause()?;
        }
        if count == 0 {
            return Ok(0);
        }
        self.idle = 0;
        let mut taken = self.taken.iter().take(count);
        match taken.find(|completion| completion.status != Status::Success) {
            Some(failed) => bail!("queue pair {:#08x}: {}", failed.qpn.value(), failed.status.as_str()),
            None => Ok(count),
        }
    }

    /// A completion that the last poll took.
    pub(super) fn get(&self, index: usize) -> Completion {
        self.taken.get(index).copied().unwrap_or_default()
    }

    /// Whether nothing has completed for so long that nothing will; looks at the clock once in a while.
    pub(super) fn check_patience(&mut self) -> Result<()> {
        let step = if self.events { 1 } else { Self::POLLS_PER_LOOK };
        if self.idle == step {
            self.since = Instant::now();
        } else if self.idle > step && self.idle.is_multiple_of(step) {
            let seconds = Self::PATIENCE.as_secs();
            ensure!(self.since.elapsed() < Self::PATIENCE, "nothing completed for {seconds} s: is the peer alive?");
        }
        Ok(())
    }

    /// What to do when nothing is there. Returns how many completions have come after all.
    fn pause(&mut self) -> Result<usize> {
        self.idle = self.idle.wrapping_add(1).max(1);
        if self.events {
            if self.channel.wait(Some(Self::NAP))?.is_some() {
                self.cq.arm(Arm::Any);
            }
            return Ok(0);
        }
        if !self.idle.is_multiple_of(Self::POLLS_PER_PAUSE) {
            std::hint::spin_loop();
            return Ok(0);
        }
        if !self.idle.is_multiple_of(self.patient_polls) || !self.may_sleep() {
            std::thread::yield_now();
            return Ok(0);
        }
        // A program that sleeps until something comes gets a processor sooner than one that only gave way.
        self.cq.arm(Arm::Any);
        let count = self.cq.poll(&mut self.taken);
        if count == 0 {
            self.channel.wait(Some(Self::NAP))?;
        }
        Ok(count)
    }

    /// Whether what this end waits for would wake it, or is not about to come.
    fn may_sleep(&mut self) -> bool {
        match self.awaited {
            Awaited::Completion => true,
            Awaited::Memory => false,
            Awaited::Requests => {
                let received = self.context.port_counters().received;
                std::mem::replace(&mut self.received, received) == received
            }
        }
    }
}
