//! Memory windows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::mr::MemoryRegion;
use super::pd::PdInner;
use crate::error::Result;
use crate::memory::{Access, WindowBind, WindowType, next_key};
use crate::work::{Operation, Remote};

/// A memory window (`ibv_alloc_mw(3)`): a key that opens a part of a region to a peer, and is given and taken by work
/// requests. Dropping it deallocates it: its keys open nothing from then on.
///
/// A type 2 window opens only for the queue pair that bound it; invalidate it before it is bound again:
///
/// ```
/// use uroce::verbs::{
///     Access, ConnectOptions, Context, Operation, QpConfig, SendRequest, Status, WindowType, random_psn,
/// };
///
/// let context = Context::open("uroce_lo")?;
/// let (pd, cq) = (context.alloc_pd(), context.create_cq(16, None)?);
/// let (a, b) = (pd.create_qp(&QpConfig::new(&cq, &cq))?, pd.create_qp(&QpConfig::new(&cq, &cq))?);
/// let (a_peer, b_peer) = (a.local(random_psn()), b.local(random_psn()));
/// a.connect(a_peer.psn, &b_peer, &ConnectOptions::default())?;
/// b.connect(b_peer.psn, &a_peer, &ConnectOptions::default())?;
/// let done = || loop {
///     if let Some(completion) = cq.poll_one() {
///         break completion.status;
///     }
/// };
///
/// // The region gives peers nothing; the window opens 8 bytes of it.
/// let region = pd.register(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
/// let window = pd.allocate_window(WindowType::Two)?;
/// b.post_send([SendRequest::new(1, window.bind(&region, 64, 8, Access::REMOTE_WRITE), &[])])?;
/// assert_eq!(done(), Status::Success);
///
/// // `a` is a peer that was told the window's key.
/// a.post_send([SendRequest::inline(2, Operation::Write(window.remote(&region, 64)), b"a letter")])?;
/// assert_eq!(done(), Status::Success);
/// let mut letter = [0; 8];
/// region.read(64, &mut letter)?;
/// assert_eq!(&letter, b"a letter");
///
/// b.post_send([SendRequest::new(3, window.invalidate(), &[])])?;
/// assert_eq!(done(), Status::Success);
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Debug)]
pub struct MemoryWindow {
    pd: Arc<PdInner>,
    window_type: WindowType,
    rkey: AtomicU32,
}

impl MemoryWindow {
    pub(super) fn new(pd: &Arc<PdInner>, window_type: WindowType) -> Result<Self> {
        let key =
            pd.context.driver.command(|endpoint, _| endpoint.memory_mut().allocate_window(pd.number, window_type))?;
        Ok(Self { pd: Arc::clone(pd), window_type, rkey: AtomicU32::new(key) })
    }

    /// Its type.
    #[must_use]
    pub fn window_type(&self) -> WindowType {
        self.window_type
    }

    /// Its key as of the newest [`bind`](Self::bind), for the peer.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey.load(Ordering::Relaxed)
    }

    /// The request that opens `length` bytes from `offset` of `region` to `access` (`ibv_bind_mw(3)`), under the next key,
    /// which [`rkey`](Self::rkey) is from now on: post it before another is made. A `length` of 0 unbinds a type 1 window.
    ///
    /// The request fails with [`Status::MemoryWindowBindError`](crate::work::Status::MemoryWindowBindError), and breaks the
    /// queue pair, when the region does not allow windows ([`Access::MW_BIND`]), is zero-based, has no local write while the
    /// window is to allow writing or atomics, or has not so many bytes; when window, region and queue pair are not all of
    /// one protection domain; and when a type 2 window is bound already.
    #[must_use]
    pub fn bind(&self, region: &MemoryRegion, offset: usize, length: u64, access: Access) -> Operation {
        let window = self.rkey.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |key| Some(next_key(key)));
        let (Ok(window) | Err(window)) = window;
        Operation::BindWindow(WindowBind {
            window,
            rkey: next_key(window),
            lkey: region.lkey(),
            address: region.remote(offset).address,
            length,
            access,
        })
    }

    /// The request that makes the key of a bound type 2 window worthless (`IBV_WR_LOCAL_INV`), posted to the queue pair that
    /// bound it. A peer does the same with [`Operation::SendInvalidate`].
    #[must_use]
    pub fn invalidate(&self) -> Operation {
        Operation::LocalInvalidate(self.rkey())
    }

    /// The byte at `offset` of the region that it is bound to, as a peer names it through the window. Through a zero-based
    /// window a peer counts from the window's first byte instead.
    #[must_use]
    pub fn remote(&self, region: &MemoryRegion, offset: usize) -> Remote {
        Remote { address: region.remote(offset).address, rkey: self.rkey() }
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let key = self.rkey();
        let gone = self.pd.context.driver.command(|endpoint, _| endpoint.memory_mut().deallocate_window(key));
        debug_assert!(gone.is_ok(), "the table lost {key:#x}");
    }
}
