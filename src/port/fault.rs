//! A port that loses, doubles and reorders what goes through another: for tests on real links.
//!
//! What a simulated network does in virtual time, [`Fault`] does without a clock: what it reorders, it holds back until a
//! number of others have gone past, or until there is nothing else to do.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use super::random::Random;
use super::{Port, PortCounters};
use crate::wire::{Arrival, Flow};

/// What befalls datagrams in one direction. Probabilities are per datagram, 0 to 1; the default is that nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultConfig {
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// Probability that a datagram goes twice.
    pub duplicate: f64,
    /// Probability that a datagram is held back while others go past.
    pub reorder: f64,
    /// The most datagrams that go past one that is held back.
    pub reorder_distance: u32,
}

/// What a [`Fault`] did in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultCounters {
    /// Datagrams lost.
    pub lost: u64,
    /// Datagrams doubled.
    pub duplicated: u64,
    /// Datagrams held back.
    pub reordered: u64,
}

/// A [`Port`] whose datagrams suffer faults, drawn from a seed. See the [module](self).
pub struct Fault<P> {
    port: P,
    transmit: Direction<Flow>,
    receive: Direction<Head>,
}

impl<P: Port> Fault<P> {
    /// Faults on the way out and on the way in of `port`. The same seed and the same datagrams suffer the same.
    #[must_use]
    pub const fn new(port: P, seed: u64, transmit: FaultConfig, receive: FaultConfig) -> Self {
        Self { port, transmit: Direction::new(seed, transmit), receive: Direction::new(!seed, receive) }
    }

    /// What was done on the way out, and on the way in.
    #[must_use]
    pub const fn fault_counters(&self) -> (FaultCounters, FaultCounters) {
        (self.transmit.counters, self.receive.counters)
    }

    /// The port behind.
    #[must_use]
    pub fn into_inner(self) -> P {
        self.port
    }

    /// Commits those held back whose time has come, as far as there is room.
    fn release(&mut self) {
        while self.transmit.is_due() {
            let Some(room) = self.port.room() else { return };
            let Some(held) = self.transmit.take() else { return };
            let length = held.bytes.len();
            if let Some(room) = room.get_mut(..length) {
                room.copy_from_slice(&held.bytes);
                self.port.commit(&held.head, length);
            }
        }
    }
}

impl<P: Port> Port for Fault<P> {
    fn addresses(&self) -> &[IpAddr] {
        self.port.addresses()
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.port.room()
    }

    fn commit(&mut self, flow: &Flow, length: usize) {
        let fate = self.transmit.fate();
        // Bytes that do not go at once must be kept, before the room is written again. Where there is none, the port has the
        // last word on the length.
        let kept = self.port.room().and_then(|room| room.get(..length)).map(<[u8]>::to_vec);
        match (fate, kept) {
            (Fate::Lose, Some(_)) => {}
            (Fate::HoldBack(distance), Some(bytes)) => self.transmit.hold(*flow, bytes, distance),
            (Fate::Double, Some(bytes)) => {
                self.port.commit(flow, length);
                self.transmit.hold(*flow, bytes, 0);
            }
            _ => self.port.commit(flow, length),
        }
        self.transmit.pass();
        self.release();
    }

    fn flush(&mut self) -> io::Result<()> {
        self.release();
        self.port.flush()
    }

    fn backlog(&self) -> bool {
        self.port.backlog()
    }

    fn receive(&mut self, sink: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        let direction = &mut self.receive;
        let mut taken = self.port.receive(&mut |arrival| {
            match direction.fate() {
                Fate::Pass => sink(arrival),
                Fate::Lose => {}
                Fate::Double => {
                    sink(arrival);
                    sink(arrival);
                }
                Fate::HoldBack(distance) => {
                    direction.hold(Head::of(&arrival), arrival.datagram.to_vec(), distance);
                }
            }
            direction.pass();
            while let Some(held) = direction.take() {
                sink(held.arrival());
            }
        })?;
        if taken == 0 {
            // Nothing comes that could go past: what is held back would stay for ever.
            self.receive.give_up_holding();
            while let Some(held) = self.receive.take() {
                sink(held.arrival());
                taken += 1;
            }
            // On the way out, idleness shows here too: the next flush sends what is held.
            self.transmit.give_up_holding();
        }
        Ok(taken)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.port.descriptors()
    }

    fn backlog_descriptors(&self) -> Vec<RawFd> {
        self.port.backlog_descriptors()
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.port.join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.port.leave(group);
    }

    fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.port.set_addresses(addresses);
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }
}

impl<P: fmt::Debug> fmt::Debug for Fault<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = (self.transmit.counters, self.receive.counters);
        f.debug_struct("Fault").field("port", &self.port).field("counters", &counters).finish_non_exhaustive()
    }
}

/// The faults of one direction, and the datagrams that it holds back, with what is known of them besides.
struct Direction<H> {
    config: FaultConfig,
    random: Random,
    held: Vec<Held<H>>,
    counters: FaultCounters,
}

struct Held<H> {
    head: H,
    bytes: Vec<u8>,
    /// How many datagrams have yet to go past.
    distance: u32,
}

/// What happens to a datagram.
enum Fate {
    Pass,
    Lose,
    Double,
    HoldBack(u32),
}

impl<H> Direction<H> {
    const fn new(seed: u64, config: FaultConfig) -> Self {
        let counters = FaultCounters { lost: 0, duplicated: 0, reordered: 0 };
        Self { config, random: Random::new(seed), held: Vec::new(), counters }
    }

