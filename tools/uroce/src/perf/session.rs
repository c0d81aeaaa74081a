//! The queue pairs and the memory of one end.

use anyhow::{Context as _, Result, bail, ensure};
use uroce::verbs::{
    self, Access, AddressVector, Capacity, ConnectOptions, Context, Counters, Destination, Grh, MemoryRegion, Mtu,
    Peer, PortCounters, ProtectionDomain, QpConfig, QpType, QueuePair, ReceiveRequest, Remote, SendRequest, Sge,
    random_psn,
};

use super::completions::Completions;
use super::control::Side;
use super::plan::{Atomic, Connection, Operation, Plan, Role};

/// Bytes that the messages of one queue pair wander through, when they are smaller: more would measure the caches.
const AREA: usize = 256 << 10;
/// Buffers begin at multiples of a cache line.
const ALIGN: usize = 64;
/// Receive requests are posted again in lists of up to so many.
const RECEIVE_LIST: u32 = 32;
/// Lets datagrams in; any number that both ends know.
const QKEY: u32 = 0x7065_7266;

/// One end: connected queue pairs, their completion queue, and one region for all.
pub(super) struct Session {
    pub(super) plan: Plan,
    pub(super) lanes: Vec<Lane>,
    pub(super) completions: Completions,
    region: MemoryRegion,
    pd: ProtectionDomain,
    context: Context,
    /// Bytes of an area: of each queue pair one that is sent from, and one that is received into.
    area: usize,
    path_mtu: Mtu,
}

/// One queue pair.
pub(super) struct Lane {
    pub(super) qp: QueuePair,
    own: Peer,
    /// The start of the peer's areas of this queue pair.
    remote: Remote,
    /// Where datagrams go.
    destination: Option<Destination>,
    /// Receive requests that were used up and are to be posted again.
    owed: u32,
}

impl Session {
    /// Makes everything, up to INIT, with receive requests posted.
    pub(super) fn new(context: Context, gid_index: u8, plan: Plan, role: Role) -> Result<Self> {
        let channel = context.create_completion_channel()?;
        let entries = plan.queue_pairs as usize * (plan.tx_depth as usize + plan.receives() as usize);
        let cq = context.create_cq(entries.max(1), Some(&channel)).with_context(|| {
            format!("{entries} completions for {} queue pairs: choose less with -q, -t or -r", plan.queue_pairs)
        })?;
        let pd = context.alloc_pd();
        let area = stride(plan.room()).max(AREA);
        let access = Access::LOCAL_WRITE | Access::REMOTE;
        let region = pd.register(area * 2 * plan.queue_pairs as usize, access)?;
        let address = context.address(gid_index)?;
        let mut lanes = Vec::new();
        for _ in 0..plan.queue_pairs {
            let (qp_type, capacity) = (plan.qp_type(), plan.capacity());
            let config = QpConfig { qp_type, capacity, ..QpConfig::new(&cq, &cq) };
            let qp = pd.create_qp(&config)?;
            qp.to_init(&ConnectOptions::default())?;
            let own = qp.local(random_psn()).at(address);
            lanes.push(Lane { qp, own, remote: Remote::default(), destination: None, owed: plan.receives() });
        }
        let path_mtu = context.device().mtu;
        let completions = Completions::new(context.clone(), cq, channel, &plan, role);
        let mut session = Self { plan, lanes, completions, region, pd, context, area, path_mtu };
        session.warm()?;
        session.repost(1)?;
        Ok(session)
    }

    /// What the other end must know.
    pub(super) fn side(&self) -> Side {
        Side::QueuePairs {
            peers: self.lanes.iter().map(|lane| lane.own.to_string()).collect(),
            address: self.region.address(),
            rkey: self.region.rkey(),
            path_mtu: self.path_mtu.bytes(),
        }
    }

    /// Connects to the other end. Both come to the same path MTU: the largest that both devices have and the plan allows.
    pub(super) fn connect(&mut self, gid_index: u8, other: &Side) -> Result<()> {
        let Side::QueuePairs { peers, address, rkey, path_mtu } = other else {
            bail!("the peer offers no queue pairs");
        };
        ensure!(peers.len() == self.lanes.len(), "the peer has {} queue pairs, not {}", peers.len(), self.lanes.len());
        let bytes = self.path_mtu.bytes().min(*path_mtu).min(self.plan.path_mtu.unwrap_or(u32::MAX));
        self.path_mtu =
            Mtu::from_bytes(bytes).with_context(|| format!("a path MTU of {bytes} bytes does not exist"))?;
        self.plan.check_datagrams(bytes)?;
        let options = ConnectOptions {
            path_mtu: Some(self.path_mtu),
            source_gid_index: Some(gid_index),
            max_rd_atomic: self.plan.outstanding,
            max_dest_rd_atomic: self.plan.outstanding,
            ..ConnectOptions::default()
        };
        for (index, (lane, peer)) in self.lanes.iter_mut().zip(peers).enumerate() {
            let peer: Peer = peer.parse()?;
            lane.join(&self.pd, &peer, &options).with_context(|| format!("cannot connect to {peer}"))?;
            let offset = (index * 2 * self.area) as u64;
            lane.remote = Remote { address: address.wrapping_add(offset), rkey: *rkey };
        }
        Ok(())
    }

    /// The buffer for message `turn` of `size` bytes on a queue pair, to send from, or for the answer of a READ.
    pub(super) fn local(&self, lane: usize, turn: u64, size: u32) -> Sge {
        self.region.sge(lane * 2 * self.area + self.place(turn, size), size)
    }

