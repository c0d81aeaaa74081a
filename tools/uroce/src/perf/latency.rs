//! Latency: one message at a time. SEND and WRITE take turns and half of a round trip counts; READ and ATOMIC count until
//! their completion.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use uroce::verbs::{CompletionKind, SendFlags, SendRequest};

use super::bandwidth;
use super::control::{Control, Message, unexpected};
use super::plan::{Connection, Goal, Operation, Role};
use super::session::Session;

/// Times of messages in nanoseconds, whole round trips where turns are taken.
pub(crate) struct Times {
    histogram: Histogram<u64>,
    goal: Goal,
    start: Instant,
}

impl Times {
    /// Longer ones count as this.
    const LONGEST_NS: u64 = 60_000_000_000;
    const DIGITS: u8 = 3;

    pub(super) fn new(goal: Goal) -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, Self::LONGEST_NS, Self::DIGITS)?;
        Ok(Self { histogram, goal, start: Instant::now() })
    }

    /// Notes one.
    pub(super) fn note(&mut self, time: Duration) {
        self.histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Whether there are enough.
    pub(super) fn are_enough(&self) -> bool {
        match self.goal {
            Goal::Messages(count) => self.histogram.len() >= count,
            Goal::Time(time) => self.start.elapsed() >= time,
        }
    }

    /// What was noted.
    pub(super) fn into_histogram(self) -> Histogram<u64> {
        self.histogram
    }
}

/// The client's part: measures.
pub(super) fn measure(session: &mut Session, control: &mut Control, size: u32, goal: Goal) -> Result<Histogram<u64>> {
    let mut times = Times::new(goal)?;
    let mut turns = Turns { size, turn: 0 };
    while !times.are_enough() {
        let start = Instant::now();
        turns.post(session)?;
        let came = match session.plan.operation {
            Operation::Read | Operation::Atomic => turns.await_completion(session, control)?,
            _ => turns.await_peer(session, control)?,
        };
        if !came {
            return Err(unexpected(control.hear()?));
        }
        times.note(start.elapsed());
    }
    control.say(&Message::End)?;
    while !control.has_message()? {
        session.completions.poll()?;
    }
    Ok(times.into_histogram())
}

/// The server's part: answers, until the client says that that was all.
pub(super) fn answer(session: &mut Session, control: &mut Control, size: u32) -> Result<()> {
    if !session.plan.operation.takes_turns() {
        return bandwidth::run(session, control, size, None, Role::Server).map(|_| ());
    }
    let mut turns = Turns { size, turn: 1 };
    while turns.await_peer(session, control)? {
        turns.turn -= 1;
        turns.post(session)?;
        turns.turn += 1;
    }
    Ok(())
}

/// Whose turn it is.
struct Turns {
    size: u32,
    /// Messages that were sent, or on the server are being waited for.
    turn: u64,
}

impl Turns {
    /// How often a send asks for a completion, where the peer's answer tells that it has gone.
    const MODERATION: u64 = 16;

    /// Sends one message.
    fn post(&mut self, session: &mut Session) -> Result<()> {
        self.turn += 1;
        let (turn, size) = (self.turn, self.size);
        let plan = &session.plan;
        // Each message from the same place: where the mark is.
        let work = plan.work(session.remote(0, 0, size));
        let mark = self.mark();
        if plan.operation == Operation::Write {
            session.set_mark(size, mark)?;
        }
        let inline = plan.inline > 0 && size <= plan.inline && plan.operation.takes_turns();
        let request = if inline {
            let mut bytes = [0x5a; 512];
            if let Some(last) = bytes.get_mut(size as usize - 1) {
                *last = mark;
            }
            SendRequest::inline(0, work, bytes.get(..size as usize).unwrap_or_default())
        } else {
            SendRequest::new(0, work, &[session.local(0, 0, size)])
        };
        let every = Self::MODERATION.min((u64::from(plan.tx_depth) / 2).max(1));
        let signalled = !plan.operation.takes_turns() || turn.is_multiple_of(every);
        let flags = if signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let Some(lane) = session.lanes.first() else { bail!("no queue pair") };
        lane.qp.post_send([lane.addressed(request).with_flags(flags)])?;
        session.repost(session.receive_list())
    }

    /// What the last byte of a WRITE is in this turn: never zero, never what it was before.
    fn mark(&self) -> u8 {
        (self.turn % 255) as u8 + 1
    }

    /// Waits for the peer's message of this turn; `false`: it said something over the conversation instead.
    fn await_peer(&self, session: &mut Session, control: &mut Control) -> Result<bool> {
        if session.plan.operation == Operation::Write {
            return self.await_mark(session, control);
        }
        await_kind(session, control, |kind| kind == CompletionKind::Receive)
    }

    fn await_completion(&self, session: &mut Session, control: &mut Control) -> Result<bool> {
        await_kind(session, control, |_| true)
    }

    fn await_mark(&self, session: &mut Session, control: &mut Control) -> Result<bool> {
        loop {
            if session.mark(self.size)? == self.mark() {
                return Ok(true);
            }
            if session.completions.poll()? == 0 && silent(session, control)? {
                return Ok(false);
            }
        }
    }
}

/// Polls until a completion of the wanted kind is there.
fn await_kind(session: &mut Session, control: &mut Control, wanted: fn(CompletionKind) -> bool) -> Result<bool> {
    loop {
        let count = session.completions.poll()?;
        let mut came = false;
        for index in 0..count {
            let completion = session.completions.get(index);
            if completion.kind == CompletionKind::Receive {
                session.owe(completion.id as usize);
            }
            came |= wanted(completion.kind);
        }
        if came {
            return Ok(true);
        }
        if count == 0 && silent(session, control)? {
            return Ok(false);
        }
    }
}

/// Whether the peer has said something over the conversation, after which no message comes.
fn silent(session: &mut Session, control: &mut Control) -> Result<bool> {
    session.completions.check_patience().with_context(|| match session.plan.connection {
        Connection::Rc => "the peer does not answer".to_owned(),
        lossy => format!("a message was lost, which {} does not make up for", lossy.title()),
    })?;
    control.has_message()
}