    fn fate(&mut self) -> Fate {
        let lost = self.random.chance(self.config.loss);
        let duplicated = self.random.chance(self.config.duplicate);
        let reordered = self.random.chance(self.config.reorder);
        let distance = 1 + self.random.below(self.config.reorder_distance.max(1).into());
        if lost {
            self.counters.lost += 1;
            Fate::Lose
        } else if duplicated {
            self.counters.duplicated += 1;
            Fate::Double
        } else if reordered {
            self.counters.reordered += 1;
            // One more, because the datagram itself is counted when it comes to pass.
            Fate::HoldBack(u32::try_from(distance).unwrap_or(u32::MAX).saturating_add(1))
        } else {
            Fate::Pass
        }
    }

    fn hold(&mut self, head: H, bytes: Vec<u8>, distance: u32) {
        self.held.push(Held { head, bytes, distance });
    }

    /// A datagram went by.
    fn pass(&mut self) {
        for held in &mut self.held {
            held.distance = held.distance.saturating_sub(1);
        }
    }

    fn is_due(&self) -> bool {
        self.held.iter().any(|held| held.distance == 0)
    }

    /// The first of those whose time has come.
    fn take(&mut self) -> Option<Held<H>> {
        let index = self.held.iter().position(|held| held.distance == 0)?;
        Some(self.held.remove(index))
    }

    /// Makes all that is held back due.
    fn give_up_holding(&mut self) {
        self.held.iter_mut().for_each(|held| held.distance = 0);
    }
}

/// What is known of an arrival besides its bytes.
struct Head {
    source: IpAddr,
    destination: IpAddr,
    source_port: u16,
    traffic_class: u8,
    hop_limit: u8,
}

impl Head {
    const fn of(arrival: &Arrival<'_>) -> Self {
        let &Arrival { source, destination, source_port, traffic_class, hop_limit, .. } = arrival;
        Self { source, destination, source_port, traffic_class, hop_limit }
    }
}

impl Held<Head> {
    fn arrival(&self) -> Arrival<'_> {
        let Head { source, destination, source_port, traffic_class, hop_limit } = self.head;
        Arrival { source, destination, source_port, traffic_class, hop_limit, datagram: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{commit, datagram, flow, ip};
    use crate::port::{Network, SimConfig, SimPort};
    use crate::time::Instant;

    const ROUGH: FaultConfig = FaultConfig { loss: 0.1, duplicate: 0.1, reorder: 0.1, reorder_distance: 5 };

    /// Sends 1000 datagrams through a network without faults of its own; returns the numbers of those that come.
    fn numbers(seed: u64, out: FaultConfig, back: FaultConfig) -> (Vec<u32>, Fault<SimPort>, Fault<SimPort>) {
        let network = Network::new(0, SimConfig::default());
        let mut a = Fault::new(network.port(ip("10.0.0.1")), seed, out, FaultConfig::default());
        let mut b = Fault::new(network.port(ip("10.0.0.2")), seed, FaultConfig::default(), back);
        let mut numbers = Vec::new();
        for i in 0..1000 {
            commit(&mut a, &flow("10.0.0.1", "10.0.0.2", 0xc000), &datagram(i, 64));
        }
        a.flush().expect("flush");
        a.receive(&mut |_| ()).expect("receive");
        a.flush().expect("flush");
        network.advance(Instant::ZERO);
        let mut sink = |arrival: Arrival<'_>| {
            let number = u32::from_be_bytes([0, arrival.datagram[9], arrival.datagram[10], arrival.datagram[11]]);
            assert_eq!(arrival.datagram, datagram(number, 64));
            numbers.push(number);
        };
        while b.receive(&mut sink).expect("receive") > 0 {}
        (numbers, a, b)
    }

    fn check(numbers: &[u32], counters: FaultCounters) {
        let FaultCounters { lost, duplicated, reordered } = counters;
        for count in [lost, duplicated, reordered] {
            assert!((50..150).contains(&count), "{counters:?}");
        }
        assert_eq!(numbers.len() as u64, 1000 - lost + duplicated);
        let behind = |(at, number): (usize, &u32)| numbers[..at].iter().any(|before| before > number);
        let overtaken = numbers.iter().enumerate().filter(|&pair| behind(pair)).count() as u64;
        assert!(overtaken > reordered / 2, "{overtaken} of {reordered}");
    }

    #[test]
    fn nothing_is_the_default() {
        let (numbers, ..) = numbers(1, FaultConfig::default(), FaultConfig::default());
        assert!(numbers.into_iter().eq(0..1000));
    }

    #[test]
    fn on_the_way_out() {
        let (numbers, a, _) = numbers(2, ROUGH, FaultConfig::default());
        check(&numbers, a.fault_counters().0);
        assert_eq!(a.fault_counters().1, FaultCounters::default());
    }

    #[test]
    fn on_the_way_in() {
        let (numbers, _, b) = numbers(3, FaultConfig::default(), ROUGH);
        check(&numbers, b.fault_counters().1);
        assert_eq!(b.counters().received, 1000);
        assert_eq!(b.into_inner().counters().received, 1000);
    }

    #[test]
    fn a_seed_is_a_history() {
        assert_eq!(numbers(4, ROUGH, ROUGH).0, numbers(4, ROUGH, ROUGH).0);
        assert_ne!(numbers(4, ROUGH, ROUGH).0, numbers(5, ROUGH, ROUGH).0);
    }
}
