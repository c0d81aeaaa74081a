//! What a program may call, with which arguments.

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use uroce::memory::Access;
use uroce::qp::{Attributes, Mtu, State};
use uroce::wire::{Psn, Qpn};
use uroce::work::AddressVector;

#[derive(Arbitrary, Debug)]
pub enum Call {
    Create {
        qp_type: u8,
        shared: bool,
        /// Of the other protection domain or, on an XRC target, the other XRC domain.
        other_pd: bool,
        send: u8,
        receive: u8,
        inline: u16,
        signal_all: bool,
    },
    Modify {
        pair: u8,
        attributes: Given,
    },
    /// To RTS, to a peer that may or may not know.
    Connect {
        pair: u8,
        peer: u8,
        psns: [u8; 2],
        depth: u8,
        retry: u8,
    },
    Send {
        pair: u8,
        operation: u8,
        remote: Place,
        local: [Place; 2],
        flags: u8,
        inline: bool,
    },
    Receive {
        pair: u8,
        local: [Place; 2],
    },
    SharedReceive {
        extended: bool,
        local: [Place; 2],
    },
    ModifyShared {
        extended: bool,
        max_wr: Option<u8>,
        limit: Option<u8>,
    },
    Destroy {
        pair: u8,
    },
    Register {
        length: u16,
        access: u32,
        other_pd: bool,
    },
    Reregister {
        key: u8,
        length: Option<u16>,
        access: u32,
        other_pd: bool,
    },
    /// Evicting takes back first what is lent of it.
    Deregister {
        key: u8,
        evict: bool,
    },
    Allocate {
        lent: Lent,
        pages: u8,
        other_pd: bool,
    },
    Deallocate {
        lent: u8,
    },
    /// Posts a bind or a fast registration.
    Lend {
        pair: u8,
        lent: u8,
        part: Place,
        access: u32,
        iova: u16,
        flags: u8,
    },
    ResizeCq {
        capacity: u8,
    },
    Arm {
        solicited: bool,
    },
    Multicast {
        pair: u8,
        attach: bool,
    },
    /// The only address goes, or comes back.
    Gid {
        there: bool,
    },
    Query {
        pair: u8,
    },
    /// Packets go round; of those whose bit is set, every one is lost.
    Work {
        packets: u8,
        lost: u32,
    },
    Wait {
        micros: u32,
    },
    Poll {
        count: u8,
    },
}

/// To what a part of a region can be lent.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    WindowOne,
    WindowTwo,
    Fast,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Place {
    pub key: u8,
    pub offset: u16,
    pub length: u16,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Given {
    pub state: Option<u8>,
    pub qkey: Option<u32>,
    pub access: Option<u32>,
    pub pkey_index: Option<u16>,
    pub port: Option<u8>,
    pub address: Option<(u8, u8)>,
    pub path_mtu: Option<u8>,
    pub destination: Option<u32>,
    pub psns: (Option<u32>, Option<u32>),
    pub timeout: Option<u8>,
    pub retries: (Option<u8>, Option<u8>),
    pub min_rnr_timer: Option<u8>,
    pub depths: (Option<u8>, Option<u8>),
}

impl Given {
    /// As the endpoint takes them.
    pub fn attributes(self) -> Attributes {
        const STATES: [State; 7] = [
            State::Reset,
            State::Init,
            State::ReadyToReceive,
            State::ReadyToSend,
            State::SendQueueDrained,
            State::SendQueueError,
            State::Error,
        ];
        let (receive_psn, send_psn) = self.psns;
        Attributes {
            state: self.state.map(|state| STATES[usize::from(state) % STATES.len()]),
            access: self.access.map(Access::from_bits_truncate),
            pkey_index: self.pkey_index,
            port: self.port,
            qkey: self.qkey,
            address: self.address.map(|(last, source_gid_index)| AddressVector {
                destination: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
                source_gid_index,
                hop_limit: last,
                traffic_class: 0,
            }),
            path_mtu: self.path_mtu.map(|mtu| Mtu::ALL[usize::from(mtu) % Mtu::ALL.len()]),
            destination: self.destination.map(Qpn::new),
            receive_psn: receive_psn.map(Psn::new),
            send_psn: send_psn.map(Psn::new),
            timeout: self.timeout,
            retry_count: self.retries.0,
            rnr_retry: self.retries.1,
            min_rnr_timer: self.min_rnr_timer,
            max_rd_atomic: self.depths.0,
            max_dest_rd_atomic: self.depths.1,
        }
    }
}
