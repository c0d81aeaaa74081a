//! Bandwidth: as many messages under way as the plan allows, until the goal is reached.

use std::time::{Duration, Instant};

use anyhow::Result;
use uroce::verbs::{CompletionKind, SendFlags, SendRequest};

use super::control::{Control, Message};
use super::plan::{Goal, Role, Traffic};
use super::session::Session;

/// Into how many parts a run is divided to find its peak.
const PARTS: u32 = 20;
/// The largest message that is posted inline.
const INLINE: usize = 512;
/// How often, and after what times, this end looks for late messages where their arrival is counted.
const QUIET_LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Runs messages of `size` bytes: up to `goal`, or none of its own without.
pub(super) fn run(
    session: &mut Session,
    control: &mut Control,
    size: u32,
    goal: Option<Goal>,
    role: Role,
) -> Result<Traffic> {
    let mut pump = Pump::new(session, size, goal);
    let mut quiet = 0;
    let mut announced = role == Role::Server;
    loop {
        pump.post(session)?;
        let count = session.completions.poll()?;
        for index in 0..count {
            let completion = session.completions.get(index);
            if completion.kind == CompletionKind::Receive {
                session.owe(completion.id as usize);
                pump.received += 1;
            } else {
                pump.complete(completion.id);
            }
        }
        if count > 0 {
            session.repost(session.receive_list())?;
            pump.look_at_clock();
        }
        if !pump.is_done() {
            session.completions.check_patience()?;
            if count == 0 && control.has_message()? && role == Role::Client {
                // Only a refusal can come now, which is an error by itself.
                return Err(super::control::unexpected(control.hear()?));
            }
            continue;
        }
        if !announced {
            control.say(&Message::End)?;
            announced = true;
        }
        if count == 0 && control.has_message()? {
            // What the peer sent before it said so is on its way through this end.
            if session.plan.counts_arrivals() && quiet < QUIET_LOOKS {
                quiet += 1;
                std::thread::sleep(BETWEEN_LOOKS);
                continue;
            }
            session.repost(1)?;
            return Ok(pump.traffic());
        }
    }
}

/// The messages that this end sends.
struct Pump {
    size: u32,
    lanes: Vec<Flow>,
    start: Instant,
    end: Instant,
    /// When to stop, for a goal in time.
    deadline: Option<Instant>,
    completed: u64,
    /// Messages of the peer's that came.
    received: u64,
    /// How many were complete when the clock was read last.
    noted: u64,
    peak: Peak,
}

/// One queue pair's share.
struct Flow {
    quota: u64,
    posted: u64,
    /// Posted, and not known to be complete.
    outstanding: u32,
    /// Posted since the last request that asks for a completion.
    unsignalled: u32,
}

impl Pump {
    fn new(session: &Session, size: u32, goal: Option<Goal>) -> Self {
        let quota = match goal {
            None => 0,
            Some(Goal::Messages(count)) => count,
            Some(Goal::Time(_)) => u64::MAX,
        };
        let flow = |_| Flow { quota, posted: 0, outstanding: 0, unsignalled: 0 };
        let start = Instant::now();
        let lanes: Vec<_> = (0..session.lanes.len()).map(flow).collect();
        let peak = Peak::new(start, goal, lanes.len() as u64);
        let deadline = match goal {
            Some(Goal::Time(time)) => Some(start + time),
            _ => None,
        };
        Self { size, lanes, start, end: start, deadline, completed: 0, received: 0, noted: 0, peak }
    }

    /// Posts what the depth of the queues allows.
    fn post(&mut self, session: &Session) -> Result<()> {
        let plan = &session.plan;
        for (index, flow) in self.lanes.iter_mut().enumerate() {
            loop {
                let left = flow.quota - flow.posted;
                let count = u64::from(plan.list).min(left) as u32;
                if count == 0 || flow.outstanding + count > plan.tx_depth {
                    break;
                }
                post_list(session, index, flow, self.size, count)?;
            }
        }
        Ok(())
    }

    /// A request came back; its id says for how many it stands, and on which queue pair.
    fn complete(&mut self, id: u64) {
        let (lane, count) = ((id >> 32) as usize, id as u32);
        if let Some(flow) = self.lanes.get_mut(lane) {
            flow.outstanding -= count;
            self.completed += u64::from(count);
        }
    }

    /// Notes how far it is, and stops when the time is over.
    fn look_at_clock(&mut self) {
        if self.completed == self.noted {
            return;
        }
        let now = Instant::now();
        (self.end, self.noted) = (now, self.completed);
        self.peak.note(now, self.completed);
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.deadline = None;
            for flow in &mut self.lanes {
                // The last one asks for a completion, which stands for those before it.
                flow.quota = flow.posted + u64::from(flow.unsignalled > 0);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.lanes.iter().all(|flow| flow.outstanding == 0 && flow.posted == flow.quota)
    }

    fn traffic(&self) -> Traffic {
        let seconds = (self.end - self.start).as_secs_f64();
        let traffic = Traffic { messages: self.completed, seconds, peak_rate: 0.0, received: self.received };
        Traffic { peak_rate: self.peak.rate.max(traffic.rate()), ..traffic }
    }
}

/// Posts `count` requests in one list.
fn post_list(session: &Session, index: usize, flow: &mut Flow, size: u32, count: u32) -> Result<()> {
    let plan = &session.plan;
    let Some(lane) = session.lanes.get(index) else { return Ok(()) };
    let inline = plan.inline > 0 && size <= plan.inline && plan.operation.takes_turns();
    let payload = [0x5a; INLINE];
    // What has to complete before the next list fits must ask for a completion.
    let full = flow.outstanding + count + plan.list > plan.tx_depth;
    let (last, mut turn, mut unsignalled) = (flow.posted + u64::from(count), flow.posted, flow.unsignalled);
    let must_signal_last = full || last == flow.quota;
    let requests = (0..count).map(|_| {
        let work = plan.work(session.remote(index, turn, size));
        let local = session.local(index, turn, size);
        turn += 1;
        unsignalled += 1;
        let id = (index as u64) << 32 | u64::from(unsignalled);
        let request = match payload.get(..size as usize) {
            Some(bytes) if inline => SendRequest::inline(id, work, bytes),
            _ => SendRequest::new(id, work, &[local]),
        };
        let request = lane.addressed(request);
        if unsignalled < plan.moderation && !(must_signal_last && turn == last) {
            return request.with_flags(SendFlags::empty());
        }
        unsignalled = 0;
        request
    });
    lane.qp.post_send(requests)?;
    flow.posted = last;
    flow.outstanding += count;
    flow.unsignalled = unsignalled;
    Ok(())
}

/// The best part of a run.
struct Peak {
    rate: f64,
    since: Instant,
    completed: u64,
    /// A part has at least so many messages, and takes at least this time.
    messages: u64,
    time: Duration,
}

impl Peak {
    fn new(start: Instant, goal: Option<Goal>, lanes: u64) -> Self {
        let (messages, time) = match goal {
            None => (u64::MAX, Duration::ZERO),
            Some(Goal::Messages(count)) => ((count * lanes).div_ceil(PARTS.into()), Duration::ZERO),
            Some(Goal::Time(time)) => (1, time / PARTS),
        };
        Self { rate: 0.0, since: start, completed: 0, messages, time }
    }

    fn note(&mut self, now: Instant, completed: u64) {
        let (messages, time) = (completed - self.completed, now - self.since);
        if messages >= self.messages && time >= self.time && !time.is_zero() {
            self.rate = self.rate.max(messages as f64 / time.as_secs_f64());
            (self.since, self.completed) = (now, completed);
        }
    }
}
