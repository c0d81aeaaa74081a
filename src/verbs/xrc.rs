//! Extended reliable connections (IBTA annex A14).

use std::sync::Arc;

use super::context::{Context, ContextInner};
use super::cq::CompletionQueue;
use super::pd::PdInner;
use super::qp::QueuePair;
use crate::error::Result;
use crate::queue::XrcdNumber;

/// An XRC domain (`ibv_open_xrcd(3)`): what one connection from each peer is enough for. Clones are the same domain.
///
/// A peer's initiator ([`QpType::XrcInitiator`](super::QpType::XrcInitiator)) is connected to one target of the domain, and each of
/// its requests names ([`to_srq`](super::SendRequest::to_srq)) the shared receive queue
/// ([`create_xrc_srq`](super::ProtectionDomain::create_xrc_srq)) that it is for: that queue gives the receive request, its protection
/// domain the memory, its completion queue the completion. Initiators only send, targets only receive. The kernel's rxe has no
/// XRC, network cards do. A domain belongs to one process: it cannot be shared over a file.
///
/// ```
/// use uroce::verbs::{Access, ConnectOptions, Context, Operation, QpConfig, QpType, ReceiveRequest, SendRequest, SrqConfig};
/// use uroce::verbs::random_psn;
///
/// let context = Context::open("uroce_lo")?;
/// let (pd, cq) = (context.alloc_pd(), context.create_cq(16, None)?);
/// let region = pd.register(4096, Access::LOCAL_WRITE)?;
/// let domain = context.open_xrc_domain()?;
/// let srq = pd.create_xrc_srq(&SrqConfig::default(), &domain, &cq)?;
/// srq.post_receive([ReceiveRequest::new(1, &[region.sge(0, 4096)])])?;
///
/// let target = domain.create_target()?;
/// let initiator = pd.create_qp(&QpConfig { qp_type: QpType::XrcInitiator, ..QpConfig::new(&cq, &cq) })?;
/// let (near, far) = (initiator.local(random_psn()), target.local(random_psn()));
/// target.connect(far.psn, &near, &ConnectOptions::default())?;
/// initiator.connect(near.psn, &far, &ConnectOptions::default())?;
/// initiator.post_send([SendRequest::inline(2, Operation::Send, b"a letter").to_srq(srq.number())])?;
/// let mut done = Vec::new();
/// while done.len() < 2 {
///     done.extend(cq.poll_one().map(|completion| completion.id));
/// }
/// # assert!(done.contains(&1) && done.contains(&2));
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct XrcDomain {
    inner: Arc<XrcdInner>,
}

impl XrcDomain {
    pub(super) fn new(context: &Arc<ContextInner>) -> Result<Self> {
        let number = context.driver.command(|endpoint, _| endpoint.allocate_xrcd());
        let pd = Context::from(Arc::clone(context)).alloc_pd().inner();
        let idle = CompletionQueue::new(context, 1, None, 0)?;
        Ok(Self { inner: Arc::new(XrcdInner { number, pd, idle }) })
    }

    /// A target (`ibv_create_qp_ex(3)` with `IBV_QPT_XRC_RECV`), in the state RESET. Its completion queues stay empty: what it
    /// receives completes where the shared receive queue says.
    ///
    /// # Errors
    /// [`Error::Full`](crate::error::Error::Full) when there are too many queue pairs.
    pub fn create_target(&self) -> Result<QueuePair> {
        QueuePair::xrc_target(&self.inner.pd, self.inner.number, &self.inner.idle)
    }

    pub(super) fn number(&self) -> XrcdNumber {
        self.inner.number
    }

    pub(super) fn belongs_to(&self, context: &Arc<ContextInner>) -> bool {
        Arc::ptr_eq(&self.inner.pd.context, context)
    }
}

/// A domain's number, and what its targets are made of: a protection domain that nobody registers memory in, and a completion
/// queue that nothing completes on.
#[derive(Debug)]
struct XrcdInner {
    number: XrcdNumber,
    pd: Arc<PdInner>,
    idle: CompletionQueue,
}
