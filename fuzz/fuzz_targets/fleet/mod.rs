//! One endpoint with a queue pair of every service, all connected to one peer, and with a model of what the program asked
//! for: which requests are outstanding, and which bytes they may change.

mod memory;
mod peer;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use uroce::endpoint::{Config, Endpoint};
use uroce::memory::{Access, PdNumber};
use uroce::qp::{Attributes, Mtu, QpInfo, QpInit, QpType, State};
use uroce::queue::{CompletionQueue, Extended, SrqInit};
use uroce::time::{Duration, Instant};
use uroce::wire::{MAX_DATAGRAM, Opcode, Psn, Qpn, SrqNumber};
use uroce::work::{AddressVector, Completion, CompletionKind, ReceiveRequest, SendRequest, Status};

pub use memory::{AREA, Area};
use memory::{Memory, SECRET, Span};
pub use peer::Chosen;

pub const MTU: usize = 256;
/// The first PSN each way: wraps soon.
const PSN: u32 = 0xff_fff8;
pub const QKEY: u32 = 0x1357_9bdf;
pub const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SELF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
pub const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 0, 0, 7));
const PAIRS: usize = 8;
/// The services, and whether receives come from the shared receive queue.
const SERVICES: [(QpType, bool); PAIRS] = [
    (QpType::Rc, false),
    (QpType::Rc, true),
    (QpType::Uc, false),
    (QpType::Uc, true),
    (QpType::Ud, false),
    (QpType::Ud, true),
    (QpType::XrcInitiator, false),
    (QpType::XrcTarget, false),
];

/// Where a request waits, by place in the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Send(usize),
    Receive(usize),
    Shared(usize),
}

impl Queue {
    /// The shared receive queue of RC, UC and UD, that of the XRC domain, and that of a domain that no target is in.
    const PLAIN: usize = 0;
    const EXTENDED: usize = 1;
    const FOREIGN: usize = 2;
}

/// A request that was posted, and has not completed.
struct Work {
    queue: Queue,
    spans: Vec<Span>,
    /// Bytes of its elements.
    room: u64,
    fetches: bool,
}

pub struct Fleet {
    pub endpoint: Endpoint,
    pub memory: Memory,
    pub now: Instant,
    pub srqs: [SrqNumber; 3],
    qpns: [Qpn; PAIRS],
    cq: Arc<CompletionQueue>,
    outstanding: BTreeMap<u64, Work>,
    next_id: u64,
    /// Request packets that were sent and may not be answered: opcode, PSN and length of a READ.
    due: [VecDeque<(Opcode, Psn, u32)>; PAIRS],
    room: Vec<u8>,
}

impl Fleet {
    /// Receive queues: those of queue pairs, then the shared ones.
    pub const QUEUES: usize = PAIRS + 3;

    pub fn new() -> Self {
        let config = Config {
            slot: 1,
            gids: vec![SELF],
            mtu: Mtu::Mtu4096,
            seed: [7; 32],
            window: 16 * 1024,
            hold_bytes: 16 * 1024,
        };
        let mut endpoint = Endpoint::new(config);
        let pds = [endpoint.memory_mut().allocate_pd(), endpoint.memory_mut().allocate_pd()];
        let cq = Arc::new(CompletionQueue::new(4096, 1).unwrap());
        let domains = [endpoint.allocate_xrcd(), endpoint.allocate_xrcd()];
        let mut shared = |pd: PdNumber, domain: Option<usize>| {
            let extended = domain.map(|domain| Extended { domain: domains[domain], cq: Arc::clone(&cq) });
            endpoint.create_srq(SrqInit { pd, max_wr: 64, max_sge: 4, extended }).unwrap()
        };
        let srqs = [shared(pds[0], None), shared(pds[1], Some(0)), shared(pds[1], Some(1))];
        let qpns = SERVICES.map(|(qp_type, shares)| {
            let xrcd = (qp_type == QpType::XrcTarget).then_some(domains[0]);
            let srq = shares.then_some(srqs[Queue::PLAIN]);
            let init = QpInit::new(pds[0], Arc::clone(&cq), Arc::clone(&cq));
            endpoint.create_qp(QpInit { qp_type, signal_all: true, srq, xrcd, ..init }).unwrap()
        });
        let memory = Memory::new(&mut endpoint, pds);
        let mut fleet = Self {
            endpoint,
            memory,
            now: Instant::ZERO,
            srqs,
            qpns,
            cq,
            outstanding: BTreeMap::new(),
            next_id: 0,
            due: Default::default(),
            room: vec![0; MAX_DATAGRAM],
        };
        for (index, (qp_type, _)) in SERVICES.iter().enumerate() {
            if *qp_type == QpType::Ud {
                fleet.endpoint.attach_multicast(qpns[index], GROUP).unwrap();
            }
            fleet.connect(index);
        }
        while fleet.endpoint.poll_membership().is_some() {}
        fleet
    }

