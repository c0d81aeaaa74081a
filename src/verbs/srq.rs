//! Shared receive queues.

use std::sync::Arc;

use super::context::ContextInner;
use super::cq::CompletionQueue;
use super::pd::PdInner;
use super::qp::PostError;
use super::xrc::XrcDomain;
use crate::error::{Error, Result};
use crate::queue::{Extended, SrqInfo, SrqInit};
use crate::wire::SrqNumber;
use crate::work::ReceiveRequest;

/// How much a shared receive queue can hold (`ibv_srq_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqConfig {
    /// Requests that may wait.
    pub max_wr: u32,
    /// Elements of a request, at most 27.
    pub max_sge: u32,
}

impl Default for SrqConfig {
    /// 128 requests of 4 elements.
    fn default() -> Self {
        Self { max_wr: 128, max_sge: 4 }
    }
}

/// A shared receive queue (`ibv_create_srq(3)`): the queue pairs made with it take their receives from it, the first that has
/// a message the oldest request. Clones are the same queue, and so are the handles that its queue pairs hold: it is destroyed
/// with the last of them.
///
/// A request completes on the receive queue of the queue pair that took it. When a queue pair breaks, what it has not taken
/// stays for the others; [`AsyncEvent::QpLastWqeReached`](super::AsyncEvent::QpLastWqeReached) says that it takes no more.
///
/// ```
/// use uroce::verbs::{Access, Context, QpConfig, ReceiveRequest, SrqConfig};
///
/// let context = Context::open("uroce_lo")?;
/// let (pd, cq) = (context.alloc_pd(), context.create_cq(64, None)?);
/// let region = pd.register(64 * 1024, Access::LOCAL_WRITE)?;
/// let srq = pd.create_srq(&SrqConfig { max_wr: 64, ..SrqConfig::default() })?;
/// let config = QpConfig { srq: Some(srq.clone()), ..QpConfig::new(&cq, &cq) };
/// let qps = [pd.create_qp(&config)?, pd.create_qp(&config)?];
/// srq.post_receive((0..64).map(|id| ReceiveRequest::new(id, &[region.sge(id as usize * 1024, 1024)])))?;
/// srq.arm_limit(8)?; // an event when fewer than 8 are left
/// assert_eq!(srq.waiting()?, 64);
/// # drop(qps);
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    inner: Arc<SrqInner>,
}

impl SharedReceiveQueue {
    pub(super) fn new(pd: &Arc<PdInner>, config: &SrqConfig) -> Result<Self> {
        Self::create(pd, config, None, None)
    }

    pub(super) fn extended(
        pd: &Arc<PdInner>,
        config: &SrqConfig,
        domain: &XrcDomain,
        cq: &CompletionQueue,
    ) -> Result<Self> {
        if !domain.belongs_to(&pd.context) {
            return Err(Error::invalid("xrcd", "it belongs to another context"));
        }
        if !cq.belongs_to(&pd.context) {
            return Err(Error::invalid("cq", "it belongs to another context"));
        }
        let extended = Extended { domain: domain.number(), cq: cq.queue() };
        Self::create(pd, config, Some(extended), Some(cq.clone()))
    }

    fn create(
        pd: &Arc<PdInner>,
        config: &SrqConfig,
        extended: Option<Extended>,
        cq: Option<CompletionQueue>,
    ) -> Result<Self> {
        let init = SrqInit { pd: pd.number, max_wr: config.max_wr, max_sge: config.max_sge, extended };
        let number = pd.context.driver.command(|endpoint, _| endpoint.create_srq(init))?;
        Ok(Self { inner: Arc::new(SrqInner { number, cq, pd: Arc::clone(pd) }) })
    }

    /// Its number, by which events name it; for one of an XRC domain, what peers send to (`ibv_get_srq_num(3)`).
    #[must_use]
    pub fn number(&self) -> SrqNumber {
        self.inner.number
    }

    /// Where requests complete, for one of an XRC domain.
    #[must_use]
    pub fn cq(&self) -> Option<&CompletionQueue> {
        self.inner.cq.as_ref()
    }

    /// Posts requests (`ibv_post_srq_recv(3)`).
    ///
    /// The iterator runs while the context is locked: it must not call into it, beyond a region's own data.
    ///
    /// # Errors
    /// Which request was refused and why; those before it are posted.
    pub fn post_receive(
        &self,
        requests: impl IntoIterator<Item = ReceiveRequest>,
    ) -> std::result::Result<(), PostError> {
        self.inner.pd.context.driver.post_srq_receive(self.inner.number, requests)
    }

    /// Asks for one [`AsyncEvent::SrqLimitReached`](super::AsyncEvent::SrqLimitReached) when fewer than `limit` requests wait
    /// (`ibv_modify_srq(3)` with `IBV_SRQ_LIMIT`); it comes at once when that is so already. 0 takes it back.
    ///
    /// # Errors
    /// [`Error::Invalid`] when that many do not fit.
    pub fn arm_limit(&self, limit: u32) -> Result<()> {
        self.modify(None, Some(limit))
    }

    /// Changes how many requests fit (`ibv_modify_srq(3)` with `IBV_SRQ_MAX_WR`).
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is out of range, below the number of requests that wait, or below the limit.
    pub fn resize(&self, max_wr: u32) -> Result<()> {
        self.modify(Some(max_wr), None)
    }

    fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<()> {
        self.inner.pd.context.driver.command(|endpoint, _| endpoint.modify_srq(self.inner.number, max_wr, limit))
    }

    /// Its sizes, and the limit that it is armed with (`ibv_query_srq(3)`).
    ///
    /// # Errors
    /// None while it exists.
    pub fn query(&self) -> Result<SrqInfo> {
        self.inner.pd.context.driver.inspect(|endpoint| endpoint.query_srq(self.inner.number))
    }

    /// How many requests wait.
    ///
    /// # Errors
    /// None while it exists.
    pub fn waiting(&self) -> Result<usize> {
        self.inner.pd.context.driver.inspect(|endpoint| endpoint.srq_waiting(self.inner.number))
    }

    pub(super) fn belongs_to(&self, context: &Arc<ContextInner>) -> bool {
        Arc::ptr_eq(&self.inner.pd.context, context)
    }
}

/// A shared receive queue's number and what it stands on.
#[derive(Debug)]
struct SrqInner {
    number: SrqNumber,
    cq: Option<CompletionQueue>,
    pd: Arc<PdInner>,
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let result = self.pd.context.driver.command(|endpoint, _| endpoint.destroy_srq(self.number));
        debug_assert!(result.is_ok(), "{result:?}");
    }
}
