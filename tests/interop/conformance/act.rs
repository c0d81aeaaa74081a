//! What a script is made of.

use uroce::wire::{Aeth, AtomicEth, NakCode, Opcode, Packet, PayloadRule, Qpn, Syndrome};

use crate::common::craft::Craft;

/// The PSN of the first packet each way: the second to last, so that scripts wrap.
pub(super) const PSN: u32 = 0xff_fffe;
/// Bytes of a full packet.
pub(super) const MTU: usize = 1024;
/// Bytes of the region that the target grants.
pub(super) const REGION: usize = 16_384;
/// The queue pair that the target is connected to: nobody's, since the test is the peer.
pub(super) const PEER_QPN: Qpn = Qpn::new(0x12_3456);

/// One script.
pub(super) struct Script {
    pub(super) name: &'static str,
    /// What happens, on a target that granted this.
    pub(super) acts: fn(&Grant) -> Vec<Act>,
}

impl Script {
    pub(super) fn new(name: &'static str, acts: fn(&Grant) -> Vec<Act>) -> Self {
        Self { name, acts }
    }
}

/// A queue pair in RTS and a region that its peer may do anything with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) qpn: Qpn,
    pub(super) address: u64,
    pub(super) rkey: u32,
}

impl Grant {
    /// A packet to the queue pair, `ahead` PSNs after the first.
    pub(super) fn packet(&self, opcode: Opcode, ahead: u32) -> Craft {
        Craft::new(opcode, self.qpn, PSN.wrapping_add(ahead))
    }

    /// The same with `bytes` of payload.
    pub(super) fn with(&self, opcode: Opcode, ahead: u32, bytes: usize) -> Craft {
        self.packet(opcode, ahead).payload(&vec![0x5a; bytes])
    }

    /// The same with a RETH of `length` bytes from the start of the region.
    pub(super) fn reth(&self, opcode: Opcode, ahead: u32, length: u32, bytes: usize) -> Craft {
        self.with(opcode, ahead, bytes).reth(self.address, self.rkey, length)
    }
}

/// One step of a script.
pub(super) enum Act {
    /// The target posts a receive of this many bytes.
    Receive(u32),
    /// The target posts a SEND, WRITE, READ or fetch-and-add of this many bytes.
    Post(Posted, u32),
    /// The test sends this packet.
    Packet(Craft),
    /// The test sends these bytes, from the BTH to the pad.
    Bytes(Vec<u8>),
    /// Time passes: enough for an RNR wait of 10 µs, too little for any other timer.
    Wait,
}

/// What a target may be asked to post.
#[derive(Clone, Copy, Debug)]
pub(super) enum Posted {
    Send,
    Write,
    Read,
    FetchAdd,
}

impl From<Craft> for Act {
    fn from(craft: Craft) -> Self {
        Self::Packet(craft)
    }
}

/// Who is tested.
pub(super) trait Target {
    /// Makes a new queue pair and a region.
    fn begin(&mut self) -> Grant;
    fn act(&mut self, act: &Act);
    /// What it sent since it was last asked.
    fn sent(&mut self) -> Vec<String>;
    /// What it sent at last, its completions and its state; then the queue pair is destroyed.
    fn end(&mut self) -> Vec<String>;
}

/// A packet in a few words, its PSN counted from the first.
pub(super) fn describe(datagram: &[u8]) -> String {
    let Ok(packet) = Packet::parse(datagram) else { return format!("{} bytes that are no packet", datagram.len()) };
    let ahead = packet.bth.psn.value().wrapping_sub(PSN) & 0xff_ffff;
    let name = match packet.extensions.aeth {
        Some(Aeth { syndrome, .. }) if packet.bth.opcode == Opcode::RC_ACKNOWLEDGE => match syndrome {
            Syndrome::Ack { .. } => "ACK".to_owned(),
            Syndrome::ReceiverNotReady { .. } => "RNR".to_owned(),
            Syndrome::Nak(code) => nak(code).to_owned(),
            Syndrome::Reserved(value) => format!("syndrome {value:#x}"),
        },
        _ => format!("{:?}", packet.bth.opcode).replace("RC_", ""),
    };
    let mut text = format!("{name} {ahead}");
    if let Some(aeth) = packet.extensions.aeth {
        text += &format!(" msn {}", aeth.msn);
    }
    if let Some(reth) = packet.extensions.reth {
        text += &format!(" of {}", reth.length);
    }
    if let Some(AtomicEth { swap_add, .. }) = packet.extensions.atomic {
        text += &format!(" by {swap_add}");
    }
    if let Some(original) = packet.extensions.atomic_ack {
        text += &format!(" was {original}");
    }
    if packet.info.payload != PayloadRule::None {
        text += &format!(" {}B", packet.payload.len());
    }
    text
}

fn nak(code: NakCode) -> &'static str {
    match code {
        NakCode::SequenceError => "NAK-SEQUENCE",
        NakCode::InvalidRequest => "NAK-INVALID",
        NakCode::RemoteAccess => "NAK-ACCESS",
        NakCode::RemoteOperational => "NAK-OPERATIONAL",
        NakCode::InvalidRdRequest => "NAK-RD",
    }
}

/// A completion in a few words: request by number, and status as `ibv_wc_status`.
pub(super) fn completion(id: u64, status: u32) -> String {
    format!("wc {id}: {status}")
}
