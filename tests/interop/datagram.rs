//! UC and UD with the kernel, and multicast both ways. Nothing makes up for a lost packet here: that every case arrives also
//! shows that nothing is sent faster than the link takes it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use uroce::memory::Access;
use uroce::qp::{AddressVector, Mtu, QpType};
use uroce::verbs::{Backend, CompletionQueue, Context, Gid, Grh, MemoryRegion, ProtectionDomain, QpConfig, QueuePair};
use uroce::wire::{Psn, Qpn};
use uroce::work::{Completion, CompletionKind, Operation, ReceiveRequest, SendRequest, Status, Tag};

use crate::bench::{Bench, PATIENCE, Setup, exclusively};
use crate::case::{Case, Requester, Verb};
use crate::common::agent::{Agent, WorkCompletion};
use crate::common::guest::{Guest, HOST_V4, HOST_V6, Kernel};
use crate::common::pattern;
use crate::matrix::{BACKENDS, MTUS};

const QKEY: u32 = 0x1111_1111;
/// `IBV_WC_GRH` and `IBV_WC_WITH_IMM`.
const WC_GRH: u32 = 1;
const WC_IMMEDIATE: u32 = 2;

#[test]
fn kernel_6_1_speaks_uc() {
    connections(Kernel::V6_1);
}

#[test]
fn kernel_6_12_speaks_uc() {
    connections(Kernel::V6_12);
}

#[test]
fn kernel_6_1_speaks_ud() {
    datagrams(Kernel::V6_1);
}

#[test]
fn kernel_6_12_speaks_ud() {
    datagrams(Kernel::V6_12);
}

