//! Joins one endpoint and one port behind one lock, and reads the clock for both.
//!
//! Three callers run the engine, and whoever comes first does the work. A program that posts transmits in its own thread.
//! A program that polls an empty completion queue receives, answers and transmits in its own thread, if nobody else is
//! at it; so does one that [sleeps](Driver::sleep) on a completion channel. A progress thread does so for all others,
//! passive targets above all, and stands back for the rest.

mod engine;
mod sleep;
#[cfg(test)]
mod tests;
mod thread;
mod wake;

pub(crate) use thread::quietly;

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crossbeam_queue::SegQueue;

use self::engine::Engine;
use self::wake::Wake;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::port::{Port, PortCounters};
use crate::time::Instant;
use crate::wire::{Qpn, SrqNumber};
use crate::work::{ReceiveRequest, SendRequest};

/// An endpoint and a port at work.
///
/// Every method may be called from any thread at any time. Dropping it ends the progress thread and closes the port.
pub struct Driver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// When the engine's clock began.
    start: std::time::Instant,
}

/// Why a list of work requests was not posted whole (`bad_wr` of `ibv_post_send(3)`).
#[derive(Debug, thiserror::Error)]
#[error("request {posted} of the list: {error}")]
pub struct PostError {
    /// How many requests were posted; the next one is at fault, and it and those behind it were not posted.
    pub posted: usize,
    /// What was wrong.
    #[source]
    pub error: Error,
}

impl From<PostError> for Error {
    fn from(error: PostError) -> Self {
        error.error
    }
}

