//! Sockets that are members of multicast groups.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::interface::interfaces;

/// A nonblocking UDP socket, not bound, that has the kernel join `group` on the interfaces of `addresses`: the network is told
/// (IGMP, MLD), the interface takes the group's frames, and the kernel what is in them. It ends with the socket.
///
/// # Errors
/// None of `addresses` is of the group's family, or the kernel refused; the text says which.
pub(super) fn join(group: IpAddr, addresses: &[IpAddr]) -> io::Result<Socket> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("multicast group {group}: {error}"));
    let all = interfaces()?;
    let of_family = addresses.iter().filter(|address| address.is_ipv4() == group.is_ipv4());
    let owner = |address: &IpAddr| all.iter().find(|interface| interface.has(*address)).map(|owner| owner.index);
    let joined: BTreeSet<u32> = of_family.filter_map(owner).collect();
    if joined.is_empty() {
        let text = "no local address is of the group's family";
        return Err(named(io::Error::new(io::ErrorKind::AddrNotAvailable, text)));
    }
    let domain = Domain::for_address((group, 0).into());
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    for index in joined {
        match group {
            IpAddr::V4(group) => socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index)),
            IpAddr::V6(group) => socket.join_multicast_v6(&group, index),
        }
        .map_err(named)?;
    }
    Ok(socket)
}
