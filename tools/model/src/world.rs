//! Runs a plan.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

use serde::Serialize;
use uroce::port::Network;
use uroce::qp::State;
use uroce::time::{Duration, Instant};
use uroce::wire::Qpn;
use uroce::work::Completion;

use crate::direction::{Direction, End, RECEIVES, Subject};
use crate::host::{Area, Host};
use crate::keys::{self, Use};
use crate::plan::{Plan, Service, Step};
use crate::pool::{Pool, Queue};
use crate::random::Random;
use crate::trace::note_packets;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Plans run.
    pub runs: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets lost, doubled, held up or damaged, and steps that did harm.
    pub faults: u64,
    /// Requests posted.
    pub requests: u64,
    /// Requests that failed or were flushed, with a cause.
    pub failed: u64,
    /// Messages received over UC, UD and XRC, and those that came from a shared receive queue over any service.
    pub received: [u64; 4],
    /// Requests that used a key which a work request had opened.
    pub keyed: u64,
    /// Completions and places in memory compared with the model.
    pub checks: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.packets += other.packets;
        self.faults += other.faults;
        self.requests += other.requests;
        self.failed += other.failed;
        for (sum, more) in self.received.iter_mut().zip(other.received) {
            *sum += more;
        }
        self.keyed += other.keyed;
        self.checks += other.checks;
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it did.
    pub stats: Stats,
    /// What was not as the model says, if anything.
    pub error: Option<String>,
    /// Every packet, when that was asked for.
    pub trace: Vec<String>,
}

/// Runs a plan and holds it against the model; notes every packet when `traced`.
#[must_use]
pub fn run(plan: &Plan, traced: bool) -> Outcome {
    let mut world = World::new(plan);
    let trace = Arc::new(Mutex::new(Vec::new()));
    if traced {
        note_packets(&world.network, Arc::clone(&trace));
    }
    let error = world.live().and_then(|()| world.judge()).err();
    let counters = world.network.counters();
    world.stats.runs = 1;
    world.stats.packets = counters.sent;
    world.stats.faults += counters.lost
        + counters.filtered
        + counters.partitioned
        + counters.queue_full
        + counters.duplicated
        + counters.reordered
        + counters.corrupted;
    // The network's filter keeps a handle.
    let trace = std::mem::take(&mut *trace.lock().expect("nobody panicked with it"));
    Outcome { stats: world.stats, error, trace }
}

/// How many times all hosts may be let work: more means that they keep each other busy for ever.
const MAX_TURNS: u64 = 3_000_000;
/// What comes to an end at all does so within this time: 8 ack timeouts of the longest that is drawn, for each request.
const PATIENCE: Duration = Duration::from_secs(3600);

/// One end of a connection.
pub(crate) struct Side {
    pub(crate) host: usize,
    /// The life of the host in which it was made.
    pub(crate) life: u32,
    pub(crate) qpn: Qpn,
    /// Where its receives come from, when any message may consume them.
    pub(crate) pool: Option<usize>,
    pub(crate) end: End,
    pub(crate) sends: Vec<Completion>,
    pub(crate) receives: Vec<Completion>,
    pub(crate) is_destroyed: bool,
}

/// A connection that was made: what is sent by side 0 is direction 0.
pub(crate) struct Link {
    pub(crate) plan: usize,
    pub(crate) sides: [Side; 2],
    pub(crate) directions: [Direction; 2],
    /// Whether something happened to it that may end it.
    pub(crate) is_troubled: bool,
}

pub(crate) struct World<'plan> {
    pub(crate) plan: &'plan Plan,
    pub(crate) network: Network,
    pub(crate) hosts: Vec<Host>,
    pub(crate) links: Vec<Option<Link>>,
    pub(crate) pools: Vec<Pool>,
    /// Which link and side a queue pair of a host's present life is.
    pub(crate) owners: HashMap<(usize, Qpn), (usize, usize)>,
    /// Cells that connections counted on: which host's life, and how often it was asked to.
    pub(crate) counted: HashMap<(usize, u32), (Area, u64)>,
    pub(crate) now: Instant,
    pub(crate) turns: u64,
    pub(crate) is_harsh: bool,
    pub(crate) was_cut: bool,
    pub(crate) was_stalled: bool,
    pub(crate) stats: Stats,
}

