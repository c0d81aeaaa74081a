//! Protection domains and memory.

use std::ffi::c_void;

use super::{Context, Function};

/// `struct ibv_pd`.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) context: *mut Context,
    pub(crate) handle: u32,
}

/// `struct ibv_td`.
#[repr(C)]
pub(crate) struct Td {
    pub(crate) context: *mut Context,
}

/// `struct ibv_td_init_attr`.
#[repr(C)]
pub(crate) struct TdInitAttr {
    pub(crate) comp_mask: u32,
}

/// `struct ibv_parent_domain_init_attr`.
#[repr(C)]
pub(crate) struct ParentDomainInitAttr {
    pub(crate) pd: *mut Pd,
    pub(crate) td: *mut Td,
    pub(crate) comp_mask: u32,
    pub(crate) alloc: Function<unsafe extern "C" fn(*mut Pd, *mut c_void, usize, usize, u64) -> *mut c_void>,
    pub(crate) free: Function<unsafe extern "C" fn(*mut Pd, *mut c_void, *mut c_void, u64)>,
    pub(crate) pd_context: *mut c_void,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct Mr {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_mr_init_attr`, newer than release 44.
#[repr(C)]
pub(crate) struct MrInitAttr {
    pub(crate) length: usize,
    pub(crate) access: i32,
    pub(crate) comp_mask: u64,
    pub(crate) iova: u64,
    pub(crate) addr: *mut c_void,
    pub(crate) fd: i32,
    pub(crate) fd_offset: u64,
    pub(crate) dmah: *mut c_void,
    pub(crate) buf: *mut c_void,
}

/// `enum ibv_mr_init_attr_mask`.
pub(crate) mod mr_init {
    pub(crate) const IOVA: u64 = 1;
    pub(crate) const ADDR: u64 = 1 << 1;
}

/// `enum ibv_access_flags`: what the library does nothing different for.
pub(crate) const ACCESS_HUGETLB: u32 = 1 << 7;
/// `IBV_ACCESS_OPTIONAL_RANGE`: bits that a device may ignore.
pub(crate) const ACCESS_OPTIONAL_RANGE: u32 = ((1 << 29) - (1 << 20)) | (1 << 29);

/// `enum ibv_rereg_mr_flags`.
pub(crate) mod rereg {
    pub(crate) const CHANGE_TRANSLATION: i32 = 1;
    pub(crate) const CHANGE_PD: i32 = 1 << 1;
    pub(crate) const CHANGE_ACCESS: i32 = 1 << 2;
    /// `IBV_REREG_MR_ERR_INPUT`: the region is as it was.
    pub(crate) const ERR_INPUT: i32 = -1;
}

/// `struct ibv_mw`.
#[repr(C)]
pub(crate) struct Mw {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) mw_type: u32,
}

/// `struct ibv_mw_bind_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MwBindInfo {
    pub(crate) mr: *mut Mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: u32,
}

/// `struct ibv_mw_bind`.
#[repr(C)]
pub(crate) struct MwBind {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: u32,
    pub(crate) bind_info: MwBindInfo,
}

/// `enum ib_uverbs_advise_mr_advice` and `enum ib_uverbs_advise_mr_flag`.
pub(crate) mod advise {
    pub(crate) const PREFETCH: u32 = 0;
    pub(crate) const PREFETCH_WRITE: u32 = 1;
    pub(crate) const PREFETCH_NO_FAULT: u32 = 2;
    pub(crate) const FLAG_FLUSH: u32 = 1;
}
