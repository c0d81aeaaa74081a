//! One host with a shared receive queue, and others that send to the queue pairs on it.

use uroce::port::SimConfig;
use uroce::qp::QpInit;
use uroce::queue::SrqInit;
use uroce::time::Duration;
use uroce::wire::{Qpn, SrqNumber};
use uroce::work::{Completion, Operation, ReceiveRequest, SendRequest, Status};

use crate::common::mesh::Mesh;
use crate::common::pair::{Options, connect, init};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A connection to the host with the shared receive queue, which is host 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) from: usize,
    pub(crate) sender: Qpn,
    pub(crate) receiver: Qpn,
}

pub(crate) struct Shared {
    pub(crate) mesh: Mesh,
    pub(crate) srq: SrqNumber,
    pub(crate) links: Vec<Link>,
}

impl Shared {
    /// `senders` hosts with one connection each, on a network that only delays.
    pub(crate) fn clean(senders: u8, options: Options) -> Self {
        Self::new(1, SimConfig::default(), senders, options)
    }

    pub(crate) fn new(seed: u64, config: SimConfig, senders: u8, options: Options) -> Self {
        let mut mesh = Mesh::new(seed, config, senders + 1, options);
        let receiver = &mut mesh.hosts[0];
        let srq = SrqInit { pd: receiver.pd, max_wr: 64, max_sge: 4, extended: None };
        let srq = receiver.endpoint.create_srq(srq).unwrap();
        let mut shared = Self { mesh, srq, links: Vec::new() };
        for from in 1..=usize::from(senders) {
            shared.link(from);
        }
        shared
    }

    /// Another connection from host `from`.
    pub(crate) fn link(&mut self, from: usize) -> Link {
        let Self { mesh, srq, links } = self;
        let receiver = &mut mesh.hosts[0];
        let init = QpInit { srq: Some(*srq), ..init(receiver.pd, &receiver.cq) };
        let link =
            Link { from, receiver: receiver.endpoint.create_qp(init).unwrap(), sender: mesh.hosts[from].create_qp() };
        let [near, far] = [0, from].map(|host| mesh.hosts[host].address);
        let [out, back] = mesh.options.psns;
        connect(&mut mesh.hosts[from], link.sender, &mesh.options, [out, back], (link.receiver, near));
        connect(&mut mesh.hosts[0], link.receiver, &mesh.options, [back, out], (link.sender, far));
        links.push(link);
        link
    }

    /// Posts a receive into `length` bytes from `offset` of the region to the shared queue.
    pub(crate) fn receive(&mut self, id: u64, offset: usize, length: u32) {
        let host = &mut self.mesh.hosts[0];
        let request = ReceiveRequest::new(id, &[host.sge(offset, length)]);
        host.endpoint.post_srq_receive(self.srq, request).unwrap();
    }

    /// Sends the first `length` bytes of the sender's region on a link.
    pub(crate) fn send(&mut self, link: usize, id: u64, length: u32) {
        self.post(link, id, Operation::Send, length);
    }

    pub(crate) fn post(&mut self, link: usize, id: u64, operation: Operation, length: u32) {
        let Link { from, sender, .. } = self.links[link];
        let host = &mut self.mesh.hosts[from];
        let request = SendRequest::new(id, operation, &[host.sge(0, length)]);
        host.endpoint.post_send(self.mesh.now, sender, request).unwrap();
    }

    pub(crate) fn run(&mut self) {
        self.mesh.run(10 * SECOND);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.mesh.hosts[0].endpoint.srq_waiting(self.srq).unwrap()
    }

    /// What the receiver completed: id, queue pair, status.
    pub(crate) fn received(&self) -> Vec<(u64, Qpn, Status)> {
        self.mesh.hosts[0].completions.iter().map(|c| (c.id, c.qpn, c.status)).collect()
    }

    /// The statuses of host `from`'s completions.
    pub(crate) fn sent(&self, from: usize) -> Vec<(u64, Status)> {
        statuses(&self.mesh.hosts[from].completions)
    }
}

pub(crate) fn statuses(completions: &[Completion]) -> Vec<(u64, Status)> {
    completions.iter().map(|c| (c.id, c.status)).collect()
}
