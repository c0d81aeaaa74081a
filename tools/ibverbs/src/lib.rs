//! A drop-in `libibverbs.so.1`: programs that were built on libibverbs find here what they call, and run on uroce.
//!
//! This is the edge to C and nothing more: structures, names and versions, handles, errnos. What the verbs do is in
//! [`uroce::verbs`]. A call goes one way: [`exports`] (or a function pointer in a structure) → the verb in its file → [`handle`]
//! tells whether the object is one → `uroce::verbs` → [`edge`] turns the result into what C expects.
//!
//! | where | what |
//! | --- | --- |
//! | [`abi`] | the structures of `<infiniband/verbs.h>`, held against the installed header |
//! | [`exports`], [`absent`], [`providers`] | what is found under which name and version |
//! | [`edge`], [`handle`] | results and panics; pointers that programs hold |
//! | [`environment`] | what `uroce run` asks of the library |
//! | [`device`], [`context`], [`gid`], [`events`] | devices, contexts, addresses, asynchronous events |
//! | [`memory`] | protection domains, regions, windows |
//! | [`channel`], [`cq`] | completion channels and queues |
//! | [`qp`], [`post`], [`srq`], [`xrc`], [`ah`], [`multicast`] | queue pairs, posting, receive queues, addresses |
//! | [`names`], [`rates`], [`sysfs`] | texts, rates, files |
//! | [`signals`] | what a signal does to a wait |

mod abi;
mod absent;
mod ah;
mod channel;
mod context;
mod cq;
mod device;
mod edge;
mod environment;
mod events;
mod exports;
mod gid;
mod handle;
mod memory;
mod multicast;
mod names;
mod post;
mod providers;
mod qp;
mod rates;
mod signals;
mod srq;
mod sysfs;
mod xrc;
