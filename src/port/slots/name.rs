//! Abstract Unix names: who has one, and whose turn it is.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::SlotError;
use crate::port::sys;

/// In front of all names. The number is that of what is said between processes: those of another one share nothing.
const PREFIX: &str = "uroce-1";
/// Newcomers that can wait for an answer at a time.
const BACKLOG: i32 = 128;
/// How often it is looked whether it is this process's turn.
const LOOK: Duration = Duration::from_millis(2);

/// The name of a slot, whose holder listens there.
pub(super) fn slot(interface: u32, slot: u8) -> io::Result<SocketAddrUnix> {
    named(&format!("{PREFIX}/{interface}/{slot}"))
}

/// Where the holder of a slot takes datagrams that came to others.
pub(super) fn handover(interface: u32, slot: u8) -> io::Result<SocketAddrUnix> {
    named(&format!("{PREFIX}/{interface}/{slot}/datagrams"))
}

fn named(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// A nonblocking Unix socket.
pub(super) fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    Ok(net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// Takes a name, without listening there yet.
///
/// # Errors
/// `EADDRINUSE` when somebody has it.
pub(super) fn hold(name: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let holder = socket(SocketType::SEQPACKET)?;
    net::bind(&holder, name)?;
    Ok(holder)
}

/// Lets others connect to a name that is held.
pub(super) fn listen(holder: &OwnedFd) -> io::Result<()> {
    Ok(net::listen(holder, BACKLOG)?)
}

/// The process that listens where `connection` leads to: it, or one that has its descriptors from it.
pub(super) fn pid(connection: &OwnedFd) -> u32 {
    // `struct ucred`: process, user, group.
    sys::option_words::<3>(connection, libc::SOL_SOCKET, libc::SO_PEERCRED).map_or(0, |[pid, ..]| pid)
}

/// The turn of one process of the network namespace to take a slot or to make a group, until this is dropped.
///
/// One for all interfaces: an address can move from one to another.
pub(super) struct Opening(#[expect(dead_code, reason = "it is held, not used")] OwnedFd);

impl Opening {
    /// Waits for the turn.
    ///
    /// # Errors
    /// [`SlotError::Silent`] names the process that has not come to an end with its own turn within `patience`.
    pub(super) fn wait(patience: Duration) -> Result<Self, SlotError> {
        let name = named(&format!("{PREFIX}/opening"))?;
        let started = Instant::now();
        loop {
            match hold(&name) {
                Ok(holder) => {
                    // So that who waits in vain can tell for whom.
                    listen(&holder)?;
                    return Ok(Self(holder));
                }
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error.into()),
                Err(_) if started.elapsed() < patience => thread::sleep(LOOK),
                Err(_) => {
                    let connection = socket(SocketType::SEQPACKET)?;
                    let pid = net::connect(&connection, &name).map_or(0, |()| pid(&connection));
                    return Err(SlotError::Silent { what: "waiting to open the device".into(), pids: vec![pid] });
                }
            }
        }
    }
}
