//! The IP header that ports write which write their own.

use std::net::IpAddr::{V4, V6};

use crate::wire::Flow;
use crate::wire::net::{Ip, Ipv4, Ipv6};

/// The header of a packet of `flow` whose UDP header and payload are `udp_length` bytes: DF set and ID 0, for which the transmit
/// queue seals. `None` when it is too long for IP, or the addresses are of two families.
pub(super) fn header(flow: &Flow, udp_length: u16) -> Option<Ip<'static>> {
    match (flow.source, flow.destination) {
        (V4(source), V4(destination)) => {
            let mut header = Ipv4 {
                type_of_service: flow.traffic_class,
                total_length: udp_length.checked_add(u16::try_from(Ipv4::LEN).ok()?)?,
                identification: 0,
                dont_fragment: true,
                time_to_live: flow.hop_limit,
                checksum: 0,
                source,
                destination,
                options: &[],
            };
            header.checksum = header.computed_checksum();
            Some(Ip::V4(header))
        }
        (V6(source), V6(destination)) => Some(Ip::V6(Ipv6 {
            traffic_class: flow.traffic_class,
            flow_label: 0,
            payload_length: udp_length,
            hop_limit: flow.hop_limit,
            source,
            destination,
        })),
        _ => None,
    }
}
