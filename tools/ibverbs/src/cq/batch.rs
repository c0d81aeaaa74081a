//! Completions taken one by one: the extended interface of `ibv_create_cq_ex(3)`.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use uroce::verbs::Completion;

use super::{Cq, Queue, flags, idle, immediate, service_level};
use crate::abi;
use crate::edge::quick;
use crate::handle::{Handle, live};

/// What the program has at hand. One thread polls at a time, from `ibv_start_poll` to `ibv_end_poll`; others wait.
#[derive(Default)]
pub(super) struct Taken {
    is_polling: AtomicBool,
    completion: UnsafeCell<Completion>,
}

// SAFETY: only the thread that set `is_polling` touches the completion, until it clears it.
unsafe impl Sync for Taken {}

impl Taken {
    fn lock(&self) {
        while self.is_polling.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn unlock(&self) {
        self.is_polling.store(false, Ordering::Release);
    }
}

/// The functions that the program calls through the structure.
pub(super) fn fill_in(shape: &mut abi::CqEx) {
    shape.start_poll = Some(start_poll);
    shape.next_poll = Some(next_poll);
    shape.end_poll = Some(end_poll);
    shape.read_opcode = Some(read_opcode);
    shape.read_vendor_err = Some(read_vendor_err);
    shape.read_byte_len = Some(read_byte_len);
    shape.read_imm_data = Some(read_imm_data);
    shape.read_qp_num = Some(read_qp_num);
    shape.read_src_qp = Some(read_src_qp);
    shape.read_wc_flags = Some(read_wc_flags);
    shape.read_slid = Some(read_slid);
    shape.read_sl = Some(read_sl);
    shape.read_dlid_path_bits = Some(read_dlid_path_bits);
    shape.read_completion_ts = Some(read_completion_ts);
    shape.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

/// Returns 0, ENOENT when there is no completion, or another errno.
extern "C" fn start_poll(cq: *mut abi::CqEx, attributes: *mut abi::PollCqAttr) -> c_int {
    quick(libc::EIO, || {
        // SAFETY: null or attributes of the program's.
        if unsafe { attributes.as_ref() }.is_some_and(|attributes| attributes.comp_mask != 0) {
            return libc::EINVAL;
        }
        // SAFETY: a queue of the program's, as the function requires.
        let handle = match unsafe { live::<Cq>(cq.cast()) } {
            Ok(handle) => handle,
            Err(failure) => return failure.errno,
        };
        let taken = &handle.inner().taken;
        taken.lock();
        let errno = take(handle);
        if errno != 0 {
            // Without a completion there is nothing to end.
            taken.unlock();
        }
        errno
    })
}

/// As [`start_poll`]; the completion at hand stays when there is no other.
extern "C" fn next_poll(cq: *mut abi::CqEx) -> c_int {
    quick(libc::EIO, || {
        // SAFETY: a queue of the program's, as the function requires.
        match unsafe { live::<Cq>(cq.cast()) } {
            Ok(handle) if handle.inner().taken.is_polling.load(Ordering::Relaxed) => take(handle),
            Ok(_) => libc::EINVAL,
            Err(failure) => failure.errno,
        }
    })
}

extern "C" fn end_poll(cq: *mut abi::CqEx) {
    quick((), || {
        // SAFETY: a queue of the program's, as the function requires.
        if let Ok(handle) = unsafe { live::<Cq>(cq.cast()) } {
            handle.inner().taken.unlock();
        }
    });
}

/// Takes the next completion, and shows what programs read straight from the structure.
fn take(handle: &Handle<Cq>) -> c_int {
    let queue = handle.inner();
    let taken = queue.queue.poll_one();
    idle::polled(usize::from(taken.is_some()));
    let Some(completion) = taken else { return libc::ENOENT };
    let shape = handle.shape();
    // SAFETY: the shape of a live queue, which only the thread that polls writes here.
    unsafe { ((*shape).wr_id, (*shape).status) = (completion.id, completion.status as u32) };
    // SAFETY: this thread polls; see `Taken`.
    unsafe { *queue.taken.completion.get() = completion };
    0
}

/// Something of the completion at hand.
fn read<T: Default>(cq: *mut abi::CqEx, look: impl FnOnce(&Queue, &Completion) -> T) -> T {
    quick(T::default(), || {
        // SAFETY: a queue of the program's, as the function requires.
        let Ok(handle) = (unsafe { live::<Cq>(cq.cast()) }) else { return T::default() };
        let queue = handle.inner();
        // SAFETY: this thread polls; see `Taken`.
        look(queue, unsafe { &*queue.taken.completion.get() })
    })
}

extern "C" fn read_opcode(cq: *mut abi::CqEx) -> u32 {
    read(cq, |_, completion| completion.kind as u32)
}

extern "C" fn read_vendor_err(cq: *mut abi::CqEx) -> u32 {
    read(cq, |_, completion| completion.vendor_error)
}

extern "C" fn read_byte_len(cq: *mut abi::CqEx) -> u32 {
    read(cq, |_, completion| completion.byte_length)
}

extern "C" fn read_imm_data(cq: *mut abi::CqEx) -> u32 {
    read(cq, |_, completion| immediate(completion))
}

extern "C" fn read_qp_num(cq: *mut abi::CqEx) -> u32 {
    read(cq, |_, completion| completion.qpn.value())
}

extern "C" fn read_src_qp(cq: *mut abi::CqEx) -> u32 {
    read(cq, |_, completion| completion.source_qpn.value())
}

extern "C" fn read_wc_flags(cq: *mut abi::CqEx) -> u32 {
    read(cq, |_, completion| flags(completion))
}

extern "C" fn read_slid(_cq: *mut abi::CqEx) -> u32 {
    0
}

extern "C" fn read_sl(cq: *mut abi::CqEx) -> u8 {
    read(cq, |_, completion| service_level(completion))
}

extern "C" fn read_dlid_path_bits(_cq: *mut abi::CqEx) -> u8 {
    0
}

/// In nanoseconds, the unit that `ibv_query_device_ex` tells.
extern "C" fn read_completion_ts(cq: *mut abi::CqEx) -> u64 {
    read(cq, |_, completion| completion.timestamp.as_nanos())
}

extern "C" fn read_completion_wallclock_ns(cq: *mut abi::CqEx) -> u64 {
    read(cq, |queue, completion| {
        let time = queue.context.inner().verbs.time_of_day(completion.timestamp);
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
