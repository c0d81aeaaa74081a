//! Queue pairs, shared receive queues, address handles, XRC domains.

use std::ffi::c_void;

use super::{Condition, Context, Cq, DataBuf, Function, Gid, Mutex, Mw, MwBindInfo, Pd, Sge};

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpInitAttr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut Srq,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: u32,
    pub(crate) sq_sig_all: i32,
}

/// `struct ibv_qp_init_attr_ex`. The first fields are those of [`QpInitAttr`], but what follows them stands in its padding.
#[repr(C)]
pub(crate) struct QpInitAttrEx {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut Srq,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: u32,
    pub(crate) sq_sig_all: i32,
    pub(crate) comp_mask: u32,
    pub(crate) pd: *mut Pd,
    pub(crate) xrcd: *mut Xrcd,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) rwq_ind_tbl: *mut c_void,
    pub(crate) rx_hash_conf: [u64; 3],
    pub(crate) source_qpn: u32,
    pub(crate) send_ops_flags: u64,
}

/// `enum ibv_qp_init_attr_mask`.
pub(crate) mod qp_init {
    pub(crate) const PD: u32 = 1;
    pub(crate) const XRCD: u32 = 1 << 1;
    pub(crate) const CREATE_FLAGS: u32 = 1 << 2;
    pub(crate) const SEND_OPS_FLAGS: u32 = 1 << 6;
}

/// `enum ibv_qp_create_send_ops_flags`.
pub(crate) mod send_ops {
    pub(crate) const RDMA_WRITE: u64 = 1;
    pub(crate) const RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
    pub(crate) const SEND: u64 = 1 << 2;
    pub(crate) const SEND_WITH_IMM: u64 = 1 << 3;
    pub(crate) const RDMA_READ: u64 = 1 << 4;
    pub(crate) const ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
    pub(crate) const ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
    pub(crate) const LOCAL_INV: u64 = 1 << 7;
    pub(crate) const BIND_MW: u64 = 1 << 8;
    pub(crate) const SEND_WITH_INV: u64 = 1 << 9;
    pub(crate) const FLUSH: u64 = 1 << 11;
    pub(crate) const ATOMIC_WRITE: u64 = 1 << 12;
}

/// `struct ibv_qp_open_attr`.
#[repr(C)]
pub(crate) struct QpOpenAttr {
    pub(crate) comp_mask: u32,
    pub(crate) qp_num: u32,
    pub(crate) xrcd: *mut Xrcd,
    pub(crate) qp_context: *mut c_void,
    pub(crate) qp_type: u32,
}

/// `struct ibv_qp`.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) context: *mut Context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut Pd,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut Srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: u32,
    pub(crate) qp_type: u32,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Condition,
    pub(crate) events_completed: u32,
}

/// `struct ibv_qp_ex`, with what newer releases added at its end.
#[repr(C)]
pub(crate) struct QpEx {
    pub(crate) qp_base: Qp,
    pub(crate) comp_mask: u64,
    pub(crate) wr_id: u64,
    pub(crate) wr_flags: u32,
    pub(crate) wr_atomic_cmp_swp: Function<unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64)>,
    pub(crate) wr_atomic_fetch_add: Function<unsafe extern "C" fn(*mut QpEx, u32, u64, u64)>,
    pub(crate) wr_bind_mw: Function<unsafe extern "C" fn(*mut QpEx, *mut Mw, u32, *const MwBindInfo)>,
    pub(crate) wr_local_inv: Function<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub(crate) wr_rdma_read: Function<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub(crate) wr_rdma_write: Function<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub(crate) wr_rdma_write_imm: Function<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub(crate) wr_send: Function<unsafe extern "C" fn(*mut QpEx)>,
    pub(crate) wr_send_imm: Function<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub(crate) wr_send_inv: Function<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub(crate) wr_send_tso: Function<unsafe extern "C" fn(*mut QpEx, *mut c_void, u16, u16)>,
    pub(crate) wr_set_ud_addr: Function<unsafe extern "C" fn(*mut QpEx, *mut Ah, u32, u32)>,
    pub(crate) wr_set_xrc_srqn: Function<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub(crate) wr_set_inline_data: Function<unsafe extern "C" fn(*mut QpEx, *const c_void, usize)>,
    pub(crate) wr_set_inline_data_list: Function<unsafe extern "C" fn(*mut QpEx, usize, *const DataBuf)>,
    pub(crate) wr_set_sge: Function<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub(crate) wr_set_sge_list: Function<unsafe extern "C" fn(*mut QpEx, usize, *const Sge)>,
    pub(crate) wr_start: Function<unsafe extern "C" fn(*mut QpEx)>,
    pub(crate) wr_complete: Function<unsafe extern "C" fn(*mut QpEx) -> i32>,
    pub(crate) wr_abort: Function<unsafe extern "C" fn(*mut QpEx)>,
    pub(crate) wr_atomic_write: Function<unsafe extern "C" fn(*mut QpEx, u32, u64, *const c_void)>,
    /// Newer than release 44.
    pub(crate) wr_flush: Function<unsafe extern "C" fn(*mut QpEx, u32, u64, usize, u8, u8)>,
}

