//! Calls of a program in any order and with any arguments, on an endpoint whose queue pairs reach each other. No call
//! panics, no request completes that was not posted, and nothing is left when all is destroyed.
#![no_main]

mod calls;
mod keys;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use uroce::endpoint::{Config, Endpoint};
use uroce::memory::{Access, PdNumber};
use uroce::qp::{Attributes, Capacity, Mtu, QpInit, QpType, State};
use uroce::queue::{Arm, CompletionQueue, Extended, SrqInit, XrcdNumber};
use uroce::time::{Duration, Instant};
use uroce::wire::{Arrival, MAX_DATAGRAM, Placement, Psn, Qpn, Selectivity, SrqNumber};
use uroce::work::{AddressVector, Destination, Flush, Operation, ReceiveRequest, Remote, SendFlags, SendRequest, Sge};

use calls::{Call, Place};
use keys::Keys;

const SELF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 0, 0, 7));
const QKEY: u32 = 0x1111_1111;
const TYPES: [QpType; 6] = [QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcInitiator, QpType::XrcTarget];
/// More queue pairs make runs slower, not better.
const MOST: usize = 8;

struct Program {
    endpoint: Endpoint,
    now: Instant,
    pds: [PdNumber; 2],
    cq: Arc<CompletionQueue>,
    /// One for RC, UC and UD, one for XRC.
    srqs: [SrqNumber; 2],
    xrcds: [XrcdNumber; 2],
    pairs: Vec<Qpn>,
    keys: Keys,
    posted: u64,
    completed: u64,
}

fuzz_target!(|calls: Vec<Call>| {
    let mut program = Program::new();
    for call in calls {
        program.call(call);
    }
    program.finish();
});

impl Program {
    fn new() -> Self {
        let gids = vec![SELF];
        let config =
            Config { slot: 1, gids, mtu: Mtu::Mtu4096, seed: [7; 32], window: 64 * 1024, hold_bytes: 16 * 1024 };
        let mut endpoint = Endpoint::new(config);
        let pds = [endpoint.memory_mut().allocate_pd(), endpoint.memory_mut().allocate_pd()];
        let cq = Arc::new(CompletionQueue::new(64, 1).unwrap());
        let xrcds = [endpoint.allocate_xrcd(), endpoint.allocate_xrcd()];
        let extended = [None, Some(Extended { domain: xrcds[0], cq: Arc::clone(&cq) })];
        let srqs = extended
            .map(|extended| endpoint.create_srq(SrqInit { pd: pds[0], max_wr: 16, max_sge: 4, extended }).unwrap());
        let keys = Keys::new(&mut endpoint, pds);
        let pairs = Vec::new();
        Self { endpoint, now: Instant::ZERO, pds, cq, srqs, xrcds, pairs, keys, posted: 0, completed: 0 }
    }

    fn pair(&self, index: u8) -> Qpn {
        // One that is not there any more, or never was.
        let count = self.pairs.len() + 1;
        self.pairs.get(usize::from(index) % count).copied().unwrap_or(Qpn::new(u32::from(index)))
    }

