//! An initiator on one host, a target on another, and the target's shared receive queues.

use std::sync::Arc;

use uroce::memory::{Access, Buffer, PdNumber, Region};
use uroce::port::SimConfig;
use uroce::qp::{Attributes, QpInit, QpType, State};
use uroce::queue::{CompletionQueue, Extended, SrqInit, XrcdNumber};
use uroce::time::{Duration, Instant};
use uroce::wire::{Qpn, SrqNumber};
use uroce::work::{Completion, Operation, ReceiveRequest, Remote, SendRequest, Sge, Status};

use crate::common::mesh::Mesh;
use crate::common::pair::{Options, Side, init, to, way_to_rts};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A shared receive queue of the domain, with a protection domain, a region and a completion queue of its own.
pub(crate) struct Service {
    pub(crate) number: SrqNumber,
    pub(crate) pd: PdNumber,
    pub(crate) cq: Arc<CompletionQueue>,
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) key: u32,
}

impl Service {
    pub(crate) const BYTES: usize = 1 << 17;

    pub(crate) fn new(host: &mut Side, domain: XrcdNumber, cq: u32) -> Self {
        let pd = host.endpoint.memory_mut().allocate_pd();
        let cq = Arc::new(CompletionQueue::new(4096, cq).unwrap());
        let extended = Some(Extended { domain, cq: Arc::clone(&cq) });
        let number = host.endpoint.create_srq(SrqInit { pd, max_wr: 64, max_sge: 4, extended }).unwrap();
        let buffer = Arc::new(Buffer::zeroed(Self::BYTES));
        let region = Region::owned(Arc::clone(&buffer), 0, Access::LOCAL_WRITE | Access::REMOTE, pd);
        let key = host.endpoint.memory_mut().register(region).unwrap();
        Self { number, pd, cq, buffer, key }
    }

    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote { address: offset, rkey: self.key }
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.buffer.span(offset, length).unwrap().copy_out(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn receive(&self, host: &mut Side, id: u64, offset: u64, length: u32) {
        let request = ReceiveRequest::new(id, &[Sge { address: offset, length, lkey: self.key }]);
        host.endpoint.post_srq_receive(self.number, request).unwrap();
    }

    /// What completed since, oldest first.
    pub(crate) fn completions(&self) -> Vec<Completion> {
        std::iter::from_fn(|| self.cq.pop()).collect()
    }
}

/// Host 0 has the initiator, host 1 the target, and on it two services.
pub(crate) struct Xrc {
    pub(crate) mesh: Mesh,
    pub(crate) domain: XrcdNumber,
    pub(crate) initiator: Qpn,
    pub(crate) target: Qpn,
    pub(crate) services: Vec<Service>,
}

impl Xrc {
    pub(crate) fn clean(options: Options) -> Self {
        let delay = Duration::from_micros(5);
        Self::new(1, SimConfig { delay: delay..=delay, ..SimConfig::default() }, options)
    }

    pub(crate) fn new(seed: u64, config: SimConfig, options: Options) -> Self {
        let mut mesh = Mesh::new(seed, config, 2, options);
        let domain = mesh.hosts[1].endpoint.allocate_xrcd();
        let services = [11, 12].map(|cq| Service::new(&mut mesh.hosts[1], domain, cq)).into();
        let mut xrc = Self { mesh, domain, initiator: Qpn::default(), target: Qpn::default(), services };
        (xrc.initiator, xrc.target) = xrc.connect();
        xrc
    }

    /// Another connection between the hosts.
    pub(crate) fn connect(&mut self) -> (Qpn, Qpn) {
        let (initiator, target) =
            (create(&mut self.mesh.hosts[0], None), create(&mut self.mesh.hosts[1], Some(self.domain)));
        let [out, back] = self.mesh.options.psns;
        let addresses = [0, 1].map(|host| self.mesh.hosts[host].address);
        establish(&mut self.mesh.hosts[0], initiator, &self.mesh.options, [out, back], (target, addresses[1]));
        establish(&mut self.mesh.hosts[1], target, &self.mesh.options, [back, out], (initiator, addresses[0]));
        (initiator, target)
    }

    /// Posts a request of the initiator over the first `length` bytes of its region, for one of the services.
    pub(crate) fn post(&mut self, service: usize, id: u64, operation: Operation, length: u32) {
        let srq = self.services[service].number;
        let host = &mut self.mesh.hosts[0];
        let request = SendRequest::new(id, operation, &[host.sge(0, length)]).to_srq(srq);
        host.endpoint.post_send(self.mesh.now, self.initiator, request).unwrap();
    }

    pub(crate) fn receive(&mut self, service: usize, id: u64, offset: u64, length: u32) {
        self.services[service].receive(&mut self.mesh.hosts[1], id, offset, length);
    }

    pub(crate) fn run(&mut self) {
        self.mesh.run(10 * SECOND);
    }

    /// How the initiator's requests ended.
    pub(crate) fn sent(&self) -> Vec<(u64, Status)> {
        self.mesh.hosts[0].completions.iter().map(|c| (c.id, c.status)).collect()
    }

    pub(crate) fn target_state(&self) -> State {
        self.mesh.hosts[1].endpoint.query_qp(self.target).unwrap().state
    }
}

/// An initiator, or a target of the domain.
pub(crate) fn create(host: &mut Side, domain: Option<XrcdNumber>) -> Qpn {
    let qp_type = if domain.is_some() { QpType::XrcTarget } else { QpType::XrcInitiator };
    let init = QpInit { qp_type, xrcd: domain, ..init(host.pd, &host.cq) };
    host.endpoint.create_qp(init).unwrap()
}

/// The attributes from RESET to RTS, as either end takes them.
pub(crate) fn way(
    options: &Options,
    psns: [u32; 2],
    peer: (Qpn, std::net::IpAddr),
    qp_type: QpType,
) -> [Attributes; 3] {
    let [init, mut rtr, mut rts] = way_to_rts(options, psns, peer);
    if qp_type == QpType::XrcInitiator {
        (rtr.max_dest_rd_atomic, rtr.min_rnr_timer) = (None, None);
    } else {
        rts = Attributes { timeout: rts.timeout, send_psn: rts.send_psn, ..to(State::ReadyToSend) };
    }
    [init, rtr, rts]
}

fn establish(side: &mut Side, qpn: Qpn, options: &Options, psns: [u32; 2], peer: (Qpn, std::net::IpAddr)) {
    let info = side.endpoint.query_qp(qpn).unwrap();
    let qp_type = if info.capacity.max_send_wr > 0 { QpType::XrcInitiator } else { QpType::XrcTarget };
    for attributes in way(options, psns, peer, qp_type) {
        side.endpoint.modify_qp(Instant::ZERO, qpn, &attributes).unwrap();
    }
}
