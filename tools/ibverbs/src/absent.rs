//! What programs find and cannot use: each answers with the errno that says so, and `UROCE_TRACE` tells when it is called.
//!
//! Three kinds: the interface between rdma-core's library and its drivers, which stock drivers must find to be loaded, and
//! which has no use without a device of theirs; functions in the form that they had before 2006; and verbs of newer releases for
//! what uroce does not have.

use std::ffi::{c_int, c_void};

use crate::edge::{Failure, errno_of, object};
use crate::exports::export;

/// Makes a function of each name, and exports it.
macro_rules! absent {
    // Returns an errno.
    (errno $version:literal: $($name:ident)*) => {
        $(
            extern "C" fn $name() -> c_int {
                errno_of(stringify!($name), || Err(Failure::unsupported("not offered")))
            }
        )*
        export! { $($name $version => $name;)* }
    };
    // Returns a null pointer, with errno set.
    (pointer $version:literal: $($name:ident)*) => {
        $(
            extern "C" fn $name() -> *mut c_void {
                object(stringify!($name), || Err(Failure::unsupported("not offered")))
            }
        )*
        export! { $($name $version => $name;)* }
    };
    // Returns nothing, and does nothing.
    (nothing $version:literal: $($name:ident)*) => {
        $(extern "C" fn $name() {})*
        export! { $($name $version => $name;)* }
    };
}

/// What rdma-core's drivers call.
mod drivers {
    use super::*;

    absent! {
        errno "@@IBVERBS_PRIVATE_34":
        __ioctl_final_num_attrs execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd
        ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq
        ibv_cmd_create_cq_ex ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp
        ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq
        ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr
        ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq ibv_cmd_destroy_flow
        ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq
        ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context ibv_cmd_modify_cq
        ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq
        ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv
        ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_qp
        ibv_cmd_query_srq ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr
        ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq
    }

    absent! {
        pointer "@@IBVERBS_PRIVATE_34":
        _verbs_init_and_alloc_context verbs_open_device
    }

    absent! {
        nothing "@@IBVERBS_PRIVATE_34":
        __verbs_log verbs_init_cq verbs_set_ops verbs_uninit_context
    }
}

/// The first version of the interface, with other structures.
mod before_2006 {
    use super::*;

    absent! {
        errno "@IBVERBS_1.0":
        ibv_attach_mcast ibv_close_device ibv_dealloc_pd ibv_dereg_mr ibv_destroy_ah ibv_destroy_cq ibv_destroy_qp
        ibv_destroy_srq ibv_detach_mcast ibv_get_async_event ibv_get_cq_event ibv_get_device_guid ibv_modify_qp
        ibv_modify_srq ibv_query_device ibv_query_gid ibv_query_pkey ibv_query_port ibv_query_qp ibv_query_srq
        ibv_resize_cq
    }

    absent! {
        pointer "@IBVERBS_1.0":
        ibv_alloc_pd ibv_create_ah ibv_create_cq ibv_create_qp ibv_create_srq ibv_get_device_list
        ibv_get_device_name ibv_open_device ibv_reg_mr
    }

    absent! {
        nothing "@IBVERBS_1.0":
        ibv_ack_async_event ibv_ack_cq_events ibv_free_device_list
    }
}

/// Conversions from structures of the kernel, for a stock librdmacm, which has no kernel to speak to here.
mod kernel_forms {
    use super::*;

    absent! {
        nothing "@@IBVERBS_1.0":
        ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern
    }

    absent! {
        nothing "@@IBVERBS_1.1":
        ibv_copy_ah_attr_from_kern
    }
}

/// Memory of the device, buffers of the device, hints for its caches, and counters of completions.
mod newer {
    use super::*;

    absent! {
        pointer "@@IBVERBS_1.13":
        ibv_import_dm
    }

    absent! {
        nothing "@@IBVERBS_1.13":
        ibv_unimport_dm
    }

    absent! {
        pointer "@@IBVERBS_1.15":
        ibv_alloc_dmah
    }

    absent! {
        errno "@@IBVERBS_1.15":
        ibv_dealloc_dmah
    }

    absent! {
        errno "@@IBVERBS_1.16":
        ibv_dm_export_dmabuf_fd
    }

    absent! {
        pointer "@@IBVERBS_1.17":
        ibv_alloc_buf ibv_reg_buf_mr
    }

    absent! {
        nothing "@@IBVERBS_1.17":
        ibv_free_buf
    }

    absent! {
        pointer "@@IBVERBS_1.18":
        ibv_create_comp_cntr
    }

    absent! {
        errno "@@IBVERBS_1.18":
        _ibv_query_comp_cntr_caps ibv_destroy_comp_cntr ibv_export_buf_dmabuf_fd ibv_inc_comp_cntr
        ibv_inc_err_comp_cntr ibv_qp_attach_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr ibv_set_comp_cntr
        ibv_set_err_comp_cntr
    }
}