/// `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct GlobalRoute {
    /// Aligned as the union that it is.
    pub(crate) dgid: [u64; 2],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct AhAttr {
    pub(crate) grh: GlobalRoute,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

/// `struct ibv_ah`.
#[repr(C)]
pub(crate) struct Ah {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) handle: u32,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QpAttr {
    pub(crate) qp_state: u32,
    pub(crate) cur_qp_state: u32,
    pub(crate) path_mtu: u32,
    pub(crate) path_mig_state: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: u32,
    pub(crate) cap: QpCap,
    pub(crate) ah_attr: AhAttr,
    pub(crate) alt_ah_attr: AhAttr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

/// `enum ibv_qp_attr_mask`: the bits that [`uroce::qp::Mask`] does not have.
pub(crate) mod qp_attr {
    pub(crate) const CUR_STATE: u32 = 1 << 1;
    pub(crate) const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    pub(crate) const ALT_PATH: u32 = 1 << 14;
    pub(crate) const PATH_MIG_STATE: u32 = 1 << 18;
    pub(crate) const CAP: u32 = 1 << 19;
    pub(crate) const RATE_LIMIT: u32 = 1 << 25;
}

/// `struct ibv_srq`.
#[repr(C)]
pub(crate) struct Srq {
    pub(crate) context: *mut Context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut Pd,
    pub(crate) handle: u32,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Condition,
    pub(crate) events_completed: u32,
}

/// `struct ibv_srq_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct SrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

/// `struct ibv_srq_init_attr`.
#[repr(C)]
pub(crate) struct SrqInitAttr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: SrqAttr,
}

/// `struct ibv_srq_init_attr_ex`.
#[repr(C)]
pub(crate) struct SrqInitAttrEx {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: SrqAttr,
    pub(crate) comp_mask: u32,
    pub(crate) srq_type: u32,
    pub(crate) pd: *mut Pd,
    pub(crate) xrcd: *mut Xrcd,
    pub(crate) cq: *mut Cq,
    pub(crate) tm_cap: [u32; 2],
}

/// `enum ibv_srq_attr_mask`, `enum ibv_srq_init_attr_mask` and `enum ibv_srq_type`.
pub(crate) mod srq {
    pub(crate) const MAX_WR: i32 = 1;
    pub(crate) const LIMIT: i32 = 1 << 1;
    pub(crate) const INIT_TYPE: u32 = 1;
    pub(crate) const INIT_PD: u32 = 1 << 1;
    pub(crate) const INIT_XRCD: u32 = 1 << 2;
    pub(crate) const INIT_CQ: u32 = 1 << 3;
    pub(crate) const BASIC: u32 = 0;
    pub(crate) const XRC: u32 = 1;
}

/// `struct ibv_xrcd`.
#[repr(C)]
pub(crate) struct Xrcd {
    pub(crate) context: *mut Context,
}

/// `struct ibv_xrcd_init_attr`.
#[repr(C)]
pub(crate) struct XrcdInitAttr {
    pub(crate) comp_mask: u32,
    pub(crate) fd: i32,
    pub(crate) oflags: i32,
}

/// `struct ibv_grh`: a [`Gid`] each for source and destination.
#[repr(C)]
pub(crate) struct Grh {
    pub(crate) version_tclass_flow: u32,
    pub(crate) paylen: u16,
    pub(crate) next_hdr: u8,
    pub(crate) hop_limit: u8,
    pub(crate) sgid: Gid,
    pub(crate) dgid: Gid,
}

/// `struct ibv_ece`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Ece {
    pub(crate) vendor_id: u32,
    pub(crate) options: u32,
    pub(crate) comp_mask: u32,
}
