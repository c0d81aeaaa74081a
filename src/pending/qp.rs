//! Temporary: replaced by the engine's own.
use std::sync::Arc;

use crate::memory::PdNumber;
use crate::qp::QpType;
use crate::queue::CompletionQueue;

/// How much a queue pair can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Send requests.
    pub max_send_wr: u32,
    /// Receive requests.
    pub max_receive_wr: u32,
    /// Elements of a send request.
    pub max_send_sge: u32,
    /// Elements of a receive request.
    pub max_receive_sge: u32,
    /// Bytes of inline payload.
    pub max_inline: u32,
}

/// What a queue pair is made of.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Service.
    pub qp_type: QpType,
    /// Domain.
    pub pd: PdNumber,
    /// Completions of sends.
    pub send_cq: Arc<CompletionQueue>,
    /// Completions of receives.
    pub receive_cq: Arc<CompletionQueue>,
    /// Sizes.
    pub capacity: Capacity,
    /// Every send is signalled.
    pub signal_all: bool,
}
