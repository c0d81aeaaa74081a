//! One endpoint with one connected queue pair, and memory between guards: what both targets attack.
#![allow(dead_code)]

use std::net::{IpAddr, Ipv4Addr};
use std::ptr::NonNull;
use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use uroce::endpoint::{Config, Endpoint};
use uroce::memory::{Access, Buffer, Region};
use uroce::qp::{AddressVector, Attributes, Capacity, Mtu, QpInit, State};
use uroce::queue::CompletionQueue;
use uroce::time::Instant;
use uroce::wire::{Arrival, Bth, Extensions, Opcode, Packet, Psn, Qpn, emit_headers, pad_of};
use uroce::work::{Completion, Sge, Status};

pub const MTU: usize = 256;
/// The first PSN each way: wraps soon.
pub const PSN: u32 = 0xff_fff8;
/// Bytes of memory that work may touch.
pub const GRANTED: usize = 16 * 1024;
/// Where it begins, in the numbering of the peer.
pub const IOVA: u64 = 0x10_0000;
const GUARD: usize = 4096;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SELF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const PEER_QPN: Qpn = Qpn::new(0x12_3456);

/// How many bytes, around the numbers where something changes.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Length {
    Zero,
    Eight,
    Mtu { off: i8 },
    Mtus { count: u8, off: i8 },
    Any(u32),
}

impl Length {
    pub fn bytes(self) -> u32 {
        match self {
            Self::Zero => 0,
            Self::Eight => 8,
            Self::Mtu { off } => (MTU as u32).saturating_add_signed(i32::from(off % 3)),
            Self::Mtus { count, off } => (u32::from(count % 70) * MTU as u32).saturating_add_signed(i32::from(off)),
            Self::Any(bytes) => bytes,
        }
    }
}

/// A queue pair in RTS.
pub struct Rig {
    pub endpoint: Endpoint,
    pub qpn: Qpn,
    pub key: u32,
    pub now: Instant,
    pub completions: Vec<Completion>,
    cq: Arc<CompletionQueue>,
    buffer: Arc<Buffer>,
    room: Vec<u8>,
}

impl Rig {
    pub fn new() -> Self {
        let config = Config {
            slot: 1,
            gids: vec![SELF],
            mtu: Mtu::Mtu4096,
            seed: [7; 32],
            window: 64 * 1024,
            hold_bytes: 64 * 1024,
        };
        let mut endpoint = Endpoint::new(config);
        let pd = endpoint.memory_mut().allocate_pd();
        let cq = Arc::new(CompletionQueue::new(4096, 1).unwrap());
        let capacity = Capacity::default();
        let (send_cq, receive_cq) = (Arc::clone(&cq), Arc::clone(&cq));
        let init = QpInit { capacity, signal_all: true, ..QpInit::new(pd, send_cq, receive_cq) };
        let qpn = endpoint.create_qp(init).unwrap();

        let buffer = Arc::new(Buffer::zeroed(GRANTED + 2 * GUARD));
        buffer.span(0, GUARD).unwrap().copy_in(&[0xee; GUARD]).unwrap();
        buffer.span(GUARD + GRANTED, GUARD).unwrap().copy_in(&[0xee; GUARD]).unwrap();
        let start = NonNull::new((buffer.address() as usize + GUARD) as *mut u8).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE;
        // SAFETY: inside the buffer, which lives as long as the endpoint and is reached through copies only.
        let region = unsafe { Region::raw(start, GRANTED, IOVA, access, pd) };
        let key = endpoint.memory_mut().register(region).unwrap();

        let mut rig = Self {
            endpoint,
            qpn,
            key,
            now: Instant::ZERO,
            completions: Vec::new(),
            cq,
            buffer,
            room: vec![0; uroce::wire::MAX_DATAGRAM],
        };
        rig.connect(access);
        rig
    }

