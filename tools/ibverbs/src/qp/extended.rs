//! The extended interface of the send queue (`ibv_wr_post(3)`): requests are begun and given their data by function calls, and
//! posted together.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::PoisonError;

use smallvec::SmallVec;
use uroce::verbs::{
    Destination, Flush, Operation, Payload, Placement, QpType, Remote, Selectivity, SendRequest, Sge, SrqNumber,
};
use uroce::work::SgeList;

use super::Qp;
use crate::abi::{self, send_ops};
use crate::edge::{Failure, Result, list, quick, say};
use crate::handle::{Handle, live};
use crate::memory::mw;
use crate::post;

/// Requests between `ibv_wr_start` and `ibv_wr_complete`.
#[derive(Default)]
pub(super) struct Building {
    requests: Vec<SendRequest>,
    /// Windows that they bind, by their places in the list.
    bound: Vec<(usize, mw::Bound)>,
    /// The first thing that was wrong: posting fails with it.
    failure: Option<Failure>,
}

/// The extended interface of a queue pair that was made with it.
pub(crate) extern "C" fn ibv_qp_to_qp_ex(qp: *mut abi::Qp) -> *mut abi::QpEx {
    quick(ptr::null_mut(), || {
        // SAFETY: a queue pair of the program's, as the verb requires.
        match unsafe { live::<Qp>(qp) } {
            Ok(handle) if handle.inner().is_extended => handle.shape(),
            _ => ptr::null_mut(),
        }
    })
}

/// Whether queue pairs of this type can do all of these operations.
///
/// # Errors
/// EOPNOTSUPP for those that they cannot do.
pub(super) fn check(qp_type: QpType, operations: u64) -> Result<()> {
    let datagram = send_ops::SEND | send_ops::SEND_WITH_IMM;
    let unreliable = datagram
        | send_ops::SEND_WITH_INV
        | send_ops::RDMA_WRITE
        | send_ops::RDMA_WRITE_WITH_IMM
        | send_ops::LOCAL_INV
        | send_ops::BIND_MW;
    let reliable = unreliable
        | send_ops::RDMA_READ
        | send_ops::ATOMIC_CMP_AND_SWP
        | send_ops::ATOMIC_FETCH_AND_ADD
        | send_ops::ATOMIC_WRITE
        | send_ops::FLUSH;
    let able = match qp_type {
        QpType::Ud => datagram,
        QpType::Uc => unreliable,
        QpType::Rc | QpType::XrcInitiator => reliable,
        QpType::XrcTarget => 0,
    };
    match operations & !able {
        0 => Ok(()),
        unable => Err(Failure::unsupported(format!("send_ops_flags {unable:#x} of a queue pair of {qp_type:?}"))),
    }
}

/// The functions that the program calls through the structure.
pub(super) fn fill_in(shape: &mut abi::QpEx) {
    shape.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    shape.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    shape.wr_bind_mw = Some(wr_bind_mw);
    shape.wr_local_inv = Some(wr_local_inv);
    shape.wr_rdma_read = Some(wr_rdma_read);
    shape.wr_rdma_write = Some(wr_rdma_write);
    shape.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    shape.wr_send = Some(wr_send);
    shape.wr_send_imm = Some(wr_send_imm);
    shape.wr_send_inv = Some(wr_send_inv);
    shape.wr_send_tso = Some(wr_send_tso);
    shape.wr_set_ud_addr = Some(wr_set_ud_addr);
    shape.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    shape.wr_set_inline_data = Some(wr_set_inline_data);
    shape.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    shape.wr_set_sge = Some(wr_set_sge);
    shape.wr_set_sge_list = Some(wr_set_sge_list);
    shape.wr_start = Some(wr_start);
    shape.wr_complete = Some(wr_complete);
    shape.wr_abort = Some(wr_abort);
    shape.wr_atomic_write = Some(wr_atomic_write);
    shape.wr_flush = Some(wr_flush);
}

/// Works on the requests of a queue pair.
fn build<T>(qp: *mut abi::QpEx, fallback: T, work: impl FnOnce(&Handle<Qp>, &mut Building) -> T) -> T {
    let mut work = Some(work);
    let result = quick(None, || {
        // SAFETY: a queue pair of the program's, as the interface requires.
        let handle = unsafe { live::<Qp>(qp.cast()) }.ok()?;
        let mut building = handle.inner().building.lock().unwrap_or_else(PoisonError::into_inner);
        work.take().map(|work| work(handle, &mut building))
    });
    result.unwrap_or(fallback)
}

