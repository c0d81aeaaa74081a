//! Many queue pairs behind one set of addresses, still without I/O and without a clock.
//!
//! Call an input (`post_*`, [`on_packet`](Endpoint::on_packet), [`on_timeout`](Endpoint::on_timeout)), then drain
//! the outputs: [`poll_transmit`](Endpoint::poll_transmit) until `None`, [`poll_event`](Endpoint::poll_event) until
//! `None`, and wait no longer than [`next_timeout`](Endpoint::next_timeout).
#![forbid(unsafe_code)]

mod demux;
mod groups;
mod path;
mod schedule;
mod shared;

use core::net::IpAddr;
use std::collections::VecDeque;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, Event};
use crate::memory::Table;
use crate::qp::{Attributes, HoldBudget, Mtu, QpInfo, QpInit, QpType, QueuePair, Surroundings};
use crate::queue::SharedReceiveQueues;
use crate::time::Instant;
use crate::wire::{Arrival, Flow, Packet, Qpn};
use crate::work::{ReceiveRequest, SendRequest};

use demux::QueuePairs;
use groups::Groups;
pub use groups::Membership;
use path::Paths;
use schedule::{Deadlines, Ready};

/// What an endpoint is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The high byte of its queue pair numbers: 1 for a lone process.
    pub slot: u8,
    /// Its addresses, by GID index; an unspecified one stands for an index without a GID.
    pub gids: Vec<IpAddr>,
    /// The largest path MTU that its link carries.
    pub mtu: Mtu,
    /// Where random keys, and the first queue pair number, come from: draw it from the system.
    pub seed: [u8; 32],
    /// Bytes that may be in flight to one peer: what fits the peer's receive buffer.
    pub window: u64,
    /// Bytes that may be held of packets which arrive before their turn, by all queue pairs; 0 drops them.
    pub hold_bytes: usize,
}

impl Config {
    /// A thousand full packets behind gaps, over all queue pairs.
    pub const DEFAULT_HOLD_BYTES: usize = 4 << 20;

    /// Three runs of 64 KiB: 42 full packets of 4096 bytes. The receive buffer that an ordinary user can have (twice
    /// 212,992 bytes) takes 50 of them one by one, and 90 in runs, before it loses one.
    pub const DEFAULT_WINDOW: u64 = 192 * 1024;
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub flow: Flow,
    /// Its length from the BTH to the pad; the ICRC is the port's to add.
    pub length: usize,
}

/// Queue pairs, their memory and their timers.
#[derive(Debug)]
pub struct Endpoint {
    gids: Vec<IpAddr>,
    mtu: Mtu,
    memory: Table,
    pairs: QueuePairs,
    groups: Groups,
    paths: Paths,
    ready: Ready,
    deadlines: Deadlines,
    events: VecDeque<Event>,
    srqs: SharedReceiveQueues,
    /// What was dropped before a queue pair took it, and what destroyed queue pairs counted.
    counters: Counters,
}

impl Endpoint {
    /// Packets that one queue pair sends before another gets its turn: a run that a port sends in one call.
    const QUANTUM: u32 = 64;

    /// Multicast groups that queue pairs can be attached to.
    pub const MAX_GROUPS: usize = Groups::MAX_GROUPS;
    /// Queue pairs that can be attached to one group.
    pub const MAX_ATTACHED: usize = Groups::MAX_ATTACHED;

