//! Shared receive queues, XRC, and completion queues through the public API.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use uroce::verbs::{
    AsyncEvent, Attributes, Peer, QpType, ReceiveRequest, SendFlags, SharedReceiveQueue, SrqConfig, SrqInfo, State, Tag,
};

use super::*;

/// A side whose `count` queue pairs share a receive queue.
fn shared(count: usize) -> (Side, SharedReceiveQueue, Vec<QueuePair>) {
    let side = Side::new();
    let srq = side.pd.create_srq(&SrqConfig { max_wr: 64, max_sge: 2 }).unwrap();
    let config = QpConfig { srq: Some(srq.clone()), ..QpConfig::new(&side.cq, &side.cq) };
    let qps = (0..count).map(|_| side.pd.create_qp(&config).unwrap()).collect();
    (side, srq, qps)
}

fn join(a: &QueuePair, b: &QueuePair) {
    let (to_a, to_b): (Peer, Peer) = (a.local(random_psn()), b.local(random_psn()));
    a.connect(to_a.psn, &to_b, &ConnectOptions::default()).unwrap();
    b.connect(to_b.psn, &to_a, &ConnectOptions::default()).unwrap();
}

/// The next asynchronous event that is `wanted`.
fn await_event(context: &Context, wanted: AsyncEvent) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let events = context.events();
    while events.wait(Some(Duration::from_secs(10))).unwrap() != Some(wanted) {
        assert!(std::time::Instant::now() < deadline, "{wanted:?} does not come");
    }
}

#[test]
fn queue_pairs_of_two_peers_share_receives() {
    let (b, srq, qps) = shared(2);
    let senders = [Side::new(), Side::new()];
    for (sender, qp) in senders.iter().zip(&qps) {
        join(&sender.qp, qp);
    }
    srq.post_receive((0..20).map(|id| ReceiveRequest::new(id, &[b.region.sge(id as usize * 100, 100)]))).unwrap();
    srq.arm_limit(5).unwrap();
    for round in 0..10_u8 {
        for (sender, qp) in senders.iter().zip(&qps) {
            sender.region.write(0, &[round; 50]).unwrap();
            sender.post(Operation::Send, 50);
            let received = b.poll();
            assert_success(received, CompletionKind::Receive);
            assert_eq!((received.qpn, received.byte_length), (qp.qpn(), 50));
            assert_eq!(b.bytes(received.id as usize * 100, 50), [round; 50]);
            assert_success(sender.poll(), CompletionKind::Send);
        }
    }
    await_event(&b.context, AsyncEvent::SrqLimitReached(srq.number()));
    assert_eq!(srq.waiting().unwrap(), 0);
    assert_eq!(srq.query().unwrap(), SrqInfo { max_wr: 64, max_sge: 2, limit: 0 });
    assert_eq!(qps[0].srq().map(SharedReceiveQueue::number), Some(srq.number()));
    qps[1].modify(&uroce::verbs::Attributes { state: Some(State::Error), ..Default::default() }).unwrap();
    await_event(&b.context, AsyncEvent::QpLastWqeReached(qps[1].qpn()));
}

#[test]
fn a_shared_queue_lives_as_long_as_its_queue_pairs() {
    let (b, srq, mut qps) = shared(1);
    let sender = Side::new();
    join(&sender.qp, &qps[0]);
    srq.post_receive([ReceiveRequest::new(3, &[b.region.sge(0, 8)])]).unwrap();
    let number = srq.number();
    drop(srq);
    sender.post(Operation::Send, 8);
    assert_eq!(b.poll().id, 3);
    assert_eq!(qps.pop().unwrap().srq().unwrap().number(), number);
}

