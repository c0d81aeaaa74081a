//! Shared receive queues.

use std::sync::Arc;

use uroce::event::AsyncEvent;
use uroce::memory::{Access, Buffer, Region};
use uroce::qp::{QpInit, State};
use uroce::queue::{SharedReceiveQueues, SrqInfo, SrqInit};
use uroce::time::Duration;
use uroce::wire::SrqNumber;
use uroce::work::{CompletionKind, Operation, ReceiveRequest, Sge, Status, Tag};

use crate::bench::Shared;
use crate::common::craft::{deliver, drain};
use crate::common::pair::{Options, init, to};

#[test]
fn messages_of_every_queue_pair_take_the_oldest_request() {
    let mut shared = Shared::clean(3, Options::default());
    for id in 0..6 {
        shared.receive(id, id as usize * 100, 100);
    }
    for (round, link) in [2, 0, 1, 1, 2, 0].into_iter().enumerate() {
        let from = shared.links[link].from;
        shared.mesh.hosts[from].fill(0, &[round as u8 + 1; 50]);
        shared.send(link, round as u64, 50);
        shared.run();
    }
    let qpn = |link: usize| shared.links[link].receiver;
    let expected: Vec<_> =
        [2, 0, 1, 1, 2, 0].into_iter().zip(0..).map(|(link, id)| (id, qpn(link), Status::Success)).collect();
    assert_eq!(shared.received(), expected);
    for round in 0..6 {
        assert_eq!(shared.mesh.hosts[0].bytes(round * 100, 50), [round as u8 + 1; 50]);
    }
    assert_eq!(shared.waiting(), 0);
    assert!(shared.mesh.hosts.iter().all(|host| host.events.is_empty()));
}

/// Long messages that come in at the same time: each fills the request that it took, to the end.
#[test]
fn messages_that_interleave_keep_their_requests() {
    const LENGTH: u32 = 50_000;
    let mut shared = Shared::clean(4, Options::default());
    for id in 0..4 {
        shared.receive(id, id as usize * LENGTH as usize, LENGTH);
    }
    for link in 0..4 {
        let from = shared.links[link].from;
        shared.mesh.hosts[from].fill(0, &vec![link as u8 + 1; LENGTH as usize]);
        shared.send(link, 0, LENGTH);
    }
    shared.run();
    let host = &shared.mesh.hosts[0];
    assert_eq!(host.completions.len(), 4);
    for completion in &host.completions {
        let link = shared.links.iter().position(|link| link.receiver == completion.qpn).unwrap();
        let bytes = host.bytes(completion.id as usize * LENGTH as usize, LENGTH as usize);
        assert_eq!((completion.status, completion.byte_length), (Status::Success, LENGTH));
        assert!(bytes.iter().all(|byte| *byte == link as u8 + 1), "the message of link {link} is mixed");
    }
}

#[test]
fn an_empty_queue_is_receiver_not_ready_for_whom_it_meets() {
    let mut shared = Shared::clean(2, Options::default());
    shared.receive(1, 0, 8);
    shared.send(0, 1, 8);
    shared.run();
    shared.send(1, 2, 8);
    shared.mesh.run(Duration::from_millis(5));
    assert_eq!(shared.sent(2), []);
    assert!(shared.mesh.hosts[0].counters().send_rnr_err > 0);
    shared.receive(2, 100, 8);
    shared.run();
    assert_eq!((shared.sent(2), shared.received().len()), (vec![(2, Status::Success)], 2));

    let mut shared = Shared::clean(1, Options { rnr_retry: 2, ..Options::default() });
    shared.send(0, 1, 8);
    shared.run();
    assert_eq!(shared.sent(1), [(1, Status::RnrRetryExceededError)]);
}

#[test]
fn a_write_with_immediate_data_takes_a_request_too() {
    let mut shared = Shared::clean(2, Options::default());
    shared.receive(7, 0, 0);
    let remote = shared.mesh.hosts[0].remote(500);
    shared.mesh.hosts[2].fill(0, b"immediate");
    shared.post(1, 1, Operation::Write(remote), 9);
    shared.run();
    assert_eq!(shared.waiting(), 1, "a plain WRITE takes none");
    shared.post(1, 2, Operation::WriteImmediate(remote, 0xabcd), 9);
    shared.run();
    let [done] = shared.mesh.hosts[0].completions[..] else { panic!("{:?}", shared.received()) };
    assert_eq!((done.id, done.kind, done.byte_length), (7, CompletionKind::ReceiveWriteImmediate, 9));
    assert_eq!((done.tag, done.qpn), (Tag::Immediate(0xabcd), shared.links[1].receiver));
    assert_eq!(shared.mesh.hosts[0].bytes(500, 9), b"immediate");
}

