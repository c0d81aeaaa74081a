//! Which Ethernet address a datagram goes to, as the kernel's routes and neighbour table say.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::port::netlink::Netlink;
use crate::port::sys;

/// The most next hops, and destinations, that are remembered.
const REMEMBERED: usize = 4096;
/// Multicast groups of rtnetlink (`enum rtnetlink_groups`): neighbours, IPv4 routes, IPv6 routes.
const GROUPS: [u32; 3] = [3, 7, 11];
/// The UDP port that throws away what it gets (RFC 863).
const DISCARD: u16 = 9;

/// An Ethernet address.
pub(super) type Mac = [u8; 6];

/// The next hops of one interface.
pub(super) struct Neighbours {
    questions: Netlink,
    changes: Netlink,
    interface: u32,
    loopback: bool,
    hops: Vec<Hop>,
    by_destination: HashMap<IpAddr, HopIndex>,
}

/// Which of the next hops.
pub(super) type HopIndex = usize;

struct Hop {
    /// Its address: the destination's, or that of a gateway.
    address: IpAddr,
    /// One of ours, from which the kernel is made to ask for it.
    source: IpAddr,
    state: State,
}

/// What is known of a next hop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing; the next run makes us ask the kernel.
    Unknown,
    /// The kernel is asking the network; `held` runs wait for the answer.
    Asked { held: usize },
    /// Its Ethernet address.
    Known(Mac),
    /// The network did not answer. The next run makes the kernel ask again.
    Failed,
}

/// How many runs may wait for one next hop to be found. They are held, because the first packet of a connection is
/// worth it: the retry of a lost one is due after tens of milliseconds (RC) or seconds (connection management).
/// They are few, because they take the transmit buffer from all others.
const HELD: usize = 2;

impl Neighbours {
    pub(super) fn new(interface: u32, loopback: bool) -> io::Result<Self> {
        Ok(Self {
            questions: Netlink::open()?,
            changes: Netlink::subscribe(&GROUPS)?,
            interface,
            loopback,
            hops: Vec::new(),
            by_destination: HashMap::new(),
        })
    }

    /// Readable when something changed: call [`update`](Self::update).
    pub(super) fn descriptor(&self) -> RawFd {
        self.changes.as_raw_fd()
    }

    /// The next hop for a new run from `source` to `destination`; `None` when there is no route out of this interface, or too much
    /// waits for that hop already.
    pub(super) fn hop(&mut self, source: IpAddr, destination: IpAddr) -> Option<HopIndex> {
        let index = match self.by_destination.get(&destination) {
            Some(&index) => index,
            None => self.learn(source, destination)?,
        };
        let hop = self.hops.get_mut(index)?;
        if matches!(hop.state, State::Unknown | State::Failed) {
            hop.state = match ask(&mut self.questions, hop.address, self.interface).ok()? {
                State::Known(mac) => State::Known(mac),
                _ => {
                    provoke(hop, self.interface).ok()?;
                    State::Asked { held: 0 }
                }
            };
        }
        if let State::Asked { held } = &mut hop.state {
            if *held == HELD {
                return None;
            }
            *held += 1;
        }
        Some(index)
    }

    /// The Ethernet address of a next hop.
    ///
    /// # Errors
    /// `EAGAIN` while the kernel is finding out; `EHOSTUNREACH` when it did not.
    pub(super) fn resolve(&mut self, index: HopIndex) -> io::Result<Mac> {
        let state = |hops: &[Hop]| hops.get(index).map_or(State::Unknown, |hop| hop.state);
        if matches!(state(&self.hops), State::Asked { .. }) {
            self.update();
        }
        match state(&self.hops) {
            State::Known(mac) => Ok(mac),
            State::Asked { .. } => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            State::Unknown | State::Failed => Err(io::Error::from_raw_os_error(libc::EHOSTUNREACH)),
        }
    }

    /// Whether it is known where that hop is, so that only room can be lacking.
    pub(super) fn is_known(&self, index: HopIndex) -> bool {
        self.hops.get(index).is_some_and(|hop| matches!(hop.state, State::Known(_)))
    }

    /// Takes in what changed in the kernel's tables.
    pub(super) fn update(&mut self) {
        // When notifications were lost, nothing that was known is sure.
        let Ok(changes) = self.changes.notifications() else {
            self.by_destination.clear();
            self.hops.iter_mut().for_each(|hop| hop.state = State::Unknown);
            return;
        };
        for change in changes {
            match change {
                RouteNetlinkMessage::NewNeighbour(message) => self.note(&message),
                RouteNetlinkMessage::NewRoute(_) | RouteNetlinkMessage::DelRoute(_) => self.by_destination.clear(),
                _ => {}
            }
        }
    }

    /// Starts anew when too much is remembered. Only while no [`HopIndex`] is in use.
    pub(super) fn shrink(&mut self) {
        if self.hops.len() >= REMEMBERED {
            self.hops.clear();
            self.by_destination.clear();
        }
    }

    /// The addresses of all next hops.
    #[cfg(test)]
    pub(super) fn next_hops(&self) -> Vec<IpAddr> {
        self.hops.iter().map(|hop| hop.address).collect()
    }

