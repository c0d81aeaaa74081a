//! IPv4 and IPv6 headers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Ethernet;
use crate::wire::WireError;
use crate::wire::bytes::{Fields, take_mut};
use crate::wire::icrc::{Ipv4Pseudo, Ipv6Pseudo};

/// The IP protocol number of UDP.
pub(crate) const PROTOCOL_UDP: u8 = 17;

/// The IP header of a packet that carries UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip<'a> {
    /// IPv4, perhaps with options.
    V4(Ipv4<'a>),
    /// IPv6 without extension headers.
    V6(Ipv6),
}

/// An IPv4 header (RFC 791) of an unfragmented UDP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4<'a> {
    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    pub type_of_service: u8,
    /// Bytes of this header and all behind it.
    pub total_length: u16,
    /// The ID field, which the ICRC covers.
    pub identification: u16,
    /// The DF flag.
    pub dont_fragment: bool,
    /// Time to live.
    pub time_to_live: u8,
    /// Header checksum, as it came or shall be written: see [`computed_checksum`](Self::computed_checksum).
    pub checksum: u16,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Options: at most 40 bytes, a multiple of 4. Empty in what RoCE v2 senders make.
    pub options: &'a [u8],
}

/// An IPv6 header (RFC 8200) with UDP behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes behind this header.
    pub payload_length: u16,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl<'a> Ip<'a> {
    /// Splits an IP packet into its header and what it carries, as long as the header says.
    ///
    /// # Errors
    /// It is not a whole UDP packet.
    pub fn split(packet: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        let version = packet.first().map_or(0, |byte| byte >> 4);
        match version {
            4 => Ipv4::split(packet).map(|(header, body)| (Self::V4(header), body)),
            6 => Ipv6::split(packet).map(|(header, body)| (Self::V6(header), body)),
            _ => Err(WireError::IpVersion(version)),
        }
    }

    /// Writes the header and returns how many bytes that took; `None` when `room` is too short, or the options too
    /// long.
    pub fn emit(&self, room: &mut [u8]) -> Option<usize> {
        match self {
            Self::V4(header) => header.emit(room),
            Self::V6(header) => {
                header.emit(room.first_chunk_mut()?);
                Some(Ipv6::LEN)
            }
        }
    }

    /// The IP version, 4 or 6.
    #[must_use]
    pub const fn version(&self) -> u8 {
        match self {
            Self::V4(_) => 4,
            Self::V6(_) => 6,
        }
    }

    /// The EtherType under which such a packet travels.
    #[must_use]
    pub const fn ethertype(&self) -> u16 {
        match self {
            Self::V4(_) => Ethernet::IPV4,
            Self::V6(_) => Ethernet::IPV6,
        }
    }

    /// Source address.
    #[must_use]
    pub const fn source(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.source),
            Self::V6(header) => IpAddr::V6(header.source),
        }
    }

    /// Destination address.
    #[must_use]
    pub const fn destination(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.destination),
            Self::V6(header) => IpAddr::V6(header.destination),
        }
    }

    /// IPv4 type of service or IPv6 traffic class.
    #[must_use]
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Self::V4(header) => header.type_of_service,
            Self::V6(header) => header.traffic_class,
        }
    }

    /// IPv4 time to live or IPv6 hop limit.
    #[must_use]
    pub const fn hop_limit(&self) -> u8 {
        match self {
            Self::V4(header) => header.time_to_live,
            Self::V6(header) => header.hop_limit,
        }
    }
}

const IPV4_LEN: usize = 20;
const VERSION_4: u8 = 0x40;
const DONT_FRAGMENT: u16 = 0x4000;

impl<'a> Ipv4<'a> {
    /// Bytes of the header without options.
    pub const LEN: usize = IPV4_LEN;
    /// Bytes of the header with the most options.
    pub const MAX_LEN: usize = 60;

    fn split(packet: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        let found = packet.len();
        let (bytes, after) =
            packet.split_first_chunk::<IPV4_LEN>().ok_or(WireError::TooShort { needed: Self::LEN, found })?;
        let [version_length, type_of_service] = bytes.at::<0, 2>();
        let [time_to_live, protocol] = bytes.at::<8, 2>();
        let fragment = u16::from_be_bytes(bytes.at::<6, 2>());
        if fragment & !DONT_FRAGMENT != 0 {
            return Err(WireError::Fragment(fragment));
        }
        if protocol != PROTOCOL_UDP {
            return Err(WireError::NotUdp(protocol));
        }
        let total_length = u16::from_be_bytes(bytes.at::<2, 2>());
        let header_length = usize::from(version_length & 0x0f) * 4;
        let options_length = header_length.checked_sub(Self::LEN).ok_or(WireError::IpHeaderLength(header_length))?;
        let length_error = WireError::Length { said: usize::from(total_length), found };
        let after = usize::from(total_length).checked_sub(Self::LEN).and_then(|end| after.get(..end));
        let (options, body) = after.and_then(|after| after.split_at_checked(options_length)).ok_or(length_error)?;
        let header = Self {
            type_of_service,
            total_length,
            identification: u16::from_be_bytes(bytes.at::<4, 2>()),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            time_to_live,
            checksum: u16::from_be_bytes(bytes.at::<10, 2>()),
            source: bytes.at::<12, 4>().into(),
            destination: bytes.at::<16, 4>().into(),
            options,
        };
        Ok((header, body))
    }

