//! How fast a service without acknowledges sends.

use crate::time::{Duration, Instant};

/// Bursts with rests between.
///
/// Nobody tells a sender without acknowledges that it is too fast: what the peer's socket buffer has no room for is lost,
/// and with one packet the whole message. A network card is slowed down by its wire; here the way to the next process
/// is a memory copy, which no wire slows down. So a queue pair sends what surely fits that buffer, then lets the peer have
/// a turn. The rests bound the rate at some 10 Gbit/s, more than the engine moves on one core; what is slower than that, a
/// real link above all, holds back through the port's backlog.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Sent since the last rest.
    spent: u64,
    /// When the burst began.
    began: Instant,
    /// Until when it rests.
    rest: Option<Instant>,
}

impl Pace {
    /// What a burst may cost: a third of the window that an acknowledged service has, since several may be at it.
    const BURST: u64 = 64 * 1024;
    /// From the beginning of a burst to that of the next.
    const PERIOD: Duration = Duration::from_micros(50);
    /// What a packet costs beside its payload.
    const PACKET_COST: u64 = 512;

    /// Whether nothing may be sent now.
    pub(crate) fn rests(&self) -> bool {
        self.rest.is_some()
    }

    /// Until when nothing may be sent.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.rest
    }

    /// Ends a rest that is over.
    pub(crate) fn refresh(&mut self, now: Instant) {
        if self.rest.is_some_and(|until| until <= now) {
            *self = Self { began: now, ..Self::default() };
        }
    }

    /// A packet of `payload` bytes was sent.
    pub(crate) fn spend(&mut self, now: Instant, payload: usize) {
        if now >= self.began + Self::PERIOD {
            *self = Self { began: now, ..Self::default() };
        }
        self.spent += payload as u64 + Self::PACKET_COST;
        if self.spent >= Self::BURST {
            self.rest = Some(self.began + Self::PERIOD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_a_rest_unless_it_was_slow() {
        let at = |micros: u64| Instant::ZERO + Duration::from_micros(micros);
        let mut pace = Pace::default();
        for _ in 0..14 {
            pace.spend(at(10), 4096);
            assert!(!pace.rests());
        }
        pace.spend(at(10), 4096);
        assert_eq!(pace.until(), Some(at(50)));
        pace.refresh(at(49));
        assert!(pace.rests());
        pace.refresh(at(70));
        assert!(!pace.rests());
        for packet in 0..100 {
            pace.spend(at(70 + packet * 10), 4096);
            assert!(!pace.rests(), "one packet in 10 microseconds is slow enough");
        }
    }
}