#[test]
fn what_a_shared_queue_cannot_be_is_refused() {
    let (b, srq, qps) = shared(1);
    let other = Side::new();
    let config = QpConfig { srq: Some(srq.clone()), ..QpConfig::new(&other.cq, &other.cq) };
    assert_eq!(other.pd.create_qp(&config).unwrap_err().errno(), 22, "of another context");
    let limits = b.context.device_attributes();
    for config in [
        SrqConfig { max_wr: limits.max_srq_wr + 1, max_sge: 1 },
        SrqConfig { max_wr: 1, max_sge: limits.max_srq_sge + 1 },
        SrqConfig { max_wr: 0, max_sge: 1 },
    ] {
        assert_eq!(b.pd.create_srq(&config).unwrap_err().errno(), 22, "{config:?}");
    }
    let error = qps[0].post_receive([ReceiveRequest::default()]).unwrap_err();
    assert_eq!((error.posted, error.error.errno()), (0, 22));
    let too_long = ReceiveRequest::new(2, &[b.region.sge(0, 1); 3]);
    let error = srq.post_receive([ReceiveRequest::default(), too_long]).unwrap_err();
    assert_eq!((error.posted, error.error.errno()), (1, 22));
    srq.post_receive((0..62).map(|id| ReceiveRequest::new(id, &[]))).unwrap();
    assert_eq!(srq.resize(62).unwrap_err().errno(), 22);
    srq.resize(63).unwrap();
    assert_eq!(srq.post_receive([ReceiveRequest::default()]).unwrap_err().error.errno(), 12);
    assert_eq!(srq.arm_limit(64).unwrap_err().errno(), 22);
}

#[test]
fn one_extended_connection_serves_two_queues() {
    let (a, b) = (Side::new(), Side::new());
    let domain = b.context.open_xrc_domain().unwrap();
    let cqs = [0, 1].map(|_| b.context.create_cq(16, None).unwrap());
    let config = SrqConfig { max_wr: 8, max_sge: 1 };
    let [first, second] = [0, 1].map(|at| b.pd.create_xrc_srq(&config, &domain, &cqs[at]).unwrap());
    let target = domain.create_target().unwrap();
    let config = QpConfig { qp_type: QpType::XrcInitiator, ..QpConfig::new(&a.cq, &a.cq) };
    let initiator = a.pd.create_qp(&config).unwrap();
    join(&initiator, &target);
    assert_eq!(
        (initiator.query().unwrap().state, target.query().unwrap().state),
        (State::ReadyToSend, State::ReadyToSend)
    );
    first.post_receive([ReceiveRequest::new(1, &[b.region.sge(0, 100)])]).unwrap();
    second.post_receive([ReceiveRequest::new(2, &[b.region.sge(100, 100)])]).unwrap();
    a.region.write(0, b"for the second").unwrap();
    a.region.write(50, b"for the first").unwrap();
    let send = |operation, offset, length, srq: &SharedReceiveQueue| {
        let request = SendRequest::new(7, operation, &[a.region.sge(offset, length)]).to_srq(srq.number());
        initiator.post_send([request]).unwrap();
        assert_eq!(a.poll().status, Status::Success);
    };
    send(Operation::SendImmediate(9), 0, 14, &second);
    send(Operation::Send, 50, 13, &first);
    let [of_first, of_second] = cqs.each_ref().map(|cq| cq.poll_one().unwrap());
    assert_eq!((of_first.id, of_first.byte_length, of_first.tag), (1, 13, Tag::None));
    assert_eq!((of_second.id, of_second.byte_length, of_second.tag), (2, 14, Tag::Immediate(9)));
    assert_eq!(of_first.qpn, target.qpn());
    assert_eq!([b.bytes(0, 13), b.bytes(100, 14)].concat(), b"for the firstfor the second");
    b.region.write(500, b"read me").unwrap();
    send(Operation::Read(b.region.remote(500)), 200, 7, &first);
    assert_eq!(a.bytes(200, 7), b"read me");
    assert_eq!(first.cq().map(CompletionQueue::number), Some(cqs[0].number()));
    let error = b.pd.create_xrc_srq(&SrqConfig::default(), &domain, &a.cq).unwrap_err();
    assert_eq!(error.errno(), 22);
    assert_eq!(a.pd.create_xrc_srq(&SrqConfig::default(), &domain, &a.cq).unwrap_err().errno(), 22);
    let config = QpConfig { srq: Some(first), ..QpConfig::new(&b.cq, &b.cq) };
    assert_eq!(b.pd.create_qp(&config).unwrap_err().errno(), 22, "only targets take from it");
}

