//! Which function programs find under which name and version: the one table of what the library exports.
//!
//! Rust has no symbol versions, so the assembler makes them: each line of the table becomes a small symbol that jumps to the
//! function, and a `.symver` that names it. `nodes.map` declares the versions themselves; `tests/exports.rs` holds the result against what rdma-core
//! exports. What is exported and not offered stands in [`absent`](crate::absent).

use crate::{
    ah, channel, context, cq, device, events, gid, memory, multicast, names, providers, qp, rates, srq, sysfs,
};

/// Makes one versioned symbol of each line `name, "@@VERSION" => function`; `@` is for versions that new programs are not
/// linked against.
macro_rules! export {
    ($($name:ident $version:literal => $function:path;)*) => {
        $(
            ::std::arch::global_asm!(
                concat!(".globl \"uroce.", stringify!($name), $version, "\""),
                concat!(".type \"uroce.", stringify!($name), $version, "\",@function"),
                concat!("\"uroce.", stringify!($name), $version, "\": jmp {function}"),
                concat!(
                    ".symver \"uroce.", stringify!($name), $version, "\",", stringify!($name), $version, ",remove"
                ),
                function = sym $function,
            );
        )*
    };
}

pub(crate) use export;

export! {
    ibv_get_device_list "@@IBVERBS_1.1" => device::ibv_get_device_list;
    ibv_free_device_list "@@IBVERBS_1.1" => device::ibv_free_device_list;
    ibv_get_device_name "@@IBVERBS_1.1" => device::ibv_get_device_name;
    ibv_get_device_guid "@@IBVERBS_1.1" => device::ibv_get_device_guid;
    ibv_get_device_index "@@IBVERBS_1.9" => device::ibv_get_device_index;

    ibv_open_device "@@IBVERBS_1.1" => context::ibv_open_device;
    ibv_close_device "@@IBVERBS_1.1" => context::ibv_close_device;
    ibv_import_device "@@IBVERBS_1.10" => context::ibv_import_device;
    ibv_query_device "@@IBVERBS_1.1" => context::ibv_query_device;
    ibv_query_port "@@IBVERBS_1.1" => context::ibv_query_port;
    ibv_query_port_speed "@@IBVERBS_1.16" => context::ibv_query_port_speed;
    ibv_query_pkey "@@IBVERBS_1.1" => context::ibv_query_pkey;
    ibv_get_pkey_index "@@IBVERBS_1.5" => context::ibv_get_pkey_index;
    ibv_fork_init "@@IBVERBS_1.1" => context::ibv_fork_init;
    ibv_is_fork_initialized "@@IBVERBS_1.13" => context::ibv_is_fork_initialized;
    ibv_dontfork_range "@@IBVERBS_1.1" => context::ibv_dontfork_range;
    ibv_dofork_range "@@IBVERBS_1.1" => context::ibv_dofork_range;
    ibv_register_driver "@IBVERBS_1.1" => providers::ibv_register_driver;

    ibv_query_gid "@@IBVERBS_1.1" => gid::ibv_query_gid;
    ibv_query_gid_type "@@IBVERBS_PRIVATE_34" => gid::ibv_query_gid_type;
    _ibv_query_gid_ex "@@IBVERBS_1.11" => gid::query_gid_ex;
    _ibv_query_gid_table "@@IBVERBS_1.11" => gid::query_gid_table;
    ibv_resolve_eth_l2_from_gid "@@IBVERBS_1.1" => gid::ibv_resolve_eth_l2_from_gid;

    ibv_get_async_event "@@IBVERBS_1.1" => events::ibv_get_async_event;
    ibv_ack_async_event "@@IBVERBS_1.1" => events::ibv_ack_async_event;

    ibv_alloc_pd "@@IBVERBS_1.1" => memory::pd::ibv_alloc_pd;
    ibv_dealloc_pd "@@IBVERBS_1.1" => memory::pd::ibv_dealloc_pd;
    ibv_import_pd "@@IBVERBS_1.10" => memory::pd::ibv_import_pd;
    ibv_unimport_pd "@@IBVERBS_1.10" => memory::pd::ibv_unimport_pd;
    ibv_reg_mr "@@IBVERBS_1.1" => memory::mr::ibv_reg_mr;
    ibv_reg_mr_iova "@@IBVERBS_1.7" => memory::mr::ibv_reg_mr_iova;
    ibv_reg_mr_iova2 "@@IBVERBS_1.8" => memory::mr::ibv_reg_mr_iova2;
    ibv_reg_mr_ex "@@IBVERBS_1.15" => memory::mr::ibv_reg_mr_ex;
    ibv_reg_dmabuf_mr "@@IBVERBS_1.12" => memory::mr::ibv_reg_dmabuf_mr;
    ibv_rereg_mr "@@IBVERBS_1.1" => memory::mr::ibv_rereg_mr;
    ibv_dereg_mr "@@IBVERBS_1.1" => memory::mr::ibv_dereg_mr;
    ibv_import_mr "@@IBVERBS_1.10" => memory::mr::ibv_import_mr;
    ibv_unimport_mr "@@IBVERBS_1.10" => memory::mr::ibv_unimport_mr;

    ibv_create_comp_channel "@@IBVERBS_1.0" => channel::ibv_create_comp_channel;
    ibv_destroy_comp_channel "@@IBVERBS_1.0" => channel::ibv_destroy_comp_channel;
    ibv_get_cq_event "@@IBVERBS_1.1" => channel::ibv_get_cq_event;
    ibv_ack_cq_events "@@IBVERBS_1.1" => channel::ibv_ack_cq_events;
    ibv_create_cq "@@IBVERBS_1.1" => cq::ibv_create_cq;
    ibv_resize_cq "@@IBVERBS_1.1" => cq::ibv_resize_cq;
    ibv_destroy_cq "@@IBVERBS_1.1" => cq::ibv_destroy_cq;

    ibv_create_qp "@@IBVERBS_1.1" => qp::ibv_create_qp;
    ibv_destroy_qp "@@IBVERBS_1.1" => qp::ibv_destroy_qp;
    ibv_modify_qp "@@IBVERBS_1.1" => qp::attributes::ibv_modify_qp;
    ibv_query_qp "@@IBVERBS_1.1" => qp::attributes::ibv_query_qp;
    ibv_query_qp_data_in_order "@@IBVERBS_1.14" => qp::attributes::ibv_query_qp_data_in_order;
    ibv_query_ece "@@IBVERBS_1.10" => qp::attributes::ibv_query_ece;
    ibv_set_ece "@@IBVERBS_1.10" => qp::attributes::ibv_set_ece;
    ibv_qp_to_qp_ex "@@IBVERBS_1.6" => qp::extended::ibv_qp_to_qp_ex;
    ibv_create_srq "@@IBVERBS_1.1" => srq::ibv_create_srq;
    ibv_modify_srq "@@IBVERBS_1.1" => srq::ibv_modify_srq;
    ibv_query_srq "@@IBVERBS_1.1" => srq::ibv_query_srq;
    ibv_destroy_srq "@@IBVERBS_1.1" => srq::ibv_destroy_srq;

    ibv_create_ah "@@IBVERBS_1.1" => ah::ibv_create_ah;
    ibv_destroy_ah "@@IBVERBS_1.1" => ah::ibv_destroy_ah;
    ibv_init_ah_from_wc "@@IBVERBS_1.1" => ah::ibv_init_ah_from_wc;
    ibv_create_ah_from_wc "@@IBVERBS_1.1" => ah::ibv_create_ah_from_wc;
    ibv_attach_mcast "@@IBVERBS_1.1" => multicast::ibv_attach_mcast;
    ibv_detach_mcast "@@IBVERBS_1.1" => multicast::ibv_detach_mcast;

    ibv_node_type_str "@@IBVERBS_1.1" => names::ibv_node_type_str;
    ibv_port_state_str "@@IBVERBS_1.1" => names::ibv_port_state_str;
    ibv_event_type_str "@@IBVERBS_1.1" => names::ibv_event_type_str;
    ibv_wc_status_str "@@IBVERBS_1.1" => names::ibv_wc_status_str;
    ibv_wr_opcode_str "@@IBVERBS_PRIVATE_65" => names::ibv_wr_opcode_str;
    ibv_rate_to_mult "@@IBVERBS_1.0" => rates::ibv_rate_to_mult;
    mult_to_ibv_rate "@@IBVERBS_1.0" => rates::mult_to_ibv_rate;
    ibv_rate_to_mbps "@@IBVERBS_1.1" => rates::ibv_rate_to_mbps;
    mbps_to_ibv_rate "@@IBVERBS_1.1" => rates::mbps_to_ibv_rate;

    ibv_get_sysfs_path "@@IBVERBS_1.0" => sysfs::ibv_get_sysfs_path;
    ibv_read_sysfs_file "@@IBVERBS_1.0" => sysfs::ibv_read_sysfs_file;
    ibv_read_ibdev_sysfs_file "@@IBVERBS_PRIVATE_34" => sysfs::ibv_read_ibdev_sysfs_file;
    verbs_register_driver_34 "@@IBVERBS_PRIVATE_34" => providers::verbs_register_driver;
    verbs_register_driver_57 "@@IBVERBS_PRIVATE_57" => providers::verbs_register_driver;
    verbs_register_driver_59 "@@IBVERBS_PRIVATE_59" => providers::verbs_register_driver;
    verbs_register_driver_64 "@@IBVERBS_PRIVATE_64" => providers::verbs_register_driver;
    verbs_register_driver_65 "@@IBVERBS_PRIVATE_65" => providers::verbs_register_driver;
}
