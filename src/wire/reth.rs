//! RDMA extended transport header.

use super::bytes::Fields;

/// Where an RDMA WRITE, READ, FLUSH or ATOMIC WRITE goes in the responder's memory (IBTA 9.3.3).
///
/// An allegation of the peer until a memory table has resolved it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address at the responder.
    pub address: u64,
    /// Remote key of the memory region or window.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub length: u32,
}

impl Reth {
    /// Bytes of the header.
    pub const LEN: usize = 16;

    /// Reads a header.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            address: u64::from_be_bytes(bytes.at::<0, 8>()),
            rkey: u32::from_be_bytes(bytes.at::<8, 4>()),
            length: u32::from_be_bytes(bytes.at::<12, 4>()),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        bytes.put::<0, 8>(self.address.to_be_bytes());
        bytes.put::<8, 4>(self.rkey.to_be_bytes());
        bytes.put::<12, 4>(self.length.to_be_bytes());
    }
}