#[test]
fn a_queue_is_resized_under_a_program_that_polls() {
    const COUNT: u64 = 3000;
    const OUTSTANDING: u64 = 50;
    let (a, b) = Side::pair();
    let target = b.region.remote(0);
    let polled = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..COUNT {
                let completion = a.poll();
                // Counted first: the other thread must not wait for what a failed check does not count.
                polled.fetch_add(1, Ordering::SeqCst);
                assert_eq!((completion.id, completion.status), (id, Status::Success));
            }
        });
        for id in 0..COUNT {
            while id - polled.load(Ordering::SeqCst) >= OUTSTANDING {
                std::thread::yield_now();
            }
            a.qp.post_send([SendRequest::inline(id, Operation::Write(target), &[1])]).unwrap();
            if id.is_multiple_of(10) {
                // Never below what may be outstanding.
                a.cq.resize((OUTSTANDING + id % 70) as usize).unwrap();
            }
        }
    });
    assert_eq!(a.cq.capacity() as u64, OUTSTANDING + 2990 % 70);
    assert!(!a.cq.overflowed());
    assert_eq!(a.cq.resize(0).unwrap_err().errno(), 22);
}

/// Scenario 20: the boundaries of taking completions one by one.
#[test]
fn batches_begin_and_end_where_completions_do() {
    let (a, b) = Side::pair();
    assert!(a.cq.start_poll().is_none(), "nothing there");
    let post = |ids: std::ops::Range<u64>| {
        let write = |id| SendRequest::inline(id, Operation::Write(b.region.remote(0)), &[1]);
        a.qp.post_send(ids.map(write)).unwrap();
    };
    post(0..3);
    let mut taken = Vec::new();
    while taken.len() < 3 {
        let Some(mut batch) = a.cq.start_poll() else { continue };
        taken.push(batch.id);
        while batch.advance() {
            taken.push(batch.id);
        }
        let last = batch.id;
        assert!(!batch.advance());
        assert_eq!(batch.id, last, "the one at hand stays");
    }
    assert_eq!(taken, [0, 1, 2]);
    assert!(a.cq.start_poll().is_none(), "all taken");

    post(3..6);
    let first = loop {
        if let Some(batch) = a.cq.start_poll() {
            break (batch.id, batch.status, batch.kind);
        }
    };
    assert_eq!(first, (3, Status::Success, CompletionKind::Write));
    assert_eq!([a.poll().id, a.poll().id], [4, 5], "a batch that ends early leaves the rest");
}

