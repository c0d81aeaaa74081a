//! Why bytes are not a packet.

use super::Opcode;

/// Why bytes from the network were not taken for a packet. The rule for all of them: drop, count, do not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// When the bytes end before a header does.
    #[error("too short: {needed} bytes of header needed, {found} found")]
    TooShort {
        /// Bytes up to the end of the header.
        needed: usize,
        /// Bytes there were.
        found: usize,
    },
    /// When the BTH names a transport version other than 0.
    #[error("transport header version {0}: only 0 exists")]
    Version(u8),
    /// When the opcode is reserved, belongs to a transport that is not spoken (RD), or to a vendor.
    #[error("unknown opcode {:#04x}", .0.value())]
    UnknownOpcode(Opcode),
    /// When the bytes between BTH and ICRC are not a whole number of 32-bit words, as pad makes them (IBTA 9.2.6).
    #[error("{0} bytes are not a whole number of 4-byte words: a packet is padded to that")]
    Unaligned(usize),
    /// When the BTH counts more pad than there are bytes behind the headers.
    #[error("pad count {pad}, with {body} bytes behind the headers")]
    Pad {
        /// The pad count, 1 to 3.
        pad: u8,
        /// Bytes of payload and pad.
        body: usize,
    },
    /// When a payload is there that the opcode does not allow, or not of the length it demands.
    #[error("{} does not take a payload of {length} bytes", .opcode)]
    Payload {
        /// The packet's opcode.
        opcode: Opcode,
        /// Bytes of payload, pad cut off.
        length: usize,
    },
    /// When the Ethernet frame carries neither IPv4 nor IPv6, or has more than two VLAN tags.
    #[error("EtherType {0:#06x} is neither IPv4 nor IPv6")]
    EtherType(u16),
    /// When the IP header's version does not fit the frame it came in, or is neither 4 nor 6.
    #[error("IP version {0} where 4 or 6 was expected")]
    IpVersion(u8),
    /// When an IPv4 header length is below 20 bytes.
    #[error("IPv4 header length of {0} bytes: 20 is the least")]
    IpHeaderLength(usize),
    /// When the packet is an IPv4 fragment, which RoCE v2 never sends, or has the reserved flag set.
    #[error("IPv4 flags and fragment offset {0:#06x}: RoCE v2 packets are not fragmented")]
    Fragment(u16),
    /// When the IP packet carries another protocol than UDP; IPv6 extension headers count as one.
    #[error("IP protocol {0} is not UDP")]
    NotUdp(u8),
    /// When the UDP destination port is not that of RoCE v2.
    #[error("UDP destination port {0} is not 4791")]
    UdpPort(u16),
    /// When the IP length runs past the frame, or IP and UDP length contradict each other.
    #[error("length field says {said} bytes, {found} are there")]
    Length {
        /// What the length field says.
        said: usize,
        /// Bytes there were.
        found: usize,
    },
}
