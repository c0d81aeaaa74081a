//! Work requests.

use std::ffi::c_void;

use super::{Ah, Mw, MwBindInfo};

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `struct ibv_data_buf`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DataBuf {
    pub(crate) addr: *const c_void,
    pub(crate) length: usize,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut RecvWr,
    pub(crate) sg_list: *const Sge,
    pub(crate) num_sge: i32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut SendWr,
    pub(crate) sg_list: *const Sge,
    pub(crate) num_sge: i32,
    pub(crate) opcode: u32,
    pub(crate) send_flags: u32,
    /// Immediate data in network order, or the key to invalidate.
    pub(crate) imm_data: u32,
    pub(crate) wr: SendWrTarget,
    pub(crate) remote_srqn: u32,
    pub(crate) bind: SendWrBind,
}

/// The union `wr` of [`SendWr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union SendWrTarget {
    pub(crate) rdma: RdmaTarget,
    pub(crate) atomic: AtomicTarget,
    pub(crate) ud: UdTarget,
}

/// `wr.rdma`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RdmaTarget {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

/// `wr.atomic`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AtomicTarget {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

/// `wr.ud`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UdTarget {
    pub(crate) ah: *mut Ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

/// The last union of [`SendWr`], as `bind_mw`; its other member, segmentation offload, is of raw packets only.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SendWrBind {
    pub(crate) mw: *mut Mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: MwBindInfo,
}

/// `enum ibv_wr_opcode`.
pub(crate) mod wr_opcode {
    pub(crate) const RDMA_WRITE: u32 = 0;
    pub(crate) const RDMA_WRITE_WITH_IMM: u32 = 1;
    pub(crate) const SEND: u32 = 2;
    pub(crate) const SEND_WITH_IMM: u32 = 3;
    pub(crate) const RDMA_READ: u32 = 4;
    pub(crate) const ATOMIC_CMP_AND_SWP: u32 = 5;
    pub(crate) const ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub(crate) const LOCAL_INV: u32 = 7;
    pub(crate) const BIND_MW: u32 = 8;
    pub(crate) const SEND_WITH_INV: u32 = 9;
    pub(crate) const ATOMIC_WRITE: u32 = 15;
}

/// `IBV_SEND_INLINE`.
pub(crate) const SEND_INLINE: u32 = 1 << 3;
/// `IBV_SEND_IP_CSUM`: the kernel computes checksums, asked or not.
pub(crate) const SEND_IP_CSUM: u32 = 1 << 4;
