//! What two programs tell each other to connect, and how they want the connection to be.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::memory::Access;
use crate::qp::{AddressVector, Attributes, Mtu, QpType, State};
use crate::wire::{Gid, Psn, Qpn};

/// A queue pair as its peer must know it. Programs exchange it by any means, a TCP connection for instance; as text it is
/// the address, the number and the PSN with blanks between.
///
/// ```
/// use uroce::verbs::Peer;
///
/// let peer: Peer = "127.4.5.6 0x010011 0x00ab12".parse()?;
/// assert_eq!(peer.to_string(), "127.4.5.6 0x010011 0x00ab12");
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it is.
    pub address: IpAddr,
    /// Its number.
    pub qpn: Qpn,
    /// The first PSN that it sends.
    pub psn: Psn,
}

impl Peer {
    /// The same queue pair at another address of its device.
    #[must_use]
    pub fn at(self, address: IpAddr) -> Self {
        Self { address, ..self }
    }

    /// Its address as a GID.
    #[must_use]
    pub fn gid(&self) -> Gid {
        self.address.into()
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#08x} {:#08x}", self.address, self.qpn.value(), self.psn.value())
    }
}

impl FromStr for Peer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::invalid("peer", format!("{text:?}; expected an address, a queue pair number and a PSN"));
        let number = |word: &str| {
            let number = word.strip_prefix("0x").map_or_else(|| word.parse(), |hex| u32::from_str_radix(hex, 16));
            number.ok().filter(|number| *number < Psn::SPACE).ok_or_else(bad)
        };
        let mut words = text.split_whitespace();
        let mut word = || words.next().ok_or_else(bad);
        let address = word()?.parse().map_err(|_| bad())?;
        let (qpn, psn) = (Qpn::new(number(word()?)?), Psn::new(number(word()?)?));
        if words.next().is_some() { Err(bad()) } else { Ok(Self { address, qpn, psn }) }
    }
}

/// A PSN to start from, as the system's random numbers have it: a packet of an earlier connection does not fit by chance.
///
/// # Panics
/// When the system has no random numbers.
#[must_use]
pub fn random_psn() -> Psn {
    Psn::new(u32::from_ne_bytes(random()))
}

/// Random bytes from the system.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("getrandom(2): {error}"),
        }
    }
    bytes
}

/// How a connection is to be. The defaults suit most; both ends must agree on the path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// What the peer may do: remote read, write and atomic by default.
    pub access: Access,
    /// Payload bytes of a full packet; `None`: the device's largest.
    pub path_mtu: Option<Mtu>,
    /// Which GID packets come from; `None`: the first of the peer's family.
    pub source_gid_index: Option<u8>,
    /// IPv4 time to live, IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv4 type of service, IPv6 traffic class.
    pub traffic_class: u8,
    /// Acknowledge timeout: 4.096 µs × 2^n; 0 is never. 14, 67 ms, by default.
    pub timeout: u8,
    /// Retries without an answer, 0 to 7.
    pub retry_count: u8,
    /// Retries while the peer has no receive request, 0 to 6; 7, the default, is for ever.
    pub rnr_retry: u8,
    /// How long the peer waits when there is no receive request: a code of IBTA table 45. 12, 0.64 ms, by default.
    pub min_rnr_timer: u8,
    /// READs and ATOMICs of ours that may be outstanding.
    pub max_rd_atomic: u8,
    /// READs and ATOMICs of the peer that may be outstanding; at least its `max_rd_atomic`.
    pub max_dest_rd_atomic: u8,
    /// The Q_Key that datagrams must carry (UD only); 0x11111111 by default, as the InfiniBand tools have it.
    pub qkey: u32,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            access: Access::REMOTE,
            path_mtu: None,
            source_gid_index: None,
            hop_limit: 64,
            traffic_class: 0,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            qkey: 0x1111_1111,
        }
    }
}

impl ConnectOptions {
    /// The attributes from RESET to INIT.
    pub(super) fn init(&self, qp_type: QpType) -> Attributes {
        let is_datagram = qp_type == QpType::Ud;
        Attributes {
            state: Some(State::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: (!is_datagram).then_some(self.access),
            qkey: is_datagram.then_some(self.qkey),
            ..Attributes::default()
        }
    }

    /// The attributes from INIT to RTR, on a device with these addresses and this largest path MTU.
    pub(super) fn ready_to_receive(&self, peer: &Peer, addresses: &[IpAddr], mtu: Mtu) -> Result<Attributes> {
        let source_gid_index = match self.source_gid_index {
            Some(index) => index,
            None => source_gid_index(peer.address, addresses)?,
        };
        Ok(Attributes {
            state: Some(State::ReadyToReceive),
            address: Some(AddressVector {
                destination: peer.address,
                source_gid_index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
            }),
            path_mtu: Some(self.path_mtu.unwrap_or(mtu)),
            destination: Some(peer.qpn),
            receive_psn: Some(peer.psn),
            max_dest_rd_atomic: Some(self.max_dest_rd_atomic),
            min_rnr_timer: Some(self.min_rnr_timer),
            ..Attributes::default()
        })
    }

    /// The attributes from RTR to RTS.
    pub(super) fn ready_to_send(&self, psn: Psn) -> Attributes {
        Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(psn),
            timeout: Some(self.timeout),
            retry_count: Some(self.retry_count),
            rnr_retry: Some(self.rnr_retry),
            max_rd_atomic: Some(self.max_rd_atomic),
            ..Attributes::default()
        }
    }
}

/// The first of `addresses` that packets to `peer` can come from: of its family, and link-local exactly when it is.
fn source_gid_index(peer: IpAddr, addresses: &[IpAddr]) -> Result<u8> {
    let link_local = |address: &IpAddr| Gid::from(*address).is_link_local();
    let fits = |address: &IpAddr| {
        !address.is_unspecified() && address.is_ipv4() == peer.is_ipv4() && link_local(address) == link_local(&peer)
    };
    let index = addresses.iter().position(fits).and_then(|index| u8::try_from(index).ok());
    index.ok_or_else(|| {
        let own = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Error::invalid("peer", format!("{peer}; none of the device's addresses can reach it: {own}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_read_as_it_is_written() {
        for text in ["10.1.2.3 0x010011 0xfffffe", "fe80::1 0x000011 0x000000"] {
            assert_eq!(text.parse::<Peer>().unwrap().to_string(), text);
        }
        for text in
            ["", "10.1.2.3", "10.1.2.3 17", "10.1.2.3 17 0x1000000", "10.1.2.3 17 1 1", "host 17 1", "::1 +0xx 1"]
        {
            let error = text.parse::<Peer>().unwrap_err();
            assert_eq!(error.errno(), 22, "{text}");
        }
    }

    #[test]
    fn the_source_is_of_the_peers_kind() {
        let addresses: Vec<IpAddr> = ["fe80::2", "192.0.2.2", "2001:db8::2"].map(|text| text.parse().unwrap()).into();
        for (peer, index) in [("fe80::1", 0), ("192.0.2.1", 1), ("2001:db8::1", 2)] {
            assert_eq!(source_gid_index(peer.parse().unwrap(), &addresses).unwrap(), index, "{peer}");
        }
        let error = source_gid_index("::1".parse().unwrap(), &addresses[..2]).unwrap_err();
        assert!(error.to_string().contains("fe80::2, 192.0.2.2"), "{error}");
    }

    #[test]
    fn random_psns_differ() {
        let psns: Vec<u32> = (0..8).map(|_| random_psn().value()).collect();
        assert!(psns.iter().any(|psn| *psn != psns[0]), "{psns:?}");
    }
}
