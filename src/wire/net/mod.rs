//! What lies under a RoCE v2 packet: Ethernet, IPv4 or IPv6, and UDP, as far as RoCE v2 needs them.
//!
//! For ports that see whole frames, and for dissectors. Checksums are not verified here: the ICRC covers more.

mod ethernet;
mod ip;
mod udp;

pub use ethernet::{Ethernet, VlanTag};
pub(super) use ip::PROTOCOL_UDP;
pub use ip::{Ip, Ipv4, Ipv6};
pub use udp::Udp;

use super::bytes::take_mut;
use super::icrc::{self, IpPseudo};
use super::{Bth, ICRC_LEN, UDP_PORT, WireError};

/// A RoCE v2 packet with everything under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The Ethernet header, where the frame began with one.
    pub ethernet: Option<Ethernet>,
    /// The IP header.
    pub ip: Ip<'a>,
    /// The UDP header.
    pub udp: Udp,
    /// From the BTH to the end of the pad: what [`Packet::parse`](super::Packet::parse) takes.
    pub datagram: &'a [u8],
    /// The ICRC as it came, not verified.
    pub icrc: u32,
}

impl<'a> Frame<'a> {
    /// Takes an Ethernet frame apart; what Ethernet pads behind the IP packet is cut off.
    ///
    /// # Errors
    /// It is not RoCE v2, or its lengths are wrong.
    pub fn parse_ethernet(frame: &'a [u8]) -> Result<Self, WireError> {
        let (ethernet, packet) = Ethernet::split(frame)?;
        if !matches!(ethernet.ethertype, Ethernet::IPV4 | Ethernet::IPV6) {
            return Err(WireError::EtherType(ethernet.ethertype));
        }
        let frame = Self::parse_ip(packet)?;
        if frame.ip.ethertype() != ethernet.ethertype {
            return Err(WireError::IpVersion(frame.ip.version()));
        }
        Ok(Self { ethernet: Some(ethernet), ..frame })
    }

    /// Takes an IP packet apart; bytes behind it are cut off.
    ///
    /// # Errors
    /// It is not RoCE v2, or its lengths are wrong.
    pub fn parse_ip(packet: &'a [u8]) -> Result<Self, WireError> {
        let (ip, packet) = Ip::split(packet)?;
        let (udp, body) = Udp::split(packet)?;
        if udp.destination_port != UDP_PORT {
            return Err(WireError::UdpPort(udp.destination_port));
        }
        let (datagram, icrc) = body
            .split_last_chunk()
            .filter(|(datagram, _)| datagram.len() >= Bth::LEN)
            .ok_or(WireError::TooShort { needed: Bth::LEN + ICRC_LEN, found: body.len() })?;
        Ok(Self { ethernet: None, ip, udp, datagram, icrc: u32::from_le_bytes(*icrc) })
    }

    /// Writes all of it, Ethernet (where there is a header) to ICRC, with lengths and checksums as the fields say,
    /// and returns how many bytes that took; `None` when `room` is too short.
    pub fn emit(&self, room: &mut [u8]) -> Option<usize> {
        let mut length = 0;
        if let Some(ethernet) = &self.ethernet {
            length += ethernet.emit(room)?;
        }
        length += self.ip.emit(room.get_mut(length..)?)?;
        let mut rest = room.get_mut(length..)?;
        self.udp.emit(take_mut(&mut rest)?);
        let (datagram, mut rest) = rest.split_at_mut_checked(self.datagram.len())?;
        datagram.copy_from_slice(self.datagram);
        *take_mut(&mut rest)? = self.icrc.to_le_bytes();
        Some(length + Udp::LEN + self.datagram.len() + ICRC_LEN)
    }

    /// What the ICRC should be; `None` when there are IPv4 options, for which no sender of RoCE v2 has a
    /// rule (`rxe_icrc_hdr` of the kernel assumes 20 bytes).
    #[must_use]
    pub fn computed_icrc(&self) -> Option<u32> {
        let ip = match self.ip {
            Ip::V4(ip) if !ip.options.is_empty() => return None,
            Ip::V4(ip) => IpPseudo::V4(ip.pseudo()),
            Ip::V6(ip) => IpPseudo::V6(ip.pseudo()),
        };
        Some(icrc::compute(&ip, self.udp.source_port, self.datagram))
    }

    /// Whether the ICRC is right.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.computed_icrc() == Some(self.icrc)
    }
}

#[cfg(test)]
mod tests;
