//! Random traffic of every operation over networks with every fault: memory and completions must be those of the
//! model, each request executed exactly once and in order. A failing seed is printed.

use uroce::port::SimConfig;
use uroce::qp::Mtu;
use uroce::time::Duration;

use crate::common::mesh::Mesh;
use crate::common::pair::Options;
use crate::traffic::{AREA, Random, Traffic};

/// Names the seed when the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// A network with faults of all kinds, some seeds more than others.
fn faulty(random: &mut Random) -> SimConfig {
    SimConfig {
        loss: random.pick(&[0.0, 0.01, 0.05, 0.2]),
        duplicate: random.pick(&[0.0, 0.02, 0.2]),
        reorder: random.pick(&[0.0, 0.05, 0.3]),
        corrupt: random.pick(&[0.0, 0.02]),
        delay: micros(1)..=micros(random.pick(&[1, 10, 300])),
        rate: random.pick(&[None, None, Some(1_000_000_000)]),
        queue: 64 * 1024,
        ..SimConfig::default()
    }
}

fn options(random: &mut Random, connections: usize) -> Options {
    Options {
        mtu: random.pick(&[Mtu::Mtu256, Mtu::Mtu1024]),
        // Every fourth seed wraps in the middle.
        psns: [random.pick(&[0xff_fff0, 0x7f_fff0, 0, 0x12_3456]), random.next() as u32 & 0xff_ffff],
        rd_atomic: random.pick(&[1, 2, 4, 16]),
        hold_bytes: random.pick(&[0, 3000, 4 << 20]),
        memory: connections * 4 * AREA,
        ..Options::default()
    }
}

/// Connections between pairs of hosts, traffic on each of them both ways.
fn connect(mesh: &mut Mesh, pairs: &[(usize, usize)]) -> Vec<Traffic> {
    let mut used = vec![0; mesh.hosts.len()];
    let mut traffic = Vec::new();
    for &(a, b) in pairs {
        let [qpn_a, qpn_b] = mesh.connect(a, b);
        for (from, to) in [((a, qpn_a), (b, qpn_b)), ((b, qpn_b), (a, qpn_a))] {
            let [near, far] = [from.0, to.0].map(|host| {
                used[host] += AREA;
                used[host] - AREA
            });
            traffic.push(Traffic::new((from.0, from.1, near), (to.0, to.1, far)));
        }
    }
    traffic
}

/// Posts `requests` on each direction, receives early and late, and lets it all come to an end.
fn run(mesh: &mut Mesh, traffic: &mut [Traffic], requests: usize, random: &mut Random) {
    for _ in 0..requests {
        for direction in &mut *traffic {
            direction.post(mesh, random);
            direction.receive(mesh, random.below(3));
            if random.below(20) == 0 {
                mesh.run(micros(100));
            }
        }
    }
    for _ in 0..requests {
        mesh.run(micros(500));
        for direction in &mut *traffic {
            direction.receive(mesh, 2);
        }
    }
    assert!(mesh.run(Duration::from_secs(600)), "not idle after ten minutes");
    for direction in traffic {
        direction.check(mesh);
    }
}

/// Two hosts and one connection, `seeds` times.
fn two_hosts(seeds: std::ops::Range<u64>, config: impl Fn(&mut Random) -> SimConfig) {
    for seed in seeds {
        let guard = Seed(seed);
        let mut random = Random(seed);
        let config = config(&mut random);
        let mut mesh = Mesh::new(seed, config, 2, options(&mut random, 1));
        let mut traffic = connect(&mut mesh, &[(0, 1)]);
        run(&mut mesh, &mut traffic, 40, &mut random);
        drop(guard);
    }
}

#[test]
fn a_clean_network_loses_nothing() {
    two_hosts(0..10, |_| SimConfig { delay: micros(5)..=micros(5), ..SimConfig::default() });
}

#[test]
fn loss_alone() {
    two_hosts(100..130, |random| SimConfig {
        loss: random.pick(&[0.01, 0.05, 0.2]),
        delay: micros(5)..=micros(5),
        ..SimConfig::default()
    });
}

#[test]
fn duplication_alone() {
    two_hosts(200..220, |_| SimConfig { duplicate: 0.5, delay: micros(5)..=micros(5), ..SimConfig::default() });
}

#[test]
fn reordering_alone() {
    two_hosts(300..320, |_| SimConfig { reorder: 0.3, delay: micros(5)..=micros(50), ..SimConfig::default() });
}

#[test]
fn corruption_alone() {
    two_hosts(400..420, |_| SimConfig { corrupt: 0.1, delay: micros(5)..=micros(5), ..SimConfig::default() });
}

#[test]
fn all_faults_together() {
    two_hosts(1000..1100, faulty);
}

#[test]
fn several_connections_share_the_window_between_two_hosts() {
    for seed in 2000..2010 {
        let guard = Seed(seed);
        let mut random = Random(seed);
        let config = faulty(&mut random);
        let mut mesh = Mesh::new(seed, config, 2, options(&mut random, 4));
        let mut traffic = connect(&mut mesh, &[(0, 1); 4]);
        run(&mut mesh, &mut traffic, 25, &mut random);
        drop(guard);
    }
}

#[test]
fn four_hosts_and_one_in_the_middle() {
    for seed in 3000..3010 {
        let guard = Seed(seed);
        let mut random = Random(seed);
        let config = faulty(&mut random);
        let mut mesh = Mesh::new(seed, config, 5, options(&mut random, 4));
        let mut traffic = connect(&mut mesh, &[(1, 0), (2, 0), (3, 0), (4, 0)]);
        run(&mut mesh, &mut traffic, 25, &mut random);
        drop(guard);
    }
}
