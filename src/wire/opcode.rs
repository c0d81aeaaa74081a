//! The table of opcodes: what each packet is and which headers it carries.

use core::fmt;

use super::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Reth, Xrceth};

/// The first byte of a BTH: transport in the upper three bits, operation in the lower five (IBTA 9.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

/// What the table knows of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The opcode itself.
    pub opcode: Opcode,
    /// Its constant's name, as in `RC_SEND_FIRST`.
    pub name: &'static str,
    /// The transport service.
    pub transport: Transport,
    /// The operation, or the kind of answer.
    pub kind: Kind,
    /// The place in a message of several packets.
    pub position: Position,
    /// The headers between the BTH and the payload.
    pub headers: Headers,
    /// Bytes of the BTH and those headers.
    pub header_length: usize,
    /// What may follow the headers.
    pub payload: PayloadRule,
}

/// The transport service that an opcode belongs to. Reliable datagram is not spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification, which belongs to no queue pair type (IBTA A17.9.3).
    Cnp,
    /// Extended reliable connection.
    Xrc,
}

impl Transport {
    /// The upper three bits of its opcodes (IBTA 9.2.1).
    #[must_use]
    pub const fn base(self) -> u8 {
        match self {
            Self::Rc => 0x00,
            Self::Uc => 0x20,
            Self::Ud => 0x60,
            Self::Cnp => 0x80,
            Self::Xrc => 0xa0,
        }
    }
}

/// What a packet asks for, or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SEND, with or without immediate data or an invalidation.
    Send,
    /// RDMA WRITE, with or without immediate data.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// A piece of what a READ asked for, or the answer to a FLUSH or an ATOMIC WRITE.
    ReadResponse,
    /// ACK, NAK or RNR NAK.
    Acknowledge,
    /// The answer to an atomic operation.
    AtomicAcknowledge,
    /// Atomic COMPARE AND SWAP.
    CompareSwap,
    /// Atomic FETCH AND ADD.
    FetchAdd,
    /// FLUSH.
    Flush,
    /// ATOMIC WRITE of 8 bytes; a payload of another length is the responder's to refuse.
    AtomicWrite,
    /// Congestion notification packet.
    Cnp,
}

impl Kind {
    /// Whether the packet goes to the responder; otherwise it answers one that did (a CNP does neither).
    #[must_use]
    pub const fn is_request(self) -> bool {
        !matches!(self, Self::ReadResponse | Self::Acknowledge | Self::AtomicAcknowledge | Self::Cnp)
    }
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of at least two.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of at least two.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// Whether a message starts here.
    #[must_use]
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends here.
    #[must_use]
    pub const fn is_last(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// What an opcode lets follow its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadRule {
    /// Nothing.
    None,
    /// Any number of bytes; how many of them are right, the message and the path MTU decide.
    Any,
    /// This many bytes.
    Exactly(usize),
}

impl PayloadRule {
    /// Whether `length` bytes of payload may follow.
    #[must_use]
    #[inline]
    pub const fn allows(self, length: usize) -> bool {
        match self {
            Self::None => length == 0,
            Self::Any => true,
            Self::Exactly(bytes) => length == bytes,
        }
    }
}

bitflags::bitflags! {
    /// The extended transport headers of an opcode, lowest bit first on the wire.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Headers: u16 {
        /// [`Xrceth`].
        const XRCETH = 1 << 0;
        /// [`Deth`].
        const DETH = 1 << 1;
        /// [`Feth`].
        const FETH = 1 << 2;
        /// [`Reth`].
        const RETH = 1 << 3;
        /// [`AtomicEth`].
        const ATOMIC_ETH = 1 << 4;
        /// [`Aeth`].
        const AETH = 1 << 5;
        /// [`AtomicAckEth`].
        const ATOMIC_ACK_ETH = 1 << 6;
        /// Immediate data, 4 bytes (IBTA 9.3.7).
        const IMM = 1 << 7;
        /// The R_Key to invalidate, 4 bytes (IBTA 9.3.8).
        const IETH = 1 << 8;
    }
}

impl Headers {
    /// Bytes of the headers of this set.
    #[must_use]
    pub const fn length(self) -> usize {
        const LENGTHS: [(Headers, usize); 9] = [
            (Headers::XRCETH, Xrceth::LEN),
            (Headers::DETH, Deth::LEN),
            (Headers::FETH, Feth::LEN),
            (Headers::RETH, Reth::LEN),
            (Headers::ATOMIC_ETH, AtomicEth::LEN),
            (Headers::AETH, Aeth::LEN),
            (Headers::ATOMIC_ACK_ETH, AtomicAckEth::LEN),
            (Headers::IMM, 4),
            (Headers::IETH, 4),
        ];
        let mut length = 0;
        let mut index = 0;
        while index < LENGTHS.len() {
            if self.contains(LENGTHS[index].0) {
                length += LENGTHS[index].1;
            }
            index += 1;
        }
        length
    }
}

