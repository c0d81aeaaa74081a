//! Opening a device.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::attendant::Attendant;
use super::context::{Context, Registry, Rules};
use super::device::{self, Device, LinkState};
use super::follow::{Follower, Place};
use super::peer::random;
use crate::driver::Driver;
use crate::endpoint::{self, Endpoint};
use crate::error::{Error, Result};
use crate::port::{Capture, Fault, FaultConfig, PacketPort, Port, Slot, SlotError, UdpPort};
use crate::qp::Mtu;
use crate::wire::Gid;

/// How a device reaches the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// UDP sockets: no privilege.
    #[default]
    Udp,
    /// Packet sockets: needs `CAP_NET_RAW`, sees and writes whole frames.
    Packet,
}

/// Faults to do to datagrams on purpose, each way, as probabilities between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Lost.
    pub loss: f64,
    /// Delivered twice.
    pub duplicate: f64,
    /// Delivered behind a later one.
    pub reorder: f64,
    /// The same faults come again with the same seed.
    pub seed: u64,
}

impl Faults {
    /// How many later datagrams overtake a reordered one, at most.
    pub const REORDER_DISTANCE: u32 = 8;
}

/// How to open a device; made by [`Context::options`].
///
/// ```
/// use uroce::verbs::{Backend, Context, Mtu};
///
/// let context = Context::options("uroce_lo").backend(Backend::Udp).mtu(Mtu::Mtu1024).open()?;
/// assert_eq!(context.query_port().active_mtu, Mtu::Mtu1024);
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    name: String,
    backend: Option<Backend>,
    addresses: Option<Vec<IpAddr>>,
    mtu: Option<Mtu>,
    window: u64,
    hold_bytes: usize,
    pcap: Option<PathBuf>,
    faults: Option<Faults>,
    publish: bool,
    implicit_on_demand: bool,
    survive_unmapped: bool,
}

