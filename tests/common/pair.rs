//! Two endpoints on a simulated network, connected by a queue pair on each: the everyday test bench.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use uroce::counters::Counters;
use uroce::endpoint::{Config, Endpoint};
use uroce::event::{AsyncEvent, Event};
use uroce::memory::{Access, Buffer, PdNumber, Region};
use uroce::port::{Network, Port, SimConfig, SimPort};
use uroce::qp::{AddressVector, Attributes, Capacity, Mtu, QpInit, QpType, State};
use uroce::queue::CompletionQueue;
use uroce::time::{Duration, Instant};
use uroce::wire::{Psn, Qpn};
use uroce::work::{Completion, Operation, ReceiveRequest, Remote, SendRequest, Sge};

/// How the two are connected.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub qp_type: QpType,
    pub mtu: Mtu,
    /// First PSN from A to B, and from B to A.
    pub psns: [u32; 2],
    pub access: Access,
    pub rd_atomic: u8,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    /// Bytes that may be held of packets which arrive before their turn.
    pub hold_bytes: usize,
    /// Bytes of registered memory on each side.
    pub memory: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            mtu: Mtu::Mtu1024,
            psns: [0xff_fff0, 0x12_3456],
            access: Access::LOCAL_WRITE | Access::REMOTE,
            rd_atomic: 4,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            hold_bytes: Config::DEFAULT_HOLD_BYTES,
            memory: 1 << 20,
        }
    }
}

/// One endpoint, its port, one queue pair, and one region.
pub struct Side {
    pub endpoint: Endpoint,
    pub port: SimPort,
    pub address: IpAddr,
    pub pd: PdNumber,
    pub cq: Arc<CompletionQueue>,
    pub qpn: Qpn,
    pub buffer: Arc<Buffer>,
    pub key: u32,
    pub completions: Vec<Completion>,
    pub events: Vec<AsyncEvent>,
}

impl Side {
    /// An endpoint at 10.0.0.`n` with one queue pair, in RESET.
    pub fn new(network: &Network, n: u8, options: &Options) -> Self {
        Self::at(network, IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), 1, [n; 32], options)
    }

    /// An endpoint at `address` with one queue pair, in RESET; a slot of 0 numbers queue pairs as the kernel does.
    pub fn at(network: &Network, address: IpAddr, slot: u8, seed: [u8; 32], options: &Options) -> Self {
        let mut endpoint = Endpoint::new(Config {
            slot,
            gids: vec![address],
            mtu: Mtu::Mtu4096,
            seed,
            window: Config::DEFAULT_WINDOW,
            hold_bytes: options.hold_bytes,
        });
        let pd = endpoint.memory_mut().allocate_pd();
        let cq = Arc::new(CompletionQueue::new(1024, 1).unwrap());
        let qpn = endpoint.create_qp(QpInit { qp_type: options.qp_type, ..init(pd, &cq) }).unwrap();
        let buffer = Arc::new(Buffer::zeroed(options.memory));
        let region = Region::owned(Arc::clone(&buffer), buffer.address(), options.access, pd);
        let key = endpoint.memory_mut().register(region).unwrap();
        let (completions, events) = (Vec::new(), Vec::new());
        Self { endpoint, port: network.port(address), address, pd, cq, qpn, buffer, key, completions, events }
    }

    /// Another queue pair, in RESET.
    pub fn create_qp(&mut self) -> Qpn {
        self.endpoint.create_qp(init(self.pd, &self.cq)).unwrap()
    }

    /// An element of the region.
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { address: self.buffer.address() + offset as u64, length, lkey: self.key }
    }

    /// A place in the region, for the peer.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.buffer.address() + offset as u64, rkey: self.key }
    }

    /// Writes to the region.
    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        self.buffer.span(offset, bytes.len()).unwrap().copy_in(bytes).unwrap();
    }

    /// Reads from the region.
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.buffer.span(offset, length).unwrap().copy_out(&mut bytes).unwrap();
        bytes
    }

    /// Eight bytes of the region, as the processor sees them.
    pub fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(offset, 8).try_into().unwrap())
    }

    pub fn counters(&self) -> Counters {
        self.endpoint.counters()
    }

    pub fn state(&self) -> State {
        self.endpoint.query_qp(self.qpn).unwrap().state
    }

    /// Takes in what arrived, runs timers, sends what there is to send.
    pub fn progress(&mut self, now: Instant) {
        let Self { endpoint, port, .. } = self;
        while port.receive(&mut |arrival| endpoint.on_packet(now, &arrival)).unwrap() > 0 {}
        endpoint.on_timeout(now);
        while let Some(transmit) = endpoint.poll_transmit(now, port.room().unwrap()) {
            port.commit(&transmit.flow, transmit.length);
        }
        port.flush().unwrap();
        while let Some(event) = endpoint.poll_event() {
            if let Event::Async(event) = event {
                self.events.push(event);
            }
        }
        while let Some(completion) = self.cq.pop() {
            self.completions.push(completion);
        }
    }
}

/// Side A and side B, connected.
pub struct Pair {
    pub network: Network,
    pub a: Side,
    pub b: Side,
    pub now: Instant,
}

impl Pair {
    /// A pair on a network that only delays, by 5 µs.
    pub fn clean(options: Options) -> Self {
        let delay = Duration::from_micros(5);
        Self::new(1, SimConfig { delay: delay..=delay, ..SimConfig::default() }, options)
    }