    fn sges(&self, places: &[Place]) -> Vec<Sge> {
        let sge = |place: &Place| Sge {
            address: place.offset.into(),
            length: place.length.into(),
            lkey: self.keys.pick(place.key),
        };
        places.iter().filter(|place| place.key != 0xff).map(sge).collect()
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::Create { qp_type, shared, other_pd, send, receive, inline, signal_all } => {
                let capacity = Capacity {
                    max_send_wr: send.into(),
                    max_receive_wr: receive.into(),
                    max_inline: inline.into(),
                    ..Capacity::default()
                };
                self.create(qp_type, shared, other_pd, capacity, signal_all);
            }
            Call::Modify { pair, attributes } => self.modify(pair, &attributes.attributes()),
            Call::Connect { pair, peer, psns, depth, retry } => self.connect(pair, peer, psns, depth, retry),
            Call::Send { pair, operation, remote, local, flags, inline } => {
                self.send(pair, self.operation(operation, remote), remote.key, &local, (flags, inline));
            }
            Call::Receive { pair, local } => {
                let request = ReceiveRequest::new(self.posted, &self.sges(&local));
                self.posted += u64::from(self.endpoint.post_receive(self.now, self.pair(pair), request).is_ok());
            }
            Call::SharedReceive { extended, local } => {
                let request = ReceiveRequest::new(self.posted, &self.sges(&local));
                let posted = self.endpoint.post_srq_receive(self.srqs[usize::from(extended)], request);
                self.posted += u64::from(posted.is_ok());
            }
            Call::ModifyShared { extended, max_wr, limit } => {
                let (max_wr, limit) = (max_wr.map(u32::from), limit.map(u32::from));
                let _ = self.endpoint.modify_srq(self.srqs[usize::from(extended)], max_wr, limit);
            }
            Call::Destroy { pair } => {
                let qpn = self.pair(pair);
                let is_there = self.pairs.contains(&qpn);
                assert_eq!(self.endpoint.destroy_qp(qpn).is_ok(), is_there);
                self.pairs.retain(|&other| other != qpn);
            }
            Call::Register { .. }
            | Call::Reregister { .. }
            | Call::Deregister { .. }
            | Call::Allocate { .. }
            | Call::Deallocate { .. } => self.change_keys(call),
            Call::Lend { pair, lent, part, access, iova, flags } => {
                let access = Access::from_bits_truncate(access);
                if let Some(operation) = self.keys.lend(lent, part, access, iova) {
                    self.send(pair, operation, 0, &[], (flags & 0x3f, false));
                }
            }
            Call::ResizeCq { capacity } => drop(self.cq.resize(capacity.into())),
            Call::Arm { solicited } => self.cq.arm(if solicited { Arm::Solicited } else { Arm::Any }),
            Call::Multicast { pair, attach: true } => drop(self.endpoint.attach_multicast(self.pair(pair), GROUP)),
            Call::Multicast { pair, attach: false } => drop(self.endpoint.detach_multicast(self.pair(pair), GROUP)),
            Call::Gid { there } => self.endpoint.set_gids(if there { vec![SELF] } else { Vec::new() }),
            Call::Query { pair } => {
                let qpn = self.pair(pair);
                assert_eq!(self.endpoint.query_qp(qpn).is_ok(), self.pairs.contains(&qpn));
            }
            Call::Work { packets, lost } => self.work(packets.into(), lost),
            Call::Wait { micros } => {
                self.now += Duration::from_micros(micros.into());
                self.endpoint.on_timeout(self.now);
            }
            Call::Poll { count } => {
                let polled = (0..count).map_while(|_| self.cq.pop()).count();
                self.completed += polled as u64;
            }
        }
        while self.endpoint.poll_event().is_some() {}
        while self.endpoint.poll_membership().is_some() {}
    }

    fn change_keys(&mut self, call: Call) {
        let Self { endpoint, keys, .. } = self;
        match call {
            Call::Register { length, access, other_pd } => {
                keys.register(endpoint, length.into(), Access::from_bits_truncate(access), other_pd.into());
            }
            Call::Reregister { key, length, access, other_pd } => {
                let (key, length) = (keys.pick(key), length.map(usize::from));
                keys.reregister(endpoint, key, length, Access::from_bits_truncate(access), other_pd.into());
            }
            Call::Deregister { key, evict } => keys.deregister(endpoint, keys.pick(key), evict),
            Call::Allocate { lent, pages, other_pd } => keys.allocate(endpoint, lent, pages, other_pd.into()),
            Call::Deallocate { lent } => keys.deallocate(endpoint, lent),
            other => unreachable!("{other:?} is about something else"),
        }
    }

    fn create(&mut self, qp_type: u8, shared: bool, other_pd: bool, capacity: Capacity, signal_all: bool) {
        if self.pairs.len() < MOST {
            let qp_type = TYPES[usize::from(qp_type) % TYPES.len()];
            let xrcd = (qp_type == QpType::XrcTarget).then_some(self.xrcds[usize::from(other_pd)]);
            let srq = shared.then_some(self.srqs[0]);
            let init = QpInit::new(self.pds[usize::from(other_pd)], Arc::clone(&self.cq), Arc::clone(&self.cq));
            let init = QpInit { qp_type, capacity, signal_all, srq, xrcd, ..init };
            self.pairs.extend(self.endpoint.create_qp(init));
        }
    }

    fn send(&mut self, pair: u8, operation: Operation, target: u8, local: &[Place], (flags, inline): (u8, bool)) {
        let id = self.posted;
        let request = if let (true, [first, ..]) = (inline, local) {
            SendRequest::inline(id, operation, &vec![1; usize::from(first.length % 600)])
        } else {
            SendRequest::new(id, operation, &self.sges(local))
        };
        let mut request = request.with_flags(SendFlags::from_bits_truncate(flags.into()));
        let qpn = self.pair(target);
        let addressed = flags & 0x40 != 0;
        request.destination = addressed.then_some(Destination { address: address(), qpn, qkey: QKEY });
        request.srq = (flags & 0x80 != 0).then_some(self.srqs[1]);
        self.posted += u64::from(self.endpoint.post_send(self.now, self.pair(pair), request).is_ok());
    }

    fn operation(&self, which: u8, place: Place) -> Operation {
        let remote = Remote { address: place.offset.into(), rkey: self.keys.pick(place.key) };
        match which % 11 {
            0 => Operation::Send,
            1 => Operation::SendImmediate(which.into()),
            2 => Operation::SendInvalidate(remote.rkey),
            3 => Operation::Write(remote),
            4 => Operation::WriteImmediate(remote, which.into()),
            5 => Operation::Read(remote),
            6 => Operation::CompareAndSwap { remote, compare: 0, swap: which.into() },
            7 => Operation::FetchAndAdd { remote, add: which.into() },
            8 => Operation::AtomicWrite(remote),
            9 => Operation::LocalInvalidate(remote.rkey),
            _ => Operation::Flush(Flush {
                remote,
                length: place.length.into(),
                placement: Placement::from_bits_truncate(which >> 4),
                selectivity: if place.offset & 1 == 0 { Selectivity::Range } else { Selectivity::Region },
            }),
        }
    }

    fn modify(&mut self, pair: u8, attributes: &Attributes) {
        let qpn = self.pair(pair);
        let before = self.endpoint.query_qp(qpn).ok().map(|info| (info.state, info.attributes));
        if self.endpoint.modify_qp(self.now, qpn, attributes).is_err() {
            let after = self.endpoint.query_qp(qpn).ok().map(|info| (info.state, info.attributes));
            assert_eq!(after, before, "all or nothing");
        }
    }

    fn connect(&mut self, pair: u8, peer: u8, [send, receive]: [u8; 2], depth: u8, retry: u8) {
        let access = Some(Access::LOCAL_WRITE | Access::REMOTE | Access::FLUSH);
        let psn = |low: u8| Some(Psn::new(0xff_ff80_u32.wrapping_add(low.into())));
        let init = Attributes { pkey_index: Some(0), port: Some(1), access, ..to(State::Init) };
        let rtr = Attributes {
            address: Some(address()),
            path_mtu: Some(Mtu::Mtu256),
            destination: Some(self.pair(peer)),
            receive_psn: psn(receive),
            max_dest_rd_atomic: Some(depth % 17),
            min_rnr_timer: Some(1),
            ..to(State::ReadyToReceive)
        };
        let rts = Attributes {
            timeout: Some(retry % 16),
            retry_count: Some(retry % 8),
            rnr_retry: Some(retry / 32),
            send_psn: psn(send),
            max_rd_atomic: Some(depth % 17),
            ..to(State::ReadyToSend)
        };
        let info = self.endpoint.query_qp(self.pair(pair));
        if info.is_ok_and(|info| info.qp_type == QpType::Ud) {
            let init = Attributes { pkey_index: Some(0), port: Some(1), qkey: Some(QKEY), ..to(State::Init) };
            let rts = Attributes { send_psn: psn(send), ..to(State::ReadyToSend) };
            for attributes in [to(State::Reset), init, to(State::ReadyToReceive), rts] {
                self.modify(pair, &attributes);
            }
            return;
        }
        // Each type takes its half of them.
        for attributes in [to(State::Reset), init, rtr, rts] {
            for fitted in [attributes, without_answers(attributes)] {
                self.modify(pair, &fitted);
            }
        }
    }

    fn work(&mut self, packets: usize, lost: u32) {
        let mut room = vec![0; MAX_DATAGRAM];
        for n in 0..packets {
            let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut room) else { return };
            if lost >> (n % 32) & 1 == 0 {
                let flow = transmit.flow;
                let arrival = Arrival {
                    source: flow.source,
                    destination: flow.destination,
                    source_port: flow.source_port,
                    traffic_class: flow.traffic_class,
                    hop_limit: flow.hop_limit,
                    datagram: &room[..transmit.length],
                };
                self.endpoint.on_packet(self.now, &arrival);
            }
        }
    }

    /// Destroys everything: nothing is left.
    fn finish(mut self) {
        for qpn in std::mem::take(&mut self.pairs) {
            self.endpoint.destroy_qp(qpn).unwrap();
        }
        for srq in self.srqs {
            self.endpoint.destroy_srq(srq).unwrap();
        }
        self.keys.finish(&mut self.endpoint);
        self.endpoint.on_timeout(Instant::from_nanos(u64::MAX));
        assert_eq!((self.endpoint.queue_pairs(), self.endpoint.in_flight()), (0, 0));
        assert_eq!(self.endpoint.next_timeout(), None);
        assert_eq!(self.endpoint.poll_transmit(self.now, &mut vec![0; MAX_DATAGRAM]), None);
        self.completed += std::iter::from_fn(|| self.cq.pop()).count() as u64;
        assert!(self.completed <= self.posted, "{} of {} requests completed", self.completed, self.posted);
    }
}

/// What an unreliable connection takes.
fn without_answers(attributes: Attributes) -> Attributes {
    Attributes {
        max_dest_rd_atomic: None,
        min_rnr_timer: None,
        timeout: None,
        retry_count: None,
        rnr_retry: None,
        max_rd_atomic: None,
        ..attributes
    }
}

fn address() -> AddressVector {
    AddressVector { destination: SELF, source_gid_index: 0, hop_limit: 64, traffic_class: 0 }
}

fn to(state: State) -> Attributes {
    Attributes { state: Some(state), ..Attributes::default() }
}
