//! What stands behind the driver's lock: the endpoint, the port, and the clock.

use std::io;

use crate::endpoint::{Endpoint, Membership};
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, Event};
use crate::port::Port;
use crate::time::Instant;

/// An endpoint and a port, moved together.
pub(super) struct Engine {
    pub(super) endpoint: Endpoint,
    pub(super) port: Box<dyn Port>,
    start: std::time::Instant,
    /// Why the port is broken for good.
    failure: Option<io::Error>,
    /// Whether the program has not been told of the failure.
    failure_untold: bool,
    /// What whoever sleeps in charge of the engine sleeps for.
    watch: Watch,
    /// Whether the endpoint has more to send than one turn took.
    unsent: bool,
    /// Whether acknowledges wait for what the program does next.
    deferred: bool,
}

/// What whoever sleeps in charge of the engine wakes up for by itself, beside arriving datagrams.
#[derive(Clone, Copy, Default)]
pub(super) struct Watch {
    /// The next timer.
    pub(super) timer: Option<Instant>,
    /// Room in the kernel for what waits to be sent.
    pub(super) backlog: bool,
}

impl Engine {
    /// Datagrams sent before the engine looks at what came in: the answer to a READ may be millions.
    const TURN: usize = 512;

    pub(super) fn new(endpoint: Endpoint, port: Box<dyn Port>) -> Self {
        let start = std::time::Instant::now();
        Self {
            endpoint,
            port,
            start,
            failure: None,
            failure_untold: false,
            watch: Watch::default(),
            unsent: false,
            deferred: false,
        }
    }

    /// When its clock began.
    pub(super) fn start(&self) -> std::time::Instant {
        self.start
    }

    /// The present time, counted from when the engine was made.
    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// Whether the port works.
    pub(super) fn check(&self) -> Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(failure) => {
                let source = failure.raw_os_error().map_or_else(|| failure.kind().into(), io::Error::from_raw_os_error);
                Err(Error::system("the device is broken: its port failed; open it again", source))
            }
        }
    }

    /// Joins and leaves multicast groups as the endpoint asks.
    pub(super) fn update_memberships(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        while let Some(membership) = self.endpoint.poll_membership() {
            match membership {
                Membership::Join(group) => result = result.and(self.port.join(group)),
                Membership::Leave(group) => self.port.leave(group),
            }
        }
        result
    }

    /// Receives up to `bursts` bursts, answers each, and runs due timers. Returns whether more may wait.
    pub(super) fn progress(&mut self, bursts: usize) -> bool {
        if self.failure.is_some() {
            return false;
        }
        match self.try_progress(bursts) {
            Ok(more) => more,
            Err(failure) => {
                self.fail(failure);
                false
            }
        }
    }

    /// Receives one burst for a program that polls, and answers it, unless that is only acknowledges: they wait for the
    /// request that the program is likely to post next, and go by this call's successor at the latest. A program that
    /// neither posts nor polls again is relieved by the progress thread.
    pub(super) fn poll(&mut self) {
        if self.failure.is_some() {
            return;
        }
        if let Err(failure) = self.try_poll() {
            self.fail(failure);
        }
    }

    fn try_poll(&mut self) -> io::Result<()> {
        let now = self.now();
        if self.deferred {
            self.try_transmit(now)?;
        }
        if self.receive(now)? > 0 && self.endpoint.owes_only_acknowledges() {
            self.deferred = true;
            return Ok(());
        }
        self.try_transmit(now)
    }

    /// Receives a burst, and runs due timers; returns how many datagrams came.
    fn receive(&mut self, now: Instant) -> io::Result<usize> {
        let endpoint = &mut self.endpoint;
        let taken = self.port.receive(&mut |arrival| endpoint.on_packet(now, &arrival))?;
        // After receiving, so that an acknowledge which is already here stops its timer.
        if endpoint.next_timeout().is_some_and(|due| due <= now) {
            endpoint.on_timeout(now);
        }
        Ok(taken)
    }

    fn try_progress(&mut self, bursts: usize) -> io::Result<bool> {
        for _ in 0..bursts {
            let now = self.now();
            let taken = self.receive(now)?;
            self.try_transmit(now)?;
            if taken == 0 && !self.unsent {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends acknowledges that waited.
    pub(super) fn transmit_deferred(&mut self, now: Instant) {
        if self.deferred {
            self.transmit(now);
        }
    }

    /// Sends what the endpoint has to send.
    pub(super) fn transmit(&mut self, now: Instant) {
        if let Err(failure) = self.try_transmit(now) {
            self.fail(failure);
        }
    }

    /// Sends up to [`TURN`](Self::TURN) datagrams, and notes whether that was all.
    fn try_transmit(&mut self, now: Instant) -> io::Result<()> {
        let mut committed = self.port.backlog();
        self.unsent = true;
        self.deferred = false;
        for _ in 0..Self::TURN {
            let Some(room) = self.port.room() else {
                self.port.flush()?;
                if self.port.room().is_none() {
                    // The kernel is full: the rest goes when it has room again.
                    self.unsent = false;
                    return Ok(());
                }
                continue;
            };
            let Some(transmit) = self.endpoint.poll_transmit(now, room) else {
                self.unsent = false;
                break;
            };
            self.port.commit(&transmit.flow, transmit.length);
            committed = true;
        }
        if committed { self.port.flush() } else { Ok(()) }
    }

    fn fail(&mut self, failure: io::Error) {
        if self.failure.is_none() {
            self.failure = Some(failure);
            self.failure_untold = true;
        }
    }

    /// The next event for the program.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.failure_untold) {
            return Some(Event::Async(AsyncEvent::DeviceFatal));
        }
        self.endpoint.poll_event()
    }

    /// Notes what the caller is going to sleep for.
    pub(super) fn watch(&mut self) -> Watch {
        let alive = self.failure.is_none();
        let timer = if self.unsent { Some(Instant::ZERO) } else { self.endpoint.next_timeout() };
        self.watch = Watch { timer: timer.filter(|_| alive), backlog: alive && self.port.backlog() };
        self.watch
    }

    /// Whether something has become due since that the sleeper would sleep past. Once told, it counts as noted.
    pub(super) fn outpaces_watch(&mut self) -> bool {
        let before = self.watch;
        let now = self.watch();
        let earlier = now.timer.is_some_and(|timer| before.timer.is_none_or(|noted| timer < noted));
        if !earlier {
            // The sleeper still wakes at the earlier time.
            self.watch.timer = before.timer;
        }
        self.watch.backlog |= before.backlog;
        earlier || (now.backlog && !before.backlog)
    }
}
