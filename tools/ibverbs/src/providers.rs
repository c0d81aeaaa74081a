//! Drivers of rdma-core that are loaded beside this library: their constructors register, and nobody asks them for a device.

use std::ffi::c_void;

/// A driver of this or another generation.
pub(crate) extern "C" fn verbs_register_driver(_operations: *const c_void) {}

/// A driver from before the generations.
pub(crate) extern "C" fn ibv_register_driver(_name: *const c_void, _init: *const c_void) {}

// A byte that drivers set: whether objects may be destroyed when their device is gone.
std::arch::global_asm!(
    ".pushsection .bss.uroce_data,\"aw\",@nobits",
    ".globl \"uroce.verbs_allow_disassociate_destroy\"",
    ".type \"uroce.verbs_allow_disassociate_destroy\",@object",
    ".size \"uroce.verbs_allow_disassociate_destroy\",1",
    "\"uroce.verbs_allow_disassociate_destroy\": .zero 1",
    ".symver \"uroce.verbs_allow_disassociate_destroy\",verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34,remove",
    ".popsection",
);
