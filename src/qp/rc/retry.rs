//! When to send again: the ack timeout, the tail probe, the RNR wait, and the round-trip time behind them.

use crate::qp::Attributes;
use crate::qp::timer::{Timer, Timers};
use crate::time::{Duration, Instant};
use crate::wire::Psn;

/// `rnr_retry` of 7: for ever.
const RNR_RETRY_FOREVER: u8 = 7;

/// The requester's timers and its patience.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) timers: Timers,
    ack_timeout: Option<Duration>,
    retry_count: u8,
    retries_left: u8,
    rnr_retry: u8,
    rnr_left: u8,
    /// Probes since the last progress.
    pub(super) probes: u32,
    round_trip: RoundTrip,
    /// A packet whose answer measures the round trip, and when it was sent.
    sample: Option<(Psn, Instant)>,
}

impl Retry {
    /// A probe never comes sooner than this: a peer that sleeps needs longer to wake than a packet to travel.
    const MIN_PROBE: Duration = Duration::from_millis(2);
    /// The first probe while no round trip was measured.
    const FIRST_PROBE: Duration = Duration::from_millis(20);
    /// Probes in vain come ever more slowly, up to this.
    const MAX_PROBE: Duration = Duration::from_secs(1);

    pub(super) fn new(attributes: &Attributes) -> Self {
        let mut retry = Self {
            timers: Timers::default(),
            ack_timeout: None,
            retry_count: 0,
            retries_left: 0,
            rnr_retry: 0,
            rnr_left: 0,
            probes: 0,
            round_trip: RoundTrip::default(),
            sample: None,
        };
        retry.configure(attributes);
        retry
    }

    /// Takes over attributes that changed.
    pub(super) fn configure(&mut self, attributes: &Attributes) {
        self.ack_timeout = attributes.timeout.and_then(ack_timeout);
        self.retry_count = attributes.retry_count.unwrap_or(0);
        self.retries_left = self.retry_count;
        self.rnr_retry = attributes.rnr_retry.unwrap_or(0);
        self.rnr_left = self.rnr_retry;
    }

    /// A packet was sent that asks for an answer, at its PSN.
    pub(super) fn on_sent(&mut self, now: Instant, psn: Psn, is_again: bool) {
        if self.timers.get(Timer::Probe).is_none() {
            self.rearm(now);
        }
        if is_again {
            // An answer could be to either packet (Karn's rule, RFC 6298 section 3). As long as nothing is known, take it
            // for one to the later packet: too short an estimate costs a probe, none at all a long wait.
            self.sample = self.round_trip.smoothed.is_none().then_some((psn, now));
        } else if self.sample.is_none() {
            self.sample = Some((psn, now));
        }
    }

    /// Something new was acknowledged, everything before `unacknowledged`; `is_busy` when more is outstanding.
    pub(super) fn on_progress(&mut self, now: Instant, unacknowledged: Psn, is_busy: bool) {
        if let Some((psn, sent)) = self.sample
            && psn.is_before(unacknowledged)
        {
            self.round_trip.measure(now.since(sent));
            self.sample = None;
        }
        self.retries_left = self.retry_count;
        self.rnr_left = self.rnr_retry;
        self.probes = 0;
        self.timers.stop_all();
        if is_busy {
            self.rearm(now);
        }
    }

    /// The requester goes back: what it measured is void. An ack timeout that runs goes on: it counts from the last
    /// progress, so that a peer that NAKs for ever is given up in the end.
    pub(super) fn on_rewind(&mut self, now: Instant) {
        self.sample = None;
        if self.timers.get(Timer::Ack).is_none() {
            self.restart_ack(now);
        }
        self.restart_probe(now);
    }

    /// Starts both clocks of the acknowledge that is awaited.
    fn rearm(&mut self, now: Instant) {
        self.restart_ack(now);
        self.restart_probe(now);
    }

    fn restart_ack(&mut self, now: Instant) {
        if let Some(timeout) = self.ack_timeout {
            self.timers.set(Timer::Ack, now + timeout);
        }
    }

    /// The next probe, twice as far away as the last when that was in vain.
    pub(super) fn restart_probe(&mut self, now: Instant) {
        let first = self.round_trip.probe_after().map_or(Self::FIRST_PROBE, |after| after.max(Self::MIN_PROBE));
        let wait = first.saturating_mul(1 << self.probes.min(10)).min(Self::MAX_PROBE);
        self.timers.set(Timer::Probe, now + wait);
    }

