//! Memory windows.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use uroce::verbs::{MemoryWindow, Operation, SendFlags, SendRequest, WindowBind, WindowType, next_key};

use super::access;
use super::mr::key_of;
use super::pd::Pd;
use crate::abi;
use crate::context::{ContextHandle, adopt, release};
use crate::edge::{Failure, Result, errno_of, given, object};
use crate::handle::{Handle, Hold, live, object as declare};
use crate::qp::Qp;

declare!(Mw: abi::Mw as abi::Mw, Window, "memory window");

/// Our part of a memory window.
pub(crate) struct Window {
    _window: MemoryWindow,
    /// The key of the newest bind that was posted. The `rkey` that the program sees is the program's: of a type 2 window it
    /// says itself what it is.
    key: AtomicU32,
    context: ContextHandle,
    _pd: Hold,
}

pub(crate) extern "C" fn alloc_mw(pd: *mut abi::Pd, kind: u32) -> *mut abi::Mw {
    object("ibv_alloc_mw", || {
        // SAFETY: a domain of the program's, as the verb requires.
        let handle = unsafe { live::<Pd>(pd) }?;
        let window_type = match kind {
            1 => WindowType::One,
            2 => WindowType::Two,
            _ => return Err(Failure::invalid(format!("memory window type {kind}"))),
        };
        let window = handle.inner().pd.allocate_window(window_type)?;
        let context = handle.inner().context;
        let number = context.inner().next_handle();
        let shape = abi::Mw { context: context.seen(), pd, rkey: window.rkey(), handle: number, mw_type: kind };
        let key = AtomicU32::new(window.rkey());
        Ok(adopt::<Mw>(context, shape, Window { _window: window, key, context, _pd: handle.hold() }))
    })
}

pub(crate) extern "C" fn dealloc_mw(mw: *mut abi::Mw) -> c_int {
    errno_of("ibv_dealloc_mw", || {
        // SAFETY: a window of the program's, as the verb requires.
        let handle = unsafe { live::<Mw>(mw) }?;
        release(handle.inner().context, handle).map(drop)
    })
}

/// Binds a type 1 window by a request on the queue pair; the window has its new key at once.
pub(crate) extern "C" fn bind_mw(qp: *mut abi::Qp, mw: *mut abi::Mw, bind: *mut abi::MwBind) -> c_int {
    errno_of("ibv_bind_mw", || {
        // SAFETY: a queue pair of the program's, as the verb requires.
        let qp = unsafe { live::<Qp>(qp) }?;
        // SAFETY: a request of the program's.
        let bind = unsafe { given("the request", bind) }?;
        // SAFETY: a window of the program's, as the verb requires.
        let window = unsafe { live::<Mw>(mw) }?;
        let rkey = next_key(window.inner().key.load(Ordering::Relaxed));
        let operation = binding(mw, rkey, &bind.bind_info)?;
        let flags = SendFlags::from_bits_truncate(bind.send_flags) - SendFlags::INLINE;
        let request = SendRequest::new(bind.wr_id, operation, &[]).with_flags(flags);
        qp.inner().qp.post_send([request]).map_err(|refusal| Failure::from(refusal.error))?;
        window.inner().key.store(rkey, Ordering::Relaxed);
        // SAFETY: the shape of a live window.
        unsafe { (*window.shape()).rkey = rkey };
        Ok(())
    })
}

/// The operation that binds `mw` under the key `rkey`. Once it is posted, [`bound`] notes it.
pub(crate) fn binding(mw: *mut abi::Mw, rkey: u32, info: &abi::MwBindInfo) -> Result<Operation> {
    // SAFETY: a window of the program's, as the verbs require that come here.
    let window = unsafe { live::<Mw>(mw) }?;
    Ok(Operation::BindWindow(WindowBind {
        window: window.inner().key.load(Ordering::Relaxed),
        rkey,
        lkey: key_of(info.mr)?,
        address: info.addr,
        length: info.length,
        access: access(info.mw_access_flags)?,
    }))
}

/// A request that binds `mw` under the key `rkey` is about to be posted; what is returned takes that back.
pub(crate) fn bound(mw: *mut abi::Mw, rkey: u32) -> Option<Bound> {
    // SAFETY: a window of the program's, as the verbs require that come here.
    let window = unsafe { live::<Mw>(mw) }.ok()?;
    Some(Bound { window, before: window.inner().key.swap(rkey, Ordering::Relaxed) })
}

/// A window that got another key by a request that may yet be refused.
pub(crate) struct Bound {
    window: &'static Handle<Mw>,
    before: u32,
}

impl Bound {
    /// The request was refused: the window has the key that it had.
    pub(crate) fn take_back(&self) {
        // SAFETY: a window of the program's: `bound` looked. It may be destroyed since.
        if let Ok(window) = unsafe { live::<Mw>(self.window.seen()) } {
            window.inner().key.store(self.before, Ordering::Relaxed);
        }
    }
}

/// Takes back the keys of those requests of a list that were not posted, the newest first.
pub(crate) fn take_back(bound: &[(usize, Bound)], posted: usize) {
    bound.iter().rev().filter(|(request, _)| *request >= posted).for_each(|(_, bound)| bound.take_back());
}
