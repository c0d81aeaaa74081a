//! What a queue pair and its queues take, and the words in which they refuse more.

use std::sync::Arc;

use uroce::event::{AsyncEvent, Event};
use uroce::qp::{Capacity, QpInit, State};
use uroce::queue::{Arm, CompletionQueue};
use uroce::time::{Duration, Instant};
use uroce::work::{Operation, ReceiveRequest, SendRequest, Sge, Status};

use crate::common::craft::{deliver, drain};
use crate::common::pair::{Options, Pair, connect, init};

const SECOND: Duration = Duration::from_secs(1);

/// A pair whose side A has another queue pair of the given sizes.
fn with_capacity(capacity: Capacity, completions: usize) -> Pair {
    let options = Options::default();
    let mut pair = Pair::clean(options);
    pair.a.cq = Arc::new(CompletionQueue::new(completions, 1).unwrap());
    let qp = QpInit { capacity, ..init(pair.a.pd, &pair.a.cq) };
    pair.a.qpn = pair.a.endpoint.create_qp(qp).unwrap();
    let other = pair.b.create_qp();
    let (peer_of_a, peer_of_b) = ((other, pair.b.address), (pair.a.qpn, pair.a.address));
    connect(&mut pair.a, peer_of_b.0, &options, [1, 2], peer_of_a);
    connect(&mut pair.b, other, &options, [2, 1], peer_of_b);
    pair
}

fn refusal(pair: &mut Pair, request: SendRequest) -> (String, i32) {
    let error = pair.a.endpoint.post_send(Instant::ZERO, pair.a.qpn, request).unwrap_err();
    (error.to_string(), error.errno())
}

#[test]
fn a_queue_pair_within_the_limits_can_be_made() {
    let pair = Pair::clean(Options::default());
    let mut endpoint = pair.a.endpoint;
    endpoint.create_qp(QpInit { capacity: Capacity::MAX, ..init(pair.a.pd, &pair.a.cq) }).unwrap();
    let most = Capacity::MAX;
    for (capacity, reason) in [
        (Capacity { max_send_wr: (1 << 20) + 1, ..most }, "max_send_wr: 1048577; at most 1048576 is possible"),
        (Capacity { max_receive_wr: u32::MAX, ..most }, "max_recv_wr: 4294967295; at most 1048576 is possible"),
        (Capacity { max_send_sge: 33, ..most }, "max_send_sge: 33; at most 32 is possible"),
        (Capacity { max_receive_sge: 33, ..most }, "max_recv_sge: 33; at most 32 is possible"),
        (Capacity { max_inline: 513, ..most }, "max_inline_data: 513; at most 512 is possible"),
    ] {
        let error = endpoint.create_qp(QpInit { capacity, ..init(pair.a.pd, &pair.a.cq) }).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.errno()), (reason, 22));
    }
}

#[test]
fn each_queue_takes_what_was_asked_for_and_no_more() {
    const ENOMEM: i32 = 12;
    let capacity = Capacity { max_send_wr: 3, max_receive_wr: 2, ..Capacity::default() };
    let mut pair = with_capacity(capacity, 16);
    let write = SendRequest::inline(1, Operation::Write(pair.b.remote(0)), &[1; 8]);
    for _ in 0..3 {
        pair.post(write.clone());
    }
    assert_eq!(refusal(&mut pair, write.clone()), ("the send queue is full (3)".to_owned(), ENOMEM));
    for id in 0..3 {
        let posted = pair.a.endpoint.post_receive(pair.now, pair.a.qpn, ReceiveRequest::new(id, &[]));
        match posted {
            Ok(()) => assert!(id < 2),
            Err(error) => {
                assert_eq!((id, error.errno()), (2, ENOMEM));
                assert_eq!(error.to_string(), "the receive queue is full (2)");
            }
        }
    }
    pair.run(SECOND);
    assert_eq!(pair.a.completions.len(), 3);
    pair.post(write);
    pair.run(SECOND);
    assert_eq!(pair.a.completions.len(), 4, "a completed request makes room");
}

