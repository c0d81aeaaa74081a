//! An open device.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use super::attendant::Attendant;
use super::channel::{CompletionChannel, Sink};
use super::cq::{CompletionQueue, Connection, CqInner};
use super::device::Device;
use super::event_queue::EventQueue;
use super::events::AsyncEvents;
use super::follow::{Follower, Place};
use super::limits::{DeviceAttributes, PortAttributes};
use super::open::OpenOptions;
use super::pd::ProtectionDomain;
use super::stat::Publisher;
use super::xrc::XrcDomain;
use crate::counters::Counters;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, Event};
use crate::memory;
use crate::port::PortCounters;
use crate::qp::Mtu;
use crate::time::Instant;
use crate::wire::Gid;

/// An open device (`ibv_open_device(3)`). Clones are the same context.
///
/// It owns a port, on addresses that it shares with other open devices of its interface, and a thread that serves peers while
/// the program does something else. All ends when the last
/// object made from it is dropped.
///
/// ```
/// use uroce::verbs::Context;
///
/// let context = Context::open("uroce_lo")?;
/// // On loopback each context has an address of its own.
/// assert!(context.address(0)?.is_loopback());
/// assert_eq!(context.gid(0)?.address(), context.address(0)?);
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<ContextInner>,
}

impl Context {
    /// Opens the device of this name with the usual options.
    ///
    /// # Errors
    /// See [`OpenOptions::open`].
    pub fn open(name: &str) -> Result<Self> {
        Self::options(name).open()
    }

    /// How to open the device of this name.
    #[must_use]
    pub fn options(name: &str) -> OpenOptions {
        OpenOptions::new(name)
    }

    pub(super) fn new(
        driver: Arc<Driver>,
        registry: Arc<Registry>,
        device: Device,
        place: Arc<Place>,
        follower: Option<Follower>,
        attendant: Option<Attendant>,
        rules: Rules,
    ) -> Self {
        let next_cq = AtomicU32::new(1);
        let mtu = device.mtu;
        let publisher = OnceLock::new();
        Self {
            inner: Arc::new(ContextInner {
                _follower: follower,
                publisher,
                driver,
                registry,
                device,
                place,
                attendant,
                mtu,
                next_cq,
                rules,
            }),
        }
    }

    /// Answers from now on who asks what was counted (see [`stat`](super::stat)).
    pub(super) fn publish(&self) {
        let _ = self.inner.publisher.set(Publisher::start(Arc::downgrade(&self.inner)));
    }

    pub(super) fn inner(&self) -> &ContextInner {
        &self.inner
    }

    /// The device that was opened.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The addresses that it sends from and receives for, by GID index. They follow those of the interface, unless they were
    /// named when the device was opened; an unspecified address stands for an index that has none any more.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.inner.place.gids()
    }

    /// The address of the GID of this index.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none; the text says how many there are.
    pub fn address(&self, index: u8) -> Result<IpAddr> {
        self.inner.address(index)
    }

    /// The GID of this index (`ibv_query_gid(3)`).
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none; the text says how many there are.
    pub fn gid(&self, index: u8) -> Result<Gid> {
        self.address(index).map(Gid::from)
    }

    /// The high byte of the numbers of its queue pairs: which of the open devices, of all processes, that share its interface it is
    /// (see [`port::slots`](crate::port::slots)). 1 where it has its address to itself: on loopback, unless addresses were named.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.inner.attendant.as_ref().map_or(1, |attendant| attendant.slot().number())
    }

    /// What the device can do (`ibv_query_device(3)`).
    #[must_use]
    pub fn device_attributes(&self) -> DeviceAttributes {
        DeviceAttributes::of(&self.inner.device)
    }

    /// The state and limits of its one port (`ibv_query_port(3)`).
    #[must_use]
    pub fn query_port(&self) -> PortAttributes {
        let place = &self.inner.place;
        PortAttributes { state: place.state(), ..PortAttributes::of(&self.inner.device, place.gids().len()) }
    }

    /// A protection domain (`ibv_alloc_pd(3)`).
    #[must_use]
    pub fn alloc_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(Arc::clone(&self.inner))
    }

    /// A completion channel (`ibv_create_comp_channel(3)`).
    ///
    /// # Errors
    /// [`Error::System`] when there is no file descriptor left.
    pub fn create_completion_channel(&self) -> Result<CompletionChannel> {
        CompletionChannel::new(Arc::clone(&self.inner))
    }

    /// A queue for `capacity` completions, which reports to `channel` when armed (`ibv_create_cq(3)`).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity out of range or a channel of another context.
    pub fn create_cq(&self, capacity: usize, channel: Option<&CompletionChannel>) -> Result<CompletionQueue> {
        CompletionQueue::new(&self.inner, capacity, channel, 0)
    }

    /// The same, with a completion vector: below
    /// [`completion_vectors`](DeviceAttributes::completion_vectors). Vectors choose a processor for a card's interrupts; here
    /// whichever thread runs the engine raises events, so the number makes no difference.
    ///
    /// # Errors
    /// As [`create_cq`](Self::create_cq), or for a vector that there is not.
    pub fn create_cq_on_vector(
        &self,
        capacity: usize,
        channel: Option<&CompletionChannel>,
        vector: u32,
    ) -> Result<CompletionQueue> {
        CompletionQueue::new(&self.inner, capacity, channel, vector)
    }

    /// An XRC domain (`ibv_open_xrcd(3)`).
    ///
    /// # Errors
    /// None as yet.
    pub fn open_xrc_domain(&self) -> Result<XrcDomain> {
        XrcDomain::new(&self.inner)
    }

    /// The present time on the clock that stamps completions (`ibv_query_rt_values_ex(3)`), which starts when the device is
    /// opened.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.driver.now()
    }

    /// The time of day at `instant` of that clock, as the system's clock has it now.
    #[must_use]
    pub fn time_of_day(&self, instant: Instant) -> SystemTime {
        self.inner.driver.time_of_day(instant)
    }

    /// Sends what peers are owed and was to go with something else. Dropping the last object of the context does so too; a
    /// program that ends with objects alive spares its peers a time-out by calling this.
    pub fn flush(&self) {
        self.inner.driver.flush();
    }

    /// The asynchronous events.
    #[must_use]
    pub fn events(&self) -> AsyncEvents {
        AsyncEvents::new(Arc::clone(&self.inner.registry))
    }

    /// What all queue pairs together counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.driver.inspect(|endpoint| endpoint.counters())
    }

    /// What the port counted.
    #[must_use]
    pub fn port_counters(&self) -> PortCounters {
        self.inner.driver.port_counters()
    }
}