impl OpenOptions {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            backend: None,
            addresses: None,
            mtu: None,
            window: endpoint::Config::DEFAULT_WINDOW,
            hold_bytes: endpoint::Config::DEFAULT_HOLD_BYTES,
            pcap: None,
            faults: None,
            publish: true,
            implicit_on_demand: false,
            survive_unmapped: false,
        }
    }

    /// How to reach the network; the device's own by default.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = Some(backend);
        self
    }

    /// The addresses to use, by GID index: all of the interface by default, one in 127.0.0.0/8 that nobody uses
    /// on loopback. Other devices, of any process, may be open on the same ones.
    #[must_use]
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.addresses = Some(addresses.into_iter().collect());
        self
    }

    /// The largest path MTU, when it is to be less than the link's.
    #[must_use]
    pub fn mtu(mut self, mtu: Mtu) -> Self {
        self.mtu = Some(mtu);
        self
    }

    /// Bytes in flight to one peer, at most: what the peer's receive buffer takes.
    /// [`Config::DEFAULT_WINDOW`](endpoint::Config::DEFAULT_WINDOW) by default.
    #[must_use]
    pub fn window(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// Bytes that may be held of packets which arrive before their turn, by all queue pairs together; with 0 they are
    /// dropped, as the kernel's rxe does, and the peer sends them again.
    /// [`Config::DEFAULT_HOLD_BYTES`](endpoint::Config::DEFAULT_HOLD_BYTES) by default.
    #[must_use]
    pub fn hold_bytes(mut self, bytes: usize) -> Self {
        self.hold_bytes = bytes;
        self
    }

    /// Records every datagram, sent and received, in this file.
    #[must_use]
    pub fn pcap(mut self, path: impl Into<PathBuf>) -> Self {
        self.pcap = Some(path.into());
        self
    }

    /// Does faults to datagrams on purpose.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Whether other processes of the same user can see what the device counts (see [`stat`](super::stat)); they can by default.
    #[must_use]
    pub fn publish(mut self, publish: bool) -> Self {
        self.publish = publish;
        self
    }

    /// Whether a program may register its whole address space
    /// ([`register_implicit`](super::ProtectionDomain::register_implicit)); not by default.
    #[must_use]
    pub fn implicit_on_demand(mut self, allowed: bool) -> Self {
        self.implicit_on_demand = allowed;
        self
    }

    /// Whether an access to registered memory that is not mapped any more is an error, as a device's would be: at the
    /// requester a local protection error, at the responder a remote access error of the peer's and an event. By default it is
    /// a broken promise ([`register_raw`](super::ProtectionDomain::register_raw)) and ends the program, as it does for a file that
    /// becomes shorter while it is registered.
    ///
    /// It takes handlers of SIGSEGV and SIGBUS for the whole process, from which every other fault goes to those that were there
    /// before; when the program has installed others since, they are taken again whenever memory is registered. Threads
    /// that block these signals are not helped. On x86_64 only: elsewhere [`open`](Self::open) refuses.
    #[must_use]
    pub fn survive_unmapped(mut self, survive: bool) -> Self {
        self.survive_unmapped = survive;
        self
    }

    /// Opens the device.
    ///
    /// # Errors
    /// [`Error::Missing`] for an unknown device names those there are. [`Error::System`] when the interface is down or has
    /// no address, its UDP port 4791 is held by who does not share it, a process that shares it does not answer (ETIMEDOUT; it is
    /// named), or the backend needs a privilege; the text says what to do. [`Error::Full`] when 127 devices are open on the
    /// interface.
    pub fn open(&self) -> Result<Context> {
        let mut device = device::find(&self.name)?;
        device.mtu = self.mtu.unwrap_or(device.mtu).min(device.mtu);
        if device.state == LinkState::Down {
            let context = format!("{} cannot be opened: run `ip link set {} up`", device.name, device.interface);
            return Err(Error::system(context, io::ErrorKind::NetworkDown.into()));
        }
        let slot = self.slot(&device)?;
        let port = self.port(&device, slot.as_ref())?;
        let addresses = port.addresses().to_vec();
        device.gids = addresses.iter().copied().map(Gid::from).collect();
        let endpoint = Endpoint::new(endpoint::Config {
            slot: slot.as_deref().map_or(1, Slot::number),
            gids: addresses.clone(),
            mtu: device.mtu,
            seed: random(),
            window: self.window,
            hold_bytes: self.hold_bytes,
        });
        let registry = Arc::new(Registry::new()?);
        let events = Arc::clone(&registry);
        let driver = Arc::new(Driver::start(endpoint, port, move |event| events.dispatch(event))?);
        let place = Place::new(addresses, device.state);
        let follower = self.follow(&device, &driver, &place, slot.as_ref())?;
        let attendant = slot.map(Attendant::start).transpose()?;
        let rules = Rules { implicit_on_demand: self.implicit_on_demand, survive_unmapped: self.survive_unmapped };
        let context = Context::new(driver, registry, device, place, follower, attendant, rules);
        context.inner().watch_memory()?;
        if self.publish {
            context.publish();
        }
        Ok(context)
    }

    /// Has the context follow its interface. Loopback does not change, and addresses that were named stay.
    fn follow(
        &self,
        device: &Device,
        driver: &Arc<Driver>,
        place: &Arc<Place>,
        slot: Option<&Arc<Slot>>,
    ) -> Result<Option<Follower>> {
        if device.loopback {
            return Ok(None);
        }
        let (driver, place) = (Arc::clone(driver), Arc::clone(place));
        Follower::start(driver, place, slot.cloned(), device.interface_index, self.addresses.is_none()).map(Some)
    }

    /// The place among those that share the addresses. `None` on loopback, where there are addresses enough for each to have one
    /// of its own, unless they are named.
    fn slot(&self, device: &Device) -> Result<Option<Arc<Slot>>> {
        let addresses = match &self.addresses {
            Some(addresses) => addresses.clone(),
            None if device.loopback => return Ok(None),
            None => device.addresses(),
        };
        if addresses.is_empty() {
            let context = format!("{} has no address: run `ip address add`, or name one", device.name);
            return Err(Error::system(context, io::ErrorKind::AddrNotAvailable.into()));
        }
        Slot::take(device.interface_index, &addresses).map(Some).map_err(|error| match error {
            SlotError::Full => {
                Error::Full { what: "the table of open devices of the interface", limit: usize::from(Slot::COUNT) - 1 }
            }
            SlotError::System(error) => Error::system(device.name.clone(), error),
            silent => Error::system(format!("{}: {silent}", device.name), io::ErrorKind::TimedOut.into()),
        })
    }

    /// The port to the network, wrapped as the options ask.
    fn port(&self, device: &Device, slot: Option<&Arc<Slot>>) -> Result<Box<dyn Port>> {
        let Some(slot) = slot else { return self.loopback_port(device) };
        let addresses = self.addresses.clone().unwrap_or_else(|| device.addresses());
        let slot = Arc::clone(slot);
        let port = match self.backend.unwrap_or(device.backend) {
            Backend::Udp => UdpPort::share(&addresses, slot).and_then(|port| self.wrap(port)),
            Backend::Packet => PacketPort::share(&device.interface, &addresses, slot).and_then(|port| self.wrap(port)),
        };
        port.map_err(|error| Error::system(device.name.clone(), error))
    }

    /// A port at an address of 127.0.0.0/8 that nobody uses: drawn by lot until one is free.
    fn loopback_port(&self, device: &Device) -> Result<Box<dyn Port>> {
        const DRAWS: usize = 64;
        let mut last = None;
        for _ in 0..DRAWS {
            let [a, b, c] = random();
            let address = Ipv4Addr::new(127, a, b, c);
            // The first is everybody's, the last is a broadcast address.
            if [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 0), Ipv4Addr::new(127, 255, 255, 255)].contains(&address)
            {
                continue;
            }
            match self.bind_alone(device, &[address.into()]) {
                Ok(port) => return Ok(port),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = Some(error),
                Err(error) => return Err(Error::system(device.name.clone(), error)),
            }
        }
        let last = last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into());
        Err(Error::system(format!("{}: no free address in {DRAWS} draws", device.name), last))
    }

    /// A port that has its addresses to itself.
    fn bind_alone(&self, device: &Device, addresses: &[IpAddr]) -> io::Result<Box<dyn Port>> {
        match self.backend.unwrap_or(device.backend) {
            Backend::Udp => self.wrap(UdpPort::bind(addresses)?),
            Backend::Packet => self.wrap(PacketPort::open(&device.interface, addresses)?),
        }
    }

    /// The port, recorded and made faulty as the options ask; what is recorded is what the network sees.
    fn wrap(&self, port: impl Port + 'static) -> io::Result<Box<dyn Port>> {
        match &self.pcap {
            None => Ok(self.spoil(port)),
            Some(path) => {
                let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
                Ok(self.spoil(Capture::create(port, path).map_err(named)?))
            }
        }
    }

    fn spoil(&self, port: impl Port + 'static) -> Box<dyn Port> {
        let Some(Faults { loss, duplicate, reorder, seed }) = self.faults else { return Box::new(port) };
        let config = FaultConfig { loss, duplicate, reorder, reorder_distance: Faults::REORDER_DISTANCE };
        Box::new(Fault::new(port, seed, config, config))
    }
}