/// Begins a request, with the id and flags that the program put into the structure.
fn begin(qp: *mut abi::QpEx, operation: impl FnOnce() -> Result<Operation>) {
    build(qp, (), |handle, building| {
        let shape = handle.shape();
        // SAFETY: the shape of a live queue pair; the thread that builds requests is the one that writes here.
        let (id, flags) = unsafe { ((*shape).wr_id, (*shape).wr_flags) };
        let request = operation().and_then(|operation| {
            let request = SendRequest::new(id, operation, &[]);
            Ok(request.with_flags(post::send_flags(flags & !abi::SEND_INLINE)?))
        });
        match request {
            Ok(request) => building.requests.push(request),
            Err(failure) => building.fail(failure),
        }
    });
}

/// Adds something to the request that was begun last.
fn add(qp: *mut abi::QpEx, change: impl FnOnce(&mut SendRequest) -> Result<()>) {
    build(qp, (), |_, building| {
        let result = match building.requests.last_mut() {
            Some(request) => change(request),
            None => Err(Failure::invalid("a setter before a request")),
        };
        if let Err(failure) = result {
            building.fail(failure);
        }
    });
}

impl Building {
    /// Begins anew: what was not posted never was.
    fn forget(&mut self) {
        mw::take_back(&self.bound, 0);
        self.bound.clear();
        self.requests.clear();
        self.failure = None;
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }
}

/// Begins a list of requests.
extern "C" fn wr_start(qp: *mut abi::QpEx) {
    build(qp, (), |_, building| {
        building.forget();
    });
}

/// Posts the list; returns 0 or an errno. Nothing is posted when a request or a setter was wrong in itself. What only the
/// engine refuses (a full send queue, a message that is too long) stops the list there, as with `ibv_post_send`: what was begun
/// before it is posted. The interface has no way to tell how many those are, so a program that sees an error moves the queue pair
/// to the error state, whose flushed completions tell.
extern "C" fn wr_complete(qp: *mut abi::QpEx) -> c_int {
    build(qp, libc::EINVAL, |handle, building| {
        let mut requests = std::mem::take(&mut building.requests);
        if let Some(failure) = building.failure.take() {
            if crate::environment::traces() {
                say(format_args!("ibv_wr_complete: {failure}"));
            }
            building.forget();
            return failure.errno;
        }
        let result = handle.inner().qp.post_send(requests.drain(..));
        let posted = result.as_ref().map_or_else(|refusal| refusal.posted, |()| usize::MAX);
        mw::take_back(&building.bound, posted);
        building.bound.clear();
        // The allocation serves the next list.
        building.requests = requests;
        result.map_or_else(|refusal| refusal.error.errno(), |()| 0)
    })
}

extern "C" fn wr_abort(qp: *mut abi::QpEx) {
    wr_start(qp);
}

extern "C" fn wr_send(qp: *mut abi::QpEx) {
    begin(qp, || Ok(Operation::Send));
}

extern "C" fn wr_send_imm(qp: *mut abi::QpEx, immediate: u32) {
    begin(qp, || Ok(Operation::SendImmediate(u32::from_be(immediate))));
}

extern "C" fn wr_send_inv(qp: *mut abi::QpEx, key: u32) {
    begin(qp, || Ok(Operation::SendInvalidate(key)));
}

/// Segmentation is of raw Ethernet packets.
extern "C" fn wr_send_tso(qp: *mut abi::QpEx, _header: *mut c_void, _size: u16, _segment: u16) {
    begin(qp, || Err(Failure::unsupported("segmentation of raw packets")));
}

extern "C" fn wr_rdma_write(qp: *mut abi::QpEx, rkey: u32, address: u64) {
    begin(qp, || Ok(Operation::Write(Remote { address, rkey })));
}

extern "C" fn wr_rdma_write_imm(qp: *mut abi::QpEx, rkey: u32, address: u64, immediate: u32) {
    begin(qp, || Ok(Operation::WriteImmediate(Remote { address, rkey }, u32::from_be(immediate))));
}

extern "C" fn wr_rdma_read(qp: *mut abi::QpEx, rkey: u32, address: u64) {
    begin(qp, || Ok(Operation::Read(Remote { address, rkey })));
}

extern "C" fn wr_atomic_cmp_swp(qp: *mut abi::QpEx, rkey: u32, address: u64, compare: u64, swap: u64) {
    begin(qp, || Ok(Operation::CompareAndSwap { remote: Remote { address, rkey }, compare, swap }));
}

extern "C" fn wr_atomic_fetch_add(qp: *mut abi::QpEx, rkey: u32, address: u64, add: u64) {
    begin(qp, || Ok(Operation::FetchAndAdd { remote: Remote { address, rkey }, add }));
}