impl<'plan> World<'plan> {
    fn new(plan: &'plan Plan) -> Self {
        let network = Network::new(plan.seed, plan.weather.config());
        let hosts = (0..plan.hosts).map(|index| Host::start(&network, index, plan, 0)).collect();
        let mut world = Self {
            plan,
            network,
            hosts,
            links: plan.connections.iter().map(|_| None).collect(),
            pools: Vec::new(),
            owners: HashMap::new(),
            counted: HashMap::new(),
            now: Instant::ZERO,
            turns: 0,
            is_harsh: plan.weather.is_harsh(),
            was_cut: false,
            was_stalled: false,
            stats: Stats::default(),
        };
        for index in 0..plan.connections.len() {
            if !plan.connections[index].late {
                world.open(index);
            }
        }
        world
    }

    /// Goes through the steps, then lets everything come to an end.
    fn live(&mut self) -> Result<(), String> {
        for (index, step) in self.plan.steps.iter().enumerate() {
            self.step(step).map_err(|error| format!("step {index}, {step:?}: {error}"))?;
        }
        // Programs post the receives that are still missing, a few at a time.
        while self.links.iter().flatten().flat_map(|link| &link.directions).any(|way| !way.receives.is_empty())
            || self.pools.iter().any(Pool::is_hungry)
        {
            for direction in 0..2 * self.links.len() {
                self.receive(direction, 2)?;
            }
            self.top_up_all()?;
            self.run_for(Duration::from_micros(500))?;
        }
        let quiet = self.run_for(PATIENCE)?;
        self.check_drained()?;
        for direction in 0..2 * self.links.len() {
            self.modify(direction, State::SendQueueDrained, State::ReadyToSend);
        }
        let quiet = self.run_for(PATIENCE)? && quiet;
        if quiet { Ok(()) } else { Err(format!("something still goes on after {PATIENCE:?}")) }
    }

