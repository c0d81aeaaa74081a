//! The whole of a run against the model, once it has come to an end.

use uroce::qp::State;
use uroce::work::{Status, Tag};

use crate::Verb;
use crate::check::{self, Fate};
use crate::plan::Service;
use crate::pool::{Pool, Queue};
use crate::uc;
use crate::ud::{self, Datagram};
use crate::world::{Link, Side, World};

impl World<'_> {
    /// Holds everything against the model.
    pub(crate) fn judge(&mut self) -> Result<(), String> {
        let mut pools = std::mem::take(&mut self.pools);
        let is_faultless = self.has_no_faults();
        for link in self.links.iter().flatten() {
            for side in [0, 1] {
                let checked = self.judge_direction(link, side, is_faultless, &mut pools);
                self.stats.checks += checked.map_err(|error| {
                    format!("direction {}: {error}; {:?}", 2 * link.plan + side, self.fate(link, side))
                })?;
                let (near, far) = (&link.sides[side], &link.sides[1 - side]);
                let own = link.directions[side].ops.iter().filter_map(|op| op.near.as_ref());
                let others = link.directions[1 - side].ops.iter().filter_map(|op| op.far.as_ref());
                check::untouched(&near.end, own.chain(others))
                    .map_err(|error| format!("connection {}, side {side}: {error}", link.plan))?;
                let failed = near.sends.iter().filter(|done| done.status != Status::Success).count();
                self.stats.failed += failed as u64;
                let received = far.receives.iter().filter(|done| done.status == Status::Success).count() as u64;
                let connection = &self.plan.connections[link.plan];
                match connection.service {
                    Service::Uc => self.stats.received[0] += received,
                    Service::Xrc => self.stats.received[2] += received,
                    Service::Rc | Service::Ud => {}
                }
                self.stats.received[3] += if connection.shared { received } else { 0 };
            }
        }
        self.judge_datagrams(is_faultless, &mut pools)?;
        for pool in &pools {
            pool.check_gaps()?;
            if self.hosts[pool.host].life == pool.life {
                pool.check_limit(&self.hosts[pool.host])?;
            }
        }
        self.pools = pools;
        self.check_counted()?;
        self.check_quiet()
    }

    /// Holds one direction against the rule of its service; returns how many things were compared.
    fn judge_direction(&self, link: &Link, side: usize, is_faultless: bool, pools: &mut [Pool]) -> Result<u64, String> {
        let fate = self.fate(link, side);
        let connection = &self.plan.connections[link.plan];
        let (near, far) = (&link.sides[side], &link.sides[1 - side]);
        let way = &link.directions[side];
        // XRC goes one way, so only one side receives.
        let pool = far.pool.map(|pool| &mut pools[pool]);
        match (connection.service, pool) {
            (Service::Rc | Service::Xrc, pool) => {
                check::direction(way, &fate, &near.sends, &far.receives, (&near.end, &far.end), pool)
            }
            (Service::Uc, Some(pool)) => {
                check::check_sends(&way.ops, &near.sends, &fate)?;
                // Who did not see a peer die takes its packets for those of the next.
                if self.hosts[far.host].life > 0 || self.hosts[near.host].life > 0 {
                    return Ok(0);
                }
                let is_lossless = is_faultless && connection.eager && !link.is_troubled;
                uc::check(way, &far.receives, pool, (&far.end, &fate, is_lossless))
            }
            (Service::Uc | Service::Ud, _) => {
                check::check_sends(&way.ops, &near.sends, &fate)?;
                Ok(near.sends.len() as u64)
            }
        }
    }

    /// Holds what each queue pair of datagrams received against what was sent to it.
    fn judge_datagrams(&mut self, is_faultless: bool, pools: &mut [Pool]) -> Result<(), String> {
        let mut copies = 0;
        for (index, pool) in pools.iter_mut().enumerate().filter(|(_, pool)| pool.service == Service::Ud) {
            let mut sent = Vec::new();
            let (mut may_flush, mut is_lossless) = (false, is_faultless);
            for link in self.links.iter().flatten() {
                for side in [0, 1].into_iter().filter(|side| link.sides[1 - side].pool == Some(index)) {
                    let near = &link.sides[side];
                    let source = (self.hosts[near.host].address, near.qpn);
                    sent.extend(link.directions[side].ops.iter().filter_map(|op| {
                        let message = op.message?;
                        let tag = if let Tag::Immediate(data) = message.tag { Some(data) } else { None };
                        Some(Datagram { source, tag, is_solicited: message.is_solicited, bytes: op.sent.clone() })
                    }));
                    may_flush |= link.is_troubled;
                    is_lossless &= self.plan.connections[link.plan].eager && !link.is_troubled;
                }
            }
            let received = pool.datagrams.iter().filter(|done| done.status == Status::Success).count() as u64;
            self.stats.received[1] += received;
            self.stats.received[3] += if matches!(pool.queue, Queue::Shared(_)) { received } else { 0 };
            self.stats.checks += pool.datagrams.len() as u64;
            let address = self.hosts[pool.host].address;
            let checked = ud::check(pool, address, &sent, (may_flush, is_lossless));
            copies += checked.map_err(|error| format!("datagrams of host {}: {error}", pool.host))?;
        }
        let made = self.network.counters().duplicated;
        if copies <= made { Ok(()) } else { Err(format!("{copies} datagrams came twice; the network copied {made}")) }
    }

    /// Whether nothing at all befell the packets of the run.
    fn has_no_faults(&self) -> bool {
        let counters = self.network.counters();
        let harm = [
            counters.lost,
            counters.filtered,
            counters.partitioned,
            counters.queue_full,
            counters.unroutable,
            counters.duplicated,
            counters.reordered,
            counters.corrupted,
        ];
        self.stats.faults == 0 && harm.iter().all(|&count| count == 0)
    }

    /// What may have happened to the direction from `side`.
    fn fate(&self, link: &Link, side: usize) -> Fate {
        let connection = &self.plan.connections[link.plan];
        let lives = |side: &Side| !side.is_destroyed && self.hosts[side.host].life == side.life;
        let (near, far) = (&link.sides[side], &link.sides[1 - side]);
        let is_reliable = connection.service.is_reliable();
        let may_exceed_rnr_retries = is_reliable && connection.rnr_retry < 7;
        let may_exceed_retries = is_reliable
            && (link.is_troubled
                || self.is_harsh
                || self.was_cut
                || connection.is_impatient()
                // The peer may have given up, which nobody tells us.
                || may_exceed_rnr_retries);
        Fate {
            may_fail: link.is_troubled || may_exceed_retries || may_exceed_rnr_retries,
            may_exceed_retries,
            may_exceed_rnr_retries,
            near_lives: lives(near),
            far_lives: lives(far),
            far_failed: lives(far) && self.hosts[far.host].state(far.qpn) == Some(State::Error),
        }
    }

    /// Every count that was answered found another value, and the cell holds as many as were executed.
    fn check_counted(&mut self) -> Result<(), String> {
        for (&(host, life), (cell, asked)) in &self.counted {
            let value = u64::from_le_bytes(cell.read(0, 8).try_into().expect("eight bytes"));
            let mut found = Vec::new();
            let mut is_certain = true;
            for link in self.links.iter().flatten() {
                for side in [0, 1] {
                    let (near, far) = (&link.sides[side], &link.sides[1 - side]);
                    if (far.host, far.life) != (host, life) {
                        continue;
                    }
                    is_certain &= !self.fate(link, side).may_fail;
                    for done in near.sends.iter().filter(|done| done.status == Status::Success) {
                        let op = &link.directions[side].ops[done.id as usize];
                        if let (Verb::Count, Some((offset, _))) = (op.verb, &op.near) {
                            let bytes = near.end.area.read(*offset, 8);
                            found.push(u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
                        }
                    }
                }
            }
            found.sort_unstable();
            self.stats.checks += found.len() as u64;
            let is_right = value <= *asked
                && (value == *asked || !is_certain)
                && found.windows(2).all(|pair| pair[0] < pair[1])
                && found.last().is_none_or(|&last| last < value);
            if !is_right {
                return Err(format!("host {host} was asked to count {asked} times: {value}, answers {found:?}"));
            }
        }
        Ok(())
    }

    /// Nothing is in flight, no timer runs, and destroying everything leaves nothing.
    fn check_quiet(&mut self) -> Result<(), String> {
        if let Some(at) = self.network.next_arrival() {
            return Err(format!("a packet arrives at {at:?}"));
        }
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let (in_flight, timer) = (host.endpoint.in_flight(), host.endpoint.next_timeout());
            if in_flight > 0 || timer.is_some() {
                return Err(format!("host {index} is idle with {in_flight} bytes in flight and timer {timer:?}"));
            }
            host.deallocate_keys()?;
            let own = self.links.iter().flatten().flat_map(|link| &link.sides);
            for side in own.filter(|side| side.host == index && side.life == host.life && !side.is_destroyed) {
                // That of datagrams is shared.
                if host.state(side.qpn).is_some() {
                    host.endpoint.destroy_qp(side.qpn).map_err(|error| error.to_string())?;
                }
                side.end.area.deregister(&mut host.endpoint)?;
            }
            for pool in self.pools.iter().filter(|pool| pool.host == index && pool.life == host.life) {
                if let Queue::Shared(srq) = pool.queue {
                    host.endpoint.destroy_srq(srq).map_err(|error| error.to_string())?;
                }
                pool.area.deregister(&mut host.endpoint)?;
            }
            let left = host.endpoint.queue_pairs();
            if left > 0 || host.endpoint.in_flight() > 0 || host.completion().is_some() {
                return Err(format!("host {index}: {left} queue pairs left, or what they left"));
            }
            self.stats.checks += 4;
        }
        Ok(())
    }
}
