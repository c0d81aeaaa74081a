//! Takes a frame apart, and judges it.

use std::time::Duration;

use uroce::wire::net::Frame as RoceFrame;
use uroce::wire::{Packet, WireError};

use super::capture::{Frame, Link};

/// What a frame is.
pub(super) struct Dissection<'a> {
    /// Counted from 1.
    pub(super) number: u64,
    /// Since the first frame.
    pub(super) time: Duration,
    pub(super) verdict: Result<Roce<'a>, Refusal>,
}

/// A RoCE v2 packet.
pub(super) struct Roce<'a> {
    pub(super) frame: RoceFrame<'a>,
    pub(super) icrc: Icrc,
    /// The transport's headers, or what is wrong with them.
    pub(super) packet: Result<Packet<'a>, WireError>,
}

/// Why a frame is none.
pub(super) enum Refusal {
    /// Meant as RoCE v2, for its UDP port, but its lengths are wrong; or cut off by the capture.
    Malformed(String),
    /// Something else.
    Other(WireError),
}

/// Whether an ICRC is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Icrc {
    Right,
    /// With what it should be.
    Wrong {
        computed: u32,
    },
    /// There are IPv4 options, for which there is no rule.
    Unknown,
}

impl<'a> Dissection<'a> {
    /// Takes `frame` apart.
    pub(super) fn of(frame: &'a Frame<'_>) -> Self {
        let parsed = match frame.link {
            Link::Ethernet => RoceFrame::parse_ethernet(&frame.data),
            Link::Ip => RoceFrame::parse_ip(&frame.data),
        };
        let captured = frame.data.len();
        let verdict = match parsed {
            Ok(parsed) => Ok(Roce::of(parsed)),
            Err(_) if captured < frame.length as usize => Err(Refusal::Malformed(format!(
                "the capture has {captured} of its {} bytes: capture without a snapshot length",
                frame.length
            ))),
            Err(error) if is_other(&error) => Err(Refusal::Other(error)),
            Err(error) => Err(Refusal::Malformed(error.to_string())),
        };
        Self { number: frame.number, time: frame.time, verdict }
    }
}

impl<'a> Roce<'a> {
    fn of(frame: RoceFrame<'a>) -> Self {
        let icrc = match frame.computed_icrc() {
            None => Icrc::Unknown,
            Some(computed) if computed == frame.icrc => Icrc::Right,
            Some(computed) => Icrc::Wrong { computed },
        };
        Self { frame, icrc, packet: Packet::parse(frame.datagram) }
    }
}

/// Whether an error says that a frame is no RoCE v2 at all, rather than a spoilt one.
fn is_other(error: &WireError) -> bool {
    matches!(error, WireError::EtherType(_) | WireError::NotUdp(_) | WireError::UdpPort(_) | WireError::Fragment(_))
}
