//! The simulated network by itself: each fault, and that a seed is a history.

use super::*;
use crate::port::tests::{datagram, flow, ip};

const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";

fn send(port: &mut SimPort, flow: &Flow, datagram: &[u8]) {
    port.room().expect("room")[..datagram.len()].copy_from_slice(datagram);
    port.commit(flow, datagram.len());
}

/// Every datagram of the port, with the time at which it came.
fn drain(network: &Network, port: &mut SimPort) -> Vec<(Instant, Vec<u8>)> {
    let mut arrivals = Vec::new();
    loop {
        let now = network.now();
        network.advance(now);
        while port.receive(&mut |arrival| arrivals.push((now, arrival.datagram.to_vec()))).expect("receive") > 0 {}
        let Some(next) = network.next_arrival() else {
            return arrivals;
        };
        network.advance(next);
    }
}

/// Sends 1000 datagrams from A to B at the start of time and returns what comes, when.
fn thousand(network: &Network) -> Vec<(Instant, Vec<u8>)> {
    let (mut a, mut b) = (network.port(ip(A)), network.port(ip(B)));
    for i in 0..1000u32 {
        send(&mut a, &flow(A, B, 0xc000), &datagram(i, 64));
    }
    a.flush().expect("flush");
    assert_eq!((a.counters().sent, a.counters().sent_bytes), (1000, 68_000));
    drain(network, &mut b)
}

