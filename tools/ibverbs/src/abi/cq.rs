//! Completion channels, completion queues, completions, asynchronous events.

use std::ffi::c_void;

use super::{Condition, Context, Function, Mutex, Pd};

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompChannel {
    pub(crate) context: *mut Context,
    pub(crate) fd: i32,
    pub(crate) refcnt: i32,
}

/// `struct ibv_cq`.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) context: *mut Context,
    pub(crate) channel: *mut CompChannel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: i32,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Condition,
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

/// `struct ibv_cq_ex`, whose first fields are those of [`Cq`].
#[repr(C)]
pub(crate) struct CqEx {
    pub(crate) cq: Cq,
    pub(crate) comp_mask: u32,
    pub(crate) status: u32,
    pub(crate) wr_id: u64,
    pub(crate) start_poll: Function<unsafe extern "C" fn(*mut CqEx, *mut PollCqAttr) -> i32>,
    pub(crate) next_poll: Function<unsafe extern "C" fn(*mut CqEx) -> i32>,
    pub(crate) end_poll: Function<unsafe extern "C" fn(*mut CqEx)>,
    pub(crate) read_opcode: Function<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub(crate) read_vendor_err: Function<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub(crate) read_byte_len: Function<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub(crate) read_imm_data: Function<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub(crate) read_qp_num: Function<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub(crate) read_src_qp: Function<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub(crate) read_wc_flags: Function<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub(crate) read_slid: Function<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub(crate) read_sl: Function<unsafe extern "C" fn(*mut CqEx) -> u8>,
    pub(crate) read_dlid_path_bits: Function<unsafe extern "C" fn(*mut CqEx) -> u8>,
    pub(crate) read_completion_ts: Function<unsafe extern "C" fn(*mut CqEx) -> u64>,
    pub(crate) read_cvlan: Function<unsafe extern "C" fn(*mut CqEx) -> u16>,
    pub(crate) read_flow_tag: Function<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub(crate) read_tm_info: Function<unsafe extern "C" fn(*mut CqEx, *mut c_void)>,
    pub(crate) read_completion_wallclock_ns: Function<unsafe extern "C" fn(*mut CqEx) -> u64>,
}

/// `struct ibv_poll_cq_attr`.
#[repr(C)]
pub(crate) struct PollCqAttr {
    pub(crate) comp_mask: u32,
}

/// `struct ibv_cq_init_attr_ex`.
#[repr(C)]
pub(crate) struct CqInitAttrEx {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut CompChannel,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
    pub(crate) comp_mask: u32,
    pub(crate) flags: u32,
    pub(crate) parent_domain: *mut Pd,
}

/// `enum ibv_cq_init_attr_mask`, and what of `enum ibv_create_cq_wc_flags` can be had.
pub(crate) mod cq_init {
    pub(crate) const FLAGS: u32 = 1;
    pub(crate) const PD: u32 = 1 << 1;
    pub(crate) const KNOWN_FLAGS: u32 = 3;
    /// `IBV_WC_STANDARD_FLAGS`, the completion's time on the device's clock, and as time of day.
    pub(crate) const WC_FLAGS: u64 = 0x7f | 1 << 7 | 1 << 11;
}

/// `struct ibv_modify_cq_attr`.
#[repr(C)]
pub(crate) struct ModifyCqAttr {
    pub(crate) attr_mask: u32,
    pub(crate) cq_count: u16,
    pub(crate) cq_period: u16,
}

/// `IBV_CQ_ATTR_MODERATE`.
pub(crate) const CQ_ATTR_MODERATE: u32 = 1;

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data in network order, or the invalidated key.
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

/// `enum ibv_wc_flags`.
pub(crate) mod wc_flags {
    pub(crate) const GRH: u32 = 1;
    pub(crate) const WITH_IMM: u32 = 1 << 1;
    pub(crate) const WITH_INV: u32 = 1 << 3;
}

/// `struct ibv_async_event`.
#[repr(C)]
pub(crate) struct AsyncEvent {
    /// The completion queue, queue pair, or shared receive queue; or the port's number.
    pub(crate) element: *mut c_void,
    pub(crate) event_type: u32,
}

/// `enum ibv_event_type`.
pub(crate) mod event_type {
    pub(crate) const CQ_ERR: u32 = 0;
    pub(crate) const QP_FATAL: u32 = 1;
    pub(crate) const QP_REQ_ERR: u32 = 2;
    pub(crate) const QP_ACCESS_ERR: u32 = 3;
    pub(crate) const COMM_EST: u32 = 4;
    pub(crate) const SQ_DRAINED: u32 = 5;
    pub(crate) const DEVICE_FATAL: u32 = 8;
    pub(crate) const PORT_ACTIVE: u32 = 9;
    pub(crate) const PORT_ERR: u32 = 10;
    pub(crate) const SRQ_ERR: u32 = 14;
    pub(crate) const SRQ_LIMIT_REACHED: u32 = 15;
    pub(crate) const QP_LAST_WQE_REACHED: u32 = 16;
    pub(crate) const GID_CHANGE: u32 = 18;
}
