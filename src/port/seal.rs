//! Closing datagrams with the ICRC, and checking those that come in.

use std::net::IpAddr;

use crate::wire::icrc::{self, IpPseudo, Ipv4Pseudo, Ipv6Pseudo, rxe_flush};
use crate::wire::{Bth, Flow, ICRC_LEN, MAX_DATAGRAM};

/// Writes the ICRC into the last four bytes of `frame`, in front of which the datagram stands (BTH to pad).
///
/// `source_port` and `identification` (IPv4) are those that will be on the wire; DF is taken to be set. A flow between two
/// address families has no IP header, so nothing is written: such a datagram cannot be sent either.
pub(super) fn seal(flow: &Flow, source_port: u16, identification: u16, frame: &mut [u8]) {
    let Some(pseudo) = pseudo(flow.source, flow.destination, identification) else {
        return;
    };
    if let Some((datagram, icrc)) = frame.split_last_chunk_mut::<ICRC_LEN>() {
        let value = if rxe_flush::take_mark(datagram) {
            rxe_flush::compute(&pseudo, source_port, datagram)
        } else {
            icrc::compute(&pseudo, source_port, datagram)
        };
        *icrc = value.to_le_bytes();
    }
}

/// Why an arrived frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is too short to hold a BTH and an ICRC, or longer than any RoCE v2 packet.
    Malformed,
    /// Its ICRC is wrong.
    Icrc,
}

/// What a receiver knows of the headers in front of an arrived frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    /// The sender's address.
    pub(super) source: IpAddr,
    /// The address it was sent to.
    pub(super) destination: IpAddr,
    /// The sender's UDP port.
    pub(super) source_port: u16,
}

/// Checks the ICRC of `frame` and cuts it off; gives the datagram and the IPv4 ID that explains the ICRC (0 for IPv6).
///
/// `expected_identification` is a guess at the ID: right, it makes the check a full 32 bits instead of 16.
/// [`icrc::check_unknown_id`] tells more.
pub(super) fn open<'a>(
    headers: &Headers,
    expected_identification: u16,
    frame: &'a [u8],
) -> Result<(&'a [u8], u16), Refused> {
    if frame.len() < Bth::LEN + ICRC_LEN || frame.len() > MAX_DATAGRAM {
        return Err(Refused::Malformed);
    }
    let (datagram, icrc) = frame.split_last_chunk::<ICRC_LEN>().ok_or(Refused::Malformed)?;
    let received = u32::from_le_bytes(*icrc);
    let pseudo = pseudo(headers.source, headers.destination, expected_identification).ok_or(Refused::Malformed)?;
    let identification = match &pseudo {
        IpPseudo::V4(v4) => icrc::check_unknown_id(v4, headers.source_port, datagram, received),
        IpPseudo::V6(_) => (icrc::compute(&pseudo, headers.source_port, datagram) == received).then_some(0),
    };
    let identification = identification.or_else(|| match &pseudo {
        _ if !rxe_flush::is_flush(datagram) => None,
        IpPseudo::V4(v4) => rxe_flush::check_unknown_id(v4, headers.source_port, datagram, received),
        IpPseudo::V6(_) => (rxe_flush::compute(&pseudo, headers.source_port, datagram) == received).then_some(0),
    });
    identification.map(|identification| (datagram, identification)).ok_or(Refused::Icrc)
}

/// What the ICRC covers of the IP header; `None` when the families differ.
fn pseudo(source: IpAddr, destination: IpAddr, identification: u16) -> Option<IpPseudo> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Some(IpPseudo::V4(Ipv4Pseudo { source, destination, identification, dont_fragment: true }))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => Some(IpPseudo::V6(Ipv6Pseudo { source, destination })),
        _ => None,
    }
}
