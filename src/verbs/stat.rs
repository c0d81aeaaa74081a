//! What the devices of running programs counted, for whoever asks.
//!
//! Each open device listens on a Unix socket of its own, `PID-N.sock` in a folder that only its user may enter
//! (`$XDG_RUNTIME_DIR/uroce`, or `/tmp/uroce-UID`), and answers a connection with one [`Snapshot`] as JSON. Nothing is
//! read from the connection.
//!
//! A program that does not want this says so with [`OpenOptions::publish`](super::OpenOptions::publish), or its user with
//! `UROCE_PUBLISH=0`.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};

use super::context::{Context, ContextInner};
use crate::counters::Counters;
use crate::port::{PortCounters, wait};
use crate::wire::Qpn;

/// The variable that keeps devices from publishing when it is `0`.
const SWITCH: &str = "UROCE_PUBLISH";
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// No answer is longer: some 20,000 queue pairs.
const MAX_ANSWER: u64 = 64 << 20;

/// Counters by name.
pub type Named = BTreeMap<String, u64>;

/// What one open device counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The process that opened it.
    pub pid: u32,
    /// The name of its program (`comm` of `proc(5)`).
    pub program: String,
    /// The device.
    pub device: String,
    /// Its slot: the high byte of its queue pairs' numbers ([`Context::slot`]).
    #[serde(default)]
    pub slot: u8,
    /// Its addresses, by GID index.
    pub addresses: Vec<IpAddr>,
    /// What all queue pairs counted, those destroyed included ([`Counters`]).
    pub counters: Named,
    /// What the port counted ([`PortCounters`]).
    pub port: Named,
    /// The queue pairs that there are, by number.
    pub queue_pairs: Vec<QueuePairSnapshot>,
}

/// What one queue pair counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueuePairSnapshot {
    /// Its number.
    pub qpn: u32,
    /// Its service, `Rc` for instance.
    pub qp_type: String,
    /// Its state, `ReadyToSend` for instance.
    pub state: String,
    /// The number of the peer's queue pair, when it has one.
    pub peer_qpn: Option<u32>,
    /// The peer's address, when it has one.
    pub peer: Option<IpAddr>,
    /// What it counted ([`Counters`]).
    pub counters: Named,
}

/// Asks every device that a process of this user has open, this process included; by process and device.
///
/// Devices that do not answer in time, and those that do not publish, are left out.
#[must_use]
pub fn running() -> Vec<Snapshot> {
    let sockets = folders().into_iter().filter(|folder| is_ours(folder)).flat_map(|folder| sockets(&folder));
    let mut snapshots: Vec<_> = sockets.filter_map(|socket| ask(&socket)).collect();
    snapshots.sort_by(|a, b| (a.pid, &a.device, &a.addresses).cmp(&(b.pid, &b.device, &b.addresses)));
    snapshots
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
}

/// The answer of the device that listens at `socket`. A socket that nobody listens at was left by a process that was killed:
/// it is removed.
fn ask(socket: &Path) -> Option<Snapshot> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) => {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                // Another process may have removed it meanwhile.
                let _ = fs::remove_file(socket);
            }
            return None;
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer).ok()?;
    serde_json::from_str(&answer).ok()
}

impl Context {
    /// What this device counted, and each of its queue pairs.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (counters, queue_pairs) = self.inner().driver.inspect(|endpoint| {
            let pair = |qpn: Qpn| {
                let info = endpoint.query_qp(qpn).ok()?;
                Some(QueuePairSnapshot {
                    qpn: qpn.value(),
                    qp_type: format!("{:?}", info.qp_type),
                    state: format!("{:?}", info.state),
                    peer_qpn: info.attributes.destination.map(Qpn::value),
                    peer: info.attributes.address.map(|address| address.destination),
                    counters: named(&endpoint.qp_counters(qpn).ok()?),
                })
            };
            (endpoint.counters(), endpoint.qpns().filter_map(pair).collect())
        });
        let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Snapshot {
            pid: std::process::id(),
            program: program.trim_end().to_owned(),
            device: self.device().name.clone(),
            slot: self.slot(),
            addresses: self.addresses().to_vec(),
            counters: named(&counters),
            port: named_port(&self.port_counters()),
            queue_pairs,
        }
    }
}