fn connections(kernel: Kernel) {
    let Some(guest) = Guest::up(kernel) else { return };
    let _link = exclusively();
    guest.enter();
    let mut failures = Vec::new();
    for backend in BACKENDS {
        for (ipv6, mtus) in [(false, &MTUS[..]), (true, &MTUS[1..2])] {
            for &mtu in mtus {
                let setup = Setup { qp_type: QpType::Uc, backend, ipv6, mtu };
                let (passed, failed) = connection(&guest, setup);
                println!("{kernel:?}, UC, {setup:?}: {passed} passed, {} failed", failed.len());
                failures.extend(failed.into_iter().map(|failure| format!("{kernel:?}, {setup:?}, {failure}")));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Every UC case of one connection: how many passed, and what failed.
fn connection(guest: &Guest, setup: Setup) -> (usize, Vec<String>) {
    let mut bench = Bench::connect(guest, setup);
    let mtu = setup.mtu.bytes() as usize;
    let mut failures = Vec::new();
    let mut seed = 0;
    for requester in [Requester::Uroce, Requester::Kernel] {
        for verb in [Verb::Send, Verb::SendImmediate, Verb::Write, Verb::WriteImmediate] {
            for size in [0, 1, mtu - 1, mtu, mtu + 1, 3 * mtu, 50_000] {
                let case = Case { requester, verb, size };
                seed += 1;
                if let Err(error) = case.run(&mut bench, seed) {
                    failures.push(format!("{case}: {error}"));
                }
            }
        }
    }
    let faults = [bench.faults(), bench.kernel_faults()].concat();
    if !faults.is_empty() {
        failures.push(format!("faults on a clean link: {faults:?}"));
    }
    (seed as usize - failures.len(), failures)
}

/// A UD queue pair on either side.
struct Datagrams {
    pd: ProtectionDomain,
    qp: QueuePair,
    cq: CompletionQueue,
    mr: MemoryRegion,
    agent: Agent,
    /// The kernel's queue pair.
    theirs: Qpn,
    own: IpAddr,
    peer: IpAddr,
    context: Context,
}

/// Where messages arrive in either region, the header in front of them included.
const ARRIVAL: usize = 8192;

impl Datagrams {
    fn new(guest: &Guest, backend: Backend, ipv6: bool) -> Self {
        let own = if ipv6 { IpAddr::V6(HOST_V6) } else { IpAddr::V4(HOST_V4) };
        let peer = if ipv6 { IpAddr::V6(guest.v6) } else { IpAddr::V4(guest.v4) };
        let context = Context::options("uroce_br0").backend(backend).addresses([own]).open().unwrap();
        let (pd, cq) = (context.alloc_pd(), context.create_cq(64, None).unwrap());
        let qp = pd.create_qp(&QpConfig { qp_type: QpType::Ud, ..QpConfig::new(&cq, &cq) }).unwrap();
        qp.start(Psn::new(0xff_ffff), QKEY).unwrap();
        let mr = pd.register(16_384, Access::LOCAL_WRITE).unwrap();
        let mut agent = guest.agent();
        agent.mr("mr", 16_384, 1).unwrap();
        agent.cq("cq", 64).unwrap();
        let theirs = Qpn::new(agent.qp("qp", "ud", "cq=cq").unwrap());
        agent.modify("qp", &format!("state=init qkey={QKEY}")).unwrap();
        agent.modify("qp", "state=rtr").unwrap();
        agent.modify("qp", "state=rts sq_psn=7").unwrap();
        // The kernel gives its neighbour discovery one second, which an emulated guest may need for itself.
        let ah = format!("ah peer dgid={own} hop_limit=33 traffic_class=0x28");
        let made = (0..10).map(|_| agent.request(&ah)).find(Result::is_ok);
        assert!(made.is_some(), "the kernel does not find {own}: {:?}", agent.request(&ah));
        Self { pd, qp, cq, mr, agent, theirs, own, peer, context }
    }

    /// Waits for our next completion.
    fn completion(&self) -> Completion {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(completion) = self.cq.poll_one() {
                assert_eq!(completion.status, Status::Success);
                return completion;
            }
            std::thread::yield_now();
        }
        panic!("no completion: {:?}, {:?}", self.context.counters(), self.context.port_counters());
    }

    fn kernel_completion(&mut self) -> WorkCompletion {
        let list = self.agent.poll("cq", 1, PATIENCE).unwrap();
        let completion =
            list.first().copied().unwrap_or_else(|| panic!("no completion: {:?}", self.context.counters()));
        assert!(completion.is_success(), "{completion:?}");
        completion
    }

    /// From us to the kernel, to one queue pair or to a group.
    fn send(&mut self, size: usize, seed: u64, group: Option<IpAddr>) {
        let mut bytes = vec![0; size];
        pattern::fill(&mut bytes, seed);
        self.mr.write(0, &bytes).unwrap();
        self.agent.recv("qp", seed, &format!("mr:{ARRIVAL}:{}", Grh::LEN + size)).unwrap();
        let vector = AddressVector { hop_limit: 17, ..AddressVector::to(group.unwrap_or(self.peer)) };
        let ah = self.pd.create_ah(&vector).unwrap();
        let to = if group.is_some() { ah.group(QKEY) } else { ah.at(self.theirs, QKEY) };
        let operation = Operation::SendImmediate(seed as u32);
        self.qp.post_send([SendRequest::new(seed, operation, &[self.mr.sge(0, size as u32)]).to(to)]).unwrap();
        let sent = self.completion();
        assert_eq!((sent.id, sent.kind), (seed, CompletionKind::Send));
        let received = self.kernel_completion();
        assert_eq!((received.wr_id, received.byte_len as usize, received.imm), (seed, Grh::LEN + size, seed as u32));
        assert_eq!((received.flags, received.src_qp), (WC_GRH | WC_IMMEDIATE, self.qp.qpn().value()));
        let grh: [u8; Grh::LEN] = self.agent.peek("mr", ARRIVAL, Grh::LEN).unwrap().try_into().unwrap();
        let (source, destination) = (self.own, group.unwrap_or(self.peer));
        let expected = Grh { source, destination, traffic_class: 0, hop_limit: 17 };
        assert_eq!(Grh::parse(&grh), Some(expected), "what the kernel found in front of {size} bytes");
        // BTH, DETH and immediate data; the pad.
        let datagram = 12 + 8 + 4 + size.next_multiple_of(4);
        let mut known = grh;
        if self.own.is_ipv6() {
            // The flow label is our kernel's choice (RFC 6437), and no receiver's business.
            known[1] &= 0xf0;
            known[2..4].fill(0);
        }
        assert_eq!(known, expected.emit(datagram), "our own idea of that header");
        assert_eq!(self.agent.mismatch("mr", ARRIVAL + Grh::LEN, size, seed).unwrap(), None);
    }

    /// From the kernel to us.
    fn receive(&mut self, size: usize, seed: u64, group: Option<IpAddr>) {
        self.agent.fill("mr", 0, size, seed).unwrap();
        let sge = self.mr.sge(ARRIVAL, (Grh::LEN + size) as u32);
        self.qp.post_receive([ReceiveRequest::new(seed, &[sge])]).unwrap();
        let (ah, qpn) = if group.is_some() { ("group", Qpn::MULTICAST) } else { ("peer", self.qp.qpn()) };
        let request = format!("op=send sge=mr:0:{size} ah={ah} qpn={} qkey={QKEY}", qpn.value());
        self.agent.send("qp", seed, &request).unwrap();
        assert_eq!(self.kernel_completion().wr_id, seed);
        let received = self.completion();
        assert_eq!((received.id, received.byte_length as usize, received.tag), (seed, Grh::LEN + size, Tag::None));
        assert_eq!((received.source_qpn, received.grh.is_some()), (self.theirs, true));
        let mut grh = [0; Grh::LEN];
        self.mr.read(ARRIVAL, &mut grh).unwrap();
        let (source, destination) = (self.peer, group.unwrap_or(self.own));
        // To a single address the kernel takes its route's hop limit instead (`ib_resolve_unicast_gid_dmac`).
        let hop_limit = if group.is_some() { 33 } else { 64 };
        assert_eq!(Grh::parse(&grh), Some(Grh { source, destination, traffic_class: 0x28, hop_limit }));
        let back = self.pd.create_ah_from_completion(&received, &grh).unwrap();
        assert_eq!(back.vector().destination, self.peer);
        let mut bytes = vec![0; size];
        self.mr.read(ARRIVAL + Grh::LEN, &mut bytes).unwrap();
        assert_eq!(pattern::mismatch(&bytes, seed), None);
    }

    /// Both ways through a group.
    fn multicast(&mut self, group: IpAddr) {
        self.agent.attach("qp", &group.to_string()).unwrap();
        self.agent.request(&format!("ah group dgid={group} hop_limit=33 traffic_class=0x28")).unwrap();
        // The network may take a moment to hear of it.
        std::thread::sleep(Duration::from_millis(200));
        self.send(1000, 71, Some(group));
        self.qp.attach_multicast(Gid::from(group)).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        self.receive(1001, 72, Some(group));
        self.qp.detach_multicast(Gid::from(group)).unwrap();
    }
}

fn datagrams(kernel: Kernel) {
    let Some(guest) = Guest::up(kernel) else { return };
    let _link = exclusively();
    guest.enter();
    for backend in BACKENDS {
        for ipv6 in [false, true] {
            let mut bench = Datagrams::new(&guest, backend, ipv6);
            for (seed, size) in
                [0, 1, 255, 256, 1024, 2047, 4095, Mtu::Mtu4096.bytes() as usize].into_iter().enumerate()
            {
                bench.send(size, 2 * seed as u64 + 1, None);
                bench.receive(size, 2 * seed as u64 + 2, None);
            }
            let group = if ipv6 { "ff0e::77:1" } else { "239.77.0.1" };
            bench.multicast(group.parse().unwrap());
            let counters = bench.context.counters();
            assert_eq!((counters.dropped_messages, counters.bad_qkey, counters.wrong_address), (0, 0, 0));
            println!("{kernel:?}, UD and multicast, {backend:?}, {}: passed", bench.own);
        }
    }
}