    /// Takes one of the retries; false when none is left.
    #[must_use]
    pub(super) fn take_retry(&mut self) -> bool {
        let left = self.retries_left.checked_sub(1);
        self.retries_left = left.unwrap_or(0);
        left.is_some()
    }

    /// The peer has no receive request: wait as it says with `code`. False when no RNR retry is left.
    #[must_use]
    pub(super) fn wait_for_receiver(&mut self, now: Instant, code: u8) -> bool {
        if self.rnr_retry != RNR_RETRY_FOREVER {
            let Some(left) = self.rnr_left.checked_sub(1) else { return false };
            self.rnr_left = left;
        }
        // The ack timer must not cut the wait short (scenario 8).
        self.timers.stop_all();
        self.timers.set(Timer::ReceiverNotReady, now + rnr_wait(code));
        self.sample = None;
        true
    }

    /// Whether the peer asked us to wait and the time is not over.
    pub(super) fn waits_for_receiver(&self) -> bool {
        self.timers.get(Timer::ReceiverNotReady).is_some()
    }
}

/// The ack timeout of the attribute `timeout`; `None` for never.
///
/// A responder has this long, and a requester may wait up to four times as long (IBTA 9.7.6.1.3); we wait twice,
/// since a peer in software shares its processor and losses are found by the tail probe much earlier.
fn ack_timeout(code: u8) -> Option<Duration> {
    (code > 0).then(|| Duration::from_nanos((2 * 4096) << code.min(31)))
}

/// How long an RNR NAK with this timer code asks to wait (IBTA table 45).
pub(crate) fn rnr_wait(code: u8) -> Duration {
    const MICROS_10: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    let units = MICROS_10[usize::from(code & 31)];
    Duration::from_micros(10 * u64::from(units))
}

/// The smoothed round-trip time and its variation, as TCP keeps them (RFC 6298 section 2).
#[derive(Debug, Default)]
struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
}

impl RoundTrip {
    fn measure(&mut self, sample: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// After how long without an answer one should be asked for: two round trips and the usual variation.
    fn probe_after(&self) -> Option<Duration> {
        Some(self.smoothed? * 2 + self.variation * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rnr_table_is_that_of_the_specification() {
        for (code, micros) in [(0, 655_360), (1, 10), (5, 60), (12, 640), (14, 1280), (19, 7680), (31, 491_520)] {
            assert_eq!(rnr_wait(code), Duration::from_micros(micros), "{code}");
        }
    }

    #[test]
    fn the_ack_timeout_doubles_and_zero_is_never() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(4 * 4096)));
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos((2 * 4096) << 14)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos((2 * 4096) << 31)));
    }

    #[test]
    fn probes_follow_the_round_trip_and_slow_down_in_vain() {
        let attributes = Attributes { timeout: Some(14), retry_count: Some(1), ..Attributes::default() };
        let mut retry = Retry::new(&attributes);
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        retry.on_sent(at(0), Psn::new(5), false);
        assert_eq!(retry.timers.get(Timer::Probe), Some(at(20)));
        retry.on_progress(at(8), Psn::new(6), true);
        // Smoothed 8 ms, variation 4 ms.
        assert_eq!(retry.timers.get(Timer::Probe), Some(at(8 + 32)));
        retry.probes = 1;
        retry.restart_probe(at(100));
        assert_eq!(retry.timers.get(Timer::Probe), Some(at(164)));
        assert!(retry.take_retry());
        assert!(!retry.take_retry());
        retry.on_progress(at(200), Psn::new(7), false);
        assert!(retry.take_retry(), "progress brings the retries back");
        assert_eq!(retry.timers.next(), None, "nothing is awaited");
    }

    #[test]
    fn rnr_retries_run_out_unless_they_are_seven() {
        let at = Instant::ZERO;
        for (rnr_retry, waits) in [(0, 0), (2, 2), (6, 6), (7, 100)] {
            let attributes = Attributes { rnr_retry: Some(rnr_retry), ..Attributes::default() };
            let mut retry = Retry::new(&attributes);
            assert_eq!((0..100).take_while(|_| retry.wait_for_receiver(at, 1)).count(), waits);
        }
    }
}
