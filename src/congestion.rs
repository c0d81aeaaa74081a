//! How much may be in flight to one peer.
//!
//! Below the protocol, the peer's socket buffer is the only flow control: what is sent beyond it is lost. So all
//! queue pairs to one address share a window that is no larger than a buffer without privilege, and that
//! shrinks when packets are lost all the same.

use crate::time::{Duration, Instant};

/// The window towards one peer. A cost is bytes of payload and what each packet takes beside it.
#[derive(Debug)]
pub(crate) struct Window {
    limit: u64,
    most: u64,
    in_flight: u64,
    /// Losses before this instant belong to the loss that was reacted to already.
    recovered_at: Instant,
}

impl Window {
    /// No loss makes the window smaller than this: a few full packets.
    const LEAST: u64 = 16 * 1024;
    /// One loss shows in many packets within about a round trip: it halves the window once.
    const REACTION: Duration = Duration::from_micros(500);

    /// A window that lets `most` be in flight.
    pub(crate) fn new(most: u64) -> Self {
        Self { limit: most.max(Self::LEAST), most: most.max(Self::LEAST), in_flight: 0, recovered_at: Instant::ZERO }
    }

    /// What may still be sent.
    pub(crate) fn room(&self) -> u64 {
        self.limit.saturating_sub(self.in_flight)
    }

    /// What is in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// One queue pair's share of what is in flight changed.
    pub(crate) fn adjust(&mut self, before: u64, after: u64) {
        self.in_flight = (self.in_flight + after).saturating_sub(before);
    }

    /// This much was acknowledged: opens by one full packet or so per window (RFC 5681 section 3.1).
    pub(crate) fn on_acknowledged(&mut self, cost: u64) {
        if self.limit < self.most {
            let grown = self.limit + (cost * 8192 / self.limit).max(1);
            self.limit = grown.min(self.most);
        }
    }

    /// Packets were lost.
    pub(crate) fn on_loss(&mut self, now: Instant) {
        if now >= self.recovered_at {
            self.limit = (self.limit / 2).max(Self::LEAST);
            self.recovered_at = now + Self::REACTION;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_halves_it_once_and_acknowledges_open_it_again() {
        let mut window = Window::new(100_000);
        window.adjust(0, 30_000);
        assert_eq!(window.room(), 70_000);
        let at = Instant::from_nanos;
        window.on_loss(at(1000));
        window.on_loss(at(2000));
        assert_eq!(window.room(), 20_000);
        window.adjust(30_000, 0);
        for _ in 0..100 {
            window.on_acknowledged(10_000);
        }
        assert_eq!(window.room(), 100_000, "no wider than at the start");
        for n in 1..20 {
            window.on_loss(at(n * 1_000_000));
        }
        assert_eq!(window.room(), Window::LEAST);
    }
}
