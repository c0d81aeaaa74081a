//! Any number of endpoints on one simulated network, with any number of connections between them.

use uroce::port::{Network, SimConfig};
use uroce::time::{Duration, Instant};
use uroce::wire::Qpn;

use super::pair::{Options, Side, connect};

/// Endpoints 10.0.0.1, 10.0.0.2, … on one network.
pub struct Mesh {
    pub network: Network,
    pub hosts: Vec<Side>,
    pub options: Options,
    pub now: Instant,
}

impl Mesh {
    pub fn new(seed: u64, config: SimConfig, hosts: u8, options: Options) -> Self {
        let network = Network::new(seed, config);
        let hosts = (1..=hosts).map(|n| Side::new(&network, n, &options)).collect();
        Self { network, hosts, options, now: Instant::ZERO }
    }

    /// Connects a new queue pair of host `a` with a new one of host `b`.
    pub fn connect(&mut self, a: usize, b: usize) -> [Qpn; 2] {
        let [qpn_a, qpn_b] = [a, b].map(|host| self.hosts[host].create_qp());
        let [at_a, at_b] = [a, b].map(|host| self.hosts[host].address);
        let [a_to_b, b_to_a] = self.options.psns;
        connect(&mut self.hosts[a], qpn_a, &self.options, [a_to_b, b_to_a], (qpn_b, at_b));
        connect(&mut self.hosts[b], qpn_b, &self.options, [b_to_a, a_to_b], (qpn_a, at_a));
        [qpn_a, qpn_b]
    }

    /// Lets all work until nothing is on its way and no timer runs (true), or `limit` is over (false).
    pub fn run(&mut self, limit: Duration) -> bool {
        let end = self.now + limit;
        loop {
            self.network.advance(self.now);
            for host in &mut self.hosts {
                host.progress(self.now);
            }
            let timeouts = self.hosts.iter().filter_map(|host| host.endpoint.next_timeout());
            match timeouts.chain(self.network.next_arrival()).min() {
                Some(at) if at <= end => self.now = self.now.max(at),
                Some(_) => {
                    self.now = end;
                    return false;
                }
                None => return true,
            }
        }
    }
}
