//! A queue pair of ours connected to one of the kernel's, with a region on each side.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uroce::counters::Counters;
use uroce::memory::Access;
use uroce::qp::{Mtu, QpType};
use uroce::verbs::{
    Backend, CompletionQueue, ConnectOptions, Context, MemoryRegion, Peer, ProtectionDomain, QpConfig, QueuePair,
};
use uroce::wire::{Psn, Qpn};
use uroce::work::{Completion, Status};

use crate::common::agent::{Agent, RemoteRegion, WorkCompletion};
use crate::common::guest::{Guest, HOST_V4, HOST_V6};

/// The bridge that the guests hang on, as the device that our side opens.
const DEVICE: &str = "uroce_br0";
/// Bytes of the region on either side: the largest message twice, and some.
pub(crate) const REGION: usize = (2 << 20) + 4096;
/// How long one completion may take. An emulated guest on a busy machine is slow, and a lost last retry costs
/// the kernel's side its ack timeout.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// UDP port 4791 of the link exists once: one test at a time.
pub(crate) fn exclusively() -> MutexGuard<'static, ()> {
    static LINK: Mutex<()> = Mutex::new(());
    LINK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the two are connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// RC or UC.
    pub(crate) qp_type: QpType,
    pub(crate) backend: Backend,
    pub(crate) ipv6: bool,
    pub(crate) mtu: Mtu,
}

/// Both ends of a connection.
pub(crate) struct Bench {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) mr: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
    pub(crate) agent: Agent,
    pub(crate) remote: RemoteRegion,
    pub(crate) qp_type: QpType,
    context: Context,
    kernel_before: Vec<(&'static str, u64)>,
}

/// The kernel's counters that a clean link leaves alone.
const KERNEL_FAULTS: [&str; 6] = [
    "duplicate_request",
    "out_of_seq_request",
    "rcvd_rnr_err",
    "rcvd_seq_err",
    "completer_retry_err",
    "retry_exceeded_err",
];

impl Bench {
    /// Connects to `guest`, whose namespace the thread must have entered.
    pub(crate) fn connect(guest: &Guest, setup: Setup) -> Self {
        let own = if setup.ipv6 { IpAddr::V6(HOST_V6) } else { IpAddr::V4(HOST_V4) };
        let theirs = if setup.ipv6 { IpAddr::V6(guest.v6) } else { IpAddr::V4(guest.v4) };
        let context = Context::options(DEVICE).backend(setup.backend).addresses([own]).open().unwrap();
        let pd = context.alloc_pd();
        let cq = context.create_cq(1024, None).unwrap();
        let qp_type = setup.qp_type;
        let qp = pd.create_qp(&QpConfig { qp_type, ..QpConfig::new(&cq, &cq) }).unwrap();
        let mr = pd.register(REGION, Access::LOCAL_WRITE | Access::REMOTE).unwrap();

        let mut agent = guest.agent();
        let access = (Access::LOCAL_WRITE | Access::REMOTE).bits();
        let remote = agent.mr("mr", REGION, access).unwrap();
        agent.cq("cq", 256).unwrap();
        let qpn = agent.qp("qp", if qp_type == QpType::Uc { "uc" } else { "rc" }, "cq=cq depth=128").unwrap();
        let (psn, kernel_psn) = (Psn::new(0xff_ff00), Psn::new(0xff_fff0));
        let bytes = setup.mtu.bytes();
        let rtr = format!("dest_qpn={} dgid={own} mtu={bytes} rq_psn={}", qp.qpn().value(), psn.value());
        let timeout = if qp_type == QpType::Uc { "" } else { " timeout=17" };
        agent.establish("qp", &rtr, &format!("sq_psn={}{timeout}", kernel_psn.value())).unwrap();
        let peer = Peer { address: theirs, qpn: Qpn::new(qpn), psn: kernel_psn };
        let options = ConnectOptions { path_mtu: Some(setup.mtu), timeout: 17, ..ConnectOptions::default() };
        qp.connect(psn, &peer, &options).unwrap();

        let mut bench = Self { qp, cq, mr, pd, agent, remote, qp_type, context, kernel_before: Vec::new() };
        bench.kernel_before = bench.kernel_counters();
        bench
    }

    /// Waits for our next completion.
    pub(crate) fn completion(&self) -> Result<Completion, String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(completion) = self.cq.poll_one() {
                return match completion.status {
                    Status::Success => Ok(completion),
                    status => Err(format!("our completion {}: {}", completion.id, status.as_str())),
                };
            }
            // The guest needs the processor more than this loop does.
            std::thread::yield_now();
        }
        Err(format!("no completion of ours in {PATIENCE:?}: {:?}", self.faults()))
    }

    /// Waits for the kernel's next completion.
    pub(crate) fn kernel_completion(&mut self) -> Result<WorkCompletion, String> {
        let list = self.agent.poll("cq", 1, PATIENCE).map_err(|error| error.to_string())?;
        match list.first() {
            Some(completion) if completion.is_success() => Ok(*completion),
            Some(failed) => Err(format!("the kernel's completion: {failed:?}")),
            None => Err(format!("no completion of the kernel's in {PATIENCE:?}: {:?}", self.faults())),
        }
    }

    /// Our counters.
    pub(crate) fn counters(&self) -> Counters {
        self.context.counters()
    }

    /// What both sides counted that a clean link does not cause, ours first. Not counted as ours: what the kernel's
    /// requester sent twice. Nor what the port saw: nothing may be dropped there.
    pub(crate) fn faults(&self) -> Vec<(&'static str, u64)> {
        let harmless = ["sent_pkts", "rcvd_pkts", "ack_deferred", "duplicate_request", "rcvd_rnr_err", "send_rnr_err"];
        let port = self.context.port_counters();
        let dropped = [
            ("port icrc_errors", port.icrc_errors),
            ("port malformed", port.malformed),
            ("port receive_overflow", port.receive_overflow),
            ("port send_errors", port.send_errors),
        ];
        let ours = self.counters();
        let ours: Vec<_> = ours.iter().filter(|(name, _)| !harmless.contains(name)).collect();
        ours.into_iter().chain(dropped).filter(|(_, count)| *count > 0).collect()
    }

    /// What the kernel counted on this connection that a clean link does not cause.
    pub(crate) fn kernel_faults(&mut self) -> Vec<(&'static str, u64)> {
        let now = self.kernel_counters();
        let since = now.iter().zip(&self.kernel_before).map(|(now, before)| (now.0, now.1 - before.1));
        since.filter(|(_, count)| *count > 0).collect()
    }

    fn kernel_counters(&mut self) -> Vec<(&'static str, u64)> {
        let answer = self.agent.request("counters").unwrap();
        KERNEL_FAULTS.iter().map(|name| (*name, answer.number(name).unwrap_or(0))).collect()
    }
}
