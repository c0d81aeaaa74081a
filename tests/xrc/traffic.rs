//! XRC on a network that loses, doubles and reorders: two connections, two shared receive queues, every operation; against what
//! memory and completions must be.

use uroce::port::SimConfig;
use uroce::time::Duration;
use uroce::work::{Operation, SendRequest, Status};

use crate::bench::Xrc;
use crate::common::pair::Options;

const ROUNDS: u64 = 30;

#[test]
fn a_bad_network_changes_nothing_but_the_time() {
    for seed in 1..=12 {
        run(seed);
    }
}

fn run(seed: u64) {
    let network = SimConfig {
        loss: 0.03,
        duplicate: 0.02,
        reorder: 0.02,
        delay: Duration::from_micros(2)..=Duration::from_micros(40),
        ..SimConfig::default()
    };
    let mut xrc = Xrc::new(seed, network, Options { min_rnr_timer: 1, ..Options::default() });
    let connections = [xrc.initiator, xrc.connect().0];
    for round in 0..ROUNDS {
        for (at, qpn) in connections.into_iter().enumerate() {
            let service = (round as usize + at) % 2;
            let (number, key) = (xrc.services[service].number, xrc.services[service].key);
            let host = &mut xrc.mesh.hosts[0];
            let place = (round as usize * 2 + at) * 4000;
            host.fill(place, &vec![round as u8 + 1; 3000]);
            let remote = |address| uroce::work::Remote { address, rkey: key };
            let counter = remote(100_000);
            let area = remote(50_000 + 4000 * at as u64);
            let requests = [
                (Operation::Write(area), place, 3000),
                (Operation::Read(area), place + 3000, 500),
                (Operation::FetchAndAdd { remote: counter, add: 1 }, place + 3600, 8),
                (Operation::SendImmediate(round as u32), place, 2000),
            ];
            for (operation, offset, length) in requests {
                let request = SendRequest::new(round, operation, &[host.sge(offset, length)]).to_srq(number);
                host.endpoint.post_send(xrc.mesh.now, qpn, request).unwrap();
            }
            xrc.receive(service, round * 2 + at as u64, 4000 * (round % 8), 2000);
        }
        xrc.mesh.run(Duration::from_micros(500));
    }
    assert!(xrc.mesh.run(Duration::from_secs(100)), "seed {seed}: it never ends");
    let sent = xrc.sent();
    assert_eq!(sent.len() as u64, ROUNDS * 2 * 4, "seed {seed}");
    assert!(sent.iter().all(|(_, status)| *status == Status::Success), "seed {seed}: {sent:?}");
    let mut ids = Vec::new();
    let mut counted = 0;
    for service in &xrc.services {
        let received = service.completions();
        assert!(received.iter().all(|c| c.status == Status::Success && c.byte_length == 2000), "seed {seed}");
        ids.extend(received.iter().map(|c| c.id));
        counted += u64::from_ne_bytes(service.bytes(100_000, 8).try_into().unwrap());
        assert_eq!(xrc.mesh.hosts[1].endpoint.srq_waiting(service.number).unwrap(), 0, "seed {seed}");
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..ROUNDS * 2).collect::<Vec<_>>(), "seed {seed}: every request completes once");
    assert_eq!(counted, ROUNDS * 2, "seed {seed}: every ATOMIC is executed once");
    for round in 0..ROUNDS as usize {
        for at in 0..2 {
            let read = xrc.mesh.hosts[0].bytes((round * 2 + at) * 4000 + 3000, 500);
            assert!(read.iter().all(|byte| *byte == round as u8 + 1), "seed {seed}: what was written is read");
        }
    }
}
