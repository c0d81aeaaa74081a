//! The timers of a queue pair: a table, so that one `next` and one `expired` serve all of them.

use crate::time::Instant;

/// What a queue pair can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// When nothing was acknowledged for the ack timeout: go back and count a retry.
    Ack,
    /// When nothing was acknowledged for about two round trips: ask whether the tail was lost.
    Probe,
    /// When the time that an RNR NAK told us to wait is over.
    ReceiverNotReady,
}

impl Timer {
    const ALL: [Self; 3] = [Self::Ack, Self::Probe, Self::ReceiverNotReady];
}

/// When each timer fires.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers([Option<Instant>; Timer::ALL.len()]);

impl Timers {
    /// When `timer` fires.
    pub(crate) fn get(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    /// Starts `timer`, or moves it.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = Some(at);
    }

    /// Stops `timer`.
    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    /// Stops all.
    pub(crate) fn stop_all(&mut self) {
        *self = Self::default();
    }

    /// When the first one fires.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// A timer that is due, stopped by this call; in the order of [`Timer::ALL`].
    pub(crate) fn expired(&mut self, now: Instant) -> Option<Timer> {
        let due = Timer::ALL.into_iter().find(|&timer| self.get(timer).is_some_and(|at| at <= now))?;
        self.stop(due);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_next_and_each_fires_once() {
        let at = Instant::from_nanos;
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.set(Timer::Ack, at(30));
        timers.set(Timer::ReceiverNotReady, at(10));
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.expired(at(9)), None);
        assert_eq!(timers.expired(at(30)), Some(Timer::Ack));
        assert_eq!(timers.expired(at(30)), Some(Timer::ReceiverNotReady));
        assert_eq!(timers.expired(at(30)), None);
        timers.set(Timer::Probe, at(1));
        timers.stop_all();
        assert_eq!(timers.next(), None);
    }
}
