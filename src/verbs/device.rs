//! The devices there are: one for each network interface with an address, and what links make of them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::limits::{DeviceAttributes, PortAttributes};
use super::links::{self, Link};
use super::open::Backend;
use crate::error::{Error, Result};
use crate::port::{Interface, interfaces};
use crate::qp::Mtu;
use crate::wire::Gid;

/// Whether a device can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// When its interface is down, as configured.
    Down,
    /// When its interface is up, but the link does not work: no cable, no peer.
    NoCarrier,
    /// When its interface is up and the link works.
    Active,
}

impl LinkState {
    pub(super) fn of(interface: &Interface) -> Self {
        match (interface.up, interface.running) {
            (false, _) => Self::Down,
            (true, false) => Self::NoCarrier,
            (true, true) => Self::Active,
        }
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "DOWN",
            Self::NoCarrier => "NO-CARRIER",
            Self::Active => "ACTIVE",
        })
    }
}

/// A device: a network interface as RDMA programs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// `uroce_` and the interface's name, or what [`links::add`] calls it.
    pub name: String,
    /// The network interface.
    pub interface: String,
    /// The interface's index (`if_nametoindex(3)`).
    pub interface_index: u32,
    /// Whether it is the loopback interface, on which each context has an address of its own.
    pub loopback: bool,
    /// Whether it can send.
    pub state: LinkState,
    /// Its GIDs, by index: a link-local IPv6 address first, then the others as the interface has them.
    pub gids: Vec<Gid>,
    /// The largest path MTU.
    pub mtu: Mtu,
    /// Bytes that the link carries in a packet, IP header included.
    pub link_mtu: u32,
    /// The GUID of the node: EUI-64 of the MAC address; of an interface without one, as loopback is, a locally administered one
    /// made of the names of host and interface.
    pub guid: u64,
    /// How it reaches the network, unless a program asks for something else.
    pub backend: Backend,
}

impl Device {
    fn new(interface: &Interface, link: Option<&Link>) -> Self {
        Self {
            name: link.map_or_else(|| format!("uroce_{}", interface.name), |link| link.name.clone()),
            interface: interface.name.clone(),
            interface_index: interface.index,
            loopback: interface.loopback,
            state: LinkState::of(interface),
            gids: Self::addresses_of(interface).into_iter().map(Gid::from).collect(),
            mtu: link.and_then(Link::path_mtu).unwrap_or(Mtu::Mtu4096).min(Mtu::of_link(interface.mtu)),
            link_mtu: interface.mtu,
            guid: guid(interface.mac.filter(|mac| *mac != [0; 6]).unwrap_or_else(|| stand_in(&interface.name))),
            backend: link.map_or(Backend::Udp, |link| link.backend),
        }
    }

    /// The addresses of a device on this interface, in the order of their GIDs: link-local ones first.
    pub(super) fn addresses_of(interface: &Interface) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = interface.addresses.iter().map(|own| own.address).collect();
        if interface.loopback {
            // ::1 is one address that contexts could not share.
            addresses = vec![Ipv4Addr::LOCALHOST.into()];
        }
        // A stable sort: the others keep their order.
        addresses.sort_by_key(|address| !Gid::from(*address).is_link_local());
        addresses
    }

    /// What it can do (`ibv_query_device(3)`); no need to open it.
    #[must_use]
    pub fn attributes(&self) -> DeviceAttributes {
        DeviceAttributes::of(self)
    }

    /// The state and limits of its one port (`ibv_query_port(3)`); no need to open it.
    #[must_use]
    pub fn port_attributes(&self) -> PortAttributes {
        PortAttributes::of(self, self.gids.len())
    }

    /// The addresses that the GIDs stand for.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.gids.iter().map(|gid| gid.address()).collect()
    }
}

/// The devices of this host (`ibv_get_device_list(3)`): one for each interface that has an address. An interface with a
/// link has the link's name only. Loopback comes last: many programs take the first device, and want one that leads somewhere.
///
/// ```
/// for device in uroce::verbs::devices()? {
///     println!("{} on {}: {}", device.name, device.interface, device.state);
/// }
/// # Ok::<(), uroce::error::Error>(())
/// ```
///
/// # Errors
/// [`Error::System`] when the interfaces or the file of links cannot be read, [`Error::Invalid`] when that file is
/// malformed.
pub fn devices() -> Result<Vec<Device>> {
    let interfaces = interfaces().map_err(|error| Error::system("listing the network interfaces", error))?;
    let links = links::list()?;
    let mut devices: Vec<_> = interfaces.iter().flat_map(|interface| devices_of(interface, &links)).collect();
    // A stable sort: the others keep their order.
    devices.sort_by_key(|device| device.loopback);
    Ok(devices)
}

