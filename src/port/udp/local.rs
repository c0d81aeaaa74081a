//! The sockets of one local address.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use libc::c_int;
use socket2::{Domain, Protocol, Socket, Type};

use super::receive::Receiver;
use crate::port::interface::index_of;
use crate::port::sys;
use crate::wire::UDP_PORT;

/// The time to live, or hop limit, that sockets are set to; a flow with another one carries it in a control message.
pub(super) const DEFAULT_HOP_LIMIT: u8 = 64;
/// The transmit sockets that one address may have.
const TRANSMITTERS: usize = 64;
/// The UDP source ports of RoCE v2: 0xc000 and up (IBTA A17.9.2).
const SOURCE_PORT_BASE: u16 = 0xc000;
/// How many neighbours of a busy source port are tried.
const SOURCE_PORT_TRIES: u16 = 64;
/// Socket buffer bytes asked for; the kernel grants up to `net.core.rmem_max` and `wmem_max`, or all to the privileged.
const SOCKET_BUFFER: c_int = 16 << 20;

/// One local address: the socket that receives on port 4791 and those that send.
pub(super) struct Local {
    pub(super) address: IpAddr,
    /// Interface index of a link-local IPv6 address, else 0.
    pub(super) scope: u32,
    pub(super) receiver: Receiver,
    transmitters: Vec<Transmitter>,
    /// Whether the kernel cuts runs into datagrams on the way out of this address (`UDP_SEGMENT`).
    pub(super) segmentation: bool,
}

/// A socket that sends, bound to a source port.
struct Transmitter {
    /// The source port that flows ask for.
    wanted: u16,
    /// The one they get, nearly always the same.
    port: u16,
    socket: Socket,
}

/// Which socket of a [`Local`] sends. `None`: the receiver, when no other could be opened.
pub(super) type TransmitterIndex = Option<usize>;

impl Local {
    /// Takes port 4791 of `address`; `scope` is the interface index if that is link-local.
    pub(super) fn bind(address: IpAddr, scope: u32) -> io::Result<Self> {
        let receiver = open(address)?;
        receiver.bind(&socket_address(address, UDP_PORT, scope).into()).map_err(|error| explain(address, &error))?;
        Self::over(receiver, address, scope)
    }

    /// Receives from a socket that is bound to port 4791 of `address`.
    pub(super) fn over(receiver: Socket, address: IpAddr, scope: u32) -> io::Result<Self> {
        set_receive_options(&receiver, address)?;
        sys::grow_buffers(receiver.as_fd(), SOCKET_BUFFER);
        Ok(Self {
            address,
            scope,
            receiver: Receiver::new(address, receiver),
            transmitters: Vec::new(),
            segmentation: true,
        })
    }

    /// The socket for flows that ask for `source_port`, opened if need be.
    ///
    /// Sockets are never closed in favour of others: a flow that changed its source port could change its path and be
    /// overtaken by itself, which go-back-N pays for dearly. So when all are taken, flows share.
    pub(super) fn transmitter(&mut self, source_port: u16) -> TransmitterIndex {
        let known = self.transmitters.iter().position(|transmitter| transmitter.wanted == source_port);
        if known.is_some() {
            return known;
        }
        if self.transmitters.len() < TRANSMITTERS
            && let Ok(transmitter) = Transmitter::open(self.address, self.scope, source_port)
        {
            self.transmitters.push(transmitter);
            return Some(self.transmitters.len() - 1);
        }
        usize::from(source_port).checked_rem(self.transmitters.len())
    }

    /// The socket behind an index that [`transmitter`](Self::transmitter) gave.
    pub(super) fn socket(&self, index: TransmitterIndex) -> &Socket {
        index
            .and_then(|index| self.transmitters.get(index))
            .map_or(&self.receiver.socket, |transmitter| &transmitter.socket)
    }

    /// The UDP source port that the socket behind `index` writes.
    pub(super) fn source_port(&self, index: TransmitterIndex) -> u16 {
        index.and_then(|index| self.transmitters.get(index)).map_or(UDP_PORT, |transmitter| transmitter.port)
    }
}

