//! The UDP header.

use crate::wire::WireError;
use crate::wire::bytes::Fields;

/// A UDP header (RFC 768).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port: entropy for the network, 0xc000 to 0xffff by convention.
    pub source_port: u16,
    /// Destination port: [`UDP_PORT`](crate::wire::UDP_PORT) in every RoCE v2 packet.
    pub destination_port: u16,
    /// Bytes of this header and all behind it, the ICRC included.
    pub length: u16,
    /// Checksum; 0 says that there is none, which RoCE v2 senders commonly say over IPv6 too.
    pub checksum: u16,
}

impl Udp {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads a header.
    #[must_use]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            source_port: u16::from_be_bytes(bytes.at::<0, 2>()),
            destination_port: u16::from_be_bytes(bytes.at::<2, 2>()),
            length: u16::from_be_bytes(bytes.at::<4, 2>()),
            checksum: u16::from_be_bytes(bytes.at::<6, 2>()),
        }
    }

    /// Splits what an IP packet carries into header and body; it must be as long as the header says, because the
    /// ICRC covers that length.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::Length`].
    pub fn split(packet: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let found = packet.len();
        let (header, body) = packet.split_first_chunk().ok_or(WireError::TooShort { needed: Self::LEN, found })?;
        let header = Self::parse(header);
        let said = usize::from(header.length);
        if said == found { Ok((header, body)) } else { Err(WireError::Length { said, found }) }
    }

    /// Writes the header.
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        bytes.put::<0, 2>(self.source_port.to_be_bytes());
        bytes.put::<2, 2>(self.destination_port.to_be_bytes());
        bytes.put::<4, 2>(self.length.to_be_bytes());
        bytes.put::<6, 2>(self.checksum.to_be_bytes());
    }
}
