//! The structures and numbers of this module against those of the installed header, as its compiler lays them out.

use std::collections::BTreeSet;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use crate::abi;

/// Where a field stands, from where, and how long it is; or a number by its name. The same text on both sides.
type Line = String;

/// Bytes of the field that `_field` reads.
fn size_of_field<S, F>(_field: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Makes `ours`, the lines of our structures, and `theirs`, a program in C that prints those of the header's.
macro_rules! layout {
    ($($name:ident $how:ident $c:literal { $($field:tt)* })*) => {
        fn ours() -> Vec<Line> {
            let mut lines = Vec::new();
            $(layout!(@ours lines $name $how; $($field)*);)*
            lines
        }

        fn theirs() -> String {
            let mut code = String::new();
            $({
                let base = if stringify!($how) == "upwards" { format!("offsetof({}, context)", $c) } else { "0".into() };
                $(code += &format!(
                    "printf(\"%s.%s %td %zu\\n\", \"{0}\", \"{1}\", (ptrdiff_t)offsetof({2}, {1}) - (ptrdiff_t){3}, \
                     sizeof((({2} *)0)->{1}));\n",
                    stringify!($name), layout!(@path $field), $c, base,
                );)*
                if stringify!($how) == "same" {
                    code += &format!("printf(\"%s %zu\\n\", \"{}\", sizeof({}));\n", stringify!($name), $c);
                }
            })*
            code
        }
    };
    (@ours $lines:ident $name:ident $how:ident; $($field:tt)*) => {
        $($lines.push(format!(
            "{}.{} {} {}",
            stringify!($name),
            layout!(@path $field),
            layout!(@offset $name $field) as isize - layout!(@base $name $how) as isize,
            layout!(@size $name $field),
        ));)*
        layout!(@whole $lines $name $how);
    };
    (@path ($field:ident = $path:literal)) => { $path };
    (@path $field:ident) => { stringify!($field) };
    (@offset $name:ident ($field:ident = $path:literal)) => { offset_of!(abi::$name, $field) };
    (@offset $name:ident $field:ident) => { offset_of!(abi::$name, $field) };
    (@size $name:ident ($field:ident = $path:literal)) => { layout!(@size $name $field) };
    // A field of a union is read from raw memory of no value.
    (@size $name:ident $field:ident) => {
        // SAFETY: never called, only its type is looked at.
        size_of_field(|structure: &abi::$name| unsafe { &*&raw const structure.$field })
    };
    (@base $name:ident upwards) => { offset_of!(abi::$name, context) };
    (@base $name:ident $how:ident) => { 0 };
    (@whole $lines:ident $name:ident same) => {
        $lines.push(format!("{} {}", stringify!($name), size_of::<abi::$name>()));
    };
    // Newer or longer than the header's; what programs know of it is compared.
    (@whole $lines:ident $name:ident $how:ident) => {};
}

layout! {
    ContextOps same "struct ibv_context_ops" { alloc_mw bind_mw dealloc_mw (compat_create_cq = "_compat_create_cq") poll_cq req_notify_cq post_srq_recv post_send post_recv }
    Context same "struct ibv_context" { device ops cmd_fd async_fd num_comp_vectors mutex abi_compat }
    VerbsContext upwards "struct verbs_context" { query_port advise_mr alloc_null_mr modify_qp_rate_limit alloc_parent_domain dealloc_td alloc_td modify_cq post_srq_ops query_rt_values create_cq_ex (private = "priv") query_device_ex open_qp create_qp_ex get_srq_num create_srq_ex open_xrcd close_xrcd (placeholder = "_ABI_placeholder3") sz context }
    QueryDeviceExInput same "struct ibv_query_device_ex_input" { comp_mask }
    ValuesEx same "struct ibv_values_ex" { comp_mask (seconds = "raw_clock.tv_sec") (nanoseconds = "raw_clock.tv_nsec") }
    CompChannel same "struct ibv_comp_channel" { context fd refcnt }
    Cq same "struct ibv_cq" { context channel cq_context handle cqe mutex cond comp_events_completed async_events_completed }
    CqEx same "struct ibv_cq_ex" { comp_mask status wr_id start_poll next_poll end_poll read_opcode read_vendor_err read_byte_len read_imm_data read_qp_num read_src_qp read_wc_flags read_slid read_sl read_dlid_path_bits read_completion_ts read_cvlan read_flow_tag read_tm_info read_completion_wallclock_ns }
    PollCqAttr same "struct ibv_poll_cq_attr" { comp_mask }
    CqInitAttrEx same "struct ibv_cq_init_attr_ex" { cqe cq_context channel comp_vector wc_flags comp_mask flags parent_domain }
    ModifyCqAttr same "struct ibv_modify_cq_attr" { attr_mask (cq_count = "moderate.cq_count") (cq_period = "moderate.cq_period") }
    Wc same "struct ibv_wc" { wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits }
    AsyncEvent same "struct ibv_async_event" { element event_type }
    Device longer "struct ibv_device" { node_type transport_type name dev_name dev_path ibdev_path }
    DeviceAttr same "struct ibv_device_attr" { fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw max_raw_ipv6_qp max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay phys_port_cnt }
    DeviceAttrEx same "struct ibv_device_attr_ex" { orig_attr comp_mask (odp_general = "odp_caps.general_caps") (odp_rc_uc_ud = "odp_caps.per_transport_caps") completion_timestamp_mask hca_core_clock device_cap_flags_ex (max_tso = "tso_caps.max_tso") (tso_qpts = "tso_caps.supported_qpts") rss_caps max_wq_type_rq (packet_pacing = "packet_pacing_caps") raw_packet_caps (tag_matching = "tm_caps") (cq_moderation = "cq_mod_caps") max_dm_size (pci_atomic = "pci_atomic_caps") xrc_odp_caps phys_port_cnt_ex }
    PortAttr longer "struct ibv_port_attr" { state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width active_speed phys_state link_layer flags port_cap_flags2 }
    GidEntry same "struct ibv_gid_entry" { gid gid_index port_num gid_type ndev_ifindex }
    Pd same "struct ibv_pd" { context handle }
    Td same "struct ibv_td" { context }
    TdInitAttr same "struct ibv_td_init_attr" { comp_mask }
    ParentDomainInitAttr same "struct ibv_parent_domain_init_attr" { pd td comp_mask alloc free pd_context }
    Mr same "struct ibv_mr" { context pd addr length handle lkey rkey }
    Mw same "struct ibv_mw" { context pd rkey handle (mw_type = "type") }
    MwBindInfo same "struct ibv_mw_bind_info" { mr addr length mw_access_flags }
    MwBind same "struct ibv_mw_bind" { wr_id send_flags bind_info }
    QpCap same "struct ibv_qp_cap" { max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data }
    QpInitAttr same "struct ibv_qp_init_attr" { qp_context send_cq recv_cq srq cap qp_type sq_sig_all }
    QpInitAttrEx same "struct ibv_qp_init_attr_ex" { qp_context send_cq recv_cq srq cap qp_type sq_sig_all comp_mask pd xrcd create_flags max_tso_header rwq_ind_tbl rx_hash_conf source_qpn send_ops_flags }
    QpOpenAttr same "struct ibv_qp_open_attr" { comp_mask qp_num xrcd qp_context qp_type }
    Qp same "struct ibv_qp" { context qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex cond events_completed }
    QpEx longer "struct ibv_qp_ex" { qp_base comp_mask wr_id wr_flags wr_atomic_cmp_swp wr_atomic_fetch_add wr_bind_mw wr_local_inv wr_rdma_read wr_rdma_write wr_rdma_write_imm wr_send wr_send_imm wr_send_inv wr_send_tso wr_set_ud_addr wr_set_xrc_srqn wr_set_inline_data wr_set_inline_data_list wr_set_sge wr_set_sge_list wr_start wr_complete wr_abort wr_atomic_write }
    GlobalRoute same "struct ibv_global_route" { dgid flow_label sgid_index hop_limit traffic_class }
    AhAttr same "struct ibv_ah_attr" { grh dlid sl src_path_bits static_rate is_global port_num }
    Ah same "struct ibv_ah" { context pd handle }
    QpAttr same "struct ibv_qp_attr" { qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout rate_limit }
    Srq same "struct ibv_srq" { context srq_context pd handle mutex cond events_completed }
    SrqAttr same "struct ibv_srq_attr" { max_wr max_sge srq_limit }
    SrqInitAttr same "struct ibv_srq_init_attr" { srq_context attr }
    SrqInitAttrEx same "struct ibv_srq_init_attr_ex" { srq_context attr comp_mask srq_type pd xrcd cq tm_cap }
    Xrcd same "struct ibv_xrcd" { context }
    XrcdInitAttr same "struct ibv_xrcd_init_attr" { comp_mask fd oflags }
    Grh same "struct ibv_grh" { version_tclass_flow paylen next_hdr hop_limit sgid dgid }
    Ece same "struct ibv_ece" { vendor_id options comp_mask }
    Sge same "struct ibv_sge" { addr length lkey }
    DataBuf same "struct ibv_data_buf" { addr length }
    RecvWr same "struct ibv_recv_wr" { wr_id next sg_list num_sge }
    SendWr same "struct ibv_send_wr" { wr_id next sg_list num_sge opcode send_flags imm_data wr (remote_srqn = "qp_type.xrc.remote_srqn") (bind = "bind_mw") }
    SendWrTarget same "__typeof__(((struct ibv_send_wr *)0)->wr)" { rdma atomic ud }
    RdmaTarget same "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)" { remote_addr rkey }
    AtomicTarget same "__typeof__(((struct ibv_send_wr *)0)->wr.atomic)" { remote_addr compare_add swap rkey }
    UdTarget same "__typeof__(((struct ibv_send_wr *)0)->wr.ud)" { ah remote_qpn remote_qkey }
    SendWrBind same "__typeof__(((struct ibv_send_wr *)0)->bind_mw)" { mw rkey bind_info }
}

/// Numbers by the names of the header.
const NUMBERS: &[(&str, i64)] = &[
    ("IBV_NODE_CA", abi::NODE_CA as i64),
    ("IBV_TRANSPORT_IB", abi::TRANSPORT_IB as i64),
    ("IBV_ATOMIC_HCA", abi::ATOMIC_HCA as i64),
    ("IBV_GID_TYPE_ROCE_V2", abi::GID_TYPE_ROCE_V2 as i64),
    ("IBV_VALUES_MASK_RAW_CLOCK", abi::VALUES_MASK_RAW_CLOCK as i64),
    ("IBV_CQ_ATTR_MODERATE", abi::CQ_ATTR_MODERATE as i64),
    ("IBV_SEND_INLINE", abi::SEND_INLINE as i64),
    ("IBV_SEND_IP_CSUM", abi::SEND_IP_CSUM as i64),
    ("IBV_ACCESS_HUGETLB", abi::ACCESS_HUGETLB as i64),
    ("IBV_ACCESS_OPTIONAL_RANGE", abi::ACCESS_OPTIONAL_RANGE as i64),
    ("IBV_DEVICE_BAD_PKEY_CNTR", abi::device_cap::BAD_PKEY_CNTR as i64),
    ("IBV_DEVICE_BAD_QKEY_CNTR", abi::device_cap::BAD_QKEY_CNTR as i64),
    ("IBV_DEVICE_RESIZE_MAX_WR", abi::device_cap::RESIZE_MAX_WR as i64),
    ("IBV_DEVICE_UD_AV_PORT_ENFORCE", abi::device_cap::UD_AV_PORT_ENFORCE as i64),
    ("IBV_DEVICE_PORT_ACTIVE_EVENT", abi::device_cap::PORT_ACTIVE_EVENT as i64),
    ("IBV_DEVICE_SYS_IMAGE_GUID", abi::device_cap::SYS_IMAGE_GUID as i64),
    ("IBV_DEVICE_RC_RNR_NAK_GEN", abi::device_cap::RC_RNR_NAK_GEN as i64),
    ("IBV_DEVICE_SRQ_RESIZE", abi::device_cap::SRQ_RESIZE as i64),
    ("IBV_DEVICE_MEM_WINDOW", abi::device_cap::MEM_WINDOW as i64),
    ("IBV_DEVICE_XRC", abi::device_cap::XRC as i64),
    ("IBV_DEVICE_MEM_MGT_EXTENSIONS", abi::device_cap::MEM_MGT_EXTENSIONS as i64),
    ("IBV_DEVICE_MEM_WINDOW_TYPE_2B", abi::device_cap::MEM_WINDOW_TYPE_2B as i64),
    ("IBV_WC_GRH", abi::wc_flags::GRH as i64),
    ("IBV_WC_WITH_IMM", abi::wc_flags::WITH_IMM as i64),
    ("IBV_WC_WITH_INV", abi::wc_flags::WITH_INV as i64),
    ("IBV_EVENT_CQ_ERR", abi::event_type::CQ_ERR as i64),
    ("IBV_EVENT_QP_FATAL", abi::event_type::QP_FATAL as i64),
    ("IBV_EVENT_QP_REQ_ERR", abi::event_type::QP_REQ_ERR as i64),
    ("IBV_EVENT_QP_ACCESS_ERR", abi::event_type::QP_ACCESS_ERR as i64),
    ("IBV_EVENT_COMM_EST", abi::event_type::COMM_EST as i64),
    ("IBV_EVENT_SQ_DRAINED", abi::event_type::SQ_DRAINED as i64),
    ("IBV_EVENT_DEVICE_FATAL", abi::event_type::DEVICE_FATAL as i64),
    ("IBV_EVENT_PORT_ACTIVE", abi::event_type::PORT_ACTIVE as i64),
    ("IBV_EVENT_PORT_ERR", abi::event_type::PORT_ERR as i64),
    ("IBV_EVENT_SRQ_ERR", abi::event_type::SRQ_ERR as i64),
    ("IBV_EVENT_SRQ_LIMIT_REACHED", abi::event_type::SRQ_LIMIT_REACHED as i64),
    ("IBV_EVENT_QP_LAST_WQE_REACHED", abi::event_type::QP_LAST_WQE_REACHED as i64),
    ("IBV_EVENT_GID_CHANGE", abi::event_type::GID_CHANGE as i64),
    ("IBV_ADVISE_MR_ADVICE_PREFETCH", abi::advise::PREFETCH as i64),
    ("IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE", abi::advise::PREFETCH_WRITE as i64),
    ("IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT", abi::advise::PREFETCH_NO_FAULT as i64),
    ("IBV_ADVISE_MR_FLAG_FLUSH", abi::advise::FLAG_FLUSH as i64),
    ("IBV_REREG_MR_CHANGE_TRANSLATION", abi::rereg::CHANGE_TRANSLATION as i64),
    ("IBV_REREG_MR_CHANGE_PD", abi::rereg::CHANGE_PD as i64),
    ("IBV_REREG_MR_CHANGE_ACCESS", abi::rereg::CHANGE_ACCESS as i64),
    ("IBV_REREG_MR_ERR_INPUT", abi::rereg::ERR_INPUT as i64),
    ("IBV_QP_EX_WITH_RDMA_WRITE", abi::send_ops::RDMA_WRITE as i64),
    ("IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM", abi::send_ops::RDMA_WRITE_WITH_IMM as i64),
    ("IBV_QP_EX_WITH_SEND", abi::send_ops::SEND as i64),
    ("IBV_QP_EX_WITH_SEND_WITH_IMM", abi::send_ops::SEND_WITH_IMM as i64),
    ("IBV_QP_EX_WITH_RDMA_READ", abi::send_ops::RDMA_READ as i64),
    ("IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP", abi::send_ops::ATOMIC_CMP_AND_SWP as i64),
    ("IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD", abi::send_ops::ATOMIC_FETCH_AND_ADD as i64),
    ("IBV_QP_EX_WITH_LOCAL_INV", abi::send_ops::LOCAL_INV as i64),
    ("IBV_QP_EX_WITH_BIND_MW", abi::send_ops::BIND_MW as i64),
    ("IBV_QP_EX_WITH_SEND_WITH_INV", abi::send_ops::SEND_WITH_INV as i64),
    ("IBV_QP_EX_WITH_ATOMIC_WRITE", abi::send_ops::ATOMIC_WRITE as i64),
    ("IBV_QP_CUR_STATE", abi::qp_attr::CUR_STATE as i64),
    ("IBV_QP_EN_SQD_ASYNC_NOTIFY", abi::qp_attr::EN_SQD_ASYNC_NOTIFY as i64),
    ("IBV_QP_ALT_PATH", abi::qp_attr::ALT_PATH as i64),
    ("IBV_QP_PATH_MIG_STATE", abi::qp_attr::PATH_MIG_STATE as i64),
    ("IBV_QP_CAP", abi::qp_attr::CAP as i64),
    ("IBV_QP_RATE_LIMIT", abi::qp_attr::RATE_LIMIT as i64),
    ("IBV_QP_INIT_ATTR_PD", abi::qp_init::PD as i64),
    ("IBV_QP_INIT_ATTR_XRCD", abi::qp_init::XRCD as i64),
    ("IBV_QP_INIT_ATTR_CREATE_FLAGS", abi::qp_init::CREATE_FLAGS as i64),
    ("IBV_QP_INIT_ATTR_SEND_OPS_FLAGS", abi::qp_init::SEND_OPS_FLAGS as i64),
    ("IBV_SRQ_MAX_WR", abi::srq::MAX_WR as i64),
    ("IBV_SRQ_LIMIT", abi::srq::LIMIT as i64),
    ("IBV_SRQ_INIT_ATTR_TYPE", abi::srq::INIT_TYPE as i64),
    ("IBV_SRQ_INIT_ATTR_PD", abi::srq::INIT_PD as i64),
    ("IBV_SRQ_INIT_ATTR_XRCD", abi::srq::INIT_XRCD as i64),
    ("IBV_SRQ_INIT_ATTR_CQ", abi::srq::INIT_CQ as i64),
    ("IBV_SRQT_BASIC", abi::srq::BASIC as i64),
    ("IBV_SRQT_XRC", abi::srq::XRC as i64),
    ("IBV_WR_RDMA_WRITE", abi::wr_opcode::RDMA_WRITE as i64),
    ("IBV_WR_RDMA_WRITE_WITH_IMM", abi::wr_opcode::RDMA_WRITE_WITH_IMM as i64),
    ("IBV_WR_SEND", abi::wr_opcode::SEND as i64),
    ("IBV_WR_SEND_WITH_IMM", abi::wr_opcode::SEND_WITH_IMM as i64),
    ("IBV_WR_RDMA_READ", abi::wr_opcode::RDMA_READ as i64),
    ("IBV_WR_ATOMIC_CMP_AND_SWP", abi::wr_opcode::ATOMIC_CMP_AND_SWP as i64),
    ("IBV_WR_ATOMIC_FETCH_AND_ADD", abi::wr_opcode::ATOMIC_FETCH_AND_ADD as i64),
    ("IBV_WR_LOCAL_INV", abi::wr_opcode::LOCAL_INV as i64),
    ("IBV_WR_BIND_MW", abi::wr_opcode::BIND_MW as i64),
    ("IBV_WR_SEND_WITH_INV", abi::wr_opcode::SEND_WITH_INV as i64),
    ("IBV_WR_ATOMIC_WRITE", abi::wr_opcode::ATOMIC_WRITE as i64),
];

#[test]
fn structures_and_numbers_are_those_of_the_installed_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() || Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: it needs cc and <infiniband/verbs.h> (apt-get install gcc libibverbs-dev)");
        return;
    }
    let stem = std::env::temp_dir().join(format!("uroce-layout-{}", std::process::id()));
    let source = stem.with_extension("c");
    let mut code =
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    code += &theirs();
    for (name, _) in NUMBERS {
        code += &format!("printf(\"{name} %lld\\n\", (long long){name});\n");
    }
    code += "}\n";
    fs::write(&source, code).unwrap();
    let compiled = Command::new("cc").args(["-std=gnu11", "-o"]).args([&stem, &source]).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let printed = Command::new(&stem).output().unwrap().stdout;
    let _ = (fs::remove_file(&stem), fs::remove_file(&source));
    let printed = String::from_utf8(printed).unwrap();
    let theirs: BTreeSet<&str> = printed.lines().collect();
    let mut lines = ours();
    lines.extend(NUMBERS.iter().map(|(name, number)| format!("{name} {number}")));
    assert_eq!(lines.len(), theirs.len());
    for line in &lines {
        let name = line.split(' ').next().unwrap();
        let header = theirs.iter().find(|other| other.split(' ').next() == Some(name));
        assert_eq!(Some(&line.as_str()), header, "ours, and the header's");
    }
}