impl Transmitter {
    /// A socket bound to `source_port` or, if that is busy, to one that follows.
    fn open(address: IpAddr, scope: u32, source_port: u16) -> io::Result<Self> {
        let socket = open(address)?;
        sys::grow_buffers(socket.as_fd(), SOCKET_BUFFER);
        // Nothing is read here, so let nothing that a stranger sends be stored here.
        sys::attach_filter(socket.as_fd(), &[sys::DROP_ALL])?;
        set_multicast_interface(&socket, address)?;
        let _ = socket.set_recv_buffer_size(0);
        let first = source_port.max(SOURCE_PORT_BASE) - SOURCE_PORT_BASE;
        let mut busy = io::Error::from(io::ErrorKind::AddrInUse);
        for step in 0..SOURCE_PORT_TRIES {
            let port = SOURCE_PORT_BASE + (first + step) % (u16::MAX - SOURCE_PORT_BASE + 1);
            match socket.bind(&socket_address(address, port, scope).into()) {
                Ok(()) => {
                    return Ok(Self { wanted: source_port, port, socket });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => busy = error,
                Err(error) => return Err(error),
            }
        }
        Err(busy)
    }
}

/// A nonblocking UDP socket of `address`'s family that sets DF and the hop limit of its datagrams.
///
/// It must stay unconnected: only then does the kernel write an IPv4 ID of 0 (`ip_select_ident`: connected sockets count),
/// on which the ICRC of what is sent is built.
pub(in crate::port) fn open(address: IpAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address((address, 0).into()), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    let hops = c_int::from(DEFAULT_HOP_LIMIT);
    let options: &[(c_int, c_int, c_int)] = if address.is_ipv4() {
        &[
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
            (libc::IPPROTO_IP, libc::IP_TTL, hops),
            (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, hops),
        ]
    } else {
        &[
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
            (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, hops),
            (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, hops),
        ]
    };
    set_all(&socket, options)?;
    Ok(socket)
}

/// Sends what is for a multicast group out of the interface that has `address`, instead of where routes lead.
fn set_multicast_interface(socket: &Socket, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(address) => socket.set_multicast_if_v4(&address),
        IpAddr::V6(_) => socket.set_multicast_if_v6(index_of(address)?),
    }
}

/// Asks the kernel to join datagrams of a flow, to tell what the IP header said, and what it dropped.
pub(super) fn set_receive_options(socket: &Socket, address: IpAddr) -> io::Result<()> {
    let options: &[(c_int, c_int, c_int)] = if address.is_ipv4() {
        &[(libc::IPPROTO_IP, libc::IP_RECVTOS, 1), (libc::IPPROTO_IP, libc::IP_RECVTTL, 1)]
    } else {
        &[
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
            // rdma_rxe leaves the UDP checksum out on IPv6 as well; the ICRC protects the datagram.
            (libc::SOL_UDP, sys::UDP_NO_CHECK6_RX, 1),
        ]
    };
    set_all(socket, options)?;
    // Both only make things cheaper or better known: a kernel (or an emulation of one) may lack them.
    let _ = sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
    let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    Ok(())
}

fn set_all(socket: &Socket, options: &[(c_int, c_int, c_int)]) -> io::Result<()> {
    options.iter().try_for_each(|&(level, name, value)| sys::set_option(socket.as_fd(), level, name, value))
}

pub(in crate::port) fn socket_address(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V4(_) => SocketAddr::new(address, port),
        IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, scope).into(),
    }
}

/// What it means that port 4791 of `address` cannot be had, and what to do.
pub(in crate::port) fn explain(address: IpAddr, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process that speaks RoCE v2 or the kernel module rdma_rxe holds it; end that process, \
             unload the module (rmmod rdma_rxe), or use another address"
        }
        io::ErrorKind::AddrNotAvailable => "no interface of this host has the address (see `ip address`)",
        _ => "the kernel refused the address",
    };
    io::Error::new(error.kind(), format!("UDP port {UDP_PORT} of {address}: {error}: {advice}"))
}