    pub fn new(seed: u64, config: SimConfig, options: Options) -> Self {
        let network = Network::new(seed, config);
        let (a, b) = (Side::new(&network, 1, &options), Side::new(&network, 2, &options));
        let mut pair = Self { network, a, b, now: Instant::ZERO };
        let (qpn_a, qpn_b, at_a, at_b) = (pair.a.qpn, pair.b.qpn, pair.a.address, pair.b.address);
        let [a_to_b, b_to_a] = options.psns;
        connect(&mut pair.a, qpn_a, &options, [a_to_b, b_to_a], (qpn_b, at_b));
        connect(&mut pair.b, qpn_b, &options, [b_to_a, a_to_b], (qpn_a, at_a));
        pair
    }

    pub fn post(&mut self, request: SendRequest) {
        self.a.endpoint.post_send(self.now, self.a.qpn, request).unwrap();
    }

    /// A signalled request of A over the first `length` bytes of its region.
    pub fn post_simple(&mut self, id: u64, operation: Operation, length: u32) {
        self.post(SendRequest::new(id, operation, &[self.a.sge(0, length)]));
    }

    /// A receive of B into `length` bytes from `offset` of its region.
    pub fn receive(&mut self, id: u64, offset: usize, length: u32) {
        let request = ReceiveRequest::new(id, &[self.b.sge(offset, length)]);
        self.b.endpoint.post_receive(self.now, self.b.qpn, request).unwrap();
    }

    /// Lets both sides work until nothing is on its way and no timer runs, or `limit` is over.
    pub fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            self.network.advance(self.now);
            self.a.progress(self.now);
            self.b.progress(self.now);
            let next = [self.network.next_arrival(), self.a.endpoint.next_timeout(), self.b.endpoint.next_timeout()];
            match next.into_iter().flatten().min() {
                Some(at) if at <= end => self.now = self.now.max(at),
                Some(_) => {
                    self.now = end;
                    return;
                }
                None => return,
            }
        }
    }

    /// Asserts that a clean network caused no retry, drop or NAK.
    pub fn assert_nothing_spurious(&self) {
        for side in [&self.a, &self.b] {
            let counters = side.counters();
            let spurious: Vec<_> = counters
                .iter()
                .filter(|(name, value)| *value > 0 && !["sent_pkts", "rcvd_pkts", "ack_deferred"].contains(name))
                .collect();
            assert!(spurious.is_empty(), "{:?}: {spurious:?}", side.address);
        }
    }
}

/// A queue pair as the tests use it: small queues, long lists, 512 bytes inline.
pub fn init(pd: PdNumber, cq: &Arc<CompletionQueue>) -> QpInit {
    QpInit {
        capacity: Capacity { max_send_sge: 32, max_receive_sge: 32, max_inline: 512, ..Capacity::default() },
        ..QpInit::new(pd, Arc::clone(cq), Arc::clone(cq))
    }
}

/// The attributes of a change of state alone.
pub fn to(state: State) -> Attributes {
    Attributes { state: Some(state), ..Attributes::default() }
}

/// The Q_Key of the datagram queue pairs.
pub const QKEY: u32 = 0x1111_1111;

/// The attributes that lead a queue pair from RESET to RTS, as its type takes them. `psns`: the first sent and the first
/// received.
pub fn way_to_rts(options: &Options, [send, receive]: [u32; 2], (peer, address): (Qpn, IpAddr)) -> [Attributes; 3] {
    let init = Attributes { pkey_index: Some(0), port: Some(1), access: Some(options.access), ..to(State::Init) };
    let rtr = Attributes {
        address: Some(AddressVector { destination: address, source_gid_index: 0, hop_limit: 64, traffic_class: 0 }),
        path_mtu: Some(options.mtu),
        destination: Some(peer),
        receive_psn: Some(Psn::new(receive)),
        max_dest_rd_atomic: Some(options.rd_atomic),
        min_rnr_timer: Some(options.min_rnr_timer),
        ..to(State::ReadyToReceive)
    };
    let rts = Attributes {
        timeout: Some(options.timeout),
        retry_count: Some(options.retry_count),
        rnr_retry: Some(options.rnr_retry),
        send_psn: Some(Psn::new(send)),
        max_rd_atomic: Some(options.rd_atomic),
        ..to(State::ReadyToSend)
    };
    match options.qp_type {
        QpType::Uc => {
            let rtr = Attributes { max_dest_rd_atomic: None, min_rnr_timer: None, ..rtr };
            [init, rtr, Attributes { send_psn: rts.send_psn, ..to(State::ReadyToSend) }]
        }
        QpType::Ud => [
            Attributes { access: None, qkey: Some(QKEY), ..init },
            to(State::ReadyToReceive),
            Attributes { send_psn: rts.send_psn, ..to(State::ReadyToSend) },
        ],
        _ => [init, rtr, rts],
    }
}

/// Moves a side's queue pair `qpn` to RTS.
pub fn connect(side: &mut Side, qpn: Qpn, options: &Options, psns: [u32; 2], peer: (Qpn, IpAddr)) {
    for attributes in way_to_rts(options, psns, peer) {
        side.endpoint.modify_qp(Instant::ZERO, qpn, &attributes).unwrap();
    }
}
