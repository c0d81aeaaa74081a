//! Base transport header.

use super::bytes::{Fields, be24, from_be24};
use super::{Opcode, Psn, Qpn, WireError};

/// The base transport header, in front of every packet (IBTA 9.2).
///
/// The seven reserved bits beside AckReq and the six beside FECN and BECN are ignored and sent as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is, and which headers follow.
    pub opcode: Opcode,
    /// Solicited event: the receiver shall wake a program that waits for solicited completions.
    pub solicited: bool,
    /// MigReq: the sender's path migration state is "migrated". Most NICs send 1, `rdma_rxe` 0.
    pub migration: bool,
    /// Bytes of pad behind the payload, 0 to 3.
    pub pad: u8,
    /// Transport header version, 0 in every header that was parsed; 4 bits are sent.
    pub version: u8,
    /// Partition key: membership in the top bit, 0xffff by default.
    pub pkey: u16,
    /// Forward explicit congestion notification. RoCE v2 uses the IP header's ECN bits instead.
    pub fecn: bool,
    /// Backward explicit congestion notification, set in a congestion notification packet.
    pub becn: bool,
    /// The queue pair the packet is for.
    pub destination: Qpn,
    /// The requester asks for an acknowledge.
    pub ack_request: bool,
    /// The packet's sequence number.
    pub psn: Psn,
}

const SOLICITED: u8 = 0x80;
const MIGRATION: u8 = 0x40;
const PAD_SHIFT: u32 = 4;
const VERSION: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQUEST: u8 = 0x80;

impl Bth {
    /// Bytes of the header.
    pub const LEN: usize = 12;

    /// Reads a header.
    ///
    /// # Errors
    /// [`WireError::Version`]: it is laid out in a way that is not known.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, WireError> {
        let [opcode, flags] = bytes.at::<0, 2>();
        let [congestion] = bytes.at::<4, 1>();
        let [ack] = bytes.at::<8, 1>();
        if flags & VERSION != 0 {
            return Err(WireError::Version(flags & VERSION));
        }
        Ok(Self {
            opcode: Opcode::new(opcode),
            solicited: flags & SOLICITED != 0,
            migration: flags & MIGRATION != 0,
            pad: (flags >> PAD_SHIFT) & 3,
            version: 0,
            pkey: u16::from_be_bytes(bytes.at::<2, 2>()),
            fecn: congestion & FECN != 0,
            becn: congestion & BECN != 0,
            destination: Qpn::new(from_be24(bytes.at::<5, 3>())),
            ack_request: ack & ACK_REQUEST != 0,
            psn: Psn::new(from_be24(bytes.at::<9, 3>())),
        })
    }

    /// Writes the header; only the low two bits of `pad` and the low four of `version` count.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.solicited, SOLICITED)
            | flag(self.migration, MIGRATION)
            | (self.pad & 3) << PAD_SHIFT
            | self.version & VERSION;
        bytes.put::<0, 2>([self.opcode.value(), flags]);
        bytes.put::<2, 2>(self.pkey.to_be_bytes());
        bytes.put::<4, 1>([flag(self.fecn, FECN) | flag(self.becn, BECN)]);
        bytes.put::<5, 3>(be24(self.destination.value()));
        bytes.put::<8, 1>([flag(self.ack_request, ACK_REQUEST)]);
        bytes.put::<9, 3>(be24(self.psn.value()));
    }
}