impl Driver {
    /// Starts `endpoint` on `port`. What the engine has to tell is handed to `listener`, in order, outside of the lock,
    /// from whichever thread ran the engine.
    ///
    /// `listener` must not drop the driver: it may run on the progress thread, which dropping waits for.
    ///
    /// # Errors
    /// [`Error::System`] when the progress thread or its wake-up cannot be made.
    pub fn start(
        endpoint: Endpoint,
        port: Box<dyn Port>,
        listener: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self> {
        let engine = Engine::new(endpoint, port);
        let start = engine.start();
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            outbox: SegQueue::new(),
            delivering: Mutex::new(()),
            listener: Box::new(listener),
            wake: Wake::new()?,
            readable: RwLock::default(),
            polls: AtomicU64::new(0),
            arms: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            relieved: AtomicBool::new(false),
            dependents: AtomicUsize::new(0),
            resting: AtomicBool::new(false),
            dozing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        });
        shared.note_descriptors(&shared.lock());
        let thread = thread::spawn(Arc::clone(&shared))?;
        Ok(Self { shared, thread: Some(thread), start })
    }

    /// Runs `command` on the endpoint, at the present time, then sends what has become due: for everything that is not
    /// posting or polling. It works on a broken device, too: what is destroyed must be gone.
    pub fn command<T>(&self, command: impl FnOnce(&mut Endpoint, Instant) -> T) -> T {
        let mut engine = self.shared.lock();
        let now = engine.now();
        // The command may destroy the queue pair that owes them.
        engine.transmit_deferred(now);
        let result = command(&mut engine.endpoint, now);
        // Only leaving: joining has a way of its own, which can fail.
        let _ = engine.update_memberships();
        engine.transmit(now);
        self.shared.settle(engine);
        result
    }

    /// Has the UD queue pair `qpn` receive what is sent to a multicast group, and the port join it when nobody else here has.
    ///
    /// # Errors
    /// Those of [`Endpoint::attach_multicast`]; [`Error::System`] when the port cannot join: nothing is attached then.
    pub fn attach_multicast(&self, qpn: Qpn, group: IpAddr) -> Result<()> {
        let mut engine = self.shared.lock();
        engine.check()?;
        engine.endpoint.attach_multicast(qpn, group)?;
        engine.update_memberships().map_err(|error| {
            // It was attached just now.
            let _ = engine.endpoint.detach_multicast(qpn, group);
            let _ = engine.update_memberships();
            Error::system("joining the multicast group", error)
        })
    }

    /// Has the port take `addresses` and give up its others; returns those that it has now, in the order given.
    pub fn set_addresses(&self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        let mut engine = self.shared.lock();
        engine.port.set_addresses(addresses);
        self.shared.note_descriptors(&engine);
        let taken = engine.port.addresses().to_vec();
        drop(engine);
        // Who waits, waits on the descriptors of before.
        self.shared.wake.kick();
        taken
    }

    /// Looks at the endpoint.
    pub fn inspect<T>(&self, look: impl FnOnce(&Endpoint) -> T) -> T {
        look(&self.shared.lock().endpoint)
    }

    /// Posts `requests` to the send queue of `qpn`, and sends as much as may go now: one doorbell.
    ///
    /// The iterator runs while the endpoint is locked: it must not call into the driver.
    ///
    /// # Errors
    /// Which request was refused and why; those before it are posted.
    pub fn post_send(
        &self,
        qpn: Qpn,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> std::result::Result<(), PostError> {
        let mut engine = self.shared.lock();
        engine.check().map_err(|error| PostError { posted: 0, error })?;
        let now = engine.now();
        let endpoint = &mut engine.endpoint;
        let result = each(requests, |request| endpoint.post_send(now, qpn, request));
        engine.transmit(now);
        self.shared.settle(engine);
        result
    }

    /// Posts `requests` to the receive queue of `qpn`.
    ///
    /// The iterator runs while the endpoint is locked: it must not call into the driver.
    ///
    /// # Errors
    /// Which request was refused and why; those before it are posted.
    pub fn post_receive(
        &self,
        qpn: Qpn,
        requests: impl IntoIterator<Item = ReceiveRequest>,
    ) -> std::result::Result<(), PostError> {
        let mut engine = self.shared.lock();
        engine.check().map_err(|error| PostError { posted: 0, error })?;
        let now = engine.now();
        let endpoint = &mut engine.endpoint;
        let result = each(requests, |request| endpoint.post_receive(now, qpn, request));
        // A receive request makes no packet, but on a queue pair in error it is flushed, which is an event.
        self.shared.settle(engine);
        result
    }

    /// Posts `requests` to the shared receive queue `srq`.
    ///
    /// The iterator runs while the endpoint is locked: it must not call into the driver.
    ///
    /// # Errors
    /// Which request was refused and why; those before it are posted.
    pub fn post_srq_receive(
        &self,
        srq: SrqNumber,
        requests: impl IntoIterator<Item = ReceiveRequest>,
    ) -> std::result::Result<(), PostError> {
        let mut engine = self.shared.lock();
        engine.check().map_err(|error| PostError { posted: 0, error })?;
        each(requests, |request| engine.endpoint.post_srq_receive(srq, request))
    }

    /// The present time on the engine's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// The time of day at `instant` of the engine's clock, as the system's clock has it now: a step of that clock since then
    /// is not undone.
    #[must_use]
    pub fn time_of_day(&self, instant: Instant) -> SystemTime {
        SystemTime::now() - self.now().since(instant)
    }

    /// Runs the engine once, unless another thread is at it: what polling an empty completion queue does.
    pub fn poll(&self) {
        let Some(mut engine) = self.shared.try_lock() else { return };
        // Only the holder of the lock writes, so this needs no atomic addition.
        self.shared.polls.store(self.shared.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        engine.poll();
        self.shared.settle(engine);
    }

    /// Sends acknowledges that wait for company, for a program that is about to end without dropping the driver: its peers
    /// would send again what arrived. Gives up when another thread stays at the engine.
    pub fn flush(&self) {
        /// Looks, and how far they are apart.
        const LOOKS: u32 = 100;
        const PAUSE: Duration = Duration::from_micros(100);
        for _ in 0..LOOKS {
            if let Some(mut engine) = self.shared.try_lock() {
                let now = engine.now();
                return engine.transmit_deferred(now);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Tells that a program armed a completion queue and is about to sleep: the progress thread takes over at once.
    pub fn attend(&self) {
        self.shared.arms.fetch_add(1, Ordering::SeqCst);
        if self.shared.resting.load(Ordering::SeqCst) {
            self.shared.wake.kick();
        }
    }

    /// What the port counted.
    #[must_use]
    pub fn port_counters(&self) -> PortCounters {
        self.shared.lock().port.counters()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.wake.kick();
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which it has reported itself.
            let _ = thread.join();
        }
        let mut engine = self.shared.lock();
        let now = engine.now();
        engine.transmit_deferred(now);
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// Posts one request after the other, up to the first that is refused.
fn each<R>(
    requests: impl IntoIterator<Item = R>,
    mut post: impl FnMut(R) -> Result<()>,
) -> std::result::Result<(), PostError> {
    for (posted, request) in requests.into_iter().enumerate() {
        post(request).map_err(|error| PostError { posted, error })?;
    }
    Ok(())
}

/// What the callers and the progress thread share.
struct Shared {
    engine: Mutex<Engine>,
    /// Events on their way to the listener, in order: pushed by whoever holds the engine.
    outbox: SegQueue<Event>,
    /// Held by the one thread that empties the outbox.
    delivering: Mutex<()>,
    listener: Box<dyn Fn(Event) + Send + Sync>,
    /// What whoever runs the engine waits on beside the port.
    wake: Wake,
    /// The port's descriptors and `wake`.
    readable: RwLock<Arc<[RawFd]>>,
    /// How often a program ran the engine by polling.
    polls: AtomicU64,
    /// How often a completion queue was armed.
    arms: AtomicU64,
    /// How often a thread of the program has run the engine in its sleep.
    turns: AtomicU64,
    /// Whether one does.
    relieved: AtomicBool,
    /// How many more sleep, and depend on others to run the engine.
    dependents: AtomicUsize,
    /// Whether the progress thread leaves the engine to the program.
    resting: AtomicBool,
    /// Whether it does so until told otherwise.
    dozing: AtomicBool,
    stopping: AtomicBool,
}

impl Shared {
    /// The engine. A thread that panicked with it left it between two of its steps, so it is still sound.
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port's descriptors and `wake`, to wait on.
    fn readable(&self) -> Arc<[RawFd]> {
        Arc::clone(&self.readable.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes the port's descriptors.
    fn note_descriptors(&self, engine: &Engine) {
        let descriptors = engine.port.descriptors().into_iter().chain([self.wake.as_raw_fd()]).collect();
        *self.readable.write().unwrap_or_else(PoisonError::into_inner) = descriptors;
    }

    /// The engine, unless another thread has it.
    fn try_lock(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Ends a caller's turn: gives the engine back, wakes who sleeps in charge of it if that sleeps for too long now, and
    /// delivers events.
    fn settle(&self, mut engine: MutexGuard<'_, Engine>) {
        let somebody_sleeps = self.relieved.load(Ordering::SeqCst) || !self.resting.load(Ordering::SeqCst);
        let late = somebody_sleeps && engine.outpaces_watch();
        self.collect(&mut engine);
        drop(engine);
        if late {
            self.wake.kick();
        }
        self.deliver();
    }

    /// Moves the engine's events to the outbox.
    fn collect(&self, engine: &mut Engine) {
        while let Some(event) = engine.next_event() {
            self.outbox.push(event);
        }
    }

    /// Hands the outbox to the listener. Where another thread is at it already, that one takes what was added, too: it
    /// looks again after it has let go.
    fn deliver(&self) {
        while !self.outbox.is_empty() {
            let _turn = match self.delivering.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            while let Some(event) = self.outbox.pop() {
                (self.listener)(event);
            }
        }
    }
}
