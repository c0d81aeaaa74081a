//! The packet socket.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use smallvec::SmallVec;
use socket2::{Domain, Protocol, Socket, Type};

use super::filter::roce;
use super::headers::Headers;
use super::neighbours::{HopIndex, Mac, Neighbours};
use crate::port::interface::Interface;
use crate::port::message::Outgoing;
use crate::port::queue::{Message, Sender, Way};
use crate::port::slots::Slot;
use crate::port::sys::{self, SEND_BATCH};
use crate::wire::{Flow, UDP_PORT};

/// Bytes of buffer asked for, each way.
const SOCKET_BUFFER: libc::c_int = 16 << 20;

/// A packet socket on one interface, and who is reached through it.
pub(super) struct Link {
    pub(super) socket: Socket,
    pub(super) neighbours: Neighbours,
    pub(super) addresses: Vec<IpAddr>,
    mac: Mac,
    segmentation: bool,
}

impl Link {
    /// Receives what is for `slot`, or all that comes.
    pub(super) fn open(interface: &Interface, addresses: &[IpAddr], slot: Option<u8>) -> io::Result<Self> {
        // Protocol 0: nothing is received before the filter is in place and the socket bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), Some(Protocol::from(0)))
            .map_err(|error| explain(&interface.name, &error))?;
        let option = |name, value| sys::set_option(socket.as_fd(), libc::SOL_PACKET, name, value);
        option(libc::PACKET_IGNORE_OUTGOING, 1)?;
        option(sys::PACKET_VNET_HDR, 1)?;
        sys::grow_buffers(socket.as_fd(), SOCKET_BUFFER);
        sys::attach_filter(socket.as_fd(), &roce(slot))?;
        sys::bind_packet(socket.as_fd(), interface.index)?;
        Ok(Self {
            socket,
            neighbours: Neighbours::new(interface.index, interface.loopback)?,
            addresses: addresses.to_vec(),
            mac: interface.mac.unwrap_or_default(),
            segmentation: true,
        })
    }
}

impl Sender<HopIndex> for Link {
    const BATCH: usize = SEND_BATCH;

    fn way(&mut self, flow: &Flow) -> Option<Way<HopIndex>> {
        if !self.addresses.contains(&flow.source) {
            return None;
        }
        let name = self.neighbours.hop(flow.source, flow.destination)?;
        Some(Way { name, source_port: flow.source_port, segmentation: self.segmentation })
    }

    fn send(&mut self, hop: HopIndex, messages: &[Message<'_>]) -> io::Result<usize> {
        let destination = self.neighbours.resolve(hop)?;
        let headers: SmallVec<[Headers; SEND_BATCH]> =
            messages.iter().map_while(|message| Headers::new(message, self.mac, destination)).collect();
        let outgoing: SmallVec<[Outgoing<'_>; SEND_BATCH]> = headers
            .iter()
            .zip(messages)
            .map(|(headers, message)| Outgoing {
                header: headers.bytes(),
                bytes: message.bytes,
                destination: None,
                segment: None,
                traffic_class: None,
                hop_limit: None,
            })
            .collect();
        if outgoing.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        sys::send_batch(self.socket.as_fd(), &outgoing)
    }

    fn no_segmentation(&mut self, _: HopIndex) {
        self.segmentation = false;
    }
}

/// Takes UDP port 4791 of `address`, without ever reading it: else the kernel, which sees each packet as well, answers the
/// peer that the port is unreachable. With a slot, the port is shared with those of other slots.
pub(super) fn hold_port(address: IpAddr, scope: u32, slot: Option<&Slot>) -> io::Result<Socket> {
    let socket = match slot {
        Some(slot) => slot.socket(address)?,
        None => Socket::new(Domain::for_address((address, 0).into()), Type::DGRAM, Some(Protocol::UDP))?,
    };
    sys::attach_filter(socket.as_fd(), &[sys::DROP_ALL])?;
    socket.set_recv_buffer_size(0)?;
    // Spares the kernel the cutting of super-packets that it throws away then.
    let _ = sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
    if slot.is_some() {
        return Ok(socket);
    }
    let local = match address {
        IpAddr::V6(v6) => {
            socket.set_only_v6(true)?;
            SocketAddr::from(SocketAddrV6::new(v6, UDP_PORT, 0, scope))
        }
        IpAddr::V4(_) => (address, UDP_PORT).into(),
    };
    socket.bind(&local.into()).map_err(|error| crate::port::udp::explain(address, &error))?;
    Ok(socket)
}

fn explain(interface: &str, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "it takes CAP_NET_RAW: run as root, or give the program the capability \
             (setcap cap_net_raw+ep PROGRAM), or use the udp port, which needs none"
        }
        _ => "the kernel has no packet sockets, or forbids them here; use the udp port",
    };
    io::Error::new(error.kind(), format!("packet socket on {interface}: {error}: {advice}"))
}