/// The eight bytes come with the call.
extern "C" fn wr_atomic_write(qp: *mut abi::QpEx, rkey: u32, address: u64, bytes: *const c_void) {
    begin(qp, || Ok(Operation::AtomicWrite(Remote { address, rkey })));
    add(qp, |request| {
        let mut data = SmallVec::new();
        post::append(&mut data, bytes.cast(), 8)?;
        set_inline(request, data);
        Ok(())
    });
}

/// `level` 0 is the bytes named, 1 their whole region; `kind` are bits of `enum ibv_placement_type`.
extern "C" fn wr_flush(qp: *mut abi::QpEx, rkey: u32, address: u64, length: usize, kind: u8, level: u8) {
    begin(qp, || {
        let unknown = || Failure::invalid(format!("a flush of {length} bytes, type {kind}, level {level}"));
        let placement = Placement::from_bits(kind).filter(|placement| {
            (Placement::GLOBAL_VISIBILITY | Placement::PERSISTENCE).contains(*placement) && !placement.is_empty()
        });
        Ok(Operation::Flush(Flush {
            remote: Remote { address, rkey },
            length: u32::try_from(length).map_err(|_| unknown())?,
            placement: placement.ok_or_else(unknown)?,
            selectivity: match level {
                0 => Selectivity::Range,
                1 => Selectivity::Region,
                _ => return Err(unknown()),
            },
        }))
    });
}

extern "C" fn wr_local_inv(qp: *mut abi::QpEx, key: u32) {
    begin(qp, || Ok(Operation::LocalInvalidate(key)));
}

extern "C" fn wr_bind_mw(qp: *mut abi::QpEx, window: *mut abi::Mw, rkey: u32, info: *const abi::MwBindInfo) {
    begin(qp, || {
        // SAFETY: a structure of the program's.
        let info = unsafe { crate::edge::given("the bind", info) }?;
        mw::binding(window, rkey, info)
    });
    build(qp, (), |_, building| {
        // The request that was begun just now, unless it was refused.
        let last = building.requests.len().checked_sub(1).filter(|_| building.failure.is_none());
        let bound = last.and_then(|last| Some((last, mw::bound(window, rkey)?)));
        building.bound.extend(bound);
    });
}

extern "C" fn wr_set_ud_addr(qp: *mut abi::QpEx, ah: *mut abi::Ah, qpn: u32, qkey: u32) {
    add(qp, |request| {
        let destination: Destination = post::destination(ah, qpn, qkey)?;
        request.destination = Some(destination);
        Ok(())
    });
}

extern "C" fn wr_set_xrc_srqn(qp: *mut abi::QpEx, srq: u32) {
    add(qp, |request| {
        request.srq = Some(SrqNumber::new(srq));
        Ok(())
    });
}

extern "C" fn wr_set_inline_data(qp: *mut abi::QpEx, start: *const c_void, length: usize) {
    add(qp, |request| {
        let mut data = SmallVec::new();
        post::append(&mut data, start.cast(), length)?;
        set_inline(request, data);
        Ok(())
    });
}

extern "C" fn wr_set_inline_data_list(qp: *mut abi::QpEx, count: usize, buffers: *const abi::DataBuf) {
    add(qp, |request| {
        let mut data = SmallVec::new();
        // SAFETY: the program's list of so many elements.
        for buffer in unsafe { list(buffers, count, post::MAX_SGE) }? {
            post::append(&mut data, buffer.addr.cast(), buffer.length)?;
        }
        set_inline(request, data);
        Ok(())
    });
}

extern "C" fn wr_set_sge(qp: *mut abi::QpEx, lkey: u32, address: u64, length: u32) {
    add(qp, |request| {
        request.payload = Payload::Memory(SgeList::from_slice(&[Sge { address, length, lkey }]));
        Ok(())
    });
}

extern "C" fn wr_set_sge_list(qp: *mut abi::QpEx, count: usize, elements: *const abi::Sge) {
    add(qp, |request| {
        let count = c_int::try_from(count).map_err(|_| Failure::invalid(format!("{count} elements")))?;
        request.payload = Payload::Memory(post::scatter_list(elements, count)?);
        Ok(())
    });
}

fn set_inline(request: &mut SendRequest, data: SmallVec<[u8; 64]>) {
    let flags = request.flags;
    request.payload = Payload::Inline(data);
    *request = std::mem::replace(request, SendRequest::new(0, Operation::Send, &[])).with_flags(flags);
}
