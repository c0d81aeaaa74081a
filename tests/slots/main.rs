//! Several processes on one address: each gets what is for its queue pairs and nothing else, whoever comes and goes, and
//! however.
//!
//! The processes are this program again, in the ignored test [`worker::worker`], which does what it reads from its standard
//! input. They share addresses of the loopback interface, which takes no privilege.

mod crowd;
mod groups;
mod killed;
mod users;
mod worker;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How long a step may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address for one test.
fn address(test: u8) -> IpAddr {
    Ipv4Addr::new(127, 91, test, 1).into()
}

/// Says loudly that a test did not run; where `UROCE_TEST_NO_SKIP` is set, that fails.
fn skipped(why: &str) {
    assert!(std::env::var_os("UROCE_TEST_NO_SKIP").is_none(), "{why}");
    let _ = std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes());
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
