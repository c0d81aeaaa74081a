//! Ethernet II with up to two VLAN tags.

use crate::wire::WireError;
use crate::wire::bytes::{Fields, take, take_mut};

/// An Ethernet II header and the VLAN tags in it (IEEE 802.3, 802.1Q).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// VLAN tags, the outer one first.
    pub vlan: [Option<VlanTag>; 2],
    /// What follows: [`IPV4`](Ethernet::IPV4) or [`IPV6`](Ethernet::IPV6).
    pub ethertype: u16,
}

/// One VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Tag protocol identifier: 0x8100, or 0x88a8 for a provider's tag.
    pub protocol: u16,
    /// Tag control information: priority, drop eligible, and the 12 bits of the VLAN.
    pub control: u16,
}

impl VlanTag {
    /// Bytes of a tag, its protocol included.
    pub const LEN: usize = 4;
    /// Tag protocol of a customer's VLAN (802.1Q).
    pub const CUSTOMER: u16 = 0x8100;
    /// Tag protocol of a provider's VLAN (802.1ad).
    pub const PROVIDER: u16 = 0x88a8;
}

impl Ethernet {
    /// Bytes of the header without VLAN tags.
    pub const LEN: usize = 14;
    /// EtherType of IPv4.
    pub const IPV4: u16 = 0x0800;
    /// EtherType of IPv6.
    pub const IPV6: u16 = 0x86dd;

    /// Splits a frame into its header and what follows; the EtherType may be any.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn split(frame: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut needed = Self::LEN;
        let short = |needed| WireError::TooShort { needed, found: frame.len() };
        let mut rest = frame;
        let bytes: &[u8; Self::LEN] = take(&mut rest).ok_or(short(needed))?;
        let mut ethertype = u16::from_be_bytes(bytes.at::<12, 2>());
        let mut vlan = [None; 2];
        for tag in &mut vlan {
            if !matches!(ethertype, VlanTag::CUSTOMER | VlanTag::PROVIDER) {
                break;
            }
            needed += VlanTag::LEN;
            let bytes: &[u8; VlanTag::LEN] = take(&mut rest).ok_or(short(needed))?;
            *tag = Some(VlanTag { protocol: ethertype, control: u16::from_be_bytes(bytes.at::<0, 2>()) });
            ethertype = u16::from_be_bytes(bytes.at::<2, 2>());
        }
        let header = Self { destination: bytes.at::<0, 6>(), source: bytes.at::<6, 6>(), vlan, ethertype };
        Ok((header, rest))
    }

    /// Writes the header and returns how many bytes that took; `None` when `room` is too short.
    pub fn emit(&self, room: &mut [u8]) -> Option<usize> {
        let whole = room.len();
        let mut rest = room;
        let addresses: &mut [u8; 12] = take_mut(&mut rest)?;
        addresses.put::<0, 6>(self.destination);
        addresses.put::<6, 6>(self.source);
        for tag in self.vlan.iter().flatten() {
            *take_mut(&mut rest)? = tag.protocol.to_be_bytes();
            *take_mut(&mut rest)? = tag.control.to_be_bytes();
        }
        *take_mut(&mut rest)? = self.ethertype.to_be_bytes();
        Some(whole - rest.len())
    }
}
