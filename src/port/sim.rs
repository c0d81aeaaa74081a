//! A network in memory, in virtual time: every fault a real one has, from a seed.
//!
//! A [`Network`] joins [`SimPort`]s by their addresses. Nothing moves by itself: [`Network::advance`] sets the time and makes
//! receivable what is due by then, [`Network::next_arrival`] says when the next is. The same seed, configuration and calls
//! give the same history, to the bit.
//!
//! ```
//! use std::net::IpAddr;
//! use uroce::port::{Network, Port, SimConfig};
//! use uroce::time::{Duration, Instant};
//! use uroce::wire::Flow;
//!
//! let network = Network::new(1, SimConfig { delay: Duration::from_micros(5)..=Duration::from_micros(5), ..SimConfig::default() });
//! let (a, b): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
//! let (mut sender, mut receiver) = (network.port(a), network.port(b));
//! sender.room().unwrap()[..12].copy_from_slice(&[4, 0, 255, 255, 0, 0, 0, 17, 0, 0, 0, 1]);
//! sender.commit(&Flow { source: a, destination: b, source_port: 0xc000, traffic_class: 0, hop_limit: 64 }, 12);
//! sender.flush().unwrap();
//! assert_eq!(receiver.receive(&mut |_| ()).unwrap(), 0);
//! network.advance(network.next_arrival().unwrap());
//! assert_eq!(receiver.receive(&mut |arrival| assert_eq!(arrival.datagram[7], 17)).unwrap(), 1);
//! assert_eq!(network.now(), Instant::ZERO + Duration::from_micros(5));
//! ```

#[cfg(test)]
mod tests;
mod wires;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wires::Wires;

use super::arrived::Arrived;
use super::{Port, PortCounters};
use crate::time::{Duration, Instant};
use crate::wire::{Arrival, Flow, ICRC_LEN, MAX_DATAGRAM};

/// How many datagrams one [`receive`](Port::receive) hands over at most.
const BURST: usize = 64;

/// How a simulated network treats its datagrams. The default is a perfect one: no faults, no delay, no limits.
///
/// Probabilities are per datagram, 0 to 1.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// Probability that a datagram comes twice.
    pub duplicate: f64,
    /// Probability that a datagram is held up, by a time within [`reorder_delay`](Self::reorder_delay), so that later ones overtake it.
    pub reorder: f64,
    /// Probability that a bit of a datagram flips. The receiving port's ICRC check then drops it (see [`trusting`](Self::trusting)).
    pub corrupt: f64,
    /// The time from one port to another. It differs from datagram to datagram within this range, without reordering them.
    pub delay: RangeInclusive<Duration>,
    /// The time by which a reordered datagram is held up.
    pub reorder_delay: RangeInclusive<Duration>,
    /// Bits per second from any one address to any other; `None`: no limit, and no queue.
    pub rate: Option<u64>,
    /// Bytes that may wait for that rate in one direction; what comes beyond is lost.
    pub queue: usize,
    /// Waiting bytes from which on ECN-capable datagrams are marked as having met congestion (RFC 3168).
    pub mark_above: Option<usize>,
    /// Leaves the ICRC out on both sides, so that what [`corrupt`](Self::corrupt) or a fuzzer did to a datagram reaches what is
    /// behind the port.
    pub trusting: bool,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            delay: Duration::ZERO..=Duration::ZERO,
            reorder_delay: Duration::from_micros(10)..=Duration::from_micros(100),
            rate: None,
            queue: usize::MAX,
            mark_above: None,
            trusting: false,
        }
    }
}

/// A datagram on its way through a [`Network`], as a filter sees and may change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimDatagram {
    /// Where it comes from and goes to. A changed destination redirects it.
    pub flow: Flow,
    /// From the BTH to the end of the pad. It is sealed with the ICRC after the filter, so a change is no corruption.
    pub bytes: Vec<u8>,
}

/// What a filter decides on a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on its way, subject to the network's random faults.
    Forward,
    /// It is lost.
    Drop,
    /// It goes on its way, but takes this much longer, and may be overtaken.
    Delay(Duration),
    /// It goes on its way with a bit flipped.
    Corrupt,
    /// It comes twice.
    Duplicate,
}

/// What a [`Network`] did to its datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimCounters {
    /// Datagrams that ports sent.
    pub sent: u64,
    /// Datagrams that became receivable, duplicates included.
    pub delivered: u64,
    /// Lost at random.
    pub lost: u64,
    /// Dropped by the filter.
    pub filtered: u64,
    /// Dropped because their direction is partitioned.
    pub partitioned: u64,
    /// Dropped because the queue was full.
    pub queue_full: u64,
    /// Dropped because no port has the destination address.
    pub unroutable: u64,
    /// Doubled.
    pub duplicated: u64,
    /// Held up so that others could overtake.
    pub reordered: u64,
    /// Changed in one bit.
    pub corrupted: u64,
    /// Marked as having met congestion.
    pub marked: u64,
}