/// What every object of a context keeps alive.
#[derive(Debug)]
pub(super) struct ContextInner {
    /// First, so that it ends before what it follows for.
    _follower: Option<Follower>,
    /// Answers while the context lives.
    publisher: OnceLock<Option<Publisher>>,
    pub(super) driver: Arc<Driver>,
    pub(super) registry: Arc<Registry>,
    pub(super) device: Device,
    pub(super) place: Arc<Place>,
    /// Behind the driver: the slot is free when its sockets are closed.
    attendant: Option<Attendant>,
    /// The largest path MTU.
    pub(super) mtu: Mtu,
    next_cq: AtomicU32,
    pub(super) rules: Rules,
}

/// What the program asked for about memory when it opened the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether it may register its whole address space.
    pub(super) implicit_on_demand: bool,
    /// Whether memory that it unmaps while it is registered is an error, and not its end.
    pub(super) survive_unmapped: bool,
}

impl ContextInner {
    /// Memory is about to be registered: looks after the handlers that make it safe to touch, when the program asked for that.
    pub(super) fn watch_memory(&self) -> Result<()> {
        if !self.rules.survive_unmapped {
            return Ok(());
        }
        memory::watch().map_err(|error| Error::system("handlers of SIGSEGV and SIGBUS (survive_unmapped)", error))
    }

    pub(super) fn next_cq_number(&self) -> u32 {
        self.next_cq.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn address(&self, index: u8) -> Result<IpAddr> {
        let gids = self.place.gids();
        gids.get(usize::from(index)).copied().filter(|gid| !gid.is_unspecified()).ok_or_else(|| {
            let count = gids.len();
            Error::invalid("gid_index", format!("{index}; {} has {count} GIDs, from 0", self.device.name))
        })
    }
}

/// Where the engine's events go. The driver's thread holds it, so it holds no context in turn.
#[derive(Debug)]
pub(super) struct Registry {
    /// The asynchronous events.
    pub(super) events: EventQueue<AsyncEvent>,
    connections: RwLock<HashMap<u32, Connection>>,
}

impl Registry {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { events: EventQueue::new()?, connections: RwLock::default() })
    }

    /// Hands an event on.
    pub(super) fn dispatch(&self, event: Event) {
        match event {
            Event::Async(event) => self.events.push(event),
            Event::Completion(number) => {
                let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
                if let Some((cq, sink)) = connections.get(&number) {
                    sink.push(Weak::clone(cq));
                }
            }
        }
    }

    /// From now on events of the completion queue `number` go to `sink`.
    pub(super) fn connect(&self, number: u32, cq: Weak<CqInner>, sink: Arc<Sink>) {
        self.connections.write().unwrap_or_else(PoisonError::into_inner).insert(number, (cq, sink));
    }

    /// Forgets a completion queue.
    pub(super) fn disconnect(&self, number: u32) {
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }
}

impl From<Arc<ContextInner>> for Context {
    fn from(inner: Arc<ContextInner>) -> Self {
        Self { inner }
    }
}
