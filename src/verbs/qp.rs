//! Queue pairs.

use std::sync::Arc;

use super::cq::CompletionQueue;
use super::pd::PdInner;
use super::peer::{ConnectOptions, Peer};
use super::srq::SharedReceiveQueue;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::qp::{Attributes, Capacity, QpInfo, QpInit, QpType, State};
use crate::queue::XrcdNumber;
use crate::wire::{Gid, Psn, Qpn};
use crate::work::{ReceiveRequest, SendRequest};

pub use crate::driver::PostError;

/// What a queue pair is made of (`ibv_qp_init_attr`).
#[derive(Clone, Debug)]
pub struct QpConfig {
    /// The service; RC when made with [`new`](Self::new).
    pub qp_type: QpType,
    /// Where sends complete.
    pub send_cq: CompletionQueue,
    /// Where receives complete.
    pub receive_cq: CompletionQueue,
    /// How much it can hold.
    pub capacity: Capacity,
    /// Whether every send completes with a completion, signalled or not.
    pub signal_all: bool,
    /// Where receives come from, when they are shared with other queue pairs.
    pub srq: Option<SharedReceiveQueue>,
}

impl QpConfig {
    /// Reliable connected; 128 requests a queue, 4 elements a request, 64 bytes inline.
    #[must_use]
    pub fn new(send_cq: &CompletionQueue, receive_cq: &CompletionQueue) -> Self {
        Self {
            qp_type: QpType::Rc,
            send_cq: send_cq.clone(),
            receive_cq: receive_cq.clone(),
            capacity: Capacity::default(),
            signal_all: false,
            srq: None,
        }
    }
}

/// A queue pair (`ibv_create_qp(3)`). Dropping it destroys it: what was posted does not complete any more, and completions of it
/// that were not polled are gone.
///
/// Most programs need [`local`](Self::local), to tell the peer, and [`connect`](Self::connect), once the peer has told;
/// [`modify`](Self::modify) is the long way.
///
/// ```
/// use uroce::verbs::{Context, QpConfig, State};
///
/// let context = Context::open("uroce_lo")?;
/// let cq = context.create_cq(16, None)?;
/// let qp = context.alloc_pd().create_qp(&QpConfig::new(&cq, &cq))?;
/// assert_eq!(qp.query()?.state, State::Reset);
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Debug)]
pub struct QueuePair {
    qpn: Qpn,
    qp_type: QpType,
    send_cq: CompletionQueue,
    receive_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    pd: Arc<PdInner>,
}

impl QueuePair {
    pub(super) fn new(pd: &Arc<PdInner>, config: &QpConfig) -> Result<Self> {
        for (argument, cq) in [("send_cq", &config.send_cq), ("recv_cq", &config.receive_cq)] {
            if !cq.belongs_to(&pd.context) {
                return Err(Error::invalid(argument, "it belongs to another context"));
            }
        }
        if config.srq.as_ref().is_some_and(|srq| !srq.belongs_to(&pd.context)) {
            return Err(Error::invalid("srq", "it belongs to another context"));
        }
        Self::create(pd, config, None)
    }

    /// The receiving end of extended reliable connections of a domain.
    pub(super) fn xrc_target(pd: &Arc<PdInner>, domain: XrcdNumber, idle: &CompletionQueue) -> Result<Self> {
        let config = QpConfig { qp_type: QpType::XrcTarget, ..QpConfig::new(idle, idle) };
        Self::create(pd, &config, Some(domain))
    }

    fn create(pd: &Arc<PdInner>, config: &QpConfig, xrcd: Option<XrcdNumber>) -> Result<Self> {
        let init = QpInit {
            qp_type: config.qp_type,
            srq: config.srq.as_ref().map(SharedReceiveQueue::number),
            xrcd,
            capacity: config.capacity,
            signal_all: config.signal_all,
            ..QpInit::new(pd.number, config.send_cq.queue(), config.receive_cq.queue())
        };
        let qpn = pd.context.driver.command(|endpoint, _| endpoint.create_qp(init))?;
        Ok(Self {
            qpn,
            qp_type: config.qp_type,
            send_cq: config.send_cq.clone(),
            receive_cq: config.receive_cq.clone(),
            srq: config.srq.clone(),
            pd: Arc::clone(pd),
        })
    }

