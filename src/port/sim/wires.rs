//! What lies between simulated ports.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;

use super::{SimConfig, SimCounters, SimDatagram, Verdict};
use crate::port::random::Random;
use crate::port::seal;
use crate::time::{Duration, Instant};
use crate::wire::ICRC_LEN;

/// Bytes of the headers that Ethernet, IPv4 and UDP put in front of a datagram, and of the frame check: they take their time too.
const OVERHEAD: usize = 14 + 20 + 8 + 4;
/// Both ECN bits: a router met congestion (RFC 3168).
const CONGESTION_EXPERIENCED: u8 = 0b11;

pub(super) type Filter = Box<dyn FnMut(&mut SimDatagram) -> Verdict + Send>;

/// The whole state of a network.
pub(super) struct Wires {
    config: SimConfig,
    random: Random,
    now: Instant,
    /// Frames on their way, ICRC included, the next to arrive on top.
    travelling: BinaryHeap<Travelling>,
    /// Frames put on their way so far: the tie-break among those that arrive at the same instant.
    sequence: u64,
    /// Frames that arrived, by address.
    arrived: HashMap<IpAddr, VecDeque<SimDatagram>>,
    /// The members of multicast groups. A frame for a group is copied where it arrives: it is lost for all or for none.
    groups: HashMap<IpAddr, BTreeSet<IpAddr>>,
    directions: HashMap<(IpAddr, IpAddr), Direction>,
    filter: Filter,
    counters: SimCounters,
}

/// The way from one address to another.
#[derive(Default)]
struct Direction {
    cut: bool,
    /// When what was sent so far has left, at the configured rate.
    busy_until: Instant,
    /// When the latest frame that was not reordered arrives: no later one comes before it.
    last_arrival: Instant,
}

struct Travelling {
    arrival: Instant,
    sequence: u64,
    frame: SimDatagram,
}

impl Wires {
    pub(super) fn new(seed: u64, config: SimConfig) -> Self {
        Self {
            config,
            random: Random::new(seed),
            now: Instant::ZERO,
            travelling: BinaryHeap::new(),
            sequence: 0,
            arrived: HashMap::new(),
            groups: HashMap::new(),
            directions: HashMap::new(),
            filter: Box::new(|_| Verdict::Forward),
            counters: SimCounters::default(),
        }
    }

    pub(super) fn attach(&mut self, address: IpAddr) {
        self.arrived.entry(address).or_default();
    }

    /// Copies of what is sent to `group` go to `member` from now on.
    pub(super) fn join(&mut self, group: IpAddr, member: IpAddr) {
        self.groups.entry(group).or_default().insert(member);
    }

    pub(super) fn leave(&mut self, group: IpAddr, member: IpAddr) {
        if let Some(members) = self.groups.get_mut(&group) {
            members.remove(&member);
        }
    }

    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    pub(super) const fn counters(&self) -> SimCounters {
        self.counters
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.travelling.peek().map(|next| next.arrival)
    }

    pub(super) fn set_config(&mut self, config: SimConfig) {
        self.config = config;
    }

    pub(super) fn set_filter(&mut self, filter: Filter) {
        self.filter = filter;
    }