#[test]
fn the_limit_event_comes_once_for_each_arming() {
    let mut shared = Shared::clean(1, Options::default());
    let srq = shared.srq;
    let reached = AsyncEvent::SrqLimitReached(srq);
    let limit = |shared: &Shared| shared.mesh.hosts[0].endpoint.query_srq(srq).unwrap().limit;
    let arm = |shared: &mut Shared, limit| shared.mesh.hosts[0].endpoint.modify_srq(srq, None, Some(limit));
    for id in 0..8 {
        shared.receive(id, 0, 8);
    }
    arm(&mut shared, 6).unwrap();
    for (id, left, events) in [(0, 7, 0), (1, 6, 0), (2, 5, 1), (3, 4, 1)] {
        shared.send(0, id, 8);
        shared.run();
        assert_eq!((shared.waiting(), shared.mesh.hosts[0].events.len()), (left, events), "after message {id}");
    }
    assert_eq!((limit(&shared), &shared.mesh.hosts[0].events[..]), (0, &[reached][..]));
    arm(&mut shared, 4).unwrap();
    assert_eq!(limit(&shared), 4);
    arm(&mut shared, 0).unwrap();
    shared.send(0, 4, 8);
    shared.run();
    assert_eq!(shared.mesh.hosts[0].events.len(), 1, "disarmed");
    arm(&mut shared, 20).unwrap();
    shared.run();
    assert_eq!(shared.mesh.hosts[0].events, [reached; 2], "too late to wait for a message");
    let error = arm(&mut shared, 65).unwrap_err();
    assert_eq!(error.to_string(), "srq_limit: 65; max_wr is 64");
}

#[test]
fn sizes_are_kept_and_can_be_changed() {
    let mut shared = Shared::clean(1, Options::default());
    let (srq, pd) = (shared.srq, shared.mesh.hosts[0].pd);
    for id in 0..64 {
        shared.receive(id, 0, 8);
    }
    let sge = shared.mesh.hosts[0].sge(0, 1);
    let endpoint = &mut shared.mesh.hosts[0].endpoint;
    let full = endpoint.post_srq_receive(srq, ReceiveRequest::new(64, &[])).unwrap_err();
    assert_eq!(full.errno(), 12);
    assert_eq!(endpoint.modify_srq(srq, Some(63), None).unwrap_err().to_string(), "max_wr: 63; 64 requests wait");
    endpoint.modify_srq(srq, Some(66), Some(5)).unwrap();
    assert_eq!(endpoint.query_srq(srq).unwrap(), SrqInfo { max_wr: 66, max_sge: 4, limit: 5 });
    for id in 64..66 {
        endpoint.post_srq_receive(srq, ReceiveRequest::new(id, &[sge; 4])).unwrap();
    }
    let error = endpoint.post_srq_receive(srq, ReceiveRequest::new(66, &[])).unwrap_err();
    assert_eq!(error.to_string(), "the receive queue is full (66)");
    let error = endpoint.modify_srq(srq, Some(4), None).unwrap_err();
    assert_eq!(error.to_string(), "srq_limit: 5; max_wr is 4");

    let mut create = |max_wr, max_sge| endpoint.create_srq(SrqInit { pd, max_wr, max_sge, extended: None });
    for (max_wr, max_sge) in [(0, 1), (SharedReceiveQueues::MAX_WR + 1, 1), (1, SharedReceiveQueues::MAX_SGE + 1)] {
        assert_eq!(create(max_wr, max_sge).unwrap_err().errno(), 22, "{max_wr} requests of {max_sge} elements");
    }
    let largest = create(SharedReceiveQueues::MAX_WR, SharedReceiveQueues::MAX_SGE).unwrap();
    endpoint.post_srq_receive(largest, ReceiveRequest::new(1, &[sge; 27])).unwrap();
    let error = endpoint.post_srq_receive(largest, ReceiveRequest::new(1, &[sge; 28])).unwrap_err();
    assert_eq!(error.to_string(), "sg_list: 28 elements; the queue takes at most 27");
}

#[test]
fn an_error_flushes_what_is_being_filled_and_leaves_the_rest() {
    let mut shared = Shared::clean(2, Options::default());
    for id in 0..4 {
        shared.receive(id, id as usize * 10_000, 10_000);
    }
    shared.send(0, 1, 9000);
    // Only the first of nine packets comes in.
    let (now, at) = (shared.mesh.now, shared.mesh.hosts[1].address);
    let packets = drain(&mut shared.mesh.hosts[1], now);
    deliver(&mut shared.mesh.hosts[0], now, at, &packets[0]);
    assert_eq!((packets.len(), shared.waiting()), (9, 3));
    let [broken, sound] = [0, 1].map(|link| shared.links[link].receiver);
    shared.mesh.hosts[0].endpoint.modify_qp(now, broken, &to(State::Error)).unwrap();
    shared.send(1, 2, 10);
    shared.run();
    assert_eq!(shared.received(), [(0, broken, Status::FlushError), (1, sound, Status::Success)]);
    assert_eq!(shared.waiting(), 2);
    assert_eq!(shared.mesh.hosts[0].events, [AsyncEvent::QpLastWqeReached(broken)]);
}

