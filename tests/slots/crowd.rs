//! Many processes, each connected with each other one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use uroce::verbs::Backend;

use super::worker::{Counted, Worker};
use super::{address, is_root, skipped};

/// Connects `count` processes all to all, `each` queue pairs for each two of them, and has messages go both ways on all.
fn all_to_all(address: IpAddr, backend: Backend, count: usize, each: usize, rounds: usize) {
    let mut workers: Vec<_> = (0..count).map(|_| Worker::start(address, backend)).collect();
    let width = (count - 1) * each;
    let places: Vec<Vec<String>> = workers.iter_mut().map(|worker| worker.queue_pairs(width)).collect();
    // The queue pairs of `own` towards `other` are in the order of the others.
    let place = |own: usize, other: usize| (if other < own { other } else { other - 1 }) * each;
    for (own, worker) in workers.iter_mut().enumerate() {
        for other in (0..count).filter(|other| *other != own) {
            for n in 0..each {
                worker.connect(place(own, other) + n, &places[other][place(other, own) + n]);
            }
        }
    }
    // Told in order, so that all are connected when this has been answered.
    let slots: BTreeSet<u8> = workers.iter_mut().map(|worker| worker.counted().slot).collect();
    assert_eq!(slots.len(), count, "each has a slot of its own");
    workers.iter_mut().for_each(|worker| worker.tell(&format!("exchange 0..{width} {rounds}")));
    workers.iter_mut().for_each(|worker| assert_eq!(worker.line(), "exchanged"));
    for worker in &mut workers {
        let Counted { strays, handed_over, .. } = worker.counted();
        assert_eq!((strays, handed_over), (0, 0), "packets went astray");
    }
}

#[test]
fn thirty_two_processes_all_to_all_by_four_queue_pairs() {
    all_to_all(address(1), Backend::Udp, 32, 4, 3);
}

#[test]
fn packet_sockets_do_so_by_filter() {
    if !is_root() {
        return skipped("packet sockets need CAP_NET_RAW");
    }
    all_to_all(address(2), Backend::Packet, 6, 4, 20);
}
