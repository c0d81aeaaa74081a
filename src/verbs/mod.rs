//! Verbs: the crate's public interface to queue pairs and registered memory.
//!
//! [`devices`] lists what there is, [`Context::open`] opens one; a context makes protection domains, completion queues
//! and channels; a protection domain registers memory and makes queue pairs. Every object keeps alive what it stands on,
//! so the order in which they are dropped never matters, and dropping one is how it is destroyed.
//!
//! Two queue pairs of one process on the loopback device, which needs no privilege:
//!
//! ```
//! use uroce::verbs::{Access, Context, ConnectOptions, Operation, QpConfig, SendRequest, Status, random_psn};
//!
//! let context = Context::open("uroce_lo")?;
//! let pd = context.alloc_pd();
//! let cq = context.create_cq(16, None)?;
//! let (a, b) = (pd.create_qp(&QpConfig::new(&cq, &cq))?, pd.create_qp(&QpConfig::new(&cq, &cq))?);
//! let (a_peer, b_peer) = (a.local(random_psn()), b.local(random_psn()));
//! a.connect(a_peer.psn, &b_peer, &ConnectOptions::default())?;
//! b.connect(b_peer.psn, &a_peer, &ConnectOptions::default())?;
//!
//! let source = pd.register(4096, Access::LOCAL_WRITE)?;
//! let target = pd.register(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! source.write(0, b"a letter")?;
//! a.post_send([SendRequest::new(1, Operation::Write(target.remote(0)), &[source.sge(0, 8)])])?;
//! let completion = loop {
//!     if let Some(completion) = cq.poll_one() {
//!         break completion;
//!     }
//! };
//! assert_eq!((completion.id, completion.status), (1, Status::Success));
//! let mut letter = [0; 8];
//! target.read(0, &mut letter)?;
//! assert_eq!(&letter, b"a letter");
//! # Ok::<(), uroce::error::Error>(())
//! ```

mod ah;
mod attendant;
mod batch;
mod channel;
mod context;
mod cq;
mod device;
mod event_queue;
mod events;
mod fast;
mod follow;
mod limits;
pub mod links;
mod mr;
mod open;
mod pd;
mod peer;
mod qp;
mod srq;
pub mod stat;
mod window;
mod xrc;

pub use ah::AddressHandle;
pub use batch::Batch;
pub use channel::CompletionChannel;
pub use context::Context;
pub use cq::CompletionQueue;
pub use device::{Device, LinkState, devices};
pub use events::AsyncEvents;
pub use fast::FastRegion;
pub use limits::{DeviceAttributes, PortAttributes};
pub use mr::{MemoryRegion, Reregister};
pub use open::{Backend, Faults, OpenOptions};
pub use pd::ProtectionDomain;
pub use peer::{ConnectOptions, Peer, random_psn};
pub use qp::{PostError, QpConfig, QueuePair};
pub use srq::{SharedReceiveQueue, SrqConfig};
pub use window::MemoryWindow;
pub use xrc::XrcDomain;

pub use crate::counters::Counters;
pub use crate::error::{Error, Result};
pub use crate::event::AsyncEvent;
pub use crate::memory::{Access, FastRegister, WindowBind, WindowType, next_key};
pub use crate::port::PortCounters;
pub use crate::qp::{AddressVector, Attributes, Capacity, Mtu, QpInfo, QpType, State};
pub use crate::queue::{Arm, SrqInfo};
pub use crate::time::Instant;
pub use crate::wire::{Gid, Grh, GrhKind, Placement, Psn, Qpn, Selectivity, SrqNumber};
pub use crate::work::{
    Completion, CompletionKind, Destination, Flush, Operation, Payload, ReceiveRequest, Remote, SendFlags, SendRequest,
    Sge, Status, Tag,
};
