//! Extended transport headers of atomic operations.

use super::bytes::Fields;

/// Operands of a COMPARE AND SWAP or a FETCH AND ADD (IBTA 9.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address at the responder, a multiple of 8.
    pub address: u64,
    /// Remote key of the memory region or window.
    pub rkey: u32,
    /// The value to swap in, or to add.
    pub swap_add: u64,
    /// The value that must be there for a swap to happen; unused by FETCH AND ADD.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes of the header.
    pub const LEN: usize = 28;

    /// Reads a header.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            address: u64::from_be_bytes(bytes.at::<0, 8>()),
            rkey: u32::from_be_bytes(bytes.at::<8, 4>()),
            swap_add: u64::from_be_bytes(bytes.at::<12, 8>()),
            compare: u64::from_be_bytes(bytes.at::<20, 8>()),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        bytes.put::<0, 8>(self.address.to_be_bytes());
        bytes.put::<8, 4>(self.rkey.to_be_bytes());
        bytes.put::<12, 8>(self.swap_add.to_be_bytes());
        bytes.put::<20, 8>(self.compare.to_be_bytes());
    }
}

/// The answer to an atomic operation (IBTA 9.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// What was in the responder's memory before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads a header.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self { original: u64::from_be_bytes(*bytes) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        *bytes = self.original.to_be_bytes();
    }
}
