//! Leads programs that look for RDMA devices in files to a folder that describes ours.
//!
//! Some programs do not ask the verbs library alone: UCX wants a character device in `/dev/infiniband`, NCCL and others read
//! `/sys/class/infiniband`. The kernel has neither without a device, so `uroce run` writes a folder with both, names it in
//! `UROCE_TREE`, and preloads this library, which stands before the C library's functions that take a path. Paths below the
//! three prefixes of `path.rs` go to the folder; all others go on as they are, at the cost of one comparison.
//!
//! These functions run inside programs of all kinds: before `main`, in a signal handler, inside an allocator that opens a
//! file. So nothing here allocates, locks, or can panic; errno is the C library's.

mod files;
mod path;

pub(crate) use path::Redirected;
