//! From an address vector to the flow of packets.

use core::net::IpAddr;

use crate::error::{Error, Result};
use crate::wire::{Flow, Qpn};
use crate::work::AddressVector;

/// The usual hop limit, for address vectors that leave it at 0.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// The address of the GID that packets come from.
fn source(address: &AddressVector, gids: &[IpAddr]) -> Result<IpAddr> {
    let index = address.source_gid_index;
    let gid = gids.get(usize::from(index)).copied().filter(|gid| !gid.is_unspecified());
    gid.ok_or_else(|| Error::invalid("sgid_index", format!("there is no GID {index}")))
}

/// Where the packets of a connection go, to the queue pair `peer`.
pub(crate) fn connection(qpn: Qpn, peer: Qpn, address: &AddressVector, gids: &[IpAddr]) -> Result<Flow> {
    if address.destination.is_multicast() {
        return Err(Error::invalid("dgid", format!("{} is a group; only UD reaches groups", address.destination)));
    }
    flow(qpn, peer, address, gids)
}

/// Where a datagram goes, to the queue pair `peer`.
pub(crate) fn datagram(qpn: Qpn, peer: Qpn, address: &AddressVector, gids: &[IpAddr]) -> Result<Flow> {
    flow(qpn, peer, address, gids)
}

/// The UDP source port is one for each queue pair, for path entropy, and each slot of the peer: what is joined on the way
/// from datagrams of one port can only be taken by one process.
fn flow(qpn: Qpn, peer: Qpn, address: &AddressVector, gids: &[IpAddr]) -> Result<Flow> {
    let source = source(address, gids)?;
    if source.is_ipv4() != address.destination.is_ipv4() {
        let reason = format!("{} and {source} are of different address families", address.destination);
        return Err(Error::invalid("dgid", reason));
    }
    if address.destination.is_unspecified() {
        return Err(Error::invalid("dgid", format!("{} is not the address of a peer", address.destination)));
    }
    // Fibonacci hashing: neighbouring numbers spread over the ports 0xc000 to 0xffff.
    let way = qpn.value() ^ (peer.value() >> 16) << 24;
    let hash = (way.wrapping_mul(0x9e37_79b9) >> 18) as u16;
    Ok(Flow {
        source,
        destination: address.destination,
        source_port: 0xc000 | hash & 0x3fff,
        traffic_class: address.traffic_class,
        hop_limit: if address.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { address.hop_limit },
    })
}
