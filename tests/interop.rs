//! uroce against the kernel's `rdma_rxe`, in both kernels, as requester and as responder.
//!
//! Every case moves data one way with one operation, checks every byte where it arrived, and the completion on
//! both sides. A clean link must cause no retry; the counters of both sides are in the table that is printed.
//!
//! `tools/check` runs it; by hand: `cargo test --test interop -- --nocapture --test-threads=1`, as root. The guests are those of `tools/guest/guest`; without them the tests say loudly that they are skipped.

mod common;

#[path = "interop/bench.rs"]
mod bench;
#[path = "programs/built.rs"]
mod built;
#[path = "interop/case.rs"]
mod case;
#[path = "interop/conformance.rs"]
mod conformance;
#[path = "interop/datagram.rs"]
mod datagram;
#[path = "interop/lossy.rs"]
mod lossy;
#[path = "interop/matrix.rs"]
mod matrix;
#[path = "interop/memory.rs"]
mod memory;
#[path = "interop/pingpong.rs"]
mod pingpong;
#[path = "interop/programs.rs"]
mod programs;
#[path = "interop/srq.rs"]
mod srq;