    /// An endpoint without queue pairs.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut random = ChaCha12Rng::from_seed(config.seed);
        let first_number = random.next_u32();
        Self {
            gids: config.gids,
            mtu: config.mtu,
            memory: Table::new(random),
            pairs: QueuePairs::new(config.slot, first_number, HoldBudget::new(config.hold_bytes)),
            groups: Groups::default(),
            paths: Paths::new(config.window),
            ready: Ready::default(),
            deadlines: Deadlines::default(),
            events: VecDeque::new(),
            srqs: SharedReceiveQueues::default(),
            counters: Counters::default(),
        }
    }

    /// The registered memory.
    #[must_use]
    pub fn memory(&self) -> &Table {
        &self.memory
    }

    /// The registered memory, to register and deregister.
    pub fn memory_mut(&mut self) -> &mut Table {
        &mut self.memory
    }

    /// What all queue pairs counted together, and what was dropped before it reached one.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = self.counters;
        for pair in self.pairs.iter() {
            sum.add(&pair.counters());
        }
        sum
    }

    /// What one queue pair counted.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn qp_counters(&self, qpn: Qpn) -> Result<Counters> {
        Ok(self.pair(qpn)?.counters())
    }

    /// State and attributes of a queue pair.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpInfo> {
        Ok(self.pair(qpn)?.info())
    }

    /// How many queue pairs there are.
    #[must_use]
    pub fn queue_pairs(&self) -> usize {
        self.pairs.iter().count()
    }

    /// The numbers of the queue pairs that there are, in no order.
    pub fn qpns(&self) -> impl Iterator<Item = Qpn> {
        self.pairs.iter().map(QueuePair::qpn)
    }

    /// What all queue pairs sent and their peers have not acknowledged, as the window counts it: bytes of payload and what
    /// each packet takes beside it. Zero when all is quiet.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.paths.in_flight()
    }

    fn pair(&self, qpn: Qpn) -> Result<&QueuePair> {
        let pair = self.pairs.find(qpn).and_then(|index| self.pairs.get(index));
        pair.ok_or_else(|| missing(qpn))
    }

    /// Replaces the table of GIDs; an unspecified address stands for an index without one. Queue pairs whose address is gone
    /// keep it: what they send does not arrive any more, and they fail by their retries.
    pub fn set_gids(&mut self, gids: Vec<IpAddr>) {
        self.gids = gids;
    }

    /// Adds an event for the program, for whoever sees what the endpoint does not.
    pub fn push_event(&mut self, event: AsyncEvent) {
        self.events.push_back(Event::Async(event));
    }

    /// Makes a queue pair in RESET.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity above the limits, [`Error::Full`] when there are too many queue pairs,
    /// [`Error::Missing`] for a shared receive queue that does not exist.
    pub fn create_qp(&mut self, init: QpInit) -> Result<Qpn> {
        init.check()?;
        let srq = init.srq;
        srq.map_or(Ok(()), |srq| self.srqs.join(srq))?;
        self.pairs.insert(init).inspect_err(|_| {
            if let Some(srq) = srq {
                self.srqs.leave(srq);
            }
        })
    }

    /// Destroys a queue pair; what was posted vanishes without a completion, and so do its completions that wait to be polled.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<()> {
        let index = self.pairs.find(qpn).ok_or_else(|| missing(qpn))?;
        let pair = self.pairs.remove(index).ok_or_else(|| missing(qpn))?;
        if let Some(srq) = pair.info().srq {
            self.srqs.leave(srq);
        }
        pair.remove_completions();
        self.counters.add(&pair.counters());
        self.memory.release_pair(qpn);
        self.ready.remove(index);
        self.paths.leave(index, &mut self.ready);
        self.groups.forget(index);
        Ok(())
    }

    /// Has a UD queue pair receive what is sent to a multicast group (`ibv_attach_mcast(3)`); once more changes nothing.
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Error::Invalid`] when the queue pair is not UD or the address not a group;
    /// [`Error::Full`] when there are too many groups, or too many queue pairs in this one.
    pub fn attach_multicast(&mut self, qpn: Qpn, group: IpAddr) -> Result<()> {
        let index = self.pairs.find(qpn).ok_or_else(|| missing(qpn))?;
        if !group.is_multicast() {
            return Err(Error::invalid("gid", format!("{group} is not a multicast group")));
        }
        if self.pair(qpn)?.qp_type() != QpType::Ud {
            return Err(Error::invalid("qp", "only a UD queue pair can be attached to a multicast group"));
        }
        self.groups.attach(index, group)
    }

    /// Ends that (`ibv_detach_mcast(3)`).
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Error::Invalid`] when the queue pair is not attached to the group.
    pub fn detach_multicast(&mut self, qpn: Qpn, group: IpAddr) -> Result<()> {
        let index = self.pairs.find(qpn).ok_or_else(|| missing(qpn))?;
        if self.groups.detach(index, group) {
            return Ok(());
        }
        Err(Error::invalid("gid", format!("queue pair {qpn} is not attached to {group}")))
    }

    /// The next change of the groups that the port must know.
    pub fn poll_membership(&mut self) -> Option<Membership> {
        self.groups.poll()
    }

    /// Changes state and attributes of a queue pair, all or nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] names what the transition lacks or does not take, see [`Attributes::check`].
    pub fn modify_qp(&mut self, now: Instant, qpn: Qpn, attributes: &Attributes) -> Result<()> {
        if attributes.path_mtu.is_some_and(|mtu| mtu > self.mtu) {
            let most = self.mtu.bytes();
            return Err(Error::invalid("path_mtu", format!("the link carries at most {most} bytes of payload")));
        }
        self.input(now, qpn, |pair, around| pair.modify(around, attributes))
    }

    /// Adds a request to the send queue.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Invalid`] names what the queue pair does not take.
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, request: SendRequest) -> Result<()> {
        self.input(now, qpn, |pair, around| pair.post_send(around, request))
    }

    /// Adds a request to the receive queue.
    ///
    /// # Errors
    /// As for [`post_send`](Self::post_send).
    pub fn post_receive(&mut self, now: Instant, qpn: Qpn, request: ReceiveRequest) -> Result<()> {
        self.input(now, qpn, |pair, around| pair.post_receive(around, request))
    }

    /// Lets a queue pair handle an input of its program.
    fn input<T>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        handle: impl FnOnce(&mut QueuePair, &mut Surroundings<'_>) -> Result<T>,
    ) -> Result<T> {
        let index = self.pairs.find(qpn).ok_or_else(|| missing(qpn))?;
        self.touch(now, index, handle).unwrap_or_else(|| Err(missing(qpn)))
    }

    /// Lets the queue pair at `index` handle something, then sees what that did to it and to others. `None`: there is no such
    /// queue pair.
    #[inline]
    fn touch<T>(
        &mut self,
        now: Instant,
        index: usize,
        handle: impl FnOnce(&mut QueuePair, &mut Surroundings<'_>) -> T,
    ) -> Option<T> {
        let told = self.events.len();
        let result = self.handle(now, index, handle)?;
        if self.events.len() > told {
            self.follow_cq_errors(now, told);
        }
        Some(result)
    }

    /// Lets the queue pair at `index` handle something, then sees what that did to its share of the path, to its
    /// timers, and whether it has something to send.
    #[inline]
    fn handle<T>(
        &mut self,
        now: Instant,
        index: usize,
        handle: impl FnOnce(&mut QueuePair, &mut Surroundings<'_>) -> T,
    ) -> Option<T> {
        let Self { pairs, memory, events, srqs, gids, mtu, .. } = self;
        let pair = pairs.get_mut(index)?;
        let mut around = Surroundings { now, memory, events, srqs, gids, mtu: *mtu };
        let result = handle(pair, &mut around);
        self.paths.update(now, index, pair, &mut self.ready);
        if let Some(at) = pair.next_timeout() {
            self.deadlines.note(index, at);
        }
        if !self.ready.contains(index) {
            let window = self.paths.room(index);
            if pair.wants_transmit(window) {
                self.ready.push(index);
            } else if pair.is_held_by_window(window) {
                self.paths.wait(index);
            }
        }
        Some(result)
    }

    /// Takes a datagram that came in; what is wrong with it is counted, and it is dropped.
    pub fn on_packet(&mut self, now: Instant, arrival: &Arrival<'_>) {
        let Ok(packet) = Packet::parse(arrival.datagram) else {
            self.counters.malformed += 1;
            return;
        };
        if packet.bth.destination == Qpn::MULTICAST {
            return self.on_multicast(now, arrival, &packet);
        }
        match self.pairs.find(packet.bth.destination) {
            Some(index) => self.hand(now, index, arrival, &packet),
            None => self.counters.no_queue_pair += 1,
        }
    }

    /// Hands a packet to every queue pair that is attached to the group it was sent to.
    fn on_multicast(&mut self, now: Instant, arrival: &Arrival<'_>, packet: &Packet<'_>) {
        let group = arrival.destination;
        if self.groups.member(group, 0).is_none() {
            self.counters.no_queue_pair += 1;
        }
        let mut nth = 0;
        while let Some(index) = self.groups.member(group, nth) {
            self.hand(now, index, arrival, packet);
            nth += 1;
        }
    }

    /// Hands a packet to the queue pair at `index`.
    #[inline]
    fn hand(&mut self, now: Instant, index: usize, arrival: &Arrival<'_>, packet: &Packet<'_>) {
        let mut dropped = Counters::default();
        self.touch(now, index, |pair, around| {
            pair.on_packet(around, arrival, packet, &mut dropped);
        });
        self.counters.add(&dropped);
    }

    /// Runs the timers that are due.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some(index) = self.deadlines.pop(now) {
            // A deadline that moved since it was noted is noted again by `touch`.
            self.touch(now, index, |pair, around| pair.on_timeout(around));
        }
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called next; perhaps a little early.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// The next packet, written to `room` ([`MAX_DATAGRAM`](crate::wire::MAX_DATAGRAM) bytes).
    pub fn poll_transmit(&mut self, now: Instant, room: &mut [u8]) -> Option<Transmit> {
        while let Some(index) = self.ready.front() {
            if let Some(transmit) = self.transmit(now, index, room) {
                self.ready.spend(Self::QUANTUM);
                return Some(transmit);
            }
            self.ready.pop();
            let window = self.paths.room(index);
            if self.pairs.get(index).is_some_and(|pair| pair.is_held_by_window(window)) {
                self.paths.wait(index);
            }
        }
        None
    }

    /// Whether all that waits to be sent are acknowledges of a few queue pairs, which may wait for a moment: the program's
    /// next request goes ahead of them, and with them.
    #[must_use]
    pub fn owes_only_acknowledges(&self) -> bool {
        const FEW: usize = 4;
        let owes = |index| {
            let window = self.paths.room(index);
            self.pairs.get(index).is_some_and(|pair| pair.owes_only_acknowledge(window))
        };
        self.ready.iter().len() <= FEW && self.ready.iter().all(owes)
    }

    /// The next packet of the queue pair at `index`.
    fn transmit(&mut self, now: Instant, index: usize, room: &mut [u8]) -> Option<Transmit> {
        let window = self.paths.room(index);
        let Self { pairs, memory, events, srqs, gids, mtu, .. } = self;
        let pair = pairs.get_mut(index)?;
        let told = events.len();
        let mut around = Surroundings { now, memory, events, srqs, gids, mtu: *mtu };
        let length = pair.poll_transmit(&mut around, window, room);
        let flow = pair.way();
        self.paths.update(now, index, pair, &mut self.ready);
        if let Some(at) = pair.next_timeout() {
            self.deadlines.note(index, at);
        }
        if self.events.len() > told {
            self.follow_cq_errors(now, told);
        }
        Some(Transmit { flow: flow?, length: length? })
    }

    /// The next event for the program.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

fn missing(qpn: Qpn) -> Error {
    Error::Missing { what: "queue pair", name: qpn.to_string() }
}
