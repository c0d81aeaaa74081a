//! Many queue pairs on one shared receive queue, on a network that loses, doubles and reorders: every message once, in order
//! for each queue pair, in a request of its own.

use std::collections::{HashMap, HashSet};

use uroce::port::SimConfig;
use uroce::time::Duration;
use uroce::wire::Qpn;
use uroce::work::Status;

use crate::bench::Shared;
use crate::common::pair::Options;

const MESSAGES: u64 = 40;
const ROOM: usize = 4096;

#[test]
fn every_message_arrives_once_and_in_order() {
    for seed in 1..=12 {
        run(seed);
    }
}

fn run(seed: u64) {
    let network = SimConfig {
        loss: 0.03,
        duplicate: 0.02,
        delay: Duration::from_micros(2)..=Duration::from_micros(40),
        ..SimConfig::default()
    };
    let mut shared = Shared::new(seed, network, 3, Options { min_rnr_timer: 1, ..Options::default() });
    for from in 1..=3 {
        shared.link(from);
    }
    let mut posted = 0;
    let mut seen = 0;
    let mut next: HashMap<Qpn, u64> = HashMap::new();
    let mut ids = HashSet::new();
    for message in 0..MESSAGES {
        for link in 0..shared.links.len() {
            // What is sent is read when the packet is made: each message has bytes of its own.
            let from = shared.links[link].from;
            let offset = (message as usize * 8 + link) * 2048;
            let length = (message as usize * 37 + link * 501) % 2040 + 8;
            let host = &mut shared.mesh.hosts[from];
            host.fill(offset, &message.to_be_bytes());
            let request = uroce::work::SendRequest::new(
                message,
                uroce::work::Operation::Send,
                &[host.sge(offset, length as u32)],
            );
            host.endpoint.post_send(shared.mesh.now, shared.links[link].sender, request).unwrap();
        }
        // Fewer than are needed, so that the queue runs dry again and again.
        for _ in 0..5 {
            if shared.waiting() < 64 {
                shared.receive(posted, (posted as usize % 200) * ROOM, ROOM as u32);
                posted += 1;
            }
        }
        shared.mesh.run(Duration::from_micros(300));
        check(&shared, &mut seen, &mut next, &mut ids, seed);
    }
    while next.values().any(|count| *count < MESSAGES) || next.len() < shared.links.len() {
        shared.receive(posted, (posted as usize % 200) * ROOM, ROOM as u32);
        posted += 1;
        assert!(posted < 10 * MESSAGES * 6, "seed {seed}: {next:?}");
        shared.mesh.run(Duration::from_millis(2));
        check(&shared, &mut seen, &mut next, &mut ids, seed);
    }
    shared.run();
    check(&shared, &mut seen, &mut next, &mut ids, seed);
    assert_eq!(seen as u64, MESSAGES * shared.links.len() as u64, "seed {seed}");
    assert_eq!(shared.waiting() as u64, posted - seen as u64, "seed {seed}: no request is lost");
    for from in 1..=3 {
        assert_eq!(shared.sent(from).len() as u64, 2 * MESSAGES, "seed {seed}");
        assert!(shared.sent(from).iter().all(|(_, status)| *status == Status::Success), "seed {seed}");
    }
}

/// Looks at what was received since, before its memory is used again.
fn check(shared: &Shared, seen: &mut usize, next: &mut HashMap<Qpn, u64>, ids: &mut HashSet<u64>, seed: u64) {
    let host = &shared.mesh.hosts[0];
    for completion in &host.completions[*seen..] {
        assert_eq!(completion.status, Status::Success, "seed {seed}");
        assert!(ids.insert(completion.id), "seed {seed}: request {} completed twice", completion.id);
        let message = host.bytes(completion.id as usize % 200 * ROOM, 8);
        let expected = next.entry(completion.qpn).or_default();
        assert_eq!(u64::from_be_bytes(message.try_into().unwrap()), *expected, "seed {seed}: {}", completion.qpn);
        *expected += 1;
    }
    *seen = host.completions.len();
}
