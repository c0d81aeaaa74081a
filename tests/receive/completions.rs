//! Completion queues: sizes, overrun, what is told of each completion.

use std::sync::Arc;

use uroce::event::{AsyncEvent, Event};
use uroce::qp::{QpInit, State};
use uroce::queue::{Arm, CompletionQueue};
use uroce::time::{Duration, Instant};
use uroce::work::{Operation, ReceiveRequest, SendFlags, SendRequest, Status};

use crate::bench::{SECOND, statuses};
use crate::common::mesh::Mesh;
use crate::common::pair::{Options, Pair, connect, init};

/// Host 0 of a mesh with queue pairs on these pairs of completion queues, connected to host 1.
fn on_queues(queues: &[(&Arc<CompletionQueue>, &Arc<CompletionQueue>)]) -> (Mesh, Vec<[uroce::wire::Qpn; 2]>) {
    let options = Options::default();
    let mut mesh = Mesh::new(1, uroce::port::SimConfig::default(), 2, options);
    let mut pairs = Vec::new();
    for &(send, receive) in queues {
        let (near, far) = (mesh.hosts[0].address, mesh.hosts[1].address);
        let host = &mut mesh.hosts[0];
        let init = QpInit { send_cq: Arc::clone(send), receive_cq: Arc::clone(receive), ..init(host.pd, &host.cq) };
        let qpn = host.endpoint.create_qp(init).unwrap();
        let peer = mesh.hosts[1].create_qp();
        connect(&mut mesh.hosts[0], qpn, &options, [1, 2], (peer, far));
        connect(&mut mesh.hosts[1], peer, &options, [2, 1], (qpn, near));
        pairs.push([qpn, peer]);
    }
    (mesh, pairs)
}

fn queue(capacity: usize, number: u32) -> Arc<CompletionQueue> {
    Arc::new(CompletionQueue::new(capacity, number).unwrap())
}

fn drain(queue: &CompletionQueue) -> Vec<(u64, Status)> {
    let completions: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
    statuses(&completions)
}

#[test]
fn an_overrun_fails_every_queue_pair_that_reports_there_and_no_other() {
    let (small, large) = (queue(2, 7), queue(64, 8));
    let (mut mesh, pairs) = on_queues(&[(&small, &large), (&large, &small), (&large, &large)]);
    let [sends, receives, apart] = [0, 1, 2].map(|at| pairs[at][0]);
    let remote = mesh.hosts[1].remote(0);
    for id in 0..3 {
        let write = SendRequest::inline(id, Operation::Write(remote), &[1]);
        mesh.hosts[0].endpoint.post_send(mesh.now, sends, write).unwrap();
    }
    for (qpn, id) in [(sends, 10), (receives, 20), (apart, 30)] {
        mesh.hosts[0].endpoint.post_receive(mesh.now, qpn, ReceiveRequest::new(id, &[])).unwrap();
    }
    mesh.run(SECOND);
    let told = &mesh.hosts[0].events;
    assert_eq!(told[..], [AsyncEvent::CqError(7), AsyncEvent::QpFatal(sends), AsyncEvent::QpFatal(receives)]);
    assert_eq!(drain(&small), [(0, Status::Success), (1, Status::Success)], "what was there before");
    assert_eq!(drain(&large), [(10, Status::FlushError)], "what can still be told is");
    let state = |qpn| mesh.hosts[0].endpoint.query_qp(qpn).unwrap().state;
    assert_eq!([sends, receives, apart].map(state), [State::Error, State::Error, State::ReadyToSend]);
    let write = SendRequest::inline(31, Operation::Write(remote), &[1]);
    mesh.hosts[0].endpoint.post_send(mesh.now, apart, write).unwrap();
    mesh.run(SECOND);
    assert_eq!((drain(&large), drain(&small)), (vec![(31, Status::Success)], vec![]));
}

