//! The global route header, as a receiver of datagrams finds it in front of the payload.

use core::net::IpAddr;

use super::ICRC_LEN;
use super::net::{Ipv4, Ipv6, Udp};

/// Where a datagram came from and how: what is in the first 40 bytes of a UD receive buffer (IBTA 8.3, A17.4.5.3).
///
/// On RoCE v2 they hold the packet's IP header instead: IPv6 all of them, IPv4 the last 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// The sender's address.
    pub source: IpAddr,
    /// The address that it was sent to: one of the receiver's, or a multicast group.
    pub destination: IpAddr,
    /// IPv4 type of service, IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 time to live, IPv6 hop limit, as it arrived; 0 when the port was not told.
    pub hop_limit: u8,
}

/// Which IP header stands where the GRH would: what a completion says of a datagram (the kernel's `enum rdma_network_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrhKind {
    /// An IPv4 header, in the last 20 of the 40 bytes.
    Ipv4,
    /// An IPv6 header.
    Ipv6,
}

impl Grh {
    /// Bytes in front of the payload.
    pub const LEN: usize = 40;
    /// Where in them the IPv4 header begins.
    const IPV4: usize = Self::LEN - Ipv4::LEN;

    /// Writes the header of a packet whose datagram (BTH to pad) has `datagram` bytes. A port is not told everything:
    /// flow label and IPv4 ID are written as 0.
    #[must_use]
    pub fn emit(&self, datagram: usize) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        // A datagram has at most 4 KiB and some.
        let payload_length = (Udp::LEN + datagram + ICRC_LEN) as u16;
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = Ipv4 {
                    type_of_service: self.traffic_class,
                    total_length: payload_length.saturating_add(Ipv4::LEN as u16),
                    identification: 0,
                    dont_fragment: true,
                    time_to_live: self.hop_limit,
                    checksum: 0,
                    source,
                    destination,
                    options: &[],
                };
                let header = Ipv4 { checksum: header.computed_checksum(), ..header };
                if let Some(room) = bytes.get_mut(Self::IPV4..) {
                    let _ = header.emit(room);
                }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let (traffic_class, hop_limit) = (self.traffic_class, self.hop_limit);
                Ipv6 { traffic_class, flow_label: 0, payload_length, hop_limit, source, destination }.emit(&mut bytes);
            }
            // No packet has addresses of two families.
            _ => {}
        }
        bytes
    }

    /// Which header it is.
    #[must_use]
    pub fn kind(&self) -> GrhKind {
        if self.destination.is_ipv4() { GrhKind::Ipv4 } else { GrhKind::Ipv6 }
    }

    /// Reads what a receive buffer holds; `None` when that is neither header.
    ///
    /// The first 20 bytes mean nothing with IPv4, and may look like IPv6: a right IPv4 header behind them decides (the
    /// kernel's `ib_get_rdma_header_version`).
    #[must_use]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        Self::parse_v4(bytes).or_else(|| Self::parse_v6(bytes))
    }

    fn parse_v4(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let header: &[u8; Ipv4::LEN] = bytes.last_chunk()?;
        let words = header.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
        let sum: u32 = words.sum();
        let is_right = header.first() == Some(&0x45) && (sum & 0xffff) + (sum >> 16) == 0xffff;
        let &[_, traffic_class, _, _, _, _, _, _, hop_limit, _, _, _, a, b, c, d, w, x, y, z] = header;
        let (source, destination) = (IpAddr::from([a, b, c, d]), IpAddr::from([w, x, y, z]));
        is_right.then_some(Self { source, destination, traffic_class, hop_limit })
    }

    fn parse_v6(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (head, addresses) = bytes.split_first_chunk::<8>()?;
        let (source, destination) = addresses.split_first_chunk::<16>()?;
        let destination: &[u8; 16] = destination.first_chunk()?;
        let &[first, second, _, _, _, _, _, hop_limit] = head;
        (first >> 4 == 6).then_some(Self {
            source: IpAddr::from(*source),
            destination: IpAddr::from(*destination),
            traffic_class: first << 4 | second >> 4,
            hop_limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_come_back() {
        for (source, destination) in [("10.0.0.1", "224.1.2.3"), ("2001:db8::1", "ff02::1:2")] {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let grh = Grh { source, destination, traffic_class: 0x6a, hop_limit: 7 };
            assert_eq!(Grh::parse(&grh.emit(24)), Some(grh));
        }
        assert_eq!(Grh::parse(&[0; Grh::LEN]), None);
    }

    /// Against another implementation: what it reads in the last 20 bytes, and in all of them.
    #[test]
    fn the_headers_are_those_of_the_packet() {
        let grh = |source: &str, destination: &str| {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            Grh { source, destination, traffic_class: 2, hop_limit: 64 }.emit(32)
        };
        let bytes = grh("10.0.0.1", "10.0.0.2");
        let (header, _) = etherparse::Ipv4Header::from_slice(&bytes[20..]).unwrap();
        assert_eq!((header.total_len, header.time_to_live, header.protocol.0), (20 + 8 + 32 + 4, 64, 17));
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(bytes[..20], [0; 20]);
        let bytes = grh("fe80::1", "fe80::2");
        let (header, _) = etherparse::Ipv6Header::from_slice(&bytes).unwrap();
        assert_eq!((header.payload_length, header.hop_limit, header.traffic_class), (8 + 32 + 4, 64, 2));
    }

    /// Rubbish that looks like IPv6 in front of an IPv4 header.
    #[test]
    fn an_ipv4_header_decides() {
        let (source, destination) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let grh = Grh { source, destination, traffic_class: 0, hop_limit: 1 };
        let mut bytes = grh.emit(16);
        bytes[0] = 0x60;
        assert_eq!(Grh::parse(&bytes), Some(grh));
    }
}