fn bytes(arrivals: &[(Instant, Vec<u8>)]) -> Vec<Vec<u8>> {
    arrivals.iter().map(|arrival| arrival.1.clone()).collect()
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn rough() -> SimConfig {
    SimConfig {
        loss: 0.05,
        duplicate: 0.05,
        reorder: 0.05,
        corrupt: 0.05,
        delay: micros(5)..=micros(20),
        rate: Some(10_000_000_000),
        ..SimConfig::default()
    }
}

#[test]
fn a_seed_is_a_history() {
    let history = thousand(&Network::new(1, rough()));
    assert_eq!(history, thousand(&Network::new(1, rough())));
    assert_ne!(history, thousand(&Network::new(2, rough())));
}

#[test]
fn a_perfect_network_keeps_everything_in_order() {
    let network = Network::new(3, SimConfig { delay: micros(1)..=micros(9), ..SimConfig::default() });
    let arrivals = thousand(&network);
    assert_eq!(bytes(&arrivals), (0..1000).map(|i| datagram(i, 64)).collect::<Vec<_>>());
    assert!(arrivals.iter().all(|arrival| arrival.0 >= Instant::ZERO + micros(1)));
    assert!(arrivals.last().expect("some").0 <= Instant::ZERO + micros(9));
    assert_eq!(network.counters(), SimCounters { sent: 1000, delivered: 1000, ..SimCounters::default() });
}

#[test]
fn faults_are_done_and_counted() {
    let network = Network::new(4, rough());
    let arrivals = bytes(&thousand(&network));
    let counters = network.counters();
    for count in [counters.lost, counters.duplicated, counters.reordered, counters.corrupted] {
        assert!((20..90).contains(&count), "{counters:?}");
    }
    assert_eq!(counters.delivered, 1000 - counters.lost + counters.duplicated);
    // What was corrupted was delivered and then dropped by the port, for its ICRC.
    assert_eq!(arrivals.len() as u64, counters.delivered - counters.corrupted);
    let sent: Vec<_> = (0..1000).map(|i| datagram(i, 64)).collect();
    assert!(arrivals.iter().all(|arrival| sent.contains(arrival)), "something came that was not sent");
    let order: Vec<_> = arrivals.iter().map(|arrival| sent.iter().position(|sent| sent == arrival)).collect();
    assert!(!order.is_sorted(), "nothing was reordered");
}

#[test]
fn a_trusting_network_hands_over_what_it_corrupted() {
    let network = Network::new(5, SimConfig { corrupt: 1.0, trusting: true, ..SimConfig::default() });
    let arrivals = bytes(&thousand(&network));
    assert_eq!(arrivals.len(), 1000);
    let changed = arrivals.iter().zip(0..).filter(|(arrival, i)| **arrival != datagram(*i, 64)).count();
    // A flip in the four bytes where the ICRC would be does not show.
    assert!((900..1000).contains(&changed), "{changed}");
}

#[test]
fn a_filter_picks_its_datagram() {
    let network = Network::new(6, SimConfig::default());
    let mut seen = 0;
    network.set_filter(move |datagram| {
        seen += 1;
        match seen {
            3 => Verdict::Drop,
            5 => Verdict::Delay(micros(7)),
            7 => Verdict::Corrupt,
            9 => Verdict::Duplicate,
            11 => {
                datagram.bytes.truncate(16);
                Verdict::Forward
            }
            _ => Verdict::Forward,
        }
    });
    let arrivals = thousand(&network);
    let mut expected: Vec<_> = (0..1000).filter(|i| ![2, 4, 6].contains(i)).map(|i| datagram(i, 64)).collect();
    expected.insert(6, datagram(8, 64));
    expected[8].truncate(16);
    expected.push(datagram(4, 64));
    assert_eq!(bytes(&arrivals), expected);
    assert_eq!(arrivals.last().expect("the delayed").0, Instant::ZERO + micros(7));
    let counters = network.counters();
    assert_eq!((counters.filtered, counters.corrupted, counters.duplicated, counters.reordered), (1, 1, 1, 1));
}

#[test]
fn a_partition_has_a_direction() {
    let network = Network::new(7, SimConfig::default());
    let (mut a, mut b) = (network.port(ip(A)), network.port(ip(B)));
    let exchange = |a: &mut SimPort, b: &mut SimPort| {
        send(a, &flow(A, B, 0xc000), &datagram(0, 16));
        send(b, &flow(B, A, 0xc000), &datagram(1, 16));
        a.flush().expect("flush");
        b.flush().expect("flush");
        (drain(&network, b).len(), drain(&network, a).len())
    };
    network.partition(ip(A), ip(B), true);
    assert_eq!(exchange(&mut a, &mut b), (0, 1));
    network.partition(ip(A), ip(B), false);
    assert_eq!(exchange(&mut a, &mut b), (1, 1));
    assert_eq!(network.counters().partitioned, 1);
}

/// 64 bytes and 4 of ICRC make a frame of 114: at 912 Mb/s a microsecond.
#[test]
fn a_rate_spaces_marks_and_drops() {
    let limits =
        SimConfig { rate: Some(912_000_000), queue: 114 * 10, mark_above: Some(114 * 4), ..SimConfig::default() };
    let network = Network::new(8, limits);
    let (mut a, mut b) = (network.port(ip(A)), network.port(ip(B)));
    for i in 0..12 {
        send(&mut a, &Flow { traffic_class: 0b10, ..flow(A, B, 0xc000) }, &datagram(i, 64));
    }
    a.flush().expect("flush");
    let mut classes = Vec::new();
    while let Some(next) = network.next_arrival() {
        network.advance(next);
        b.receive(&mut |arrival| classes.push(arrival.traffic_class)).expect("receive");
        assert_eq!(next, Instant::ZERO + micros(classes.len() as u64));
    }
    assert_eq!(classes, [2, 2, 2, 2, 2, 3, 3, 3, 3, 3]);
    assert_eq!((network.counters().marked, network.counters().queue_full), (5, 2));
}

#[test]
fn what_goes_nowhere_is_counted() {
    let network = Network::new(9, SimConfig::default());
    let mut a = network.port(ip(A));
    send(&mut a, &flow(A, "10.0.0.9", 0xc000), &datagram(0, 16));
    send(&mut a, &flow(A, "fd00::1", 0xc000), &datagram(0, 16));
    send(&mut a, &flow(B, A, 0xc000), &datagram(0, 16));
    a.flush().expect("flush");
    network.advance(Instant::ZERO);
    assert_eq!((a.counters().send_errors, network.counters().unroutable), (2, 1));
}

/// Both families are sealed and checked.
#[test]
fn version_six_as_well() {
    let network = Network::new(10, SimConfig::default());
    let (mut a, mut b) = (network.port(ip("fd00::1")), network.port(ip("fd00::2")));
    send(&mut a, &flow("fd00::1", "fd00::2", 0xc000), &datagram(0, 100));
    a.flush().expect("flush");
    assert_eq!(bytes(&drain(&network, &mut b)), [datagram(0, 100)]);
}
