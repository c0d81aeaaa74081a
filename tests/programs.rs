//! Programs that are built on libibverbs, unmodified, on the drop-in library: `uroce run` starts them; and programs in C that were
//! written for these tests.
//!
//! As root they run as the user `nobody`, where that user may execute what was built: they need no privilege. A program that is not
//! installed is skipped, loudly; with `UROCE_TEST_NO_SKIP` that is a failure.

#[path = "programs/built.rs"]
mod built;
#[path = "programs/home.rs"]
mod home;
#[path = "programs/hosts.rs"]
mod hosts;
#[path = "programs/launch.rs"]
mod launch;
#[path = "programs/launcher.rs"]
mod launcher;
#[path = "programs/perftest.rs"]
mod perftest;
#[path = "programs/pingpong.rs"]
mod pingpong;
#[path = "programs/program.rs"]
mod program;
#[path = "programs/pyverbs.rs"]
mod pyverbs;
#[path = "programs/robust.rs"]
mod robust;
#[path = "programs/trace.rs"]
mod trace;
#[path = "programs/ucx.rs"]
mod ucx;
