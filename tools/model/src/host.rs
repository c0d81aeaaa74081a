//! One endpoint of a run.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use uroce::endpoint::{Config, Endpoint};
use uroce::event::{AsyncEvent, Event};
use uroce::memory::{Access, Buffer, PdNumber, Region, WindowType};
use uroce::port::{Network, Port, SimPort};
use uroce::qp::{AddressVector, Attributes, Capacity, Mtu, QpInit, QpType, State};
use uroce::queue::{CompletionQueue, Extended, SrqInit, XrcdNumber};
use uroce::time::Instant;
use uroce::wire::{Psn, Qpn, SrqNumber};
use uroce::work::{Completion, Destination, Remote, Sge};

use crate::plan::{Connection, Plan, Service, Verb};

/// What peers may do, with memory and through queue pairs.
const ACCESS: Access = Access::LOCAL_WRITE.union(Access::REMOTE).union(Access::FLUSH_GLOBAL).union(Access::MW_BIND);
/// The Q_Key of all datagrams.
const QKEY: u32 = 0x1122_3344;

/// An endpoint, its port, one completion queue, and the cell that all connections count on.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    port: SimPort,
    pub(crate) address: IpAddr,
    pd: PdNumber,
    xrcd: XrcdNumber,
    cq: Arc<CompletionQueue>,
    pub(crate) counter: Area,
    /// Until when it does nothing.
    pub(crate) stalled_until: Instant,
    /// Queue pairs that reported to be drained.
    pub(crate) drained: Vec<Qpn>,
    /// Windows and fast regions.
    keys: Vec<(Verb, u32)>,
    /// Shared receive queues whose limit was reached, since that was last looked at.
    pub(crate) limits: Vec<SrqNumber>,
    /// How often it started.
    pub(crate) life: u32,
}

impl Host {
    /// Starts host `index` for the `life`th time.
    pub(crate) fn start(network: &Network, index: usize, plan: &Plan, life: u32) -> Self {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1));
        let mut seed = [index as u8; 32];
        seed[0] = life as u8;
        let gids = vec![address];
        let mut endpoint = Endpoint::new(Config {
            slot: 1,
            gids,
            mtu: Mtu::Mtu4096,
            seed,
            window: plan.window,
            hold_bytes: plan.hold_bytes,
        });
        let pd = endpoint.memory_mut().allocate_pd();
        let xrcd = endpoint.allocate_xrcd();
        let cq = CompletionQueue::new(CompletionQueue::MAX_CAPACITY, 1).expect("a capacity within the limit");
        let counter = Area::register(&mut endpoint, pd, 8);
        Self {
            endpoint,
            port: network.port(address),
            address,
            pd,
            xrcd,
            cq: Arc::new(cq),
            counter,
            stalled_until: Instant::ZERO,
            drained: Vec::new(),
            keys: Vec::new(),
            limits: Vec::new(),
            life,
        }
    }

    /// Registers memory.
    pub(crate) fn area(&mut self, length: usize) -> Area {
        Area::register(&mut self.endpoint, self.pd, length)
    }

    /// A shared receive queue.
    pub(crate) fn create_srq(&mut self, service: Service) -> SrqNumber {
        let extended = (service == Service::Xrc).then(|| Extended { domain: self.xrcd, cq: Arc::clone(&self.cq) });
        let init = SrqInit { pd: self.pd, max_wr: 1 << 12, max_sge: 4, extended };
        self.endpoint.create_srq(init).expect("room for a queue")
    }

    /// A window or a fast region that is not open yet; its key.
    pub(crate) fn allocate_key(&mut self, verb: Verb) -> u32 {
        let (memory, pd) = (self.endpoint.memory_mut(), self.pd);
        let allocated = match verb {
            Verb::OpenWindow => memory.allocate_window(pd, WindowType::Two),
            _ => memory.allocate_fast(pd, 1),
        };
        let key = allocated.expect("room for a key");
        self.keys.push((verb, key));
        key
    }

    /// Removes windows and fast regions, open or not.
    pub(crate) fn deallocate_keys(&mut self) -> Result<(), String> {
        for (verb, key) in self.keys.drain(..) {
            let memory = self.endpoint.memory_mut();
            let done =
                if verb == Verb::OpenWindow { memory.deallocate_window(key) } else { memory.deallocate_fast(key) };
            done.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Where datagrams for a queue pair of this host go.
    pub(crate) fn destination(&self, qpn: Qpn) -> Destination {
        Destination { address: AddressVector::to(self.address), qpn, qkey: QKEY }
    }

    /// A queue pair in RESET, for one side of a connection.
    pub(crate) fn create_qp(&mut self, plan: &Connection, side: usize, srq: Option<SrqNumber>) -> Qpn {
        let depth = plan.depth;
        let qp_type = qp_type(plan.service, side);
        let capacity = Capacity {
            max_send_wr: depth,
            max_receive_wr: 1 << 14,
            max_send_sge: 32,
            max_receive_sge: 32,
            max_inline: 512,
        };
        let init = QpInit {
            qp_type,
            pd: self.pd,
            send_cq: Arc::clone(&self.cq),
            receive_cq: Arc::clone(&self.cq),
            capacity,
            signal_all: false,
            srq,
            xrcd: (qp_type == QpType::XrcTarget).then_some(self.xrcd),
        };
        self.endpoint.create_qp(init).expect("room for a queue pair")
    }

    /// Takes a queue pair to RTS; `side` is the end of the connection that it is.
    pub(crate) fn connect(&mut self, now: Instant, qpn: Qpn, plan: &Connection, side: usize, peer: (Qpn, IpAddr)) {
        if self.state(qpn) != Some(State::Reset) {
            // Datagrams of another connection use it already.
            return;
        }
        let qp_type = qp_type(plan.service, side);
        let to = |state| Attributes { state: Some(state), ..Attributes::default() };
        let init = Attributes { pkey_index: Some(0), port: Some(1), access: Some(ACCESS), ..to(State::Init) };
        let rtr = Attributes {
            address: Some(AddressVector { destination: peer.1, source_gid_index: 0, hop_limit: 64, traffic_class: 0 }),
            path_mtu: Mtu::from_bytes(plan.mtu),
            destination: Some(peer.0),
            receive_psn: Some(Psn::new(plan.psns[1 - side])),
            max_dest_rd_atomic: Some(plan.rd_atomic),
            min_rnr_timer: Some(plan.min_rnr_timer),
            ..to(State::ReadyToReceive)
        };
        let rts = Attributes {
            timeout: Some(plan.timeout),
            retry_count: Some(plan.retry_count),
            rnr_retry: Some(plan.rnr_retry),
            send_psn: Some(Psn::new(plan.psns[side])),
            max_rd_atomic: Some(plan.rd_atomic),
            ..to(State::ReadyToSend)
        };
        let send_psn = rts.send_psn;
        let sends = Attributes { send_psn, ..to(State::ReadyToSend) };
        let unanswered = Attributes { max_dest_rd_atomic: None, min_rnr_timer: None, ..rtr };
        let way = match qp_type {
            QpType::Rc => [init, rtr, rts],
            QpType::Uc => [init, unanswered, sends],
            QpType::Ud => [Attributes { access: None, qkey: Some(QKEY), ..init }, to(State::ReadyToReceive), sends],
            QpType::XrcInitiator => [init, unanswered, rts],
            QpType::XrcTarget => [init, rtr, Attributes { timeout: rts.timeout, ..sends }],
        };
        for attributes in way {
            self.endpoint.modify_qp(now, qpn, &attributes).expect("a plan's connection is possible");
        }
    }

    /// Changes the state of a queue pair; whether that was possible.
    pub(crate) fn modify(&mut self, now: Instant, qpn: Qpn, state: State) -> bool {
        let attributes = Attributes { state: Some(state), ..Attributes::default() };
        self.endpoint.modify_qp(now, qpn, &attributes).is_ok()
    }

    /// The state of a queue pair; `None` when it is destroyed.
    pub(crate) fn state(&self, qpn: Qpn) -> Option<State> {
        self.endpoint.query_qp(qpn).ok().map(|info| info.state)
    }

    /// Takes in what arrived, runs timers, sends what there is to send. Nothing while it stalls.
    pub(crate) fn progress(&mut self, now: Instant) {
        if now < self.stalled_until {
            return;
        }
        let Self { endpoint, port, .. } = self;
        let broken = "a simulated port never fails";
        while port.receive(&mut |arrival| endpoint.on_packet(now, &arrival)).expect(broken) > 0 {}
        endpoint.on_timeout(now);
        while let Some(transmit) = endpoint.poll_transmit(now, port.room().expect("a simulated port has room")) {
            port.commit(&transmit.flow, transmit.length);
        }
        port.flush().expect(broken);
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Async(AsyncEvent::SendQueueDrained(qpn)) => self.drained.push(qpn),
                Event::Async(AsyncEvent::SrqLimitReached(srq)) => self.limits.push(srq),
                _ => {}
            }
        }
    }

    /// When it has something to do by itself.
    pub(crate) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        // What arrives while it stalls waits for it to wake.
        let wakes = (now < self.stalled_until).then_some(self.stalled_until);
        let timer = self.endpoint.next_timeout().map(|at| at.max(self.stalled_until));
        wakes.or(timer)
    }

    /// The oldest completion.
    pub(crate) fn completion(&self) -> Option<Completion> {
        self.cq.pop()
    }
}