/// A handle on a simulated network; clones are handles on the same one. See the [module](self).
#[derive(Clone)]
pub struct Network(Arc<Mutex<Wires>>);

impl Network {
    /// A network without ports, at [`Instant::ZERO`].
    #[must_use]
    pub fn new(seed: u64, config: SimConfig) -> Self {
        Self(Arc::new(Mutex::new(Wires::new(seed, config))))
    }

    /// Attaches a port with that address. A later port of the same address takes over what arrives from then on.
    #[must_use]
    pub fn port(&self, address: IpAddr) -> SimPort {
        self.wires().attach(address);
        SimPort {
            network: self.clone(),
            addresses: [address],
            room: vec![0; MAX_DATAGRAM].into_boxed_slice(),
            committed: Vec::new(),
            counters: PortCounters::default(),
        }
    }

    /// Moves the time to `now` (it never goes back) and makes receivable what is due by then.
    pub fn advance(&self, now: Instant) {
        self.wires().advance(now);
    }

    /// The network's time: that of the last [`advance`](Self::advance).
    #[must_use]
    pub fn now(&self) -> Instant {
        self.wires().now()
    }

    /// When the next datagram becomes receivable; `None`: nothing is on its way.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.wires().next_arrival()
    }

    /// Cuts the direction from one address to another, or mends it. What is already on its way arrives.
    pub fn partition(&self, from: IpAddr, to: IpAddr, cut: bool) {
        self.wires().partition(from, to, cut);
    }

    /// Changes how datagrams sent from now on are treated.
    pub fn set_config(&self, config: SimConfig) {
        self.wires().set_config(config);
    }

    /// Has `filter` see each datagram as it is sent, in order, before any random fault; it replaces the one before.
    ///
    /// The network is locked meanwhile: a filter that calls it waits for ever.
    pub fn set_filter(&self, filter: impl FnMut(&mut SimDatagram) -> Verdict + Send + 'static) {
        self.wires().set_filter(Box::new(filter));
    }

    /// Takes the filter away.
    pub fn clear_filter(&self) {
        self.wires().set_filter(Box::new(|_| Verdict::Forward));
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.wires().counters()
    }

    fn wires(&self) -> MutexGuard<'_, Wires> {
        // A filter that panicked failed its test already; the wires are whole between any two of their steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wires = self.wires();
        f.debug_struct("Network")
            .field("now", &wires.now())
            .field("counters", &wires.counters())
            .finish_non_exhaustive()
    }
}

/// A port of a [`Network`]. It has no descriptors: time and arrivals are the network's.
#[derive(Debug)]
pub struct SimPort {
    network: Network,
    addresses: [IpAddr; 1],
    room: Box<[u8]>,
    committed: Vec<SimDatagram>,
    counters: PortCounters,
}

impl Port for SimPort {
    fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn commit(&mut self, flow: &Flow, length: usize) {
        assert!(length + ICRC_LEN <= self.room.len(), "commit of {length} bytes into a room of {}", self.room.len());
        let bytes = self.room.get(..length).unwrap_or_default().to_vec();
        self.committed.push(SimDatagram { flow: *flow, bytes });
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.committed.is_empty() {
            return Ok(());
        }
        self.counters.send_calls += 1;
        let mut wires = self.network.wires();
        for datagram in self.committed.drain(..) {
            let flow = datagram.flow;
            if !self.addresses.contains(&flow.source) || flow.source.is_ipv4() != flow.destination.is_ipv4() {
                self.counters.send_errors += 1;
                continue;
            }
            self.counters.sent += 1;
            self.counters.sent_bytes += (datagram.bytes.len() + ICRC_LEN) as u64;
            wires.send(datagram);
        }
        Ok(())
    }

    fn backlog(&self) -> bool {
        false
    }

    fn receive(&mut self, sink: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        let [address] = self.addresses;
        // The sink may send, so the network must not be locked while it runs.
        let (arrived, trusting) = self.network.wires().take(address, BURST);
        self.counters.receive_calls += u64::from(!arrived.is_empty());
        for SimDatagram { flow, bytes } in &arrived {
            let arrived = Arrived {
                source: flow.source,
                destination: flow.destination,
                source_port: flow.source_port,
                traffic_class: flow.traffic_class,
                hop_limit: flow.hop_limit,
                identification: Some(0),
                segment: None,
                payload: bytes,
            };
            if trusting {
                arrived.deliver_unchecked(&mut self.counters, sink);
            } else {
                arrived.deliver(None, &mut self.counters, sink);
            }
        }
        Ok(arrived.len())
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn backlog_descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.network.wires().join(group, self.addresses[0]);
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) {
        self.network.wires().leave(group, self.addresses[0]);
    }

    /// Stays what it is: a simulated port is its address.
    fn set_addresses(&mut self, _addresses: &[IpAddr]) {}

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
