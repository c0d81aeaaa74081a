//! What the engine of a reliable connection costs without any I/O: a requester that makes packets and takes their
//! acknowledges, a responder that takes the packets and acknowledges them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use uroce::endpoint::{Config, Endpoint};
use uroce::memory::{Access, Buffer, Region};
use uroce::qp::{AddressVector, Attributes, Capacity, Mtu, QpInit, State};
use uroce::queue::CompletionQueue;
use uroce::time::Instant;
use uroce::wire::{Arrival, MAX_DATAGRAM, Psn, Qpn};
use uroce::work::{Operation, ReceiveRequest, Remote, SendRequest, Sge};

/// Packets from one acknowledge to the next: they fit the window.
const BATCH: u32 = 32;
const MTU: u32 = 4096;

/// One end of the connection.
struct Side {
    endpoint: Endpoint,
    address: IpAddr,
    qpn: Qpn,
    cq: Arc<CompletionQueue>,
    sge: Sge,
}

impl Side {
    fn new(n: u8) -> Self {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let window = Config::DEFAULT_WINDOW;
        let config = Config {
            slot: 1,
            gids: vec![address],
            mtu: Mtu::Mtu4096,
            seed: [n; 32],
            window,
            hold_bytes: Config::DEFAULT_HOLD_BYTES,
        };
        let mut endpoint = Endpoint::new(config);
        let pd = endpoint.memory_mut().allocate_pd();
        let cq = Arc::new(CompletionQueue::new(1024, 1).unwrap());
        let (send_cq, receive_cq) = (Arc::clone(&cq), Arc::clone(&cq));
        let capacity = Capacity::default();
        let init = QpInit { capacity, signal_all: true, ..QpInit::new(pd, send_cq, receive_cq) };
        let qpn = endpoint.create_qp(init).unwrap();
        let length = BATCH * MTU;
        let buffer = Arc::new(Buffer::zeroed(length as usize));
        let access = Access::LOCAL_WRITE | Access::REMOTE;
        let lkey = endpoint.memory_mut().register(Region::owned(buffer, 0, access, pd)).unwrap();
        Self { endpoint, address, qpn, cq, sge: Sge { address: 0, length, lkey } }
    }

    fn connect(&mut self, peer: Qpn, destination: IpAddr) {
        let to = |state| Attributes { state: Some(state), ..Attributes::default() };
        let access = Some(Access::REMOTE);
        let address = AddressVector { destination, source_gid_index: 0, hop_limit: 64, traffic_class: 0 };
        let way = [
            Attributes { pkey_index: Some(0), port: Some(1), access, ..to(State::Init) },
            Attributes {
                address: Some(address),
                path_mtu: Some(Mtu::Mtu4096),
                destination: Some(peer),
                receive_psn: Some(Psn::new(0)),
                max_dest_rd_atomic: Some(1),
                min_rnr_timer: Some(12),
                ..to(State::ReadyToReceive)
            },
            Attributes {
                timeout: Some(14),
                retry_count: Some(7),
                rnr_retry: Some(7),
                send_psn: Some(Psn::new(0)),
                max_rd_atomic: Some(1),
                ..to(State::ReadyToSend)
            },
        ];
        for attributes in way {
            self.endpoint.modify_qp(Instant::ZERO, self.qpn, &attributes).unwrap();
        }
    }
}

/// Datagrams between the sides.
struct Packets {
    rooms: Vec<Vec<u8>>,
    lengths: Vec<usize>,
}

impl Packets {
    fn new() -> Self {
        Self { rooms: vec![vec![0; MAX_DATAGRAM]; BATCH as usize + 1], lengths: Vec::with_capacity(BATCH as usize + 1) }
    }

    /// Has `from` send all it has to.
    fn fill(&mut self, now: Instant, from: &mut Side) {
        self.lengths.clear();
        while let Some(room) = self.rooms.get_mut(self.lengths.len())
            && let Some(transmit) = from.endpoint.poll_transmit(now, room)
        {
            self.lengths.push(transmit.length);
        }
    }

    /// Hands all of it to `to`.
    fn deliver(&self, now: Instant, source: IpAddr, to: &mut Side) {
        for (room, &length) in self.rooms.iter().zip(&self.lengths) {
            let arrival = Arrival {
                source,
                destination: to.address,
                source_port: 0xc000,
                traffic_class: 0,
                hop_limit: 64,
                datagram: &room[..length],
            };
            to.endpoint.on_packet(now, &arrival);
        }
    }
}

/// The traffic that is measured.
#[derive(Clone, Copy)]
enum Traffic {
    /// One WRITE of a batch of full packets.
    Write,
    /// A batch of SENDs of 64 bytes.
    Send,
}

/// A connection and how long each side took.
struct Bench {
    sides: [Side; 2],
    requests: Packets,
    answers: Packets,
    now: Instant,
    spent: [Duration; 2],
}

impl Bench {
    fn new() -> Self {
        let mut sides = [Side::new(1), Side::new(2)];
        let ends: Vec<_> = sides.iter().map(|side| (side.qpn, side.address)).collect();
        for (side, &(qpn, address)) in sides.iter_mut().zip(ends.iter().rev()) {
            side.connect(qpn, address);
        }
        let (requests, answers) = (Packets::new(), Packets::new());
        Self { sides, requests, answers, now: Instant::ZERO, spent: [Duration::ZERO; 2] }
    }

    /// One batch there, and its acknowledges back.
    fn batch(&mut self, traffic: Traffic) {
        self.now += Duration::from_micros(20);
        let now = self.now;
        let [near, far] = &mut self.sides;
        if let Traffic::Send = traffic {
            for id in 0..u64::from(BATCH) {
                far.endpoint.post_receive(now, far.qpn, ReceiveRequest::new(id, &[far.sge])).unwrap();
            }
        }
        let begun = Clock::now();
        match traffic {
            Traffic::Write => {
                let remote = Remote { address: 0, rkey: far.sge.lkey };
                let request = SendRequest::new(1, Operation::Write(remote), &[near.sge]);
                near.endpoint.post_send(now, near.qpn, request).unwrap();
            }
            Traffic::Send => {
                let sge = Sge { length: 64, ..near.sge };
                for id in 0..u64::from(BATCH) {
                    near.endpoint.post_send(now, near.qpn, SendRequest::new(id, Operation::Send, &[sge])).unwrap();
                }
            }
        }
        self.requests.fill(now, near);
        let sent = Clock::now();
        self.requests.deliver(now, near.address, far);
        self.answers.fill(now, far);
        let answered = Clock::now();
        self.answers.deliver(now, far.address, near);
        self.spent[0] += sent - begun + answered.elapsed();
        self.spent[1] += answered - sent;
        assert_eq!(self.requests.lengths.len(), BATCH as usize);
        while far.cq.pop().is_some() {}
        assert!(near.cq.pop().is_some(), "the batch is acknowledged");
        while near.cq.pop().is_some() {}
    }
}

fn engine(criterion: &mut Criterion) {
    for (name, traffic) in [("WRITE of 4096-byte packets", Traffic::Write), ("SEND of 64 bytes", Traffic::Send)] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(u64::from(BATCH)));
        for (side, role) in ["requester", "responder"].into_iter().enumerate() {
            group.bench_function(BenchmarkId::from_parameter(role), |bencher| {
                let mut bench = Bench::new();
                bencher.iter_custom(|batches| {
                    bench.spent = [Duration::ZERO; 2];
                    for _ in 0..batches {
                        bench.batch(traffic);
                    }
                    bench.spent[side]
                });
            });
        }
    }
}

criterion_group!(benches, engine);
criterion_main!(benches);
