//! Queue pairs: sans-IO machines.
//!
//! Inputs are packets, timeouts, posted work and changes of state; outputs are packets
//! (`poll_transmit`), completions in the queues, and events.
#![forbid(unsafe_code)]

use std::sync::Arc;

mod common;
mod gather;
mod incoming;
mod pace;
mod pair;
mod rc;
mod request;
mod route;
mod segment;
mod sender;
mod service;
mod state;
mod timer;
mod uc;
mod ud;

pub(crate) use common::Surroundings;
pub(crate) use pair::QueuePair;
pub(crate) use rc::HoldBudget;
pub use state::{Attributes, Mask, Mtu, QpType, State};

pub use crate::work::AddressVector;

use crate::error::{Error, Result};
use crate::memory::PdNumber;
use crate::queue::{CompletionQueue, XrcdNumber};
use crate::wire::{SrqNumber, Transport};

/// How many requests a queue pair takes, and of what size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Send requests that may be outstanding.
    pub max_send_wr: u32,
    /// Receive requests that may be outstanding.
    pub max_receive_wr: u32,
    /// Scatter/gather elements of a send request.
    pub max_send_sge: u32,
    /// Scatter/gather elements of a receive request.
    pub max_receive_sge: u32,
    /// Bytes of a send request that are copied when posting.
    pub max_inline: u32,
}

impl Capacity {
    /// The most that a queue pair can have (`rxe_param.h`).
    pub const MAX: Self =
        Self { max_send_wr: 1 << 20, max_receive_wr: 1 << 20, max_send_sge: 32, max_receive_sge: 32, max_inline: 512 };

    /// Whether a queue pair can have this.
    fn check(&self) -> Result<()> {
        let most = Self::MAX;
        let limits = [
            ("max_send_wr", self.max_send_wr, most.max_send_wr),
            ("max_recv_wr", self.max_receive_wr, most.max_receive_wr),
            ("max_send_sge", self.max_send_sge, most.max_send_sge),
            ("max_recv_sge", self.max_receive_sge, most.max_receive_sge),
            ("max_inline_data", self.max_inline, most.max_inline),
        ];
        match limits.into_iter().find(|(_, wanted, limit)| wanted > limit) {
            Some((argument, wanted, limit)) => {
                Err(Error::invalid(argument, format!("{wanted}; at most {limit} is possible")))
            }
            None => Ok(()),
        }
    }
}

impl Default for Capacity {
    /// 128 requests each way, of 4 elements, 64 bytes inline.
    fn default() -> Self {
        Self { max_send_wr: 128, max_receive_wr: 128, max_send_sge: 4, max_receive_sge: 4, max_inline: 64 }
    }
}

/// What a queue pair is made of (`ibv_qp_init_attr`).
#[derive(Clone, Debug)]
pub struct QpInit {
    /// The service.
    pub qp_type: QpType,
    /// Whose memory it may use.
    pub pd: PdNumber,
    /// Where send requests complete.
    pub send_cq: Arc<CompletionQueue>,
    /// Where receive requests complete.
    pub receive_cq: Arc<CompletionQueue>,
    /// Sizes of its queues.
    pub capacity: Capacity,
    /// Whether every send request is signalled, whatever its flags.
    pub signal_all: bool,
    /// Where its receives come from, when it shares them; it has no receive queue of its own then.
    pub srq: Option<SrqNumber>,
    /// The domain of an XRC target, and of no other.
    pub xrcd: Option<XrcdNumber>,
}

impl QpInit {
    /// A reliable connection of the default capacity, which signals what asks for it.
    #[must_use]
    pub fn new(pd: PdNumber, send_cq: Arc<CompletionQueue>, receive_cq: Arc<CompletionQueue>) -> Self {
        Self {
            qp_type: QpType::Rc,
            pd,
            send_cq,
            receive_cq,
            capacity: Capacity::default(),
            signal_all: false,
            srq: None,
            xrcd: None,
        }
    }

    /// Whether such a queue pair can be made.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the capacity that is too large, or what does not go with the type.
    pub fn check(&self) -> Result<()> {
        self.capacity.check()?;
        if self.xrcd.is_some() != (self.qp_type == QpType::XrcTarget) {
            return Err(Error::invalid(
                "xrcd",
                format!("{:?}; an XRC target needs a domain, no other has one", self.qp_type),
            ));
        }
        if self.srq.is_some() && self.qp_type.transport() == Transport::Xrc {
            return Err(Error::invalid("srq", "on XRC each request names one of the domain"));
        }
        Ok(())
    }

    /// The capacity that is granted: a queue that it does not have takes nothing.
    fn granted(&self) -> Capacity {
        let mut capacity = self.capacity;
        if self.srq.is_some() || self.qp_type.transport() == Transport::Xrc {
            (capacity.max_receive_wr, capacity.max_receive_sge) = (0, 0);
        }
        if self.qp_type == QpType::XrcTarget {
            (capacity.max_send_wr, capacity.max_send_sge, capacity.max_inline) = (0, 0, 0);
        }
        capacity
    }
}

/// What a queue pair answers when asked (`ibv_query_qp(3)`).
#[derive(Clone, Copy, Debug)]
pub struct QpInfo {
    /// Its service.
    pub qp_type: QpType,
    /// Its state.
    pub state: State,
    /// Every attribute that was set since it left RESET; the PSNs are those of the next request to be sent and to come.
    pub attributes: Attributes,
    /// Sizes of its queues: those it does not have are 0.
    pub capacity: Capacity,
    /// Whether every send request is signalled.
    pub signal_all: bool,
    /// Whether it is in SQD and still busy with what was begun before.
    pub is_draining: bool,
    /// The shared receive queue that it was made with.
    pub srq: Option<SrqNumber>,
}
