//! The whole of a run against the model, once it has come to an end.

use uroce::qp::State;
use uroce::work::Status;

use crate::Verb;
use crate::check::{self, Fate};
use crate::world::{Link, Side, World};

impl World<'_> {
    /// Holds everything against the model.
    pub(crate) fn judge(&mut self) -> Result<(), String> {
        for link in self.links.iter().flatten() {
            for side in [0, 1] {
                let fate = self.fate(link, side);
                let (near, far) = (&link.sides[side], &link.sides[1 - side]);
                let way = &link.directions[side];
                let checked = check::direction(way, &fate, &near.sends, &far.receives, (&near.end, &far.end));
                self.stats.checks +=
                    checked.map_err(|error| format!("direction {}: {error}; {fate:?}", 2 * link.plan + side))?;
                let reverse = &link.directions[1 - side];
                let own = way.ops.iter().filter_map(|op| op.near.as_ref());
                let others = reverse.ops.iter().filter_map(|op| op.far.as_ref());
                check::untouched(&near.end, own.chain(others))
                    .map_err(|error| format!("connection {}, side {side}: {error}", link.plan))?;
                let failed = near.sends.iter().filter(|done| done.status != Status::Success).count();
                self.stats.failed += failed as u64;
            }
        }
        self.check_counted()?;
        self.check_quiet()
    }

    /// What may have happened to the direction from `side`.
    fn fate(&self, link: &Link, side: usize) -> Fate {
        let connection = &self.plan.connections[link.plan];
        let lives = |side: &Side| !side.is_destroyed && self.hosts[side.host].life == side.life;
        let (near, far) = (&link.sides[side], &link.sides[1 - side]);
        let may_exceed_rnr_retries = connection.rnr_retry < 7;
        let may_exceed_retries = link.is_troubled
            || self.is_harsh
            || self.was_cut
            || connection.is_impatient()
            // The peer may have given up, which nobody tells us.
            || may_exceed_rnr_retries;
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
            let own = self.links.iter().flatten().flat_map(|link| &link.sides);
            for side in own.filter(|side| side.host == index && side.life == host.life && !side.is_destroyed) {
                host.endpoint.destroy_qp(side.qpn).map_err(|error| error.to_string())?;
                side.end.area.deregister(&mut host.endpoint)?;
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
