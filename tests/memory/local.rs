//! When requests without packets are carried out: in their turn, once, and complete in order.

use uroce::memory::{Access, WindowType};
use uroce::port::Verdict;
use uroce::qp::State;
use uroce::time::Duration;
use uroce::wire::Opcode;
use uroce::work::{CompletionKind, Operation, SendFlags, SendRequest, Sge, Status};

use crate::bench::{SECOND, assert_ended, bind, ended, fast, holder, pair, post_quiet, window};
use crate::common::pair::to;
use crate::common::watch::{drop_first, watch};

/// A second execution of the bind would fail, since a type 2 window is bound once.
#[test]
fn what_was_carried_out_is_not_again_when_packets_before_it_are_sent_again() {
    let mut pair = pair();
    let log = watch(&pair, drop_first(3, |seen| seen.from_a && seen.opcode == Opcode::RC_WRITE_ONLY));
    let window = window(&mut pair.a, WindowType::Two);
    let bind = bind(&pair.a, window, 0, 8, Access::REMOTE_WRITE);
    let remote = pair.b.remote(0);
    pair.post_simple(1, Operation::Write(remote), 8);
    pair.post_simple(2, Operation::Write(remote), 8);
    pair.post(SendRequest::new(3, Operation::BindWindow(bind), &[]));
    pair.post_simple(4, Operation::Write(remote), 8);
    pair.post_simple(5, Operation::Write(remote), 8);
    pair.run(SECOND);
    let done: Vec<_> = ended(&mut pair.a.completions).iter().map(|done| (done.0, done.1)).collect();
    assert_eq!(done, [1, 2, 3, 4, 5].map(|id| (id, Status::Success)));
    let mut psns: Vec<u32> = log.of(Opcode::RC_WRITE_ONLY).iter().map(|seen| seen.psn).collect();
    psns.dedup();
    psns.sort_unstable();
    psns.dedup();
    assert_eq!(psns.len(), 4, "a request without packets takes no PSN");
}

/// The key is in use until the WRITE is acknowledged: its packets are made from the region again.
#[test]
fn an_invalidation_waits_for_all_before_it() {
    let mut pair = pair();
    watch(&pair, drop_first(5, |seen| seen.from_a && seen.opcode != Opcode::RC_ACKNOWLEDGE));
    let register = fast(&mut pair.a, 0, 4096, Access::LOCAL_WRITE);
    pair.a.fill(0, &[5; 4096]);
    let sge = Sge { address: register.iova, length: 4096, lkey: register.key };
    let remote = pair.b.remote(0);
    post_quiet(&mut pair, 1, Operation::FastRegister(register));
    pair.post(SendRequest::new(2, Operation::Write(remote), &[sge]));
    pair.post(SendRequest::new(3, Operation::LocalInvalidate(register.key), &[]));
    pair.post_simple(4, Operation::Write(pair.b.remote(8192)), 8);
    pair.run(SECOND);
    let done: Vec<_> = ended(&mut pair.a.completions).iter().map(|done| (done.0, done.1)).collect();
    assert_eq!(done, [2, 3, 4].map(|id| (id, Status::Success)), "the first is not signalled");
    assert_eq!(pair.b.bytes(0, 4096), [5; 4096]);
    let pd = pair.a.pd;
    assert!(pair.a.endpoint.memory().resolve(register.key, pd, register.iova, 1, Access::empty()).is_err());
}

#[test]
fn a_fenced_bind_waits_for_the_read_before_it() {
    for (flags, bound_at_once) in [(SendFlags::SIGNALED, true), (SendFlags::SIGNALED | SendFlags::FENCE, false)] {
        let mut pair = pair();
        watch(&pair, |seen| if seen.from_a { Verdict::Forward } else { Verdict::Drop });
        let window = window(&mut pair.a, WindowType::Two);
        let bind = bind(&pair.a, window, 0, 8, Access::REMOTE_WRITE);
        let remote = pair.b.remote(0);
        pair.post_simple(1, Operation::Read(remote), 8);
        pair.post(SendRequest::new(2, Operation::BindWindow(bind), &[]).with_flags(flags));
        pair.run(Duration::from_millis(1));
        let opened =
            pair.a.endpoint.memory().resolve_remote(bind.rkey, holder(&pair.a), bind.address, 8, Access::REMOTE_WRITE);
        assert_eq!(opened.is_ok(), bound_at_once);
        assert_eq!(ended(&mut pair.a.completions), [], "the READ is not answered: both wait");
    }
}

#[test]
fn a_drained_queue_begins_nothing_and_an_error_flushes() {
    let mut pair = pair();
    let (qpn, now) = (pair.a.qpn, pair.now);
    pair.a.endpoint.modify_qp(now, qpn, &to(State::SendQueueDrained)).unwrap();
    let register = fast(&mut pair.a, 0, 64, Access::LOCAL_WRITE);
    pair.post(SendRequest::new(1, Operation::FastRegister(register), &[]));
    pair.run(SECOND);
    assert_eq!(ended(&mut pair.a.completions), []);
    pair.a.endpoint.modify_qp(pair.now, qpn, &to(State::ReadyToSend)).unwrap();
    pair.run(SECOND);
    assert_ended(&mut pair.a.completions, 1, Status::Success, CompletionKind::FastRegister);
    pair.a.endpoint.modify_qp(pair.now, qpn, &to(State::Error)).unwrap();
    pair.post(SendRequest::new(2, Operation::LocalInvalidate(register.key), &[]));
    pair.run(SECOND);
    assert_ended(&mut pair.a.completions, 2, Status::FlushError, CompletionKind::LocalInvalidate);
}

/// A queue of nothing but such requests moves without a packet, and leaves no timer behind.
#[test]
fn a_queue_of_such_requests_alone_needs_no_peer() {
    let mut pair = pair();
    watch(&pair, |_| Verdict::Drop);
    let mut register = fast(&mut pair.a, 0, 64, Access::LOCAL_WRITE);
    for id in 0..50 {
        pair.post(SendRequest::new(2 * id, Operation::FastRegister(register), &[]));
        pair.post(SendRequest::new(2 * id + 1, Operation::LocalInvalidate(register.key), &[]));
        register.key = uroce::memory::next_key(register.key);
    }
    pair.run(SECOND);
    let ids: Vec<_> = ended(&mut pair.a.completions).iter().map(|done| done.0).collect();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    assert_eq!((pair.a.counters().sent_pkts, pair.a.endpoint.next_timeout()), (0, None));
}

/// The last acknowledge completes the requests behind it, and no timer stays to fail the queue pair later.
#[test]
fn no_timer_outlives_what_it_waits_for() {
    let mut pair = pair();
    let register = fast(&mut pair.a, 0, 64, Access::LOCAL_WRITE);
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 8);
    pair.post(SendRequest::new(2, Operation::FastRegister(register), &[]));
    pair.run(Duration::from_secs(60));
    assert_eq!(ended(&mut pair.a.completions).len(), 2);
    assert_eq!((pair.a.state(), pair.a.counters().ack_timeouts), (State::ReadyToSend, 0));
    pair.assert_nothing_spurious();
}