    fn connect(&mut self, access: Access) {
        let address = AddressVector { destination: PEER, source_gid_index: 0, hop_limit: 64, traffic_class: 0 };
        let way = [
            Attributes { pkey_index: Some(0), port: Some(1), access: Some(access), ..to(State::Init) },
            Attributes {
                address: Some(address),
                path_mtu: Some(Mtu::Mtu256),
                destination: Some(PEER_QPN),
                receive_psn: Some(Psn::new(PSN)),
                max_dest_rd_atomic: Some(4),
                min_rnr_timer: Some(1),
                ..to(State::ReadyToReceive)
            },
            Attributes {
                timeout: Some(8),
                retry_count: Some(3),
                rnr_retry: Some(3),
                send_psn: Some(Psn::new(PSN)),
                max_rd_atomic: Some(4),
                ..to(State::ReadyToSend)
            },
        ];
        for attributes in way {
            self.endpoint.modify_qp(self.now, self.qpn, &attributes).unwrap();
        }
    }

    /// A packet from the peer, right but for what the caller chose.
    pub fn push(&mut self, opcode: Opcode, psn: Psn, ack_request: bool, extensions: &Extensions, payload: usize) {
        let bth = Bth {
            opcode,
            solicited: false,
            migration: true,
            pad: pad_of(payload),
            version: 0,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            destination: self.qpn,
            ack_request,
            psn,
        };
        let mut datagram = vec![0x5a; 80];
        let header = emit_headers(&bth, extensions, &mut datagram).unwrap();
        datagram.resize(header + payload + usize::from(bth.pad), 0x5a);
        let (source, destination) = (PEER, SELF);
        let arrival =
            Arrival { source, destination, source_port: 0xc000, traffic_class: 0, hop_limit: 64, datagram: &datagram };
        self.endpoint.on_packet(self.now, &arrival);
    }

    /// Sends up to `limit` packets, each of which must be one for the peer; how many there were.
    pub fn drain(&mut self, limit: usize, mut each: impl FnMut(&Packet<'_>)) -> usize {
        for n in 0..limit {
            let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut self.room) else { return n };
            assert_eq!((transmit.flow.destination, transmit.flow.source), (PEER, SELF));
            let packet = Packet::parse(&self.room[..transmit.length]).expect("what is sent is a packet");
            assert_eq!(packet.bth.destination, PEER_QPN);
            assert!(packet.payload.len() <= MTU);
            each(&packet);
        }
        limit
    }

    /// Takes over completions and events, and looks at the guards.
    pub fn settle(&mut self) {
        self.completions.extend(std::iter::from_fn(|| self.cq.pop()));
        while self.endpoint.poll_event().is_some() {}
        for offset in [0, GUARD + GRANTED] {
            let mut guard = [0; GUARD];
            self.buffer.span(offset, GUARD).unwrap().copy_out(&mut guard).unwrap();
            assert_eq!(guard, [0xee; GUARD], "memory outside of the region was touched");
        }
    }

    /// Ends it all: every request must have exactly one completion, in order.
    pub fn finish(mut self, posted: u64) {
        self.endpoint.modify_qp(self.now, self.qpn, &to(State::Error)).unwrap();
        self.settle();
        assert_eq!(self.drain(1, |_| ()), 0, "nothing is sent in the error state");
        let ids: Vec<_> = self.completions.iter().map(|completion| completion.id).collect();
        assert_eq!(ids, (0..posted).collect::<Vec<_>>());
        let first_failed = self.completions.iter().position(|completion| completion.status != Status::Success);
        let mut after = self.completions.iter().skip(first_failed.unwrap_or(ids.len()) + 1);
        assert!(after.all(|completion| completion.status == Status::FlushError), "after a failure all is flushed");
    }

    /// Eight bytes of the region.
    pub fn word(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.buffer.span(GUARD + offset, 8).unwrap().copy_out(&mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    /// An element of the region.
    pub fn sge(&self, offset: u32, length: u32) -> Sge {
        Sge { address: IOVA + u64::from(offset), length, lkey: self.key }
    }
}

fn to(state: State) -> Attributes {
    Attributes { state: Some(state), ..Attributes::default() }
}
