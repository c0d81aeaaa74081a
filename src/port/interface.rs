//! The host's network interfaces.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};

use super::netlink::Netlink;

/// A network interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its index: the scope of link-local IPv6 addresses.
    pub index: u32,
    /// The largest IP packet that it sends, in bytes.
    pub mtu: u32,
    /// Its Ethernet address; `None` for an interface that is not Ethernet. All zero on loopback.
    pub mac: Option<[u8; 6]>,
    /// Whether it is configured to be up.
    pub up: bool,
    /// Whether its link works as well: a cable is plugged in, a peer is there.
    pub running: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// Its addresses, in the kernel's order. IPv6 addresses that may not be used yet (tentative) or at all (duplicate) are left out.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of an [`Interface`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of it that name the network.
    pub prefix_length: u8,
}

impl Interface {
    /// Whether this host takes what is sent to `address` on this interface. On loopback that is all of 127.0.0.0/8.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let whole_net = self.loopback && matches!(address, IpAddr::V4(v4) if v4.is_loopback());
        whole_net || self.addresses.iter().any(|own| own.address == address)
    }
}

/// The network interfaces of this host (of this network namespace), by index.
///
/// From rtnetlink, which alone tells all of it in one place and for the namespace that the thread is in: `getifaddrs` knows no
/// MTU, and /sys shows the namespace in which it was mounted.
///
/// # Errors
/// Netlink is not to be had (a sandbox forbids it).
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut netlink = Netlink::open()?;
    let links = netlink.ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), true)?;
    let mut interfaces: Vec<Interface> = links.into_iter().filter_map(interface).collect();
    let addresses = netlink.ask(RouteNetlinkMessage::GetAddress(AddressMessage::default()), true)?;
    for answer in addresses {
        let RouteNetlinkMessage::NewAddress(message) = answer else {
            continue;
        };
        let owner = interfaces.iter_mut().find(|interface| interface.index == message.header.index);
        if let (Some(owner), Some(address)) = (owner, address(&message)) {
            owner.addresses.push(address);
        }
    }
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

/// Tells when interfaces or their addresses change: its descriptor becomes readable.
pub struct InterfaceChanges(Netlink);

impl InterfaceChanges {
    /// Watches this network namespace from now on.
    ///
    /// # Errors
    /// Netlink is not to be had.
    pub fn watch() -> io::Result<Self> {
        // RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR and RTNLGRP_IPV6_IFADDR of <linux/rtnetlink.h>.
        Netlink::subscribe(&[1, 5, 9]).map(Self)
    }

    /// Takes what has come, so that the descriptor waits for the next change. What changed is for [`interfaces`] to say: of
    /// many changes at once some may be lost.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn take(&mut self) -> io::Result<()> {
        match self.0.notifications() {
            Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => Err(error),
            _ => Ok(()),
        }
    }
}

impl AsRawFd for InterfaceChanges {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The index of the interface to which a link-local IPv6 address belongs, 0 for every other address: its scope.
pub(super) fn scope_of(address: IpAddr) -> io::Result<u32> {
    if !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        return Ok(0);
    }
    index_of(address)
}

/// The index of the interface that has `address`, 0 when none has.
pub(super) fn index_of(address: IpAddr) -> io::Result<u32> {
    let owner = interfaces()?.into_iter().find(|interface| interface.has(address));
    Ok(owner.map_or(0, |interface| interface.index))
}

fn interface(answer: RouteNetlinkMessage) -> Option<Interface> {
    let RouteNetlinkMessage::NewLink(message) = answer else {
        return None;
    };
    let flags = message.header.flags;
    let mut interface = Interface {
        name: String::new(),
        index: message.header.index,
        mtu: 0,
        mac: None,
        up: flags.contains(LinkFlags::Up),
        running: flags.contains(LinkFlags::Running),
        loopback: flags.contains(LinkFlags::Loopback),
        addresses: Vec::new(),
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
            LinkAttribute::Address(address) => interface.mac = address.try_into().ok(),
            _ => {}
        }
    }
    Some(interface)
}

fn address(message: &AddressMessage) -> Option<InterfaceAddress> {
    let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    let optimistic = message.header.flags.contains(AddressHeaderFlags::Optimistic);
    if message.header.flags.intersects(unusable) && !optimistic {
        return None;
    }
    // On a point-to-point link `Address` is the peer's, and `Local` this host's.
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let other = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    Some(InterfaceAddress { address: local.or(other)?, prefix_length: message.header.prefix_len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there() {
        let interfaces = interfaces().expect("netlink");
        let loopback = interfaces.iter().find(|interface| interface.loopback).expect("a loopback interface");
        assert_eq!(loopback.name, "lo");
        assert_eq!(loopback.mac, Some([0; 6]));
        assert!(loopback.index > 0 && loopback.mtu >= 1280);
        assert!(loopback.has("127.79.0.1".parse().expect("an address")));
        assert!(!loopback.has("192.0.2.1".parse().expect("an address")));
        let localhost = InterfaceAddress { address: "127.0.0.1".parse().expect("an address"), prefix_length: 8 };
        assert!(loopback.addresses.contains(&localhost), "{loopback:?}");
    }

    #[test]
    fn only_link_local_addresses_have_a_scope() {
        for address in ["127.0.0.1", "::1", "fd00::1", "fe80::dead:beef"] {
            assert_eq!(scope_of(address.parse().expect("an address")).expect("netlink"), 0);
        }
        for interface in interfaces().expect("netlink") {
            for own in &interface.addresses {
                let scope = scope_of(own.address).expect("netlink");
                assert!(scope == 0 || scope == interface.index);
            }
        }
    }
}
