//! Temporary: replaced by the port's own.
use std::net::{IpAddr, Ipv4Addr};

/// A network interface.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) mtu: u32,
    pub(crate) up: bool,
    pub(crate) loopback: bool,
    pub(crate) mac: Option<[u8; 6]>,
}

pub(crate) fn interfaces() -> std::io::Result<Vec<Interface>> {
    Ok(vec![Interface {
        name: "lo".into(),
        index: 1,
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        mtu: 65536,
        up: true,
        loopback: true,
        mac: Some([0; 6]),
    }])
}
