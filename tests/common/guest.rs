//! Guests with kernel `rdma_rxe`, booted by `tools/guest/guest`.
//!
//! A test that wants one begins with
//!
//! ```ignore
//! let Some(guest) = Guest::up(Kernel::V6_12) else { return };
//! guest.enter();
//! let mut agent = guest.agent();
//! ```
//!
//! Guests stay up for the next test; `tools/guest/guest down` ends them.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::agent::Agent;

/// Where the agent listens in every guest.
const AGENT_PORT: u16 = 7001;
/// When it is `1`, a guest that cannot be had fails the test instead of skipping it.
const REQUIRE: &str = "UROCE_REQUIRE_GUEST";

/// This machine's addresses on the guests' link.
pub const HOST_V4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// See [`HOST_V4`].
pub const HOST_V6: Ipv6Addr = Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1);

/// The kernels there are: Debian 12's own, and its newest backport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Linux 6.1: no ATOMIC WRITE, no FLUSH.
    V6_1,
    /// Linux 6.12.
    V6_12,
}

impl Kernel {
    /// Both, for tests that hold for either.
    pub const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    /// Name of the shared guest, version as the script takes it, last byte of the address.
    const fn defaults(self) -> (&'static str, &'static str, u8) {
        match self {
            Self::V6_1 => ("rxe-6-1", "6.1", 3),
            Self::V6_12 => ("rxe-6-12", "6.12", 2),
        }
    }
}

/// A guest that is up, its rxe0 active.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The name that the script knows it by.
    pub name: String,
    /// Its IPv4 address; the GID is this address, mapped.
    pub v4: Ipv4Addr,
    /// Its IPv6 address, which is a GID as well.
    pub v6: Ipv6Addr,
}

impl Guest {
    /// The guest with `kernel` that all tests share, booted if it is not up.
    ///
    /// `None` when there can be none here (no root, not installed); stderr then says why.
    pub fn up(kernel: Kernel) -> Option<Self> {
        let (name, _, octet) = kernel.defaults();
        Self::up_as(kernel, name, octet)
    }

    /// A guest of one's own, `10.99.0.{octet}`: for tests that put loss on its link or break it.
    pub fn up_as(kernel: Kernel, name: &str, octet: u8) -> Option<Self> {
        let v4 = Ipv4Addr::new(10, 99, 0, octet);
        let output = script(&["up", name, kernel.defaults().1, &v4.to_string()]);
        if !output.status.success() {
            skip(&format!("no guest {name}: {}", String::from_utf8_lossy(&output.stderr).trim()));
            return None;
        }
        // The script writes the IPv6 address with the decimal digits of the IPv4 one.
        let v6 = format!("fd99::{octet}").parse().expect("an IPv6 address");
        Some(Self { name: name.to_owned(), v4, v6 })
    }

    /// Moves the calling thread, and the threads that it starts from now on, into the guests' network namespace.
    pub fn enter(&self) {
        let name = std::env::var("UROCE_GUEST_NS").unwrap_or_else(|_| "uroceguest".to_owned());
        let path = Path::new("/run/netns").join(name);
        let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .unwrap_or_else(|error| panic!("cannot enter {}: {error}", path.display()));
    }

    /// A new session with the guest's agent; the thread must have [entered](Self::enter) the namespace.
    pub fn agent(&self) -> Agent {
        let address = SocketAddr::new(IpAddr::V4(self.v4), AGENT_PORT);
        Agent::connect(address).unwrap_or_else(|error| panic!("agent of {} at {address}: {error}", self.name))
    }

    /// Puts netem on the RoCE packets that the guest sends (`loss 5%`); empty takes it off.
    pub fn netem(&self, arguments: &str) {
        let output = script(&["netem", &self.name, arguments]);
        assert!(output.status.success(), "netem {arguments} in {}: {output:?}", self.name);
    }

    /// Ends the guest.
    pub fn down(self) {
        let output = script(&["down", &self.name]);
        assert!(output.status.success(), "{output:?}");
    }
}

fn script(arguments: &[&str]) -> Output {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tools/guest/guest");
    Command::new(&path).args(arguments).output().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Says why a test does nothing; panics where guests are required.
fn skip(reason: &str) {
    assert!(std::env::var(REQUIRE).as_deref() != Ok("1"), "{REQUIRE}=1, but {reason}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Not eprintln!, which the test harness keeps to itself when a test passes.
    let _ = writeln!(io::stderr(), "SKIPPED {test}: {reason} ({REQUIRE}=1 makes this an error)");
}