/// What an overrun flushes makes another queue overrun: its queue pairs fail in turn, and the end is told once.
#[test]
fn an_overrun_may_cause_another() {
    let [first, second, third] = [queue(1, 7), queue(1, 8), queue(4, 9)];
    let (mut mesh, pairs) = on_queues(&[(&first, &second), (&second, &third), (&third, &third)]);
    let [a, b, c] = [0, 1, 2].map(|at| pairs[at][0]);
    let remote = mesh.hosts[1].remote(0);
    for id in 0..2 {
        mesh.hosts[0].endpoint.post_receive(mesh.now, a, ReceiveRequest::new(10 + id, &[])).unwrap();
        let write = SendRequest::inline(id, Operation::Write(remote), &[1]);
        mesh.hosts[0].endpoint.post_send(mesh.now, a, write).unwrap();
    }
    mesh.run(SECOND);
    let expected = [AsyncEvent::CqError(7), AsyncEvent::QpFatal(a), AsyncEvent::CqError(8), AsyncEvent::QpFatal(b)];
    assert_eq!(mesh.hosts[0].events, expected);
    assert_eq!(mesh.hosts[0].endpoint.query_qp(c).unwrap().state, State::ReadyToSend);
}

#[test]
fn a_queue_is_resized_while_it_is_used() {
    let cq = queue(4, 7);
    let (mut mesh, pairs) = on_queues(&[(&cq, &cq)]);
    let remote = mesh.hosts[1].remote(0);
    let write = |mesh: &mut Mesh, ids: std::ops::Range<u64>| {
        for id in ids {
            let write = SendRequest::inline(id, Operation::Write(remote), &[1]);
            mesh.hosts[0].endpoint.post_send(mesh.now, pairs[0][0], write).unwrap();
        }
        mesh.run(SECOND);
    };
    write(&mut mesh, 0..4);
    assert!(cq.resize(3).is_err());
    cq.resize(10).unwrap();
    write(&mut mesh, 4..10);
    assert_eq!(drain(&cq), (0..10).map(|id| (id, Status::Success)).collect::<Vec<_>>());
    cq.resize(1).unwrap();
    write(&mut mesh, 10..12);
    assert_eq!(mesh.hosts[0].events[0], AsyncEvent::CqError(7));
    assert_eq!(drain(&cq), [(10, Status::Success)]);
}

#[test]
fn completions_tell_when_they_happened() {
    let mut pair = Pair::clean(Options::default());
    let begun = pair.now;
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 8);
    pair.run(SECOND);
    pair.now = Instant::from_nanos(5_000_000_000);
    let posted = pair.now;
    pair.receive(2, 0, 8);
    pair.post_simple(2, Operation::Send, 8);
    pair.run(SECOND);
    let [write, send] = [0, 1].map(|at| pair.a.completions[at].timestamp);
    assert_eq!([write.since(begun), send.since(posted)], [Duration::from_micros(10); 2], "there and back");
    assert_eq!(pair.b.completions[0].timestamp.since(posted), Duration::from_micros(5), "there");
}

#[test]
fn a_solicited_event_waits_for_the_sender_or_an_error() {
    let mut pair = Pair::clean(Options::default());
    let wakes = |pair: &mut Pair, flags, length| {
        pair.receive(1, 0, 8);
        let request = SendRequest::new(1, Operation::Send, &[pair.a.sge(0, length)]);
        pair.post(request.with_flags(flags));
        let (now, a, b) = (pair.now, pair.a.address, pair.b.address);
        for datagram in crate::common::craft::drain(&mut pair.a, now) {
            crate::common::craft::deliver(&mut pair.b, now, a, &datagram);
        }
        let events: Vec<_> = std::iter::from_fn(|| pair.b.endpoint.poll_event()).collect();
        for datagram in crate::common::craft::drain(&mut pair.b, now) {
            crate::common::craft::deliver(&mut pair.a, now, b, &datagram);
        }
        events.contains(&Event::Completion(1))
    };
    pair.b.cq.arm(Arm::Solicited);
    assert!(!wakes(&mut pair, SendFlags::SIGNALED, 8));
    assert!(wakes(&mut pair, SendFlags::SIGNALED | SendFlags::SOLICITED, 8));
    assert!(!wakes(&mut pair, SendFlags::SIGNALED | SendFlags::SOLICITED, 8), "once for each arming");
    pair.b.cq.arm(Arm::Solicited);
    assert!(wakes(&mut pair, SendFlags::SIGNALED, 9), "too long for its request");
}
