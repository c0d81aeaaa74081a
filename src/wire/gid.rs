//! Global identifiers: 16 bytes that name a device's address.

use core::fmt;
use core::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// A global identifier of RoCE v2 (IBTA A17.4.5.2): an IPv6 address, or an IPv4 address a.b.c.d as `::ffff:a.b.c.d`.
///
/// It is written as the InfiniBand tools write it, eight groups of four digits, and read back from that, from any
/// form of an IPv6 address, and from an IPv4 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(
    /// The bytes, first one first.
    pub [u8; 16],
);

impl Gid {
    /// The IP address that it stands for.
    #[must_use]
    pub fn address(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    /// Whether it is all zeros: an empty place in a table of GIDs.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Whether it is an IPv6 address valid on one link only (fe80::/10).
    #[must_use]
    pub fn is_link_local(self) -> bool {
        Ipv6Addr::from(self.0).is_unicast_link_local()
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Self(address.octets()),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in Ipv6Addr::from(self.0).segments().into_iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{group:04x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Gid {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<IpAddr>().map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_mapped_and_comes_back() {
        let gid = Gid::from(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a00:0001");
        assert_eq!(gid.address(), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        for text in [&gid.to_string()[..], "10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(text.parse::<Gid>().unwrap(), gid, "{text}");
        }
        assert!("10.0.0".parse::<Gid>().is_err());
    }

    #[test]
    fn a_link_local_address_is_known_as_one() {
        let gid: Gid = "fe80::1".parse().unwrap();
        assert!(gid.is_link_local() && !gid.is_zero());
        assert_eq!(gid.to_string(), "fe80:0000:0000:0000:0000:0000:0000:0001");
        assert!(!Gid::from(Ipv4Addr::LOCALHOST).is_link_local());
    }
}