    /// One of the queue pairs.
    pub fn pick(index: u8) -> usize {
        usize::from(index) % PAIRS
    }

    pub fn info(&self, pair: usize) -> QpInfo {
        self.endpoint.query_qp(self.qpns[pair]).unwrap()
    }

    /// Through RESET to RTS.
    pub fn connect(&mut self, pair: usize) {
        self.modify(pair, &to(State::Reset)).unwrap();
        self.due[pair].clear();
        for attributes in way(SERVICES[pair].0, pair) {
            self.modify(pair, &attributes).unwrap();
        }
        self.settle();
    }

    /// To a state that may or may not be reached from here.
    pub fn move_to(&mut self, pair: usize, state: State) {
        let _ = self.modify(pair, &to(state));
        self.settle();
    }

    fn modify(&mut self, pair: usize, attributes: &Attributes) -> uroce::error::Result<()> {
        self.endpoint.modify_qp(self.now, self.qpns[pair], attributes)?;
        if attributes.state == Some(State::Reset) {
            // What a reset queue pair was asked for is gone without a completion.
            self.outstanding.retain(|_, work| ![Queue::Send(pair), Queue::Receive(pair)].contains(&work.queue));
        }
        Ok(())
    }

    pub fn wait(&mut self, by: Duration) {
        self.now += by;
        self.endpoint.on_timeout(self.now);
        assert!(self.endpoint.next_timeout().is_none_or(|at| at > self.now), "a timer that is due was run");
        self.settle();
    }

    /// Posts a send request to a queue pair; `spans` is the memory of its elements.
    pub fn send(&mut self, pair: usize, request: SendRequest, spans: Vec<Span>) {
        let request = SendRequest { id: self.next_id, ..request };
        let spans = spans.into_iter().filter(|span| span.area.domain() == 0).collect();
        let work = Work { queue: Queue::Send(pair), spans, room: 0, fetches: request.operation.fetches() };
        // Known before it is posted: in the error state it completes at once.
        self.outstanding.insert(self.next_id, work);
        let posted = self.endpoint.post_send(self.now, self.qpns[pair], request);
        self.note(posted);
    }

    /// Posts a receive request to a queue pair or, with `pair` beyond them, to a shared receive queue.
    pub fn receive(&mut self, pair: usize, elements: Vec<(uroce::work::Sge, Span)>) {
        let (sges, spans): (Vec<_>, Vec<_>) = elements.into_iter().unzip();
        let request = ReceiveRequest::new(self.next_id, &sges);
        let room = sges.iter().map(|sge| u64::from(sge.length)).sum();
        let queue = if pair < PAIRS { Queue::Receive(pair) } else { Queue::Shared((pair - PAIRS) % 3) };
        let domain = usize::from(matches!(queue, Queue::Shared(Queue::EXTENDED | Queue::FOREIGN)));
        // A key of the other protection domain opens nothing.
        let spans = spans.into_iter().filter(|span| span.area.domain() == domain).collect();
        self.outstanding.insert(self.next_id, Work { queue, spans, room, fetches: false });
        let posted = match queue {
            Queue::Shared(srq) => self.endpoint.post_srq_receive(self.srqs[srq], request),
            _ => self.endpoint.post_receive(self.now, self.qpns[pair], request),
        };
        self.note(posted);
    }

    fn note(&mut self, posted: uroce::error::Result<()>) {
        if posted.is_err() {
            self.outstanding.remove(&self.next_id);
        }
        self.next_id += 1;
        self.settle();
    }

    /// Takes over completions and events of an input that may change no memory.
    pub fn settle(&mut self) {
        self.check(&[]);
    }

