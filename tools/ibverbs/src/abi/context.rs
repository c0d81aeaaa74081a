//! Contexts, and the functions that programs call through them.

use std::ffi::c_void;

use super::{
    Cq, CqEx, CqInitAttrEx, Device, DeviceAttrEx, Function, ModifyCqAttr, Mr, MrInitAttr, Mutex, Mw, MwBind,
    ParentDomainInitAttr, Pd, PortAttr, Qp, QpInitAttrEx, QpOpenAttr, RecvWr, SendWr, Sge, Srq, SrqInitAttrEx, Td,
    TdInitAttr, Wc, Xrcd, XrcdInitAttr,
};

/// A function that this library does not offer; the program finds a null pointer.
pub(crate) type Absent = Option<unsafe extern "C" fn()>;

/// `struct ibv_context_ops`: the functions of the data path, and the places of those that became exports.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ContextOps {
    pub(crate) compat_before_mw: [Absent; 7],
    pub(crate) alloc_mw: Function<unsafe extern "C" fn(*mut Pd, u32) -> *mut Mw>,
    pub(crate) bind_mw: Function<unsafe extern "C" fn(*mut Qp, *mut Mw, *mut MwBind) -> i32>,
    pub(crate) dealloc_mw: Function<unsafe extern "C" fn(*mut Mw) -> i32>,
    pub(crate) compat_create_cq: Absent,
    pub(crate) poll_cq: Function<unsafe extern "C" fn(*mut Cq, i32, *mut Wc) -> i32>,
    pub(crate) req_notify_cq: Function<unsafe extern "C" fn(*mut Cq, i32) -> i32>,
    pub(crate) compat_before_srq: [Absent; 7],
    pub(crate) post_srq_recv: Function<unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> i32>,
    pub(crate) compat_qp: [Absent; 4],
    pub(crate) post_send: Function<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> i32>,
    pub(crate) post_recv: Function<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> i32>,
    pub(crate) compat_after_recv: [Absent; 5],
}

/// `struct ibv_context`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: i32,
    pub(crate) async_fd: i32,
    pub(crate) num_comp_vectors: i32,
    pub(crate) mutex: Mutex,
    pub(crate) abi_compat: *mut c_void,
}

/// `__VERBS_ABI_IS_EXTENDED`: a [`VerbsContext`] stands around the context.
pub(crate) const ABI_IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

/// `struct verbs_context`. It grows upwards: a program compares `sz`, so what it does not know does not trouble it.
#[repr(C)]
pub(crate) struct VerbsContext {
    /// Newer than release 44.
    pub(crate) free_buf: Absent,
    pub(crate) alloc_buf: Absent,
    pub(crate) dm_export_dmabuf_fd: Absent,
    pub(crate) reg_mr_ex: Function<unsafe extern "C" fn(*mut Pd, *mut MrInitAttr) -> *mut Mr>,
    pub(crate) dealloc_dmah: Absent,
    pub(crate) alloc_dmah: Absent,
    /// From here on as in release 44.
    pub(crate) query_port: Function<unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> i32>,
    pub(crate) advise_mr: Function<unsafe extern "C" fn(*mut Pd, u32, u32, *mut Sge, u32) -> i32>,
    pub(crate) alloc_null_mr: Function<unsafe extern "C" fn(*mut Pd) -> *mut Mr>,
    pub(crate) counters_memory_and_flows: [Absent; 10],
    pub(crate) modify_qp_rate_limit: Absent,
    pub(crate) alloc_parent_domain: Function<unsafe extern "C" fn(*mut Context, *mut ParentDomainInitAttr) -> *mut Pd>,
    pub(crate) dealloc_td: Function<unsafe extern "C" fn(*mut Td) -> i32>,
    pub(crate) alloc_td: Function<unsafe extern "C" fn(*mut Context, *mut TdInitAttr) -> *mut Td>,
    pub(crate) modify_cq: Function<unsafe extern "C" fn(*mut Cq, *mut ModifyCqAttr) -> i32>,
    pub(crate) post_srq_ops: Absent,
    pub(crate) receive_work_queues: [Absent; 5],
    pub(crate) query_rt_values: Function<unsafe extern "C" fn(*mut Context, *mut ValuesEx) -> i32>,
    pub(crate) create_cq_ex: Function<unsafe extern "C" fn(*mut Context, *mut CqInitAttrEx) -> *mut CqEx>,
    pub(crate) private: *mut c_void,
    pub(crate) query_device_ex:
        Function<unsafe extern "C" fn(*mut Context, *const QueryDeviceExInput, *mut DeviceAttrEx, usize) -> i32>,
    pub(crate) flows: [Absent; 4],
    pub(crate) open_qp: Function<unsafe extern "C" fn(*mut Context, *mut QpOpenAttr) -> *mut Qp>,
    pub(crate) create_qp_ex: Function<unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp>,
    pub(crate) get_srq_num: Function<unsafe extern "C" fn(*mut Srq, *mut u32) -> i32>,
    pub(crate) create_srq_ex: Function<unsafe extern "C" fn(*mut Context, *mut SrqInitAttrEx) -> *mut Srq>,
    pub(crate) open_xrcd: Function<unsafe extern "C" fn(*mut Context, *mut XrcdInitAttr) -> *mut Xrcd>,
    pub(crate) close_xrcd: Function<unsafe extern "C" fn(*mut Xrcd) -> i32>,
    pub(crate) placeholder: u64,
    pub(crate) sz: usize,
    pub(crate) context: Context,
}

/// `struct ibv_query_device_ex_input`.
#[repr(C)]
pub(crate) struct QueryDeviceExInput {
    pub(crate) comp_mask: u32,
}

/// `struct ibv_values_ex`.
#[repr(C)]
pub(crate) struct ValuesEx {
    pub(crate) comp_mask: u32,
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

/// `IBV_VALUES_MASK_RAW_CLOCK`.
pub(crate) const VALUES_MASK_RAW_CLOCK: u32 = 1;