    fn note(&mut self, message: &NeighbourMessage) {
        if message.header.ifindex != self.interface {
            return;
        }
        let address = message.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::V4(*address)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
            _ => None,
        });
        if let Some(hop) = self.hops.iter_mut().find(|hop| Some(hop.address) == address) {
            match state(message) {
                // Not yet an answer to what is waited for, nor a reason to doubt what is known.
                State::Unknown => {}
                known => hop.state = known,
            }
        }
    }

    /// Finds out the next hop for `destination` and remembers it.
    fn learn(&mut self, source: IpAddr, destination: IpAddr) -> Option<HopIndex> {
        if self.by_destination.len() >= REMEMBERED {
            self.by_destination.clear();
        }
        let (address, state) = if self.loopback {
            (destination, State::Known([0; 6]))
        } else if let Some(mac) = multicast_mac(destination) {
            (destination, State::Known(mac))
        } else {
            (self.next_hop(destination)?, State::Unknown)
        };
        let known = self.hops.iter().position(|hop| hop.address == address);
        let index = known.or_else(|| {
            let room = self.hops.len() < REMEMBERED;
            room.then(|| self.hops.push(Hop { address, source, state }))?;
            Some(self.hops.len() - 1)
        })?;
        self.by_destination.insert(destination, index);
        Some(index)
    }

    /// The address to which the kernel would hand a packet for `destination` on this interface. Asked for one interface, it
    /// takes what it has no route to for a neighbour there; kernel rxe asks the same (`rxe_find_route4`).
    fn next_hop(&mut self, destination: IpAddr) -> Option<IpAddr> {
        let mut question = RouteMessage::default();
        let (family, length, address) = match destination {
            IpAddr::V4(address) => (AddressFamily::Inet, 32, RouteAddress::Inet(address)),
            IpAddr::V6(address) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(address)),
        };
        question.header.address_family = family;
        question.header.destination_prefix_length = length;
        question.attributes = vec![RouteAttribute::Destination(address), RouteAttribute::Oif(self.interface)];
        let answers = self.questions.ask(RouteNetlinkMessage::GetRoute(question), false).ok()?;
        let route = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        })?;
        // A route to an address of this host leads back through loopback, not out here.
        if route.header.kind != RouteType::Unicast || !route.attributes.contains(&RouteAttribute::Oif(self.interface)) {
            return None;
        }
        let gateway = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(address)) | RouteAttribute::Via(RouteVia::Inet(address)) => {
                Some(IpAddr::V4(*address))
            }
            RouteAttribute::Gateway(RouteAddress::Inet6(address)) | RouteAttribute::Via(RouteVia::Inet6(address)) => {
                Some(IpAddr::V6(*address))
            }
            _ => None,
        });
        Some(gateway.unwrap_or(destination))
    }
}

/// What the kernel's neighbour table says of `address`.
fn ask(questions: &mut Netlink, address: IpAddr, interface: u32) -> io::Result<State> {
    let mut question = NeighbourMessage::default();
    let (family, address) = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
    };
    question.header.family = family;
    question.header.ifindex = interface;
    question.attributes = vec![NeighbourAttribute::Destination(address)];
    match questions.ask(RouteNetlinkMessage::GetNeighbour(question), false) {
        Ok(answers) => Ok(answers.iter().fold(State::Unknown, |before, answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) => state(message),
            _ => before,
        })),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(State::Unknown),
        Err(error) => Err(error),
    }
}

/// What a message of the neighbour table says. An entry that has become stale is still good: the kernel overwrites it as soon as
/// it hears of another address.
fn state(message: &NeighbourMessage) -> State {
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => Mac::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    match (message.header.state, mac) {
        (NeighbourState::Failed, _) => State::Failed,
        (
            NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
            | NeighbourState::Noarp,
            Some(mac),
        ) => State::Known(mac),
        _ => State::Unknown,
    }
}

/// Makes the kernel ask the network for `hop`, by sending an empty datagram there that nobody wants. To tell the kernel directly
/// (`NTF_USE`) would take CAP_NET_ADMIN.
fn provoke(hop: &Hop, interface: u32) -> io::Result<()> {
    let scope = |address: IpAddr, port| match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => SocketAddrV6::new(v6, port, 0, interface).into(),
        _ => SocketAddr::new(address, port),
    };
    let socket = UdpSocket::bind(scope(hop.source, 0))?;
    socket.set_nonblocking(true)?;
    let (level, option) = match hop.source {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_UNICAST_IF),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF),
    };
    sys::set_option(socket.as_fd(), level, option, interface.to_be().cast_signed())?;
    socket.send_to(&[], scope(hop.address, DISCARD)).map(drop)
}

/// The Ethernet address of a multicast group (RFC 1112 6.4, RFC 2464 7); `None` for other destinations.
fn multicast_mac(destination: IpAddr) -> Option<Mac> {
    match destination {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, a, b, c] = group.octets();
            Some([0x01, 0x00, 0x5e, a & 0x7f, b, c])
        }
        IpAddr::V6(group) if group.is_multicast() => {
            let [.., a, b, c, d] = group.octets();
            Some([0x33, 0x33, a, b, c, d])
        }
        _ => None,
    }
}
