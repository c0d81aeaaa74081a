//! Everything in front of a datagram, as a packet socket wants it.

use crate::port::ip;
use crate::port::queue::Message;
use crate::wire::net::{Ethernet, Ip, Ipv6, Udp};
use crate::wire::{Flow, ICRC_LEN, UDP_PORT};

use super::neighbours::Mac;

/// Bytes of `struct virtio_net_hdr` (`include/uapi/linux/virtio_net.h`), which stands in front of every frame of a packet
/// socket with `PACKET_VNET_HDR`.
pub(super) const OFFLOAD_LEN: usize = 10;
/// Bytes of the longest headers: offload, Ethernet, IPv6, UDP.
pub(super) const MAX_LEN: usize = OFFLOAD_LEN + Ethernet::LEN + Ipv6::LEN + Udp::LEN;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is that of the pseudo header, and to be completed.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: to be cut into UDP datagrams.
const CUT_UDP: u8 = 5;
/// Where in the UDP header the checksum stands.
const CHECKSUM_OFFSET: u16 = 6;
/// The usual hop limit, for flows that leave it at 0.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// Headers for one message.
pub(super) struct Headers {
    bytes: [u8; MAX_LEN],
    length: usize,
}

impl Headers {
    /// Writes them, for a message of one datagram or of a run. `None`: it is too long for IP, or of mixed families.
    ///
    /// The IPv4 ID is 0 and DF set: those are what the queue seals for, and the kernel counts the ID up within a run. A datagram
    /// by itself has UDP checksum 0, as kernel rxe sends it; of a run, the kernel completes the checksum of each.
    pub(super) fn new(message: &Message<'_>, source: Mac, destination: Mac) -> Option<Self> {
        let flow = message.flow;
        let udp_length = u16::try_from(Udp::LEN + message.bytes.len()).ok()?;
        let hop_limit = if flow.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { flow.hop_limit };
        let ip = ip::header(&Flow { hop_limit, ..*flow }, udp_length)?;
        let checksum = if message.segment.is_some() { pseudo_sum(&ip, udp_length) } else { 0 };
        let ethernet = Ethernet { destination, source, vlan: [None; 2], ethertype: ip.ethertype() };

        let mut headers = Self { bytes: [0; MAX_LEN], length: OFFLOAD_LEN };
        headers.length += ethernet.emit(headers.bytes.get_mut(headers.length..)?)?;
        headers.length += ip.emit(headers.bytes.get_mut(headers.length..)?)?;
        let udp = Udp { source_port: message.source_port, destination_port: UDP_PORT, length: udp_length, checksum };
        udp.emit(headers.bytes.get_mut(headers.length..)?.first_chunk_mut()?);
        let udp_start = headers.length - OFFLOAD_LEN;
        headers.length += Udp::LEN;
        if let Some(segment) = message.segment {
            let offload = Offload {
                flags: NEEDS_CHECKSUM,
                kind: CUT_UDP,
                header_length: u16::try_from(udp_start + Udp::LEN).ok()?,
                segment,
                checksum_start: u16::try_from(udp_start).ok()?,
                checksum_offset: CHECKSUM_OFFSET,
            };
            *headers.bytes.first_chunk_mut()? = offload.emit();
        }
        Some(headers)
    }

    /// The headers.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// `struct virtio_net_hdr`, in the host's byte order as packet sockets have it.
struct Offload {
    flags: u8,
    kind: u8,
    header_length: u16,
    segment: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Offload {
    fn emit(&self) -> [u8; OFFLOAD_LEN] {
        let [h0, h1] = self.header_length.to_ne_bytes();
        let [g0, g1] = self.segment.to_ne_bytes();
        let [s0, s1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.kind, h0, h1, g0, g1, s0, s1, o0, o1]
    }
}

/// Splits what a packet socket delivers into the length of each datagram of a run (`None`: it is none) and the frame.
pub(super) fn split_offload(bytes: &[u8]) -> Option<(Option<usize>, &[u8])> {
    let (header, frame) = bytes.split_first_chunk::<OFFLOAD_LEN>()?;
    let [_, kind, _, _, g0, g1, ..] = *header;
    let segment = usize::from(u16::from_ne_bytes([g0, g1]));
    Some(((kind == CUT_UDP && segment > ICRC_LEN).then_some(segment), frame))
}

/// The sum of the pseudo header, from which the kernel completes a UDP checksum (RFC 768, RFC 8200 8.1): not inverted.
fn pseudo_sum(ip: &Ip<'_>, udp_length: u16) -> u16 {
    const PROTOCOL_UDP: u32 = 17;
    let words =
        |bytes: &[u8]| -> u32 { bytes.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum() };
    let addresses = match ip {
        Ip::V4(ip) => words(&ip.source.octets()) + words(&ip.destination.octets()),
        Ip::V6(ip) => words(&ip.source.octets()) + words(&ip.destination.octets()),
    };
    let sum = addresses + PROTOCOL_UDP + u32::from(udp_length);
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded + (folded >> 16)) & 0xffff) as u16
}