    /// Takes over completions and events of an input that may change only `allowed`.
    fn check(&mut self, allowed: &[Span]) {
        self.memory.check(allowed);
        while let Some(completion) = self.cq.pop() {
            self.complete(completion);
        }
        while self.endpoint.poll_event().is_some() {}
    }

    /// A request completes once, on its own queue pair, and in the order of its queue.
    fn complete(&mut self, done: Completion) {
        let work = self.outstanding.remove(&done.id).expect("what completes was posted, and did not complete before");
        let pair = self.qpns.iter().position(|&qpn| qpn == done.qpn).expect("completions name a queue pair of ours");
        match work.queue {
            Queue::Send(of) | Queue::Receive(of) => {
                assert_eq!(of, pair, "a request completed on another queue pair");
                let older = self.outstanding.range(..done.id).find(|(_, other)| other.queue == work.queue);
                assert!(older.is_none(), "request {} overtook {:?}", done.id, older.map(|(id, _)| id));
            }
            Queue::Shared(srq) => assert_eq!(shared_of(pair), Some(srq), "a message took another queue's request"),
        }
        if (done.kind, done.status) == (CompletionKind::Receive, Status::Success) {
            assert!(u64::from(done.byte_length) <= work.room, "a message is longer than its receive request");
        }
    }

    /// All of it ends: what is the queue pairs' own is flushed, and nothing is left.
    pub fn finish(mut self) {
        for pair in 0..PAIRS {
            self.move_to(pair, State::Error);
        }
        let left = self.outstanding.values().find(|work| !matches!(work.queue, Queue::Shared(_)));
        assert!(left.is_none(), "a request of {:?} never completed", left.map(|work| work.queue));
        for qpn in self.qpns {
            self.endpoint.destroy_qp(qpn).unwrap();
        }
        for srq in self.srqs {
            self.endpoint.destroy_srq(srq).unwrap();
        }
        self.memory.deregister_all(&mut self.endpoint);
        self.endpoint.on_timeout(Instant::from_nanos(u64::MAX));
        assert!(self.endpoint.memory().is_empty());
        assert_eq!((self.endpoint.queue_pairs(), self.endpoint.in_flight()), (0, 0));
        assert_eq!(self.endpoint.next_timeout(), None);
        assert_eq!(self.endpoint.poll_transmit(self.now, &mut self.room), None);
        assert!(self.cq.is_empty());
    }
}

/// Which shared receive queue the messages of a queue pair take from.
fn shared_of(pair: usize) -> Option<usize> {
    match SERVICES[pair] {
        (QpType::XrcTarget, _) => Some(Queue::EXTENDED),
        (_, shares) => shares.then_some(Queue::PLAIN),
    }
}

/// The way to RTS.
fn way(qp_type: QpType, pair: usize) -> [Attributes; 3] {
    let common = Attributes { pkey_index: Some(0), port: Some(1), ..to(State::Init) };
    let rts = Attributes { send_psn: Some(Psn::new(PSN)), ..to(State::ReadyToSend) };
    if qp_type == QpType::Ud {
        return [Attributes { qkey: Some(QKEY), ..common }, to(State::ReadyToReceive), rts];
    }
    let answers = !matches!(qp_type, QpType::Uc | QpType::XrcInitiator);
    let asks = !matches!(qp_type, QpType::Uc | QpType::XrcTarget);
    let is_target = qp_type == QpType::XrcTarget;
    [
        Attributes { access: Some(Access::LOCAL_WRITE | Access::REMOTE), ..common },
        Attributes {
            address: Some(AddressVector::to(PEER)),
            path_mtu: Some(Mtu::Mtu256),
            destination: Some(peer::qpn(pair)),
            receive_psn: Some(Psn::new(PSN)),
            max_dest_rd_atomic: answers.then_some(4),
            min_rnr_timer: answers.then_some(1),
            ..to(State::ReadyToReceive)
        },
        Attributes {
            timeout: (asks || is_target).then_some(8),
            retry_count: asks.then_some(3),
            rnr_retry: asks.then_some(3),
            max_rd_atomic: asks.then_some(4),
            ..rts
        },
    ]
}

fn to(state: State) -> Attributes {
    Attributes { state: Some(state), ..Attributes::default() }
}
