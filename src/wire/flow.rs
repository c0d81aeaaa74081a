//! What joins an endpoint to a port: where a datagram goes, and what is known of one that came.

use core::net::IpAddr;

/// Where a datagram goes and how the network treats it on the way.
///
/// Datagrams of one flow may be handed to the kernel in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// One of the port's own addresses.
    pub source: IpAddr,
    /// The peer's address, of the same family.
    pub destination: IpAddr,
    /// UDP source port, 0xc000 to 0xffff: entropy for ECMP and receive-side scaling (IBTA A17.9.2).
    pub source_port: u16,
    /// IPv4 type of service or IPv6 traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
}

/// A datagram that came in, its ICRC already checked by the port.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The peer's address.
    pub source: IpAddr,
    /// Which of the port's addresses it was sent to.
    pub destination: IpAddr,
    /// The peer's UDP port: of no meaning to the protocol, but part of what a capture shows.
    pub source_port: u16,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit, 0 where the port is not told.
    pub hop_limit: u8,
    /// From the BTH to the end of the pad; the ICRC is cut off.
    pub datagram: &'a [u8],
}