/// What a side of a connection is made of.
fn qp_type(service: Service, side: usize) -> QpType {
    match (service, side) {
        (Service::Rc, _) => QpType::Rc,
        (Service::Uc, _) => QpType::Uc,
        (Service::Ud, _) => QpType::Ud,
        (Service::Xrc, 0) => QpType::XrcInitiator,
        (Service::Xrc, _) => QpType::XrcTarget,
    }
}

/// Registered memory.
#[derive(Clone)]
pub(crate) struct Area {
    buffer: Arc<Buffer>,
    key: u32,
}

impl Area {
    /// Where every region starts, for its keys: the same in every run, as a real address is not.
    const IOVA: u64 = 0x7000_0000_0000;

    fn register(endpoint: &mut Endpoint, pd: PdNumber, length: usize) -> Self {
        let buffer = Arc::new(Buffer::zeroed(length));
        let region = Region::owned(Arc::clone(&buffer), Self::IOVA, ACCESS, pd);
        let key = endpoint.memory_mut().register(region).expect("room for a region");
        Self { buffer, key }
    }

    /// An element of it.
    pub(crate) fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge { address: Self::IOVA + offset as u64, length: length as u32, lkey: self.key }
    }

    /// A place in it, for a peer.
    pub(crate) fn remote(&self, offset: usize) -> Remote {
        Remote { address: Self::IOVA + offset as u64, rkey: self.key }
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Ends the registration.
    pub(crate) fn deregister(&self, endpoint: &mut Endpoint) -> Result<(), String> {
        endpoint.memory_mut().deregister(self.key).map(drop).map_err(|error| error.to_string())
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.buffer.span(offset, bytes.len()).expect("a place in the area").copy_in(bytes).unwrap();
    }

    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.buffer.span(offset, length).expect("a place in the area").copy_out(&mut bytes).unwrap();
        bytes
    }
}