fn named(counters: &Counters) -> Named {
    counters.iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn named_port(port: &PortCounters) -> Named {
    let all = [
        ("sent", port.sent),
        ("sent_bytes", port.sent_bytes),
        ("received", port.received),
        ("received_bytes", port.received_bytes),
        ("send_calls", port.send_calls),
        ("receive_calls", port.receive_calls),
        ("send_errors", port.send_errors),
        ("icrc_errors", port.icrc_errors),
        ("malformed", port.malformed),
        ("receive_overflow", port.receive_overflow),
        ("handed_over", port.handed_over),
        ("handover_errors", port.handover_errors),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Answers for one context until it is dropped.
#[derive(Debug)]
pub(super) struct Publisher {
    socket: PathBuf,
    /// An eventfd that ends the thread.
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Begins to answer for `context`. `None` when it cannot be done here: a device works all the same.
    pub(super) fn start(context: Weak<ContextInner>) -> Option<Self> {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        if std::env::var(SWITCH).is_ok_and(|value| value == "0") {
            return None;
        }
        let folder = folders().into_iter().find(|folder| {
            // It may be there already, with a mode of somebody else's making; whose it is counts.
            let _ = DirBuilder::new().mode(0o700).create(folder);
            if belongs_to_us(folder) {
                let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
            }
            is_ours(folder)
        })?;
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let socket = folder.join(format!("{}-{number}.sock", std::process::id()));
        // Left by a process of the same number that was killed.
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).ok()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?);
        let stopped = Arc::clone(&stop);
        let serve = move || serve(&listener, &stopped, &context);
        let thread = thread::Builder::new().name("uroce-stat".to_owned()).stack_size(256 * 1024).spawn(serve).ok();
        // Without a thread, dropping it removes the socket.
        let publisher = Self { socket, stop, thread };
        publisher.thread.is_some().then_some(publisher)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        // The thread itself drops the context when the program let go of it during an answer.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// Answers until told to stop.
fn serve(listener: &UnixListener, stop: &OwnedFd, context: &Weak<ContextInner>) {
    let readable = [listener.as_raw_fd(), stop.as_raw_fd()];
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    loop {
        let mut count = [0; 8];
        if wait(&readable, &[], None).is_err() || rustix::io::read(stop, &mut count).is_ok() {
            return;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        let Some(inner) = context.upgrade() else { return };
        answer(stream, &Context::from(inner));
    }
}

/// Whoever asked may have gone: that is nobody's error.
fn answer(mut stream: UnixStream, context: &Context) {
    let Ok(json) = serde_json::to_vec(&context.snapshot()) else { return };
    if stream.set_nonblocking(false).is_ok() && stream.set_write_timeout(Some(PATIENCE)).is_ok() {
        let _ = stream.write_all(&json);
    }
}

/// Where sockets may be, the preferred folder first.
fn folders() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("uroce"));
    let user = rustix::process::geteuid().as_raw();
    let all = runtime.into_iter().chain([PathBuf::from(format!("/tmp/uroce-{user}"))]);
    let mut seen = HashSet::new();
    all.filter(|folder| seen.insert(folder.clone())).collect()
}

/// Whether it is a folder of this user that nobody else may enter: in /tmp anybody could have made one of this name.
fn is_ours(folder: &Path) -> bool {
    belongs_to_us(folder) && fs::symlink_metadata(folder).is_ok_and(|about| about.mode() & 0o077 == 0)
}

fn belongs_to_us(folder: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(folder).is_ok_and(|about| about.is_dir() && about.uid() == user)
}