/// A message that does not fit fails its queue pair and its request, and no other.
#[test]
fn a_message_that_is_too_long_costs_one_request() {
    let mut shared = Shared::clean(2, Options::default());
    for id in 0..3 {
        shared.receive(id, 0, 8);
    }
    shared.send(0, 1, 9);
    shared.run();
    let [broken, sound] = [0, 1].map(|link| shared.links[link].receiver);
    assert_eq!(shared.sent(1), [(1, Status::RemoteInvalidRequestError)]);
    let events = [AsyncEvent::QpRequestError(broken), AsyncEvent::QpLastWqeReached(broken)];
    assert_eq!(shared.mesh.hosts[0].events, events);
    shared.send(1, 2, 8);
    shared.run();
    assert_eq!(shared.received(), [(0, broken, Status::LocalLengthError), (1, sound, Status::Success)]);
    assert_eq!(shared.waiting(), 1);
}

#[test]
fn a_queue_in_use_cannot_be_destroyed() {
    let mut shared = Shared::clean(2, Options::default());
    let srq = shared.srq;
    let [first, second] = [0, 1].map(|link| shared.links[link].receiver);
    let endpoint = &mut shared.mesh.hosts[0].endpoint;
    for qpn in [first, second] {
        let error = endpoint.destroy_srq(srq).unwrap_err();
        assert_eq!(error.errno(), 16, "{error}");
        endpoint.destroy_qp(qpn).unwrap();
    }
    endpoint.destroy_srq(srq).unwrap();
    for error in [
        endpoint.destroy_srq(srq).unwrap_err(),
        endpoint.query_srq(srq).unwrap_err(),
        endpoint.modify_srq(srq, None, Some(1)).unwrap_err(),
        endpoint.post_srq_receive(srq, ReceiveRequest::default()).unwrap_err(),
        endpoint.query_srq(SrqNumber::new(0)).unwrap_err(),
    ] {
        assert_eq!(error.errno(), 2, "{error}");
    }
    let host = &mut shared.mesh.hosts[0];
    let init = QpInit { srq: Some(srq), ..init(host.pd, &host.cq) };
    assert_eq!(host.endpoint.create_qp(init).unwrap_err().errno(), 2);
}

#[test]
fn a_queue_pair_on_a_shared_queue_has_none_of_its_own() {
    let mut shared = Shared::clean(1, Options::default());
    let (now, qpn, srq) = (shared.mesh.now, shared.links[0].receiver, shared.srq);
    let endpoint = &mut shared.mesh.hosts[0].endpoint;
    let info = endpoint.query_qp(qpn).unwrap();
    assert_eq!((info.capacity.max_receive_wr, info.capacity.max_receive_sge, info.srq), (0, 0, Some(srq)));
    for state in [None, Some(State::Error), Some(State::Reset)] {
        if let Some(state) = state {
            endpoint.modify_qp(now, qpn, &to(state)).unwrap();
        }
        let error = endpoint.post_receive(now, qpn, ReceiveRequest::default()).unwrap_err();
        assert_eq!(error.to_string(), "qp: its receives are posted to a shared receive queue");
    }
}

/// The requests of a shared queue name memory of its protection domain, whatever that of the queue pair is.
#[test]
fn requests_name_memory_of_the_queues_own_domain() {
    let mut shared = Shared::clean(1, Options::default());
    let host = &mut shared.mesh.hosts[0];
    let other = host.endpoint.memory_mut().allocate_pd();
    let buffer = Arc::new(Buffer::zeroed(64));
    let region = Region::owned(Arc::clone(&buffer), 0, Access::LOCAL_WRITE, other);
    let lkey = host.endpoint.memory_mut().register(region).unwrap();
    let init_srq = SrqInit { pd: other, max_wr: 4, max_sge: 1, extended: None };
    shared.srq = host.endpoint.create_srq(init_srq).unwrap();
    shared.link(1);
    let endpoint = &mut shared.mesh.hosts[0].endpoint;
    let request = ReceiveRequest::new(1, &[Sge { address: 0, length: 8, lkey }]);
    endpoint.post_srq_receive(shared.srq, request).unwrap();
    shared.mesh.hosts[1].fill(0, b"8 bytes!");
    shared.send(1, 1, 8);
    shared.run();
    assert_eq!(shared.received(), [(1, shared.links[1].receiver, Status::Success)]);
    let mut bytes = [0; 8];
    buffer.span(0, 8).unwrap().copy_out(&mut bytes).unwrap();
    assert_eq!(&bytes, b"8 bytes!");
    // A request over the queue pair's own memory is at fault.
    shared.receive(2, 0, 8);
    shared.send(1, 2, 8);
    shared.run();
    assert_eq!(shared.received()[1].2, Status::LocalProtectionError);
    assert_eq!(shared.sent(1)[1], (2, Status::RemoteOperationError));
}