#[test]
fn a_batch_tells_when_each_request_ended() {
    let (a, b) = Side::pair();
    let (before, day) = (a.context.now(), SystemTime::now());
    let mut stamps = Vec::new();
    for _ in 0..3 {
        a.post(Operation::Write(b.region.remote(0)), 8);
        let batch = loop {
            if let Some(batch) = a.cq.start_poll() {
                break batch;
            }
        };
        stamps.push(batch.timestamp_ns());
        let late = SystemTime::now().duration_since(batch.time_of_day()).unwrap();
        assert!(batch.time_of_day() + Duration::from_millis(100) > day && late < Duration::from_secs(5), "{late:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(stamps[0] >= before.as_nanos() && stamps[2] <= a.context.now().as_nanos());
    assert!(stamps.windows(2).all(|pair| pair[1] - pair[0] >= 2_000_000), "{stamps:?}");
}

#[test]
fn completion_vectors_and_moderation_are_what_the_device_says() {
    let side = Side::new();
    let vectors = side.context.device_attributes().completion_vectors;
    assert!(vectors >= 1);
    for vector in 0..vectors {
        side.context.create_cq_on_vector(4, Some(&side.channel), vector).unwrap();
    }
    let error = side.context.create_cq_on_vector(4, None, vectors).unwrap_err();
    assert_eq!(error.errno(), 22, "{error}");
    side.cq.moderate(1, Duration::ZERO).unwrap();
    assert_eq!(side.cq.moderate(16, Duration::ZERO).unwrap_err().errno(), 95);
    assert_eq!(side.cq.moderate(1, Duration::from_micros(1)).unwrap_err().errno(), 95);
}

#[test]
fn an_overrun_is_told_to_the_program() {
    let (a, b) = (Side::new(), Side::new());
    let small = a.context.create_cq(1, None).unwrap();
    let qp = a.pd.create_qp(&QpConfig::new(&small, &small)).unwrap();
    join(&qp, &b.qp);
    let target = b.region.remote(0);
    qp.post_send((0..3).map(|id| SendRequest::inline(id, Operation::Write(target), &[1]))).unwrap();
    await_event(&a.context, AsyncEvent::CqError(small.number()));
    await_event(&a.context, AsyncEvent::QpFatal(qp.qpn()));
    assert!(small.overflowed());
    assert_eq!(qp.query().unwrap().state, State::Error);
    assert_eq!((small.poll_one().map(|c| c.id), small.poll_one()), (Some(0), None));
}

/// Only what the sender marks wakes a program that asked for solicited events, and what fails does.
#[test]
fn a_program_sleeps_until_it_is_solicited() {
    let (a, b) = Side::pair();
    b.qp.post_receive((0..4).map(|id| ReceiveRequest::new(id, &[b.region.sge(0, 8)]))).unwrap();
    let send = |flags| {
        let request = SendRequest::new(1, Operation::Send, &[a.region.sge(0, 8)]);
        a.qp.post_send([request.with_flags(flags)]).unwrap();
        assert_success(a.poll(), CompletionKind::Send);
    };
    b.cq.arm(Arm::Solicited);
    send(SendFlags::SIGNALED);
    assert!(b.channel.wait(Some(Duration::from_millis(20))).unwrap().is_none());
    send(SendFlags::SIGNALED | SendFlags::SOLICITED);
    assert!(b.channel.wait(Some(Duration::from_secs(10))).unwrap().is_some());
    assert_eq!([b.poll().solicited, b.poll().solicited], [false, true]);
    b.cq.arm(Arm::Solicited);
    a.post(Operation::Send, 9);
    assert!(b.channel.wait(Some(Duration::from_secs(10))).unwrap().is_some(), "an error wakes it, too");
    assert_eq!(b.poll().status, Status::LocalLengthError);
}

#[test]
fn queue_pairs_are_destroyed_with_traffic_in_flight() {
    for _ in 0..20 {
        let (a, b) = Side::pair();
        let (Side { qp, cq, region, .. }, target) = (a, b.region.remote(0));
        let writes = (0..50).map(|id| SendRequest::new(id, Operation::Write(target), &[region.sge(0, 60_000)]));
        qp.post_send(writes).unwrap();
        let _ = cq.poll_one();
        drop(qp);
        drop(region);
        drop(b);
        while cq.poll_one().is_some() {}
    }
}

/// What network cards do, and rdma-core's tests count on: a queue pair that starts anew, or is no more, leaves no completions
/// behind whose ids name what belonged to its old life. Those of others stay, in their order.
#[test]
fn a_queue_pair_that_is_reset_or_destroyed_takes_its_completions_along() {
    let side = Side::new();
    let other = side.pd.create_qp(&QpConfig::new(&side.cq, &side.cq)).unwrap();
    let flush = |qp: &QueuePair, ids: std::ops::Range<u64>| {
        qp.modify(&Attributes { state: Some(State::Error), ..Attributes::default() }).unwrap();
        qp.post_receive(ids.map(|id| ReceiveRequest::new(id, &[]))).unwrap();
    };
    let to_init = Attributes {
        state: Some(State::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::empty()),
        ..Attributes::default()
    };
    for destroys in [false, true] {
        side.qp.modify(&to_init).unwrap();
        flush(&side.qp, 0..2);
        other.modify(&to_init).unwrap();
        flush(&other, 10..12);
        flush(&side.qp, 2..4);
        flush(&other, 12..14);
        let reset = Attributes { state: Some(State::Reset), ..Attributes::default() };
        if destroys {
            let Side { cq, qp, .. } = side;
            drop(qp);
            let ids: Vec<_> = std::iter::from_fn(|| cq.poll_one()).map(|completion| completion.id).collect();
            assert_eq!(ids, [10, 11, 12, 13]);
            break;
        }
        side.qp.modify(&reset).unwrap();
        assert_eq!(side.cq.poll_one().map(|completion| completion.id), Some(10));
        // The new life's completions come after those of the others.
        side.qp.modify(&to_init).unwrap();
        flush(&side.qp, 4..6);
        let ids: Vec<_> = std::iter::from_fn(|| side.cq.poll_one()).map(|completion| completion.id).collect();
        assert_eq!(ids, [11, 12, 13, 4, 5]);
        side.qp.modify(&reset).unwrap();
        other.modify(&reset).unwrap();
    }
}
