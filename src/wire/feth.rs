//! FLUSH extended transport header.

use super::bytes::Fields;

bitflags::bitflags! {
    /// How far a FLUSH pushes the bytes before it is answered (IBTA annex A19); 4 bits on the wire, two of them defined.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Placement: u8 {
        /// Visible to every reader of the responder's memory.
        const GLOBAL_VISIBILITY = 1 << 0;
        /// Safe from a loss of power.
        const PERSISTENCE = 1 << 1;
        /// The reserved bits, kept as they came.
        const _ = 0x0f;
    }
}

/// What a FLUSH covers; 2 bits on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selectivity {
    /// The bytes that the RETH names.
    #[default]
    Range,
    /// The whole memory region of the RETH's key.
    Region,
    /// Undefined: 2 or 3.
    Reserved(u8),
}

/// What a FLUSH does; a RETH follows (IBTA annex A19, `FETH_PLT_MASK` and `FETH_SEL_MASK` of the kernel's `rxe_hdr.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feth {
    /// How far the bytes are pushed.
    pub placement: Placement,
    /// Which bytes.
    pub selectivity: Selectivity,
}

const SELECTIVITY_SHIFT: u32 = 4;

impl Feth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    /// Reads a header; the 26 reserved bits are ignored.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [low] = bytes.at::<3, 1>();
        Self {
            placement: Placement::from_bits_truncate(low),
            selectivity: match (low >> SELECTIVITY_SHIFT) & 3 {
                0 => Selectivity::Range,
                1 => Selectivity::Region,
                other => Selectivity::Reserved(other),
            },
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        let selectivity = match self.selectivity {
            Selectivity::Range => 0,
            Selectivity::Region => 1,
            Selectivity::Reserved(other) => other & 3,
        };
        *bytes = [0, 0, 0, selectivity << SELECTIVITY_SHIFT | self.placement.bits() & 0x0f];
    }
}
