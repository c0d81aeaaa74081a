//! Fast regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::mr::MemoryRegion;
use super::pd::PdInner;
use crate::error::Result;
use crate::memory::{Access, FastRegister, Table, next_key};
use crate::work::{Operation, Remote, Sge};

/// A region that work requests register and invalidate, without a verb in between (the kernel's `IB_WR_REG_MR`). Its memory
/// is a part of an ordinary region, with rights of its own. Dropping it deallocates it.
///
/// ```
/// use uroce::verbs::{Access, ConnectOptions, Context, QpConfig, SendRequest, Status, random_psn};
///
/// let context = Context::open("uroce_lo")?;
/// let (pd, cq) = (context.alloc_pd(), context.create_cq(16, None)?);
/// let (a, b) = (pd.create_qp(&QpConfig::new(&cq, &cq))?, pd.create_qp(&QpConfig::new(&cq, &cq))?);
/// let (a_peer, b_peer) = (a.local(random_psn()), b.local(random_psn()));
/// a.connect(a_peer.psn, &b_peer, &ConnectOptions::default())?;
/// b.connect(b_peer.psn, &a_peer, &ConnectOptions::default())?;
///
/// let region = pd.register(1 << 16, Access::LOCAL_WRITE)?;
/// let fast = pd.allocate_fast_region(2)?;
/// // One doorbell: the key is good for a peer, and then it is not.
/// let register = fast.register(&region, 4096, 8192, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
/// a.post_send([SendRequest::new(1, register, &[]), SendRequest::new(2, fast.invalidate(), &[])])?;
/// for id in 1..=2 {
///     let completion = loop {
///         if let Some(completion) = cq.poll_one() {
///             break completion;
///         }
///     };
///     assert_eq!((completion.id, completion.status), (id, Status::Success));
/// }
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Debug)]
pub struct FastRegion {
    pd: Arc<PdInner>,
    key: AtomicU32,
    max_length: u64,
}

impl FastRegion {
    pub(super) fn new(pd: &Arc<PdInner>, max_pages: u32) -> Result<Self> {
        let key = pd.context.driver.command(|endpoint, _| endpoint.memory_mut().allocate_fast(pd.number, max_pages))?;
        Ok(Self { pd: Arc::clone(pd), key: AtomicU32::new(key), max_length: u64::from(max_pages) * Table::PAGE })
    }

    /// Its key, local and remote, as of the newest [`register`](Self::register).
    #[must_use]
    pub fn key(&self) -> u32 {
        self.key.load(Ordering::Relaxed)
    }

    /// Bytes that it can have.
    #[must_use]
    pub fn max_length(&self) -> u64 {
        self.max_length
    }

    /// The request that registers `length` bytes from `offset` of `region`, which keep their addresses (they count from 0
    /// with [`Access::ZERO_BASED`]), under the next key, which [`key`](Self::key) is from now on: post it before another is
    /// made.
    ///
    /// The request fails with [`Status::LocalQpOperationError`](crate::work::Status::LocalQpOperationError), and breaks the
    /// queue pair, when the fast region is registered already, is too small, or may write where the region may not; and when
    /// they and the queue pair are not all of one protection domain.
    #[must_use]
    pub fn register(&self, region: &MemoryRegion, offset: usize, length: u64, access: Access) -> Operation {
        let key = self.key.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |key| Some(next_key(key)));
        let (Ok(key) | Err(key)) = key;
        let address = region.remote(offset).address;
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { address };
        let (key, lkey) = (next_key(key), region.lkey());
        Operation::FastRegister(FastRegister { key, lkey, address, length, iova, access })
    }

    /// The request that makes its key worthless. A peer does the same with [`Operation::SendInvalidate`].
    #[must_use]
    pub fn invalidate(&self) -> Operation {
        Operation::LocalInvalidate(self.key())
    }

    /// `length` bytes at `address` as an element of a scatter/gather list.
    #[must_use]
    pub fn sge(&self, address: u64, length: u32) -> Sge {
        Sge { address, length, lkey: self.key() }
    }

    /// The bytes from `address` on, as a peer names them.
    #[must_use]
    pub fn remote(&self, address: u64) -> Remote {
        Remote { address, rkey: self.key() }
    }
}

impl Drop for FastRegion {
    fn drop(&mut self) {
        let key = self.key();
        let gone = self.pd.context.driver.command(|endpoint, _| endpoint.memory_mut().deallocate_fast(key));
        debug_assert!(gone.is_ok(), "the table lost {key:#x}");
    }
}