    /// Where in the peer's memory message `turn` goes to or comes from.
    pub(super) fn remote(&self, lane: usize, turn: u64, size: u32) -> Remote {
        let base = self.lanes.get(lane).map_or(Remote::default(), |lane| lane.remote);
        let offset = (self.area + self.place(turn, size)) as u64;
        Remote { address: base.address.wrapping_add(offset), ..base }
    }

    /// Puts `mark` at the end of the first message of `size` bytes.
    pub(super) fn set_mark(&self, size: u32, mark: u8) -> Result<()> {
        Ok(self.region.write(size as usize - 1, &[mark])?)
    }

    /// What the peer's WRITE of `size` bytes put at its end.
    pub(super) fn mark(&self, size: u32) -> Result<u8> {
        let mut mark = [0];
        self.region.read(self.area + size as usize - 1, &mut mark)?;
        Ok(mark[0])
    }

    /// Notes that a receive request of a queue pair was used up.
    pub(super) fn owe(&mut self, lane: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.owed += 1;
        }
    }

    /// Posts receive requests again on each queue pair that has used up `least`.
    pub(super) fn repost(&mut self, least: u32) -> Result<()> {
        for index in 0..self.lanes.len() {
            let room = self.plan.room();
            let start = (index * 2 + 1) * self.area;
            let places = (self.area / stride(room)) as u32;
            let Some(lane) = self.lanes.get_mut(index).filter(|lane| lane.owed >= least) else { continue };
            let (region, id) = (&self.region, index as u64);
            let request = |n: u32| {
                let offset = start + (n % places) as usize * stride(room);
                ReceiveRequest::new(id, &[region.sge(offset, room)])
            };
            lane.qp.post_receive((0..lane.owed).map(request))?;
            lane.owed = 0;
        }
        Ok(())
    }

    /// How many receive requests to gather before they are posted again.
    pub(super) fn receive_list(&self) -> u32 {
        (self.plan.rx_depth / 4).clamp(1, RECEIVE_LIST)
    }

    /// The path MTU; after connecting, that of the connection.
    pub(super) fn path_mtu(&self) -> Mtu {
        self.path_mtu
    }

    /// The name of the device.
    pub(super) fn device(&self) -> &str {
        &self.context.device().name
    }

    /// What all queue pairs counted, and the port.
    pub(super) fn counters(&self) -> (Counters, PortCounters) {
        (self.context.counters(), self.context.port_counters())
    }

    /// The first queue pair's place.
    pub(super) fn own(&self) -> Option<Peer> {
        self.lanes.first().map(|lane| lane.own)
    }

    fn place(&self, turn: u64, size: u32) -> usize {
        let stride = stride(size);
        (turn % (self.area / stride) as u64) as usize * stride
    }

    /// Touches every page that is sent from; those that are received into stay zero, as marks need it.
    fn warm(&self) -> Result<()> {
        const PIECE: [u8; 4096] = [0x5a; 4096];
        for lane in 0..self.lanes.len() {
            for offset in (0..self.area).step_by(PIECE.len()) {
                let length = PIECE.len().min(self.area - offset);
                self.region.write(lane * 2 * self.area + offset, &PIECE[..length])?;
                self.region.write((lane * 2 + 1) * self.area + offset, &[0; PIECE.len()][..length])?;
            }
        }
        Ok(())
    }
}

impl Lane {
    /// Makes it ready to send to its peer.
    fn join(&mut self, pd: &ProtectionDomain, peer: &Peer, options: &ConnectOptions) -> Result<()> {
        if self.qp.qp_type() != QpType::Ud {
            return Ok(self.qp.connect(self.own.psn, peer, options)?);
        }
        self.qp.start(self.own.psn, QKEY)?;
        let source_gid_index = options.source_gid_index.unwrap_or_default();
        let ah = pd.create_ah(&AddressVector { source_gid_index, ..AddressVector::to(peer.address) })?;
        self.destination = Some(ah.at(peer.qpn, QKEY));
        Ok(())
    }

    /// The same request for the peer: a datagram says who it is for.
    pub(super) fn addressed(&self, request: SendRequest) -> SendRequest {
        SendRequest { destination: self.destination, ..request }
    }
}

impl Plan {
    fn qp_type(&self) -> QpType {
        match self.connection {
            Connection::Rc => QpType::Rc,
            Connection::Uc => QpType::Uc,
            Connection::Ud => QpType::Ud,
        }
    }

    /// Bytes of a receive request: a datagram comes with its header.
    fn room(&self) -> u32 {
        self.largest() + if self.connection == Connection::Ud { Grh::LEN as u32 } else { 0 }
    }

    /// Receive requests to keep posted on each queue pair.
    fn receives(&self) -> u32 {
        if self.operation == Operation::Send { self.rx_depth } else { 0 }
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            max_send_wr: self.tx_depth,
            max_receive_wr: self.receives().max(1),
            max_send_sge: 1,
            max_receive_sge: 1,
            max_inline: self.inline,
        }
    }

    /// The work of one message to `remote`.
    pub(super) fn work(&self, remote: Remote) -> verbs::Operation {
        match (self.operation, self.atomic) {
            (Operation::Write, _) => verbs::Operation::Write(remote),
            (Operation::Read, _) => verbs::Operation::Read(remote),
            (Operation::Atomic, Atomic::FetchAndAdd) => verbs::Operation::FetchAndAdd { remote, add: 1 },
            (Operation::Atomic, Atomic::CompareAndSwap) => {
                verbs::Operation::CompareAndSwap { remote, compare: u64::MAX, swap: 0 }
            }
            _ => verbs::Operation::Send,
        }
    }
}

/// Bytes from one buffer to the next.
fn stride(size: u32) -> usize {
    (size as usize).next_multiple_of(ALIGN).max(ALIGN)
}