#[test]
fn what_a_request_may_not_be_is_named() {
    const EINVAL: i32 = 22;
    let capacity = Capacity { max_send_sge: 2, max_receive_sge: 1, max_inline: 16, ..Capacity::default() };
    let mut pair = with_capacity(capacity, 16);
    let remote = pair.b.remote(0);
    let sge = pair.a.sge(0, 8);
    let huge = Sge { length: 1 << 31, ..sge };
    let (read, add) = (Operation::Read(remote), Operation::FetchAndAdd { remote, add: 1 });
    let cases = [
        (SendRequest::new(1, Operation::Send, &[sge; 3]), "sg_list: 3 elements; max_send_sge is 2"),
        (SendRequest::inline(1, Operation::Send, &[0; 17]), "inline data: 17 bytes; max_inline_data is 16"),
        (SendRequest::inline(1, read, &[0; 8]), "send_flags: a READ or ATOMIC has no payload to send inline"),
        (
            SendRequest::new(1, Operation::Write(remote), &[huge, sge]),
            "sg_list: 2147483656 bytes in all; a message has at most 2147483648",
        ),
        (SendRequest::new(1, add, &[sge; 2]), "sg_list: 16 bytes; an atomic moves exactly 8"),
        (SendRequest::new(1, add, &[]), "sg_list: 0 bytes; an atomic moves exactly 8"),
    ];
    for (request, reason) in cases {
        assert_eq!(refusal(&mut pair, request), (reason.to_owned(), EINVAL));
    }
    let receive = ReceiveRequest::new(1, &[sge; 2]);
    let error = pair.a.endpoint.post_receive(pair.now, pair.a.qpn, receive).unwrap_err();
    assert_eq!(error.to_string(), "sg_list: 2 elements; the queue takes at most 1");
    pair.run(SECOND);
    assert_eq!(pair.a.completions.len(), 0, "what was refused is not there");
    pair.post(SendRequest::new(7, Operation::Send, &[huge]));
    pair.run(SECOND);
    assert_eq!(pair.a.completions[0].status, Status::LocalProtectionError, "2^31 is allowed, and not registered");
}

/// A program that never sends inline asks for no `max_inline_data`, and `ibv_wr_atomic_write` takes the bytes all the same: they were
/// refused, as inline data.
#[test]
fn the_bytes_of_an_atomic_write_are_not_inline_data() {
    let mut pair = with_capacity(Capacity { max_inline: 0, ..Capacity::default() }, 16);
    let remote = pair.b.remote(16);
    let (reason, _) = refusal(&mut pair, SendRequest::inline(1, Operation::Write(remote), &[1; 8]));
    assert_eq!(reason, "inline data: 8 bytes; max_inline_data is 0");
    let (reason, _) = refusal(&mut pair, SendRequest::inline(1, Operation::AtomicWrite(remote), &[1; 9]));
    assert_eq!(reason, "sg_list: 9 bytes; an atomic moves exactly 8");
    pair.post(SendRequest::inline(2, Operation::AtomicWrite(remote), b"8 bytes!"));
    pair.run(SECOND);
    assert_eq!((pair.a.completions[0].id, pair.a.completions[0].status), (2, Status::Success));
    assert_eq!(pair.b.bytes(16, 8), b"8 bytes!");
}

#[test]
fn reads_need_a_depth() {
    let mut pair = Pair::clean(Options { rd_atomic: 0, ..Options::default() });
    let request = SendRequest::new(1, Operation::Read(pair.b.remote(0)), &[pair.a.sge(0, 8)]);
    let (reason, _) = refusal(&mut pair, request);
    assert_eq!(reason, "opcode: READ, ATOMIC and FLUSH need a max_rd_atomic of at least 1");
}

#[test]
fn a_completion_queue_that_overflows_says_so_once() {
    let mut pair = with_capacity(Capacity::default(), 2);
    for id in 0..6 {
        pair.post(SendRequest::inline(id, Operation::Write(pair.b.remote(0)), &[1]));
    }
    // The acknowledge completes all six at once.
    pair.run(SECOND);
    assert_eq!(pair.a.completions.iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1]);
    let Some((AsyncEvent::CqError(1), failed)) = pair.a.events.split_first() else { panic!("{:?}", pair.a.events) };
    assert!(failed.contains(&AsyncEvent::QpFatal(pair.a.qpn)), "{failed:?}");
    assert_eq!(pair.a.state(), State::Error);
    assert!(pair.a.cq.overflowed());
    let told = pair.a.events.len();
    pair.post(SendRequest::inline(9, Operation::Write(pair.b.remote(0)), &[1]));
    pair.run(SECOND);
    assert_eq!(pair.a.events.len(), told);
}

#[test]
fn an_armed_completion_queue_raises_one_event() {
    let mut pair = Pair::clean(Options::default());
    pair.a.cq.arm(Arm::Any);
    for id in 0..3 {
        pair.post_simple(id, Operation::Write(pair.b.remote(0)), 8);
    }
    let (now, at_a, at_b) = (pair.now, pair.a.address, pair.b.address);
    for datagram in drain(&mut pair.a, now) {
        deliver(&mut pair.b, now, at_a, &datagram);
    }
    for datagram in drain(&mut pair.b, now) {
        deliver(&mut pair.a, now, at_b, &datagram);
    }
    let events: Vec<_> = std::iter::from_fn(|| pair.a.endpoint.poll_event()).collect();
    assert_eq!(events, [Event::Completion(1)]);
    assert_eq!(pair.a.cq.len(), 3);
}