/// Rows of `NAME = value: transport kind position [headers] payload`; makes the constants and the table.
macro_rules! opcodes {
    ($($name:ident = $value:literal: $transport:ident $kind:ident $position:ident [$($header:ident)*] $payload:expr;)*) => {
        /// The opcodes, named as in the specification's table (IBTA 9.2.1, A14, A17, A19).
        impl Opcode {
            $(
                #[doc = concat!("Opcode ", stringify!($value), ".")]
                pub const $name: Self = Self($value);
            )*
        }

        static TABLE: [Option<Info>; 256] = {
            let mut table = [None; 256];
            $(
                let headers = Headers::empty()$(.union(Headers::$header))*;
                assert!(table[$value].is_none(), "two rows have the same value");
                table[$value] = Some(Info {
                    opcode: Opcode($value),
                    name: stringify!($name),
                    transport: Transport::$transport,
                    kind: Kind::$kind,
                    position: Position::$position,
                    headers,
                    header_length: Bth::LEN + headers.length(),
                    payload: $payload,
                });
            )*
            table
        };
    };
}

use PayloadRule::{Any, Exactly, None as Nothing};

opcodes! {
    RC_SEND_FIRST = 0x00: Rc Send First [] Any;
    RC_SEND_MIDDLE = 0x01: Rc Send Middle [] Any;
    RC_SEND_LAST = 0x02: Rc Send Last [] Any;
    RC_SEND_LAST_IMM = 0x03: Rc Send Last [IMM] Any;
    RC_SEND_ONLY = 0x04: Rc Send Only [] Any;
    RC_SEND_ONLY_IMM = 0x05: Rc Send Only [IMM] Any;
    RC_WRITE_FIRST = 0x06: Rc Write First [RETH] Any;
    RC_WRITE_MIDDLE = 0x07: Rc Write Middle [] Any;
    RC_WRITE_LAST = 0x08: Rc Write Last [] Any;
    RC_WRITE_LAST_IMM = 0x09: Rc Write Last [IMM] Any;
    RC_WRITE_ONLY = 0x0a: Rc Write Only [RETH] Any;
    RC_WRITE_ONLY_IMM = 0x0b: Rc Write Only [RETH IMM] Any;
    RC_READ_REQUEST = 0x0c: Rc ReadRequest Only [RETH] Nothing;
    RC_READ_RESPONSE_FIRST = 0x0d: Rc ReadResponse First [AETH] Any;
    RC_READ_RESPONSE_MIDDLE = 0x0e: Rc ReadResponse Middle [] Any;
    RC_READ_RESPONSE_LAST = 0x0f: Rc ReadResponse Last [AETH] Any;
    RC_READ_RESPONSE_ONLY = 0x10: Rc ReadResponse Only [AETH] Any;
    RC_ACKNOWLEDGE = 0x11: Rc Acknowledge Only [AETH] Nothing;
    RC_ATOMIC_ACKNOWLEDGE = 0x12: Rc AtomicAcknowledge Only [AETH ATOMIC_ACK_ETH] Nothing;
    RC_COMPARE_SWAP = 0x13: Rc CompareSwap Only [ATOMIC_ETH] Nothing;
    RC_FETCH_ADD = 0x14: Rc FetchAdd Only [ATOMIC_ETH] Nothing;
    RC_SEND_LAST_INVALIDATE = 0x16: Rc Send Last [IETH] Any;
    RC_SEND_ONLY_INVALIDATE = 0x17: Rc Send Only [IETH] Any;
    RC_FLUSH = 0x1c: Rc Flush Only [FETH RETH] Nothing;
    RC_ATOMIC_WRITE = 0x1d: Rc AtomicWrite Only [RETH] Any;

    UC_SEND_FIRST = 0x20: Uc Send First [] Any;
    UC_SEND_MIDDLE = 0x21: Uc Send Middle [] Any;
    UC_SEND_LAST = 0x22: Uc Send Last [] Any;
    UC_SEND_LAST_IMM = 0x23: Uc Send Last [IMM] Any;
    UC_SEND_ONLY = 0x24: Uc Send Only [] Any;
    UC_SEND_ONLY_IMM = 0x25: Uc Send Only [IMM] Any;
    UC_WRITE_FIRST = 0x26: Uc Write First [RETH] Any;
    UC_WRITE_MIDDLE = 0x27: Uc Write Middle [] Any;
    UC_WRITE_LAST = 0x28: Uc Write Last [] Any;
    UC_WRITE_LAST_IMM = 0x29: Uc Write Last [IMM] Any;
    UC_WRITE_ONLY = 0x2a: Uc Write Only [RETH] Any;
    UC_WRITE_ONLY_IMM = 0x2b: Uc Write Only [RETH IMM] Any;

    UD_SEND_ONLY = 0x64: Ud Send Only [DETH] Any;
    UD_SEND_ONLY_IMM = 0x65: Ud Send Only [DETH IMM] Any;

    CNP = 0x81: Cnp Cnp Only [] Exactly(16);

    XRC_SEND_FIRST = 0xa0: Xrc Send First [XRCETH] Any;
    XRC_SEND_MIDDLE = 0xa1: Xrc Send Middle [XRCETH] Any;
    XRC_SEND_LAST = 0xa2: Xrc Send Last [XRCETH] Any;
    XRC_SEND_LAST_IMM = 0xa3: Xrc Send Last [XRCETH IMM] Any;
    XRC_SEND_ONLY = 0xa4: Xrc Send Only [XRCETH] Any;
    XRC_SEND_ONLY_IMM = 0xa5: Xrc Send Only [XRCETH IMM] Any;
    XRC_WRITE_FIRST = 0xa6: Xrc Write First [XRCETH RETH] Any;
    XRC_WRITE_MIDDLE = 0xa7: Xrc Write Middle [XRCETH] Any;
    XRC_WRITE_LAST = 0xa8: Xrc Write Last [XRCETH] Any;
    XRC_WRITE_LAST_IMM = 0xa9: Xrc Write Last [XRCETH IMM] Any;
    XRC_WRITE_ONLY = 0xaa: Xrc Write Only [XRCETH RETH] Any;
    XRC_WRITE_ONLY_IMM = 0xab: Xrc Write Only [XRCETH RETH IMM] Any;
    XRC_READ_REQUEST = 0xac: Xrc ReadRequest Only [XRCETH RETH] Nothing;
    XRC_READ_RESPONSE_FIRST = 0xad: Xrc ReadResponse First [AETH] Any;
    XRC_READ_RESPONSE_MIDDLE = 0xae: Xrc ReadResponse Middle [] Any;
    XRC_READ_RESPONSE_LAST = 0xaf: Xrc ReadResponse Last [AETH] Any;
    XRC_READ_RESPONSE_ONLY = 0xb0: Xrc ReadResponse Only [AETH] Any;
    XRC_ACKNOWLEDGE = 0xb1: Xrc Acknowledge Only [AETH] Nothing;
    XRC_ATOMIC_ACKNOWLEDGE = 0xb2: Xrc AtomicAcknowledge Only [AETH ATOMIC_ACK_ETH] Nothing;
    XRC_COMPARE_SWAP = 0xb3: Xrc CompareSwap Only [XRCETH ATOMIC_ETH] Nothing;
    XRC_FETCH_ADD = 0xb4: Xrc FetchAdd Only [XRCETH ATOMIC_ETH] Nothing;
    XRC_SEND_LAST_INVALIDATE = 0xb6: Xrc Send Last [XRCETH IETH] Any;
    XRC_SEND_ONLY_INVALIDATE = 0xb7: Xrc Send Only [XRCETH IETH] Any;
}

impl Opcode {
    /// The opcode of a raw byte, known or not.
    #[must_use]
    pub const fn new(value: u8) -> Self {
        Self(value)
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn value(self) -> u8 {
        self.0
    }

    /// The same operation of another transport, as the lower five bits have it; perhaps one that is not in the table.
    #[must_use]
    #[inline]
    pub const fn of(self, transport: Transport) -> Self {
        Self(self.0 & 0x1f | transport.base())
    }

    /// The table's row, `None` for an opcode that it does not have: such a packet is dropped.
    #[must_use]
    #[inline]
    pub fn info(self) -> Option<&'static Info> {
        TABLE[usize::from(self.0)].as_ref()
    }

    /// Every opcode of the table, in order of value.
    pub fn known() -> impl Iterator<Item = &'static Info> {
        TABLE.iter().flatten()
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(info) => f.write_str(info.name),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
