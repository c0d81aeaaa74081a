//! Devices and their ports.

/// `union ibv_gid`.
pub(crate) type Gid = [u8; 16];

/// `struct ibv_device`. libmlx5 looks behind it, so there is a tail of zeroes.
#[repr(C)]
pub(crate) struct Device {
    pub(crate) obsolete: [usize; 2],
    pub(crate) node_type: i32,
    pub(crate) transport_type: i32,
    pub(crate) name: [u8; 64],
    pub(crate) dev_name: [u8; 64],
    pub(crate) dev_path: [u8; 256],
    pub(crate) ibdev_path: [u8; 256],
    pub(crate) tail: [u8; 360],
}

/// `IBV_NODE_CA`.
pub(crate) const NODE_CA: i32 = 1;
/// `IBV_TRANSPORT_IB`.
pub(crate) const TRANSPORT_IB: i32 = 0;

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: [u8; 64],
    /// In network order.
    pub(crate) node_guid: u64,
    /// In network order.
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: i32,
    pub(crate) max_qp_wr: i32,
    pub(crate) device_cap_flags: u32,
    pub(crate) max_sge: i32,
    pub(crate) max_sge_rd: i32,
    pub(crate) max_cq: i32,
    pub(crate) max_cqe: i32,
    pub(crate) max_mr: i32,
    pub(crate) max_pd: i32,
    pub(crate) max_qp_rd_atom: i32,
    pub(crate) max_ee_rd_atom: i32,
    pub(crate) max_res_rd_atom: i32,
    pub(crate) max_qp_init_rd_atom: i32,
    pub(crate) max_ee_init_rd_atom: i32,
    pub(crate) atomic_cap: u32,
    pub(crate) max_ee: i32,
    pub(crate) max_rdd: i32,
    pub(crate) max_mw: i32,
    pub(crate) max_raw_ipv6_qp: i32,
    pub(crate) max_raw_ethy_qp: i32,
    pub(crate) max_mcast_grp: i32,
    pub(crate) max_mcast_qp_attach: i32,
    pub(crate) max_total_mcast_qp_attach: i32,
    pub(crate) max_ah: i32,
    pub(crate) max_fmr: i32,
    pub(crate) max_map_per_fmr: i32,
    pub(crate) max_srq: i32,
    pub(crate) max_srq_wr: i32,
    pub(crate) max_srq_sge: i32,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// `IBV_ATOMIC_HCA`: atomic among the queue pairs of this device.
pub(crate) const ATOMIC_HCA: u32 = 1;

/// `enum ibv_device_cap_flags`.
pub(crate) mod device_cap {
    pub(crate) const BAD_PKEY_CNTR: u32 = 1 << 1;
    pub(crate) const BAD_QKEY_CNTR: u32 = 1 << 2;
    pub(crate) const RESIZE_MAX_WR: u32 = 1;
    pub(crate) const UD_AV_PORT_ENFORCE: u32 = 1 << 6;
    pub(crate) const PORT_ACTIVE_EVENT: u32 = 1 << 10;
    pub(crate) const SYS_IMAGE_GUID: u32 = 1 << 11;
    pub(crate) const RC_RNR_NAK_GEN: u32 = 1 << 12;
    pub(crate) const SRQ_RESIZE: u32 = 1 << 13;
    pub(crate) const MEM_WINDOW: u32 = 1 << 17;
    pub(crate) const XRC: u32 = 1 << 20;
    pub(crate) const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    pub(crate) const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
    /// `IB_UVERBS_DEVICE_FLUSH_GLOBAL` of the kernel, in the extended flags. Persistence is offered for files only, which programs cannot
    /// register here.
    pub(crate) const FLUSH_GLOBAL: u64 = 1 << 38;
    /// `IB_UVERBS_DEVICE_ATOMIC_WRITE`.
    pub(crate) const ATOMIC_WRITE: u64 = 1 << 40;
}

/// `struct ibv_device_attr_ex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttrEx {
    pub(crate) orig_attr: DeviceAttr,
    pub(crate) comp_mask: u32,
    pub(crate) odp_general: u64,
    pub(crate) odp_rc_uc_ud: [u32; 3],
    pub(crate) completion_timestamp_mask: u64,
    pub(crate) hca_core_clock: u64,
    pub(crate) device_cap_flags_ex: u64,
    pub(crate) max_tso: u32,
    pub(crate) tso_qpts: u32,
    /// Receive-side scaling, with the padding at its end.
    pub(crate) rss_caps: [u64; 4],
    pub(crate) max_wq_type_rq: u32,
    pub(crate) packet_pacing: [u32; 3],
    pub(crate) raw_packet_caps: u32,
    pub(crate) tag_matching: [u32; 5],
    pub(crate) cq_moderation: [u16; 2],
    pub(crate) max_dm_size: u64,
    pub(crate) pci_atomic: [u16; 3],
    pub(crate) xrc_odp_caps: u32,
    pub(crate) phys_port_cnt_ex: u32,
}

/// `struct ibv_port_attr`, up to what rdma-core 44 knows.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PortAttr {
    pub(crate) state: u32,
    pub(crate) max_mtu: u32,
    pub(crate) active_mtu: u32,
    pub(crate) gid_tbl_len: i32,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
    /// Newer than release 44; a caller tells how much it has room for.
    pub(crate) active_speed_ex: u32,
}

/// The bytes of [`PortAttr`] that the exported `ibv_query_port` writes: what the structure had before `link_layer`.
pub(crate) const OLD_PORT_ATTR: usize = std::mem::offset_of!(PortAttr, link_layer);

/// `struct ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GidEntry {
    pub(crate) gid: Gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

/// `IBV_GID_TYPE_ROCE_V2`.
pub(crate) const GID_TYPE_ROCE_V2: u32 = 2;
/// `IBV_GID_TYPE_SYSFS_ROCE_V2`: the same where the header is private.
pub(crate) const GID_TYPE_SYSFS_ROCE_V2: u32 = 1;