    /// Its number, which the peer sends to.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The service it gives.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// Where sends complete.
    #[must_use]
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.send_cq
    }

    /// Where receives complete.
    #[must_use]
    pub fn receive_cq(&self) -> &CompletionQueue {
        &self.receive_cq
    }

    /// Where receives come from, when they are shared.
    #[must_use]
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.srq.as_ref()
    }

    /// Changes attributes and state (`ibv_modify_qp(3)`).
    ///
    /// # Errors
    /// [`Error::Invalid`] names the attribute that is missing, out of range, or not allowed in this change of state.
    pub fn modify(&self, attributes: &Attributes) -> Result<()> {
        self.pd.context.driver.command(|endpoint, now| endpoint.modify_qp(now, self.qpn, attributes))
    }

    /// Its state, attributes and capacity (`ibv_query_qp(3)`).
    ///
    /// # Errors
    /// None while it exists.
    pub fn query(&self) -> Result<QpInfo> {
        self.pd.context.driver.inspect(|endpoint| endpoint.query_qp(self.qpn))
    }

    /// What it counted.
    ///
    /// # Errors
    /// None while it exists.
    pub fn counters(&self) -> Result<Counters> {
        self.pd.context.driver.inspect(|endpoint| endpoint.qp_counters(self.qpn))
    }

    /// What a peer must know to connect to it: the device's first IPv4 address, or its first address if it has none; the
    /// number; and `psn`, the first that it will send. [`Peer::at`] changes the address.
    #[must_use]
    pub fn local(&self, psn: Psn) -> Peer {
        let addresses = self.pd.context.place.gids();
        let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
        // A device has an address: it could not be opened without.
        let address = address.copied().unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into());
        Peer { address, qpn: self.qpn, psn }
    }

    /// Takes a UD queue pair all the way to RTS, from RESET or INIT; `psn` is the first that it sends, and `qkey` lets
    /// datagrams in. See [`AddressHandle`](super::AddressHandle) for an example.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is not UD, or in another state.
    pub fn start(&self, psn: Psn, qkey: u32) -> Result<()> {
        if self.query()?.state == State::Reset {
            self.to_init(&ConnectOptions { qkey, ..ConnectOptions::default() })?;
        }
        self.modify(&Attributes { state: Some(State::ReadyToReceive), qkey: Some(qkey), ..Attributes::default() })?;
        let (state, send_psn) = (Some(State::ReadyToSend), Some(psn));
        self.modify(&Attributes { state, send_psn, ..Attributes::default() })
    }

    /// Has it receive what is sent to a multicast group (`ibv_attach_mcast(3)`); it must be UD. The network is told (IGMP,
    /// MLD). An IPv4 group a.b.c.d is the MGID `::ffff:a.b.c.d`.
    ///
    /// Dropping the queue pair detaches it.
    ///
    /// ```
    /// use uroce::verbs::{AddressVector, Context, Operation, QpConfig, QpType, ReceiveRequest, SendRequest, random_psn};
    ///
    /// const QKEY: u32 = 0x1111_1111;
    /// let context = Context::open("uroce_lo")?;
    /// let (pd, cq) = (context.alloc_pd(), context.create_cq(16, None)?);
    /// let qp = pd.create_qp(&QpConfig { qp_type: QpType::Ud, ..QpConfig::new(&cq, &cq) })?;
    /// qp.start(random_psn(), QKEY)?;
    /// let group = "239.77.1.2".parse().unwrap();
    /// qp.attach_multicast(group)?;
    ///
    /// let region = pd.register(4096, uroce::verbs::Access::LOCAL_WRITE)?;
    /// qp.post_receive([ReceiveRequest::new(1, &[region.sge(1024, 1024)])])?;
    /// let ah = pd.create_ah(&AddressVector::to(group.address()))?;
    /// qp.post_send([SendRequest::new(2, Operation::Send, &[region.sge(0, 8)]).to(ah.group(QKEY))])?;
    /// // A member hears itself as well.
    /// let mut done = 0;
    /// while done < 2 {
    ///     done += usize::from(cq.poll_one().is_some());
    /// }
    /// # Ok::<(), uroce::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is not UD or the GID not that of a group, [`Error::Full`] when there are too many groups or
    /// members, [`Error::System`] when the kernel does not let the port join.
    pub fn attach_multicast(&self, group: Gid) -> Result<()> {
        self.pd.context.driver.attach_multicast(self.qpn, group.address())
    }

    /// Ends that (`ibv_detach_mcast(3)`).
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is not attached.
    pub fn detach_multicast(&self, group: Gid) -> Result<()> {
        self.pd.context.driver.command(|endpoint, _| endpoint.detach_multicast(self.qpn, group.address()))
    }

    /// Connects a new queue pair to `peer`, all the way to RTS; `psn` is the first that it sends, which the peer must have
    /// been told. RC and UC; UD has no peer, but [`start`](Self::start). Both sides connect, in any order; receives can be posted before, in INIT ([`to_init`](Self::to_init)).
    ///
    /// # Errors
    /// [`Error::Invalid`] when the state is neither RESET nor INIT, an option is out of range, or the device has no
    /// address of the peer's family.
    pub fn connect(&self, psn: Psn, peer: &Peer, options: &ConnectOptions) -> Result<()> {
        if self.query()?.state == State::Reset {
            self.to_init(options)?;
        }
        self.to_rtr(peer, options)?;
        self.to_rts(psn, options)
    }

    /// From RESET to INIT: receives can be posted.
    ///
    /// # Errors
    /// [`Error::Invalid`] in another state.
    pub fn to_init(&self, options: &ConnectOptions) -> Result<()> {
        self.modify(&options.init(self.qp_type))
    }

    /// From INIT to RTR: requests of `peer` are served.
    ///
    /// # Errors
    /// [`Error::Invalid`] in another state, or when the device has no address of the peer's family.
    pub fn to_rtr(&self, peer: &Peer, options: &ConnectOptions) -> Result<()> {
        let context = &self.pd.context;
        let attributes = options.ready_to_receive(peer, &context.place.gids(), context.mtu)?;
        self.modify(&attributes.fitted(self.qp_type, State::Init))
    }

    /// From RTR to RTS: requests are sent, from `psn` on.
    ///
    /// # Errors
    /// [`Error::Invalid`] in another state.
    pub fn to_rts(&self, psn: Psn, options: &ConnectOptions) -> Result<()> {
        self.modify(&options.ready_to_send(psn).fitted(self.qp_type, State::ReadyToReceive))
    }

    /// Posts requests to the send queue, one doorbell for all (`ibv_post_send(3)`).
    ///
    /// The iterator runs while the context is locked: it must not call into it, beyond [`MemoryRegion`]'s own data.
    ///
    /// # Errors
    /// Which request was refused and why; those before it are posted.
    ///
    /// [`MemoryRegion`]: super::MemoryRegion
    pub fn post_send(&self, requests: impl IntoIterator<Item = SendRequest>) -> std::result::Result<(), PostError> {
        self.pd.context.driver.post_send(self.qpn, requests)
    }

    /// Posts requests to the receive queue (`ibv_post_recv(3)`).
    ///
    /// The iterator runs while the context is locked: it must not call into it, beyond [`MemoryRegion`]'s own data.
    ///
    /// # Errors
    /// Which request was refused and why; those before it are posted.
    ///
    /// [`MemoryRegion`]: super::MemoryRegion
    pub fn post_receive(
        &self,
        requests: impl IntoIterator<Item = ReceiveRequest>,
    ) -> std::result::Result<(), PostError> {
        self.pd.context.driver.post_receive(self.qpn, requests)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let result = self.pd.context.driver.command(|endpoint, _| endpoint.destroy_qp(self.qpn));
        debug_assert!(result.is_ok(), "the endpoint lost {}", self.qpn);
    }
}
