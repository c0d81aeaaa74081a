//! A queue pair of the kernel's as a target.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use uroce::port::{Port, UdpPort, wait};
use uroce::wire::{Flow, Qpn};

use super::act::{Act, Grant, MTU, PEER_QPN, PSN, Posted, REGION, Target, completion, describe};
use crate::common::agent::{Agent, RemoteRegion};
use crate::common::guest::{Guest, HOST_V4};

/// A kernel that has said nothing for so long has nothing to say. The guest may be an emulated one on a busy machine.
const QUIET: Duration = Duration::from_millis(60);
/// The same at the end of a script.
const LAST_QUIET: Duration = Duration::from_millis(300);

/// One queue pair after the other on rxe0, and the port that its packets come to.
pub(super) struct KernelQp {
    agent: Agent,
    port: UdpPort,
    flow: Flow,
    region: RemoteRegion,
    posted: u64,
    qpn: u32,
    /// What it had to report of itself so far.
    log: String,
}

impl KernelQp {
    pub(super) fn new(guest: &Guest) -> Self {
        let own = IpAddr::V4(HOST_V4);
        let destination = IpAddr::V4(guest.v4);
        let flow = Flow { source: own, destination, source_port: 0xc123, traffic_class: 0, hop_limit: 64 };
        let mut agent = guest.agent();
        let region = agent.mr("mr", REGION, 0xf).unwrap();
        agent.cq("cq", 256).unwrap();
        let port = UdpPort::bind(&[own]).unwrap();
        let mut kernel = Self { agent, port, flow, region, posted: 0, qpn: 0, log: String::new() };
        kernel.warnings().unwrap();
        kernel
    }

    /// What the kernel reported of itself since the last call; an error when the guest does not answer.
    pub(super) fn warnings(&mut self) -> Result<String, String> {
        let command = "dmesg | grep -E 'BUG|Oops|WARNING|general protection'";
        let (_, log) = self.agent.shell(command).map_err(|error| error.to_string())?;
        let new = log.strip_prefix(&self.log).unwrap_or(&log).trim().to_owned();
        self.log = log;
        Ok(new)
    }

    fn push(&mut self, datagram: &[u8]) {
        self.port.room().unwrap()[..datagram.len()].copy_from_slice(datagram);
        self.port.commit(&self.flow, datagram.len());
        self.port.flush().unwrap();
    }

    fn listen(&mut self, quiet: Duration) -> Vec<String> {
        let mut seen = Vec::new();
        let mut until = Instant::now() + quiet;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let mut more = Vec::new();
            let taken = self.port.receive(&mut |arrival| more.push(describe(arrival.datagram))).unwrap();
            if taken > 0 {
                until = Instant::now() + quiet;
                seen.extend(more);
            } else {
                wait(&self.port.descriptors(), &[], Some(left)).unwrap();
            }
        }
        seen
    }
}

impl Target for KernelQp {
    fn begin(&mut self) -> Grant {
        self.posted = 0;
        self.qpn = self.agent.qp("qp", "rc", "cq=cq depth=16").unwrap();
        self.agent.poke("mr", 0, &[0; 64]).unwrap();
        let (peer, own) = (PEER_QPN.value(), HOST_V4);
        let rtr = format!("dest_qpn={peer} dgid={own} mtu={MTU} rq_psn={PSN} max_dest_rd_atomic=4 min_rnr_timer=1");
        self.agent.establish("qp", &rtr, &format!("sq_psn={PSN} timeout=20 max_rd_atomic=4")).unwrap();
        Grant { qpn: Qpn::new(self.qpn), address: self.region.addr, rkey: self.region.rkey }
    }

    fn act(&mut self, act: &Act) {
        let id = self.posted;
        self.posted += u64::from(matches!(act, Act::Receive(_) | Act::Post(..)));
        match act {
            Act::Receive(length) => self.agent.recv("qp", id, &format!("mr:0:{length}")).unwrap(),
            Act::Post(what, length) => {
                let operation = match what {
                    Posted::Send => "send",
                    Posted::Write => "write",
                    Posted::Read => "read",
                    Posted::FetchAdd => "faa add=1",
                };
                let request = format!("op={operation} sge=mr:0:{length} raddr=0x1000 rkey=0x11");
                self.agent.send("qp", id, &request).unwrap();
            }
            Act::Packet(craft) => self.push(&craft.bytes()),
            Act::Bytes(bytes) => self.push(bytes),
            Act::Wait => std::thread::sleep(Duration::from_millis(20)),
        }
    }

    fn sent(&mut self) -> Vec<String> {
        self.listen(QUIET)
    }

    fn end(&mut self) -> Vec<String> {
        let mut seen = self.listen(LAST_QUIET);
        let done = self.agent.poll("cq", 64, Duration::from_millis(100)).unwrap();
        seen.extend(done.iter().map(|done| completion(done.wr_id, done.status)));
        seen.push(self.agent.state("qp").unwrap());
        self.agent.destroy("qp").unwrap();
        // What belongs to this script is not an answer to the next.
        self.listen(QUIET);
        seen
    }
}
