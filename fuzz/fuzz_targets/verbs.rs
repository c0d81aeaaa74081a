//! Calls of a program in any order and with any arguments, on an endpoint whose queue pairs reach each other. No call
//! panics, no request completes that was not posted, and nothing is left when all is destroyed.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use uroce::endpoint::{Config, Endpoint};
use uroce::memory::{Access, Buffer, PdNumber, Region};
use uroce::qp::{AddressVector, Attributes, Capacity, Mtu, QpInit, State};
use uroce::queue::CompletionQueue;
use uroce::time::{Duration, Instant};
use uroce::wire::{Arrival, MAX_DATAGRAM, Psn, Qpn};
use uroce::work::{Operation, ReceiveRequest, Remote, SendFlags, SendRequest, Sge};

const SELF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// Bytes of the one region that there is at the beginning.
const REGION: usize = 64 * 1024;
/// More queue pairs and regions make runs slower, not better.
const MOST: usize = 8;

#[derive(Arbitrary, Debug)]
enum Call {
    Create {
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
    Destroy {
        pair: u8,
    },
    Register {
        length: u16,
        access: u32,
        other_pd: bool,
    },
    Deregister {
        key: u8,
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

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Place {
    key: u8,
    offset: u16,
    length: u16,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Given {
    state: Option<u8>,
    access: Option<u32>,
    pkey_index: Option<u16>,
    port: Option<u8>,
    address: Option<(u8, u8)>,
    path_mtu: Option<u8>,
    destination: Option<u32>,
    psns: (Option<u32>, Option<u32>),
    timeout: Option<u8>,
    retries: (Option<u8>, Option<u8>),
    min_rnr_timer: Option<u8>,
    depths: (Option<u8>, Option<u8>),
}

struct Program {
    endpoint: Endpoint,
    now: Instant,
    pds: [PdNumber; 2],
    cq: Arc<CompletionQueue>,
    buffer: Arc<Buffer>,
    pairs: Vec<Qpn>,
    keys: Vec<u32>,
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
        let buffer = Arc::new(Buffer::zeroed(REGION));
        let mut program = Self {
            endpoint,
            now: Instant::ZERO,
            pds,
            cq: Arc::new(CompletionQueue::new(64, 1).unwrap()),
            buffer,
            pairs: Vec::new(),
            keys: Vec::new(),
            posted: 0,
            completed: 0,
        };
        program.register(REGION, Access::LOCAL_WRITE | Access::REMOTE, 0);
        program
    }

    fn pair(&self, index: u8) -> Qpn {
        // One that is not there any more, or never was.
        let count = self.pairs.len() + 1;
        self.pairs.get(usize::from(index) % count).copied().unwrap_or(Qpn::new(u32::from(index)))
    }

    fn key(&self, index: u8) -> u32 {
        self.keys.get(usize::from(index) % (self.keys.len() + 1)).copied().unwrap_or(u32::from(index))
    }

    fn register(&mut self, length: usize, access: Access, pd: usize) {
        let buffer = if length == REGION { Arc::clone(&self.buffer) } else { Arc::new(Buffer::zeroed(length)) };
        if let Ok(key) = self.endpoint.memory_mut().register(Region::owned(buffer, 0, access, self.pds[pd])) {
            self.keys.push(key);
        }
    }

    fn sges(&self, places: &[Place]) -> Vec<Sge> {
        let sge = |place: &Place| Sge {
            address: place.offset.into(),
            length: place.length.into(),
            lkey: self.key(place.key),
        };
        places.iter().filter(|place| place.key != 0xff).map(sge).collect()
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::Create { other_pd, send, receive, inline, signal_all } => {
                if self.pairs.len() < MOST {
                    let capacity = Capacity {
                        max_send_wr: send.into(),
                        max_receive_wr: receive.into(),
                        max_inline: inline.into(),
                        ..Capacity::default()
                    };
                    let pd = self.pds[usize::from(other_pd)];
                    let init = QpInit::new(pd, Arc::clone(&self.cq), Arc::clone(&self.cq));
                    self.pairs.extend(self.endpoint.create_qp(QpInit { capacity, signal_all, ..init }));
                }
            }
            Call::Modify { pair, attributes } => self.modify(pair, &attributes.attributes()),
            Call::Connect { pair, peer, psns, depth, retry } => self.connect(pair, peer, psns, depth, retry),
            Call::Send { pair, operation, remote, local, flags, inline } => {
                let operation = self.operation(operation, remote);
                let id = self.posted;
                let request = if inline {
                    SendRequest::inline(id, operation, &vec![1; usize::from(local[0].length % 600)])
                } else {
                    SendRequest::new(id, operation, &self.sges(&local))
                };
                let request = request.with_flags(SendFlags::from_bits_truncate(flags.into()));
                self.posted += u64::from(self.endpoint.post_send(self.now, self.pair(pair), request).is_ok());
            }
            Call::Receive { pair, local } => {
                let request = ReceiveRequest::new(self.posted, &self.sges(&local));
                self.posted += u64::from(self.endpoint.post_receive(self.now, self.pair(pair), request).is_ok());
            }
            Call::Destroy { pair } => {
                let qpn = self.pair(pair);
                let is_there = self.pairs.contains(&qpn);
                assert_eq!(self.endpoint.destroy_qp(qpn).is_ok(), is_there);
                self.pairs.retain(|&other| other != qpn);
            }
            Call::Register { length, access, other_pd } => {
                if self.keys.len() < MOST {
                    self.register(length.into(), Access::from_bits_truncate(access), other_pd.into());
                }
            }
            Call::Deregister { key } => {
                let key = self.key(key);
                let is_there = self.keys.contains(&key);
                assert_eq!(self.endpoint.memory_mut().deregister(key).is_ok(), is_there);
                self.keys.retain(|&other| other != key);
            }
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
    }

    fn operation(&self, which: u8, place: Place) -> Operation {
        let remote = Remote { address: place.offset.into(), rkey: self.key(place.key) };
        match which % 8 {
            0 => Operation::Send,
            1 => Operation::SendImmediate(which.into()),
            2 => Operation::SendInvalidate(remote.rkey),
            3 => Operation::Write(remote),
            4 => Operation::WriteImmediate(remote, which.into()),
            5 => Operation::Read(remote),
            6 => Operation::CompareAndSwap { remote, compare: 0, swap: which.into() },
            _ => Operation::FetchAndAdd { remote, add: which.into() },
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
        let access = Some(Access::LOCAL_WRITE | Access::REMOTE);
        let psn = |low: u8| Some(Psn::new(0xff_ff80_u32.wrapping_add(low.into())));
        let address = AddressVector { destination: SELF, source_gid_index: 0, hop_limit: 64, traffic_class: 0 };
        let init = Attributes { pkey_index: Some(0), port: Some(1), access, ..to(State::Init) };
        let rtr = Attributes {
            address: Some(address),
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
        for attributes in [to(State::Reset), init, rtr, rts] {
            self.modify(pair, &attributes);
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
        self.endpoint.on_timeout(Instant::from_nanos(u64::MAX));
        assert_eq!((self.endpoint.queue_pairs(), self.endpoint.in_flight()), (0, 0));
        assert_eq!(self.endpoint.next_timeout(), None);
        assert_eq!(self.endpoint.poll_transmit(self.now, &mut vec![0; MAX_DATAGRAM]), None);
        self.completed += std::iter::from_fn(|| self.cq.pop()).count() as u64;
        assert!(self.completed <= self.posted, "{} of {} requests completed", self.completed, self.posted);
    }
}

impl Given {
    fn attributes(self) -> Attributes {
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

fn to(state: State) -> Attributes {
    Attributes { state: Some(state), ..Attributes::default() }
}