    /// The link, the side that sends, and its host's index, while that side exists.
    fn sender(&self, direction: usize) -> Option<(&Link, usize, usize)> {
        let link = self.links.get(direction / 2)?.as_ref()?;
        let side = &link.sides[direction % 2];
        (!side.is_destroyed && self.hosts[side.host].life == side.life).then_some((link, direction % 2, side.host))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Post { direction, verb, length, shape } => self.post(direction, verb, length, shape)?,
            Step::Receive { direction, count } => self.receive(direction, count)?,
            Step::Run { micros } => {
                self.run_for(Duration::from_micros(micros.into()))?;
            }
            Step::Weather(weather) => {
                self.network.set_config(weather.config());
                self.is_harsh |= weather.is_harsh();
            }
            Step::Cut { from, to, cut } => {
                if let (Some(from), Some(to)) = (self.hosts.get(from), self.hosts.get(to)) {
                    self.network.partition(from.address, to.address, cut);
                    self.was_cut |= cut;
                    self.stats.faults += 1;
                }
            }
            Step::Stall { host, micros } => {
                if let Some(host) = self.hosts.get_mut(host) {
                    host.stalled_until = self.now + Duration::from_micros(micros.into());
                    self.was_stalled = true;
                    self.stats.faults += 1;
                }
            }
            Step::Drain { direction } => self.modify(direction, State::ReadyToSend, State::SendQueueDrained),
            Step::Resume { direction } => self.modify(direction, State::SendQueueDrained, State::ReadyToSend),
            Step::Fail { direction } => self.fail(direction, false)?,
            Step::Destroy { direction } => self.fail(direction, true)?,
            Step::Restart { host } if host < self.hosts.len() => self.restart(host)?,
            Step::Restart { .. } => {}
            Step::Open { connection } if connection < self.links.len() => self.open(connection),
            Step::Open { .. } => {}
        }
        self.collect()?;
        Ok(())
    }

    fn post(&mut self, direction: usize, verb: crate::Verb, length: u32, shape: u64) -> Result<(), String> {
        let Some((link, side, host)) = self.sender(direction) else { return Ok(()) };
        let connection = self.plan.connections[link.plan];
        if !connection.service.carries(verb, side) {
            return Ok(());
        }
        let srq = self.target_queue(link, side);
        let chosen = keys::choose(&link.directions[1 - side].keys, &link.sides[1 - side].sends, verb);
        let subject = match chosen {
            _ if verb.opens() => Subject::Allocated(self.hosts[host].allocate_key(verb)),
            Some(key) if verb.is_keyed() => Subject::Opened(link.directions[1 - side].keys[key]),
            _ if verb.is_keyed() => return Ok(()),
            _ => Subject::None,
        };
        let Some(link) = self.links[direction / 2].as_mut() else { return Ok(()) };
        let far_host = link.sides[1 - side].host;
        let counter = self.hosts[far_host].counter.clone();
        let far_life = link.sides[1 - side].life;
        let is_old = self.hosts[far_host].life != far_life;
        if is_old && verb == crate::Verb::Count {
            return Ok(());
        }
        let [a, b] = &mut link.sides;
        let (near, far) = if side == 0 { (a, b) } else { (b, a) };
        let way = &mut link.directions[side];
        let ends = (&mut near.end, &mut far.end);
        // Where any receive may take a message, none is longer than the receives.
        let longest = if connection.is_pooled() { connection.service.longest() } else { usize::MAX };
        let (mut request, op, receive) =
            way.make(verb, longest.min(length as usize), &mut Random::new(shape), ends, &counter, subject);
        let depth = connection.depth as usize;
        request.id |= (direction as u64) << 16;
        request.srq = srq;
        if connection.service == Service::Ud {
            request.destination = Some(self.hosts[far_host].destination(far.qpn));
        }
        let pool = far.pool.filter(|_| op.message.is_some());
        match self.hosts[host].endpoint.post_send(self.now, near.qpn, request) {
            Ok(()) => {
                way.posted(op, receive);
                if let (Some(key), Subject::Opened(_)) = (chosen, subject) {
                    self.stats.keyed += 1;
                    let stale = verb != crate::Verb::WriteThroughKey;
                    link.directions[1 - side].keys[key].state = if stale { Use::Stale } else { Use::Written };
                }
                if let Some(pool) = pool {
                    self.pools[pool].wanted += 1;
                }
                link.is_troubled |= verb.is_bad();
                self.stats.requests += 1;
                if verb == crate::Verb::Count {
                    self.counted.entry((far_host, far_life)).or_insert((counter, 0)).1 += 1;
                }
                Ok(())
            }
            // Unsignalled requests may be done without a word, so a full queue shows only that this many were posted.
            // A queue pair of datagrams is that of many directions.
            Err(uroce::error::Error::Full { .. }) if way.ops.len() >= depth || connection.service == Service::Ud => {
                Ok(())
            }
            Err(error) => Err(format!("refused: {error}")),
        }
    }

    /// Posts receives for the messages of a direction, unless their queue pair is gone.
    fn receive(&mut self, direction: usize, count: usize) -> Result<(), String> {
        self.top_up(direction, count)?;
        let receiver = self.sender(direction ^ 1).map(|(_, side, host)| (side, host));
        let Some(Some(link)) = self.links.get_mut(direction / 2) else { return Ok(()) };
        let way = &mut link.directions[direction % 2];
        let Some((side, host)) = receiver else {
            way.receives.clear();
            return Ok(());
        };
        for _ in 0..count {
            let Some(request) = way.receives.pop_front() else { break };
            let posted = self.hosts[host].endpoint.post_receive(self.now, link.sides[side].qpn, request);
            posted.map_err(|error| format!("receive refused: {error}"))?;
            way.receives_posted += 1;
        }
        Ok(())
    }

    /// Posts receives to the queue that messages of a direction take them from.
    fn top_up(&mut self, direction: usize, count: usize) -> Result<(), String> {
        let Some(Some(link)) = self.links.get(direction / 2) else { return Ok(()) };
        let Some(index) = link.sides[1 - direction % 2].pool else { return Ok(()) };
        let pool = &mut self.pools[index];
        pool.top_up(index, &mut self.hosts[pool.host], self.now, count)
    }

    /// Posts two receives to each such queue.
    fn top_up_all(&mut self) -> Result<(), String> {
        for (index, pool) in self.pools.iter_mut().enumerate() {
            pool.top_up(index, &mut self.hosts[pool.host], self.now, 2)?;
        }
        Ok(())
    }

    fn modify(&mut self, direction: usize, from: State, to: State) {
        let Some((link, side, host)) = self.sender(direction) else { return };
        let qpn = link.sides[side].qpn;
        // The target of XRC sends nothing that could drain.
        if self.hosts[host].state(qpn) == Some(from)
            && self.plan.connections[link.plan].service.carries(crate::Verb::Send, side)
        {
            let changed = self.hosts[host].modify(self.now, qpn, to);
            assert!(changed, "{from:?} to {to:?}");
            if to == State::SendQueueDrained {
                self.hosts[host].drained.retain(|&other| other != qpn);
            }
        }
    }

    /// Ends the sender of a direction: to ERR, or destroyed.
    fn fail(&mut self, direction: usize, destroys: bool) -> Result<(), String> {
        let Some((link, side, host)) = self.sender(direction) else { return Ok(()) };
        let qpn = link.sides[side].qpn;
        self.stats.faults += 1;
        if destroys {
            self.collect()?;
            self.hosts[host].endpoint.destroy_qp(qpn).expect("it exists");
        } else {
            assert!(self.hosts[host].modify(self.now, qpn, State::Error));
        }
        // Of datagrams, all that use the queue pair.
        for link in self.links.iter_mut().flatten() {
            for side in 0..2 {
                let there = &mut link.sides[side];
                if (there.host, there.qpn, there.life) == (host, qpn, self.hosts[host].life) {
                    there.is_destroyed |= destroys;
                    link.is_troubled = true;
                }
            }
        }
        Ok(())
    }

    fn restart(&mut self, host: usize) -> Result<(), String> {
        self.collect()?;
        let life = self.hosts[host].life + 1;
        self.hosts[host] = Host::start(&self.network, host, self.plan, life);
        self.owners.retain(|(owner, _), _| *owner != host);
        self.stats.faults += 1;
        for link in self.links.iter_mut().flatten() {
            link.is_troubled |= link.sides.iter().any(|side| side.host == host);
        }
        Ok(())
    }

    /// Takes the completions and limit events that are there.
    fn collect(&mut self) -> Result<(), String> {
        for (index, host) in self.hosts.iter_mut().enumerate() {
            while let Some(mut completion) = host.completion() {
                let pool = Pool::of(&completion).and_then(|pool| self.pools.get_mut(pool));
                if let Some(pool) = pool.filter(|pool| pool.service == Service::Ud) {
                    pool.datagrams.push(completion);
                    continue;
                }
                let is_receive = completion.id >= RECEIVES;
                let owner = if is_receive {
                    self.owners.get(&(index, completion.qpn)).copied()
                } else {
                    let direction = (completion.id >> 16) as usize;
                    completion.id &= 0xffff;
                    Some((direction / 2, direction % 2))
                };
                let Some((link, side)) = owner else { continue };
                let Some(Some(link)) = self.links.get_mut(link) else { continue };
                let side = &mut link.sides[side];
                if is_receive { side.receives.push(completion) } else { side.sends.push(completion) }
            }
            for srq in host.limits.drain(..) {
                let mut pools = self.pools.iter_mut().filter(|pool| pool.host == index && pool.life == host.life);
                let pool = pools.find(|pool| pool.queue == Queue::Shared(srq));
                pool.ok_or_else(|| format!("a limit event of {srq:?}, which is not"))?.on_limit()?;
            }
        }
        Ok(())
    }

    /// Lets all work until nothing is on its way and no timer runs (true), or `limit` is over (false).
    fn run_for(&mut self, limit: Duration) -> Result<bool, String> {
        let end = self.now + limit;
        loop {
            self.turns += 1;
            if self.turns > MAX_TURNS {
                return Err(format!("no end after {MAX_TURNS} turns"));
            }
            self.network.advance(self.now);
            for host in &mut self.hosts {
                host.progress(self.now);
            }
            self.collect()?;
            let timeouts = self.hosts.iter().filter_map(|host| host.next_timeout(self.now));
            match timeouts.chain(self.network.next_arrival()).min() {
                Some(at) if at <= end => self.now = self.now.max(at),
                Some(_) => {
                    self.now = end;
                    return Ok(false);
                }
                None => return Ok(true),
            }
        }
    }

    /// A queue pair that was moved to SQD, and could finish what it had begun, must have said so.
    fn check_drained(&mut self) -> Result<(), String> {
        for direction in 0..2 * self.links.len() {
            let Some((link, side, host)) = self.sender(direction) else { continue };
            let qpn = link.sides[side].qpn;
            let host = &self.hosts[host];
            if host.state(qpn) == Some(State::SendQueueDrained) && !host.drained.contains(&qpn) {
                return Err(format!("direction {direction} is in SQD, and never reported that it is drained"));
            }
        }
        Ok(())
    }
}
