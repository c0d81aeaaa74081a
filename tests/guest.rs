//! The guest itself: that it boots, that its agent does what the client asks, and that both sides mean the same pattern.
//! What uroce and the kernel do with each other is tested elsewhere; here the kernel talks to itself.

mod common;

use std::time::Duration;

use common::agent::{Agent, AgentError};
use common::guest::{Guest, Kernel};
use common::pattern;

/// Local write; remote write, read and atomic.
const ACCESS: u32 = 0xf;
const LENGTH: usize = 100_001;
const PATIENCE: Duration = Duration::from_secs(10);

/// A session with a region `mr`, a completion queue `cq` and an RC queue pair `qp`, whose number comes along.
fn prepared(guest: &Guest) -> (Agent, u32, u64, u32) {
    let mut agent = guest.agent();
    let region = agent.mr("mr", LENGTH, ACCESS).unwrap();
    agent.cq("cq", 64).unwrap();
    let qpn = agent.qp("qp", "rc", "cq=cq").unwrap();
    (agent, qpn, region.addr, region.rkey)
}

#[test]
fn pattern_is_the_agents() {
    let Some(guest) = Guest::up(Kernel::V6_12) else { return };
    guest.enter();
    let mut agent = guest.agent();
    agent.mr("mr", LENGTH, ACCESS).unwrap();
    agent.fill("mr", 3, LENGTH - 3, 0xfeed_f00d_dead_beef).unwrap();

    let mut bytes = vec![0; LENGTH - 3];
    pattern::fill(&mut bytes, 0xfeed_f00d_dead_beef);
    assert_eq!(agent.peek("mr", 3, 1001).unwrap(), bytes[..1001]);
    assert_eq!(agent.hash("mr", 3, LENGTH - 3).unwrap(), crc32fast::hash(&bytes));
    assert_eq!(pattern::mismatch(&bytes, 0xfeed_f00d_dead_beef), None);

    bytes[1234] ^= 1;
    assert_eq!(pattern::mismatch(&bytes, 0xfeed_f00d_dead_beef), Some(1234));
    agent.poke("mr", 3 + 1234, &bytes[1234..=1234]).unwrap();
    assert_eq!(agent.mismatch("mr", 3, LENGTH - 3, 0xfeed_f00d_dead_beef).unwrap(), Some(1234));
}

#[test]
fn kernels_write_to_each_other() {
    let Some(old) = Guest::up(Kernel::V6_1) else { return };
    let Some(new) = Guest::up(Kernel::V6_12) else { return };
    old.enter();
    let (mut a, qpn_a, ..) = prepared(&old);
    let (mut b, qpn_b, raddr, rkey) = prepared(&new);
    a.establish("qp", &format!("dest_qpn={qpn_b} dgid={}", new.v6), "").unwrap();
    b.establish("qp", &format!("dest_qpn={qpn_a} dgid={}", old.v6), "").unwrap();

    let sent = a.counter("sent_pkts").unwrap();
    a.fill("mr", 0, LENGTH, 7).unwrap();
    b.recv("qp", 8, "").unwrap();
    let write = format!("op=write_imm sge=mr:0:{LENGTH} raddr={raddr:#x} rkey={rkey:#x} imm=0x12345678");
    a.send("qp", 9, &write).unwrap();

    let done = a.poll("cq", 1, PATIENCE).unwrap();
    assert!(done.len() == 1 && done[0].wr_id == 9 && done[0].is_success(), "{done:?}");
    let received = b.poll("cq", 1, PATIENCE).unwrap();
    assert!(received.len() == 1 && received[0].is_success(), "{received:?}");
    assert_eq!((received[0].wr_id, received[0].imm, received[0].qp_num), (8, 0x1234_5678, qpn_b));
    assert_eq!(b.mismatch("mr", 0, LENGTH, 7).unwrap(), None);
    assert!(a.counter("sent_pkts").unwrap() - sent >= LENGTH.div_ceil(4096) as u64);
    assert_eq!(a.state("qp").unwrap(), "rts");
}

#[test]
fn refusals_and_shell() {
    let Some(guest) = Guest::up(Kernel::V6_1) else { return };
    guest.enter();
    let mut agent = guest.agent();
    let refused = agent.destroy("nothing").unwrap_err();
    assert!(matches!(refused, AgentError::Refused { errno: 2, .. }), "{refused}");
    assert_eq!(agent.shell("echo 'a  50% b'; echo c >&2; exit 3").unwrap(), (3, "a  50% b\nc\n".to_owned()));
    assert_eq!(agent.events(Duration::ZERO).unwrap(), []);
}

/// netem touches RoCE alone, so the agent answers through a link that loses every RoCE packet.
#[test]
fn netem_loses_roce_alone() {
    let Some(guest) = Guest::up_as(Kernel::V6_12, "rxe-netem", 9) else { return };
    guest.enter();
    let (mut a, qpn_a, ..) = prepared(&guest);
    let Some(other) = Guest::up(Kernel::V6_12) else { return };
    let (mut b, qpn_b, raddr, rkey) = prepared(&other);

    guest.netem("loss 100%");
    a.establish("qp", &format!("dest_qpn={qpn_b} dgid={}", other.v4), "timeout=8 retry_cnt=2").unwrap();
    b.establish("qp", &format!("dest_qpn={qpn_a} dgid={}", guest.v4), "").unwrap();
    a.send("qp", 1, &format!("op=write sge=mr:0:8 raddr={raddr:#x} rkey={rkey:#x}")).unwrap();
    let done = a.poll("cq", 1, PATIENCE).unwrap();
    // IBV_WC_RETRY_EXC_ERR
    assert!(done.len() == 1 && done[0].status == 12, "{done:?}");
    guest.down();
}