    pub(super) fn partition(&mut self, from: IpAddr, to: IpAddr, cut: bool) {
        self.directions.entry((from, to)).or_default().cut = cut;
    }

    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while self.next_arrival().is_some_and(|arrival| arrival <= self.now) {
            let Some(Travelling { frame, .. }) = self.travelling.pop() else {
                break;
            };
            self.deliver(frame);
        }
    }

    /// Makes a frame receivable for its destination, or for every member of that group.
    fn deliver(&mut self, frame: SimDatagram) {
        let destination = frame.flow.destination;
        let mut delivered = 0;
        for member in self.groups.get(&destination).into_iter().flatten() {
            if let Some(arrived) = self.arrived.get_mut(member) {
                arrived.push_back(frame.clone());
                delivered += 1;
            }
        }
        if let Some(arrived) = self.arrived.get_mut(&destination) {
            arrived.push_back(frame);
            delivered += 1;
        }
        self.counters.delivered += delivered;
        self.counters.unroutable += u64::from(delivered == 0);
    }

    /// Up to `most` frames that arrived at `address`, and whether to believe them unchecked.
    pub(super) fn take(&mut self, address: IpAddr, most: usize) -> (Vec<SimDatagram>, bool) {
        let arrived = self.arrived.get_mut(&address);
        let burst = arrived.map(|frames| frames.drain(..most.min(frames.len())).collect());
        (burst.unwrap_or_default(), self.config.trusting)
    }

    /// Puts a datagram on its way.
    pub(super) fn send(&mut self, mut datagram: SimDatagram) {
        self.counters.sent += 1;
        let verdict = (self.filter)(&mut datagram);
        // All random decisions are drawn for every datagram, so that one that is dropped shifts no other's fate.
        let lost = self.random.chance(self.config.loss);
        let duplicated = self.random.chance(self.config.duplicate) || verdict == Verdict::Duplicate;
        let corrupted = self.random.chance(self.config.corrupt) || verdict == Verdict::Corrupt;
        let mut held = self.reorder_delay();
        let bit = self.random.bits();
        if verdict == Verdict::Drop {
            self.counters.filtered += 1;
            return;
        }
        if let Verdict::Delay(delay) = verdict {
            held = Some(held.unwrap_or_default() + delay);
        }
        if lost {
            self.counters.lost += 1;
            return;
        }
        let Some(departure) = self.queue(&mut datagram) else {
            return;
        };
        let mut frame = self.seal(datagram);
        if duplicated {
            self.counters.duplicated += 1;
            self.travel(departure, None, frame.clone());
        }
        if corrupted {
            self.counters.corrupted += 1;
            flip(&mut frame.bytes, bit);
        }
        self.counters.reordered += u64::from(held.is_some());
        self.travel(departure, held, frame);
    }

    /// By how much the next datagram is held up, if it is.
    fn reorder_delay(&mut self) -> Option<Duration> {
        let held = self.random.chance(self.config.reorder);
        let range = &self.config.reorder_delay;
        let delay = self.random.duration(*range.start(), *range.end());
        held.then_some(delay)
    }

    /// Queues `datagram` for its direction's link, and marks it if there is congestion; returns when its last bit has left, or
    /// `None`: it is dropped.
    fn queue(&mut self, datagram: &mut SimDatagram) -> Option<Instant> {
        let flow = &mut datagram.flow;
        let direction = self.directions.entry((flow.source, flow.destination)).or_default();
        if direction.cut {
            self.counters.partitioned += 1;
            return None;
        }
        let Some(rate) = self.config.rate else {
            return Some(self.now);
        };
        let begin = direction.busy_until.max(self.now);
        let waiting = bytes_within(begin.since(self.now), rate);
        let length = datagram.bytes.len() + ICRC_LEN + OVERHEAD;
        if waiting.saturating_add(length) > self.config.queue {
            self.counters.queue_full += 1;
            return None;
        }
        let capable = flow.traffic_class & CONGESTION_EXPERIENCED != 0;
        if capable && self.config.mark_above.is_some_and(|mark_above| waiting > mark_above) {
            flow.traffic_class |= CONGESTION_EXPERIENCED;
            self.counters.marked += 1;
        }
        direction.busy_until = begin + time_of(length, rate);
        Some(direction.busy_until)
    }

    /// The datagram with its ICRC (or, when that is not looked at, four zero bytes).
    fn seal(&self, datagram: SimDatagram) -> SimDatagram {
        let SimDatagram { flow, mut bytes } = datagram;
        bytes.extend([0; ICRC_LEN]);
        if !self.config.trusting {
            seal::seal(&flow, flow.source_port, 0, &mut bytes);
        }
        SimDatagram { flow, bytes }
    }

    /// Lets a frame arrive after the network's delay and, if it is `held` up, out of order.
    fn travel(&mut self, departure: Instant, held: Option<Duration>, frame: SimDatagram) {
        let delay = self.random.duration(*self.config.delay.start(), *self.config.delay.end());
        let direction = self.directions.entry((frame.flow.source, frame.flow.destination)).or_default();
        let in_order = direction.last_arrival.max(departure + delay);
        let arrival = match held {
            Some(held) => in_order + held,
            None => {
                direction.last_arrival = in_order;
                in_order
            }
        };
        self.sequence += 1;
        self.travelling.push(Travelling { arrival, sequence: self.sequence, frame });
    }
}

/// Flips one of the bits that the ICRC protects, which leaves out the BTH's byte of congestion bits.
fn flip(frame: &mut [u8], bit: u64) {
    const UNPROTECTED: u64 = 4;
    let Some(protected) = (frame.len() as u64).checked_sub(1) else {
        return;
    };
    let index = bit / 8 % protected.max(1);
    let index = if index >= UNPROTECTED && protected > UNPROTECTED { index + 1 } else { index };
    if let Some(byte) = usize::try_from(index).ok().and_then(|index| frame.get_mut(index)) {
        *byte ^= 1 << (bit % 8);
    }
}

/// How long `length` bytes take at `rate` bits per second.
fn time_of(length: usize, rate: u64) -> Duration {
    let nanos = (length as u128 * 8 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// How many bytes leave within `time` at `rate` bits per second.
fn bytes_within(time: Duration, rate: u64) -> usize {
    usize::try_from(time.as_nanos() * u128::from(rate) / 8_000_000_000).unwrap_or(usize::MAX)
}

// The heap's greatest is the next to arrive, so the comparison is turned round.
impl Ord for Travelling {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.arrival, other.sequence).cmp(&(self.arrival, self.sequence))
    }
}

impl PartialOrd for Travelling {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Travelling {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Travelling {}
