//! The structures of `<infiniband/verbs.h>`, as programs are compiled against them (rdma-core 44 and newer, `x86_64`).
//!
//! Names are the header's own, without the prefix. Enumerations of C are `u32` here: a program may write any number
//! there. A test (`layout.rs`) holds sizes, offsets and numbers against the installed header.

mod context;
mod cq;
mod device;
#[cfg(test)]
mod layout;
mod memory;
mod qp;
mod work;

pub(crate) use context::*;
pub(crate) use cq::*;
pub(crate) use device::*;
pub(crate) use memory::*;
pub(crate) use qp::*;
pub(crate) use work::*;

/// A function of C whose address stands in a structure; `None` is a null pointer.
pub(crate) type Function<F> = Option<F>;

/// `pthread_mutex_t`: ours to use, and not used; only its room counts.
pub(crate) type Mutex = [u64; 5];
/// `pthread_cond_t`: as [`Mutex`].
pub(crate) type Condition = [u64; 6];
