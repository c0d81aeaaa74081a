//! RDMA over Converged Ethernet v2 (RoCE v2) in user space: verbs without an RDMA device, a kernel module, or a privilege.
//!
//! [`verbs`] is the API; [`memory`] and [`work`] hold what its calls take and give. A program opens a device, which is an
//! interface of the host, and connects queue pairs with any peer that speaks RoCE v2: another `uroce`, Linux's `rdma_rxe`, a NIC.
//!
//! ```
//! use uroce::memory::Access;
//! use uroce::verbs::{ConnectOptions, Context, QpConfig, random_psn};
//! use uroce::work::{Operation, ReceiveRequest, SendRequest};
//!
//! // Two queue pairs of one process; between hosts, `local` travels over a socket of the program's.
//! let context = Context::open("uroce_lo")?;
//! let (pd, cq) = (context.alloc_pd(), context.create_cq(16, None)?);
//! let mr = pd.register(4096, Access::LOCAL_WRITE)?;
//! let (a, b) = (pd.create_qp(&QpConfig::new(&cq, &cq))?, pd.create_qp(&QpConfig::new(&cq, &cq))?);
//! let (at_a, at_b) = (a.local(random_psn()), b.local(random_psn()));
//! a.connect(at_a.psn, &at_b, &ConnectOptions::default())?;
//! b.connect(at_b.psn, &at_a, &ConnectOptions::default())?;
//!
//! mr.write(0, b"hello")?;
//! b.post_receive([ReceiveRequest::new(1, &[mr.sge(100, 5)])])?;
//! a.post_send([SendRequest::new(2, Operation::Send, &[mr.sge(0, 5)])])?;
//! for _ in 0..2 {
//!     while cq.poll_one().is_none() {}
//! }
//! let mut arrived = [0; 5];
//! mr.read(100, &mut arrived)?;
//! assert_eq!(&arrived, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The map
//!
//! Each module uses only what stands above it; [`port`] and [`endpoint`] never name each other.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`time`], [`wire`] | instants that are handed in; bytes to values and back, without I/O, allocation or panic |
//! | [`memory`], [`work`] | registered regions and windows; requests and completions |
//! | [`queue`], [`event`], [`counters`] | rings between program and engine; what the engine tells; what it counts |
//! | [`qp`] | queue pairs: RC, UC, UD and XRC, without I/O and without a clock |
//! | [`endpoint`] | many queue pairs behind one set of addresses |
//! | [`port`] | frames in and out: UDP sockets, packet sockets, a simulated network, faults, captures |
//! | [`driver`] | joins an endpoint and a port, and is the only reader of the clock |
//! | [`verbs`], [`error`] | the public API, and its errors with their errnos |
//!
//! A packet and a work request each go one way through them: see [`driver`].
#![deny(unsafe_code)]

mod congestion;
pub mod counters;
pub mod driver;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod memory;
pub mod port;
pub mod qp;
pub mod queue;
pub mod time;
pub mod verbs;
pub mod wire;
pub mod work;
