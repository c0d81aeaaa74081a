//! What a device and its port report.

use super::device::{Device, LinkState};
use crate::endpoint::Endpoint;
use crate::memory::Table;
use crate::qp::{Attributes, Capacity, Mtu};
use crate::queue::{CompletionQueue, SharedReceiveQueues};

/// What a device can do (`ibv_device_attr`): no less than the kernel's rxe reports (`rxe_param.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttributes {
    /// The GUID of the node: EUI-64 of the MAC address.
    pub node_guid: u64,
    /// Bytes of the largest region.
    pub max_mr_size: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Requests of a send or receive queue.
    pub max_qp_wr: u32,
    /// Elements of a scatter/gather list.
    pub max_sge: u32,
    /// Bytes of inline payload.
    pub max_inline: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions of a queue.
    pub max_cqe: u32,
    /// Completion vectors.
    pub completion_vectors: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Elements of a request of a shared receive queue.
    pub max_srq_sge: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Memory windows; regions count as well.
    pub max_mw: u32,
    /// Pages of a fast region.
    pub max_fast_reg_pages: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and ATOMICs outstanding on a queue pair, either way.
    pub max_qp_rd_atomic: u8,
    /// How long an acknowledge takes at most, beside the network: 4.096 µs × 2^n.
    pub local_ca_ack_delay: u8,
    /// Multicast groups.
    pub max_mcast_grp: u32,
    /// Queue pairs attached to one group.
    pub max_mcast_qp_attach: u32,
    /// Partition keys.
    pub max_pkeys: u16,
    /// Ports.
    pub port_count: u8,
}

impl DeviceAttributes {
    pub(super) fn of(device: &Device) -> Self {
        Self {
            node_guid: device.guid,
            max_mr_size: isize::MAX as u64,
            // The number of a queue pair has 16 bits beside the process's slot, and 17 is the first that a program gets.
            max_qp: (1 << 16) - 17,
            max_qp_wr: Capacity::MAX.max_send_wr,
            max_sge: Capacity::MAX.max_send_sge,
            max_inline: Capacity::MAX.max_inline,
            max_cq: 1 << 20,
            max_cqe: CompletionQueue::MAX_CAPACITY as u32,
            completion_vectors: completion_vectors(),
            max_srq: SharedReceiveQueues::MAX_QUEUES as u32,
            max_srq_wr: SharedReceiveQueues::MAX_WR,
            max_srq_sge: SharedReceiveQueues::MAX_SGE,
            max_mr: Table::MAX_REGIONS as u32,
            max_mw: Table::MAX_REGIONS as u32,
            max_fast_reg_pages: Table::MAX_FAST_PAGES,
            max_pd: 1 << 20,
            max_qp_rd_atomic: Attributes::MAX_RD_ATOMIC,
            local_ca_ack_delay: 15,
            max_mcast_grp: Endpoint::MAX_GROUPS as u32,
            max_mcast_qp_attach: Endpoint::MAX_ATTACHED as u32,
            max_pkeys: 1,
            port_count: 1,
        }
    }
}

/// One for each processor, as the kernel's rxe reports.
pub(super) fn completion_vectors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// The state and limits of a device's port (`ibv_port_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttributes {
    /// Whether packets can go out.
    pub state: LinkState,
    /// The largest path MTU of the protocol.
    pub max_mtu: Mtu,
    /// The largest path MTU of the link.
    pub active_mtu: Mtu,
    /// Bytes that the link carries in a packet, IP header included.
    pub link_mtu: u32,
    /// GIDs.
    pub gid_count: u32,
    /// Bytes of the longest message.
    pub max_message_size: u32,
    /// The only partition key.
    pub pkey: u16,
}

impl PortAttributes {
    pub(super) fn of(device: &Device, gids: usize) -> Self {
        Self {
            state: device.state,
            max_mtu: Mtu::Mtu4096,
            active_mtu: device.mtu,
            link_mtu: device.link_mtu,
            gid_count: u32::try_from(gids).unwrap_or(u32::MAX),
            // IBTA C9-8: 2^31.
            max_message_size: 1 << 31,
            pkey: 0xffff,
        }
    }
}