    /// Writes the header and returns how many bytes that took; `None` when `room` is too short, or the options too
    /// long or not a multiple of 4 bytes.
    pub fn emit(&self, room: &mut [u8]) -> Option<usize> {
        let length = Self::LEN + self.options.len();
        if length > Self::MAX_LEN || !length.is_multiple_of(4) {
            return None;
        }
        let mut rest = room;
        let bytes: &mut [u8; IPV4_LEN] = take_mut(&mut rest)?;
        // At most 15 words.
        bytes.put::<0, 2>([VERSION_4 | (length / 4) as u8, self.type_of_service]);
        bytes.put::<2, 2>(self.total_length.to_be_bytes());
        bytes.put::<4, 2>(self.identification.to_be_bytes());
        bytes.put::<6, 2>(if self.dont_fragment { DONT_FRAGMENT } else { 0 }.to_be_bytes());
        bytes.put::<8, 2>([self.time_to_live, PROTOCOL_UDP]);
        bytes.put::<10, 2>(self.checksum.to_be_bytes());
        bytes.put::<12, 4>(self.source.octets());
        bytes.put::<16, 4>(self.destination.octets());
        rest.get_mut(..self.options.len())?.copy_from_slice(self.options);
        Some(length)
    }

    /// The header checksum that the other fields ask for (RFC 1071); 0 when the header cannot be written.
    #[must_use]
    pub fn computed_checksum(&self) -> u16 {
        let mut bytes = [0; Self::MAX_LEN];
        let header = Self { checksum: 0, ..*self };
        if header.emit(&mut bytes).is_none() {
            return 0;
        }
        let sum: u32 = bytes.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        // Thirty words: two folds take in every carry.
        let folded = (sum & 0xffff) + (sum >> 16);
        !((folded + (folded >> 16)) as u16)
    }

    /// What of this header enters the ICRC, options apart.
    #[must_use]
    pub const fn pseudo(&self) -> Ipv4Pseudo {
        Ipv4Pseudo {
            source: self.source,
            destination: self.destination,
            identification: self.identification,
            dont_fragment: self.dont_fragment,
        }
    }
}

const VERSION_6: u32 = 6 << 28;
const FLOW_LABEL: u32 = 0x000f_ffff;

impl Ipv6 {
    /// Bytes of the header.
    pub const LEN: usize = 40;

    fn split(packet: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let found = packet.len();
        let (bytes, after) =
            packet.split_first_chunk::<{ Self::LEN }>().ok_or(WireError::TooShort { needed: Self::LEN, found })?;
        let first_word = u32::from_be_bytes(bytes.at::<0, 4>());
        let payload_length = u16::from_be_bytes(bytes.at::<4, 2>());
        let [next_header, hop_limit] = bytes.at::<6, 2>();
        if next_header != PROTOCOL_UDP {
            return Err(WireError::NotUdp(next_header));
        }
        let said = usize::from(payload_length);
        let body = after.get(..said).ok_or(WireError::Length { said, found: after.len() })?;
        let header = Self {
            traffic_class: (first_word >> 20) as u8,
            flow_label: first_word & FLOW_LABEL,
            payload_length,
            hop_limit,
            source: bytes.at::<8, 16>().into(),
            destination: bytes.at::<24, 16>().into(),
        };
        Ok((header, body))
    }

    /// Writes the header; only the low 20 bits of `flow_label` count.
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        let first_word = VERSION_6 | u32::from(self.traffic_class) << 20 | self.flow_label & FLOW_LABEL;
        bytes.put::<0, 4>(first_word.to_be_bytes());
        bytes.put::<4, 2>(self.payload_length.to_be_bytes());
        bytes.put::<6, 2>([PROTOCOL_UDP, self.hop_limit]);
        bytes.put::<8, 16>(self.source.octets());
        bytes.put::<24, 16>(self.destination.octets());
    }

    /// What of this header enters the ICRC.
    #[must_use]
    pub const fn pseudo(&self) -> Ipv6Pseudo {
        Ipv6Pseudo { source: self.source, destination: self.destination }
    }
}