/// The devices on one interface: those of its links, or the one of its own.
fn devices_of(interface: &Interface, links: &[Link]) -> Vec<Device> {
    let linked: Vec<_> = links.iter().filter(|link| link.netdev == interface.name).collect();
    if !linked.is_empty() {
        return linked.into_iter().map(|link| Device::new(interface, Some(link))).collect();
    }
    let own = Device::new(interface, None);
    if own.gids.is_empty() { Vec::new() } else { vec![own] }
}

/// The device of this name.
///
/// # Errors
/// [`Error::Missing`] names those that there are.
pub(super) fn find(name: &str) -> Result<Device> {
    let mut devices = devices()?;
    match devices.iter().position(|device| device.name == name) {
        Some(index) => Ok(devices.swap_remove(index)),
        None => {
            let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
            let name = format!("{name} (there are: {})", names.join(", "));
            Err(Error::Missing { what: "device", name })
        }
    }
}

/// EUI-64 of a MAC address, as IPv6 interface identifiers have it (RFC 4291, appendix A).
fn guid([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// A MAC address for an interface that has none: locally administered, of no group, and the same each time. Programs take a GUID
/// of zero for a device that does not work.
fn stand_in(interface: &str) -> [u8; 6] {
    let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    // FNV-1a: all that is wanted is that different names make different numbers.
    let bytes = host.iter().chain(interface.as_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let [a, b, c, d, e, f, ..] = hash.to_be_bytes();
    [a & 0xfc | 2, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::InterfaceAddress;

    fn interface() -> Interface {
        let address = |text: &str| InterfaceAddress { address: text.parse().unwrap(), prefix_length: 64 };
        Interface {
            name: "eth0".into(),
            index: 2,
            addresses: ["192.0.2.1", "2001:db8::1", "fe80::1"].map(address).into(),
            mtu: 1500,
            up: true,
            running: true,
            loopback: false,
            mac: Some([0x02, 0, 0x5e, 0x10, 0, 1]),
        }
    }

    #[test]
    fn gids_begin_with_the_link_local_one() {
        let device = Device::new(&interface(), None);
        let gids: Vec<_> = device.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(gids, ["fe80::1", "192.0.2.1", "2001:db8::1"]);
        assert_eq!((device.name.as_str(), device.mtu), ("uroce_eth0", Mtu::Mtu1024));
        assert_eq!(device.guid, 0x0000_5eff_fe10_0001);
    }

    #[test]
    fn an_interface_without_a_mac_address_has_a_guid_of_its_own() {
        let guid = |name: &str, mac| Device::new(&Interface { name: name.into(), mac, ..interface() }, None).guid;
        let lo = guid("lo", Some([0; 6]));
        assert_eq!((lo, lo), (guid("lo", None), guid("lo", Some([0; 6]))));
        assert_ne!(lo, guid("tun0", None));
        // The bit for universal addresses is clear, and so is that of groups.
        assert_eq!((lo >> 56 & 3, lo >> 24 & 0xffff), (0, 0xfffe));
    }

    #[test]
    fn loopback_comes_last() {
        let loopback: Vec<_> = devices().unwrap().iter().map(|device| device.loopback).collect();
        assert!(loopback.is_sorted() && loopback.last() == Some(&true), "{loopback:?}");
    }

    #[test]
    fn a_link_replaces_the_device() {
        let link = |name: &str, netdev: &str| Link { mtu: Some(512), ..Link::new(name, netdev) };
        let links = [link("rxe_0", "eth0"), link("rxe_1", "eth1"), link("rxe_2", "eth0")];
        let devices = devices_of(&interface(), &links);
        let names: Vec<_> = devices.iter().map(|device| (device.name.as_str(), device.mtu)).collect();
        assert_eq!(names, [("rxe_0", Mtu::Mtu512), ("rxe_2", Mtu::Mtu512)]);
    }

    #[test]
    fn an_unknown_device_names_those_there_are() {
        let error = find("uroce_nonesuch").unwrap_err();
        assert_eq!(error.errno(), 2);
        assert!(error.to_string().starts_with("no such device: uroce_nonesuch (there are: "), "{error}");
    }
}
