//! Answers that break the rules, made by hand: what a peer that errs or lies can make of our requests.

use uroce::qp::State;
use uroce::time::Duration;
use uroce::wire::{NakCode, Opcode, Packet, Syndrome};
use uroce::work::{Operation, Remote, SendRequest, Status};

use crate::common::craft::{Craft, Victim};
use crate::common::pair::{Options, Pair};

const MTU: usize = 1024;
/// The first PSN of the requester under test: the next is the wrap.
const PSN: u32 = 0xff_ffff;
const ACK: Syndrome = Syndrome::Ack { credits: Syndrome::NO_CREDITS };
const REMOTE: Remote = Remote { address: 0x4000, rkey: 0x77 };

/// Side B is the requester; the test answers in place of side A.
fn requester(options: Options) -> Victim {
    Victim::new(Pair::clean(Options { psns: [0, PSN], ..options }), 0)
}

fn post(victim: &mut Victim, id: u64, operation: Operation, length: u32) {
    let request = SendRequest::new(id, operation, &[victim.pair.b.sge(0, length)]);
    victim.pair.b.endpoint.post_send(victim.pair.now, victim.pair.b.qpn, request).unwrap();
}

/// An answer to packet `n` from the first.
fn answer(victim: &Victim, opcode: Opcode, n: u32, syndrome: Syndrome) -> Craft {
    Craft::new(opcode, victim.pair.b.qpn, PSN + n).syndrome(syndrome)
}

/// Opcode, PSN from the first, address and length of a request.
type Request = (Opcode, u32, Option<(u64, u32)>);

/// Every request that waits to be sent.
fn requests(victim: &mut Victim) -> Vec<Request> {
    victim
        .drain()
        .iter()
        .map(|datagram| {
            let packet = Packet::parse(datagram).unwrap();
            let reth = packet.extensions.reth.map(|reth| (reth.address, reth.length));
            (packet.bth.opcode, (packet.bth.psn.value() + 1) & 0xff_ffff, reth)
        })
        .collect()
}

fn ended(victim: &mut Victim) -> Vec<(u64, Status)> {
    victim.pair.b.progress(victim.pair.now);
    victim.pair.b.completions.drain(..).map(|c| (c.id, c.status)).collect()
}

#[test]
fn every_nak_ends_each_operation_with_its_status() {
    let cases = [
        (Syndrome::Nak(NakCode::InvalidRequest), Status::RemoteInvalidRequestError),
        (Syndrome::Nak(NakCode::RemoteAccess), Status::RemoteAccessError),
        (Syndrome::Nak(NakCode::RemoteOperational), Status::RemoteOperationError),
        (Syndrome::Nak(NakCode::InvalidRdRequest), Status::RemoteInvalidRequestError),
        (Syndrome::Reserved(0x7f), Status::BadResponseError),
        (Syndrome::Reserved(0x45), Status::BadResponseError),
    ];
    let operations = [
        Operation::Send,
        Operation::Write(REMOTE),
        Operation::Read(REMOTE),
        Operation::FetchAndAdd { remote: REMOTE, add: 1 },
    ];
    for (syndrome, status) in cases {
        for operation in operations {
            let mut victim = requester(Options::default());
            post(&mut victim, 1, Operation::Write(REMOTE), 8);
            post(&mut victim, 2, operation, 8);
            post(&mut victim, 3, Operation::Send, 8);
            assert_eq!(requests(&mut victim).len(), 3);
            let nak = answer(&victim, Opcode::RC_ACKNOWLEDGE, 1, syndrome);
            victim.push(&nak);
            let vendor = victim.pair.b.cq.pop().zip(victim.pair.b.cq.pop()).map(|(first, second)| {
                assert_eq!((first.id, first.status), (1, Status::Success), "a NAK acknowledges what is before it");
                assert_eq!((second.id, second.status), (2, status), "{operation:?} {syndrome:?}");
                second.vendor_error
            });
            assert_eq!(vendor, Some(u32::from(syndrome.value())));
            assert_eq!(ended(&mut victim), [(3, Status::FlushError)]);
            assert_eq!(victim.pair.b.state(), State::Error);
        }
    }
}

#[test]
fn answers_to_what_was_never_sent_are_ignored() {
    let mut victim = requester(Options::default());
    let fatal = Syndrome::Nak(NakCode::RemoteAccess);
    let nothing_sent = answer(&victim, Opcode::RC_ACKNOWLEDGE, 0, fatal);
    victim.push(&nothing_sent);
    post(&mut victim, 1, Operation::Write(REMOTE), 8);
    assert_eq!(requests(&mut victim).len(), 1);
    for (opcode, n) in [
        (Opcode::RC_ACKNOWLEDGE, 1),
        (Opcode::RC_ACKNOWLEDGE, 0x40_0000),
        (Opcode::RC_ACKNOWLEDGE, 0xff_ffff),
        (Opcode::RC_READ_RESPONSE_ONLY, 1),
        (Opcode::RC_ATOMIC_ACKNOWLEDGE, 7),
    ] {
        let packet = answer(&victim, opcode, n, fatal);
        victim.push(&packet);
    }
    assert_eq!((ended(&mut victim), victim.pair.b.state()), (vec![], State::ReadyToSend));
    assert_eq!(victim.pair.b.counters().stale_responses, 6);
    let ack = answer(&victim, Opcode::RC_ACKNOWLEDGE, 0, ACK);
    victim.push(&ack);
    victim.push(&ack);
    assert_eq!(ended(&mut victim), [(1, Status::Success)], "once");
}

#[test]
fn an_answer_of_the_wrong_kind_is_a_bad_response() {
    let read = Operation::Read(REMOTE);
    let atomic = Operation::FetchAndAdd { remote: REMOTE, add: 1 };
    for (story, operation, opcode) in [
        ("data for a WRITE", Operation::Write(REMOTE), Opcode::RC_READ_RESPONSE_ONLY),
        ("data for a SEND", Operation::Send, Opcode::RC_READ_RESPONSE_MIDDLE),
        ("a number for a WRITE", Operation::Write(REMOTE), Opcode::RC_ATOMIC_ACKNOWLEDGE),
        ("a number for a READ", read, Opcode::RC_ATOMIC_ACKNOWLEDGE),
        ("data for an ATOMIC", atomic, Opcode::RC_READ_RESPONSE_ONLY),
    ] {
        let mut victim = requester(Options::default());
        victim.pair.b.fill(0, &[9; 8]);
        post(&mut victim, 1, operation, 8);
        assert_eq!(requests(&mut victim).len(), 1);
        let data: &[u8] = if opcode == Opcode::RC_ATOMIC_ACKNOWLEDGE { &[] } else { &[7; 8] };
        let packet = answer(&victim, opcode, 0, ACK).payload(data);
        victim.push(&packet);
        assert_eq!(ended(&mut victim), [(1, Status::BadResponseError)], "{story}");
        assert_eq!(victim.pair.b.bytes(0, 8), [9; 8], "{story}");
    }
}

#[test]
fn an_answer_that_carries_data_and_a_nak_is_a_bad_response() {
    for (operation, opcode) in [
        (Operation::Read(REMOTE), Opcode::RC_READ_RESPONSE_ONLY),
        (Operation::FetchAndAdd { remote: REMOTE, add: 1 }, Opcode::RC_ATOMIC_ACKNOWLEDGE),
    ] {
        let mut victim = requester(Options::default());
        post(&mut victim, 1, operation, 8);
        assert_eq!(requests(&mut victim).len(), 1);
        let data: &[u8] = if opcode == Opcode::RC_ATOMIC_ACKNOWLEDGE { &[] } else { &[7; 8] };
        let packet = answer(&victim, opcode, 0, Syndrome::Nak(NakCode::RemoteAccess)).payload(data);
        victim.push(&packet);
        assert_eq!(ended(&mut victim), [(1, Status::BadResponseError)]);
        assert_eq!(victim.pair.b.bytes(0, 8), [0; 8]);
    }
}

#[test]
fn a_read_response_of_the_wrong_size_is_a_local_length_error() {
    for (n, size) in [(0, MTU - 1), (0, MTU + 1), (0, 0), (1, 99), (1, 101), (1, MTU), (1, 0)] {
        let mut victim = requester(Options::default());
        victim.pair.b.fill(MTU + 100, &[9; 2 * MTU]);
        post(&mut victim, 1, Operation::Read(REMOTE), MTU as u32 + 100);
        assert_eq!(requests(&mut victim).len(), 1);
        if n == 1 {
            let first = answer(&victim, Opcode::RC_READ_RESPONSE_FIRST, 0, ACK).payload(&[7; MTU]);
            victim.push(&first);
        }
        let opcode = [Opcode::RC_READ_RESPONSE_FIRST, Opcode::RC_READ_RESPONSE_LAST][n as usize];
        let packet = answer(&victim, opcode, n, ACK).payload(&vec![7; size]);
        victim.push(&packet);
        assert_eq!(ended(&mut victim), [(1, Status::LocalLengthError)], "packet {n} of {size} bytes");
        assert_eq!(victim.pair.b.bytes(MTU + 100, 2 * MTU), [9; 2 * MTU], "nothing beyond the list");
    }
}

/// A NAK in the middle of a READ (scenario 10): it resumes at the first missing answer, and a peer that never gives it
/// is given up after the ack timeout, not asked for ever.
#[test]
fn a_nak_in_the_middle_of_a_read_resumes_it_and_does_not_go_on_for_ever() {
    let mut victim = requester(Options { timeout: 10, retry_count: 2, ..Options::default() });
    post(&mut victim, 1, Operation::Read(REMOTE), 10 * MTU as u32);
    assert_eq!(requests(&mut victim), [(Opcode::RC_READ_REQUEST, 0, Some((0x4000, 10 * MTU as u32)))]);
    for n in 0..3 {
        let opcode = if n == 0 { Opcode::RC_READ_RESPONSE_FIRST } else { Opcode::RC_READ_RESPONSE_MIDDLE };
        let response = answer(&victim, opcode, n, ACK).payload(&[7; MTU]);
        victim.push(&response);
    }
    let rest = (Opcode::RC_READ_REQUEST, 3, Some((0x4000 + 3 * MTU as u64, 7 * MTU as u32)));
    let beyond = answer(&victim, Opcode::RC_ACKNOWLEDGE, 6, Syndrome::Nak(NakCode::SequenceError));
    victim.push(&beyond);
    assert_eq!(requests(&mut victim), [rest]);
    victim.push(&beyond);
    assert_eq!(requests(&mut victim), [], "the same gap once");
    let here = answer(&victim, Opcode::RC_ACKNOWLEDGE, 3, Syndrome::Nak(NakCode::SequenceError));
    let start = victim.pair.now;
    let mut rounds = 0;
    while victim.pair.b.state() == State::ReadyToSend {
        rounds += 1;
        assert!(rounds < 10_000, "asked for ever");
        victim.push(&here);
        assert!(requests(&mut victim).iter().all(|request| *request == rest));
        victim.pair.now += Duration::from_millis(1);
        victim.pair.b.endpoint.on_timeout(victim.pair.now);
    }
    // Three times 2 × 4.194 ms.
    assert!((24..30).contains(&victim.pair.now.since(start).as_millis()), "{:?}", victim.pair.now.since(start));
    assert_eq!(ended(&mut victim), [(1, Status::RetryExceededError)]);
}

#[test]
fn a_sequence_nak_that_comes_twice_goes_back_once() {
    let mut victim = requester(Options::default());
    post(&mut victim, 1, Operation::Write(REMOTE), 4 * MTU as u32);
    assert_eq!(requests(&mut victim).len(), 4);
    let nak = answer(&victim, Opcode::RC_ACKNOWLEDGE, 2, Syndrome::Nak(NakCode::SequenceError));
    victim.push(&nak);
    victim.push(&nak);
    let psns = |victim: &mut Victim| requests(victim).iter().map(|request| request.1).collect::<Vec<_>>();
    assert_eq!(psns(&mut victim), [2], "the peer may have kept what follows");
    let only = answer(&victim, Opcode::RC_ACKNOWLEDGE, 2, Syndrome::Ack { credits: 31 });
    victim.push(&only);
    assert_eq!(psns(&mut victim), [3], "it has not");
}

/// During an RNR wait, whatever comes in late does not end the wait.
#[test]
fn a_late_nak_does_not_end_an_rnr_wait() {
    let mut victim = requester(Options { timeout: 1, retry_count: 0, ..Options::default() });
    post(&mut victim, 1, Operation::Send, 2 * MTU as u32);
    post(&mut victim, 2, Operation::Read(REMOTE), 8);
    assert_eq!(requests(&mut victim).len(), 3);
    // Code 14: 1.28 ms.
    let not_ready = answer(&victim, Opcode::RC_ACKNOWLEDGE, 0, Syndrome::ReceiverNotReady { timer: 14 });
    victim.push(&not_ready);
    for (n, syndrome) in [(0, Syndrome::Nak(NakCode::SequenceError)), (0, Syndrome::ReceiverNotReady { timer: 1 })] {
        let late = answer(&victim, Opcode::RC_ACKNOWLEDGE, n, syndrome);
        victim.push(&late);
        assert_eq!(requests(&mut victim), []);
    }
    victim.pair.now += Duration::from_micros(1279);
    victim.pair.b.endpoint.on_timeout(victim.pair.now);
    assert_eq!(requests(&mut victim), []);
    victim.pair.now += Duration::from_micros(1);
    victim.pair.b.endpoint.on_timeout(victim.pair.now);
    assert_eq!(requests(&mut victim).len(), 3);
    let counters = victim.pair.b.counters();
    assert_eq!((counters.ack_timeouts, counters.rcvd_rnr_err, counters.rcvd_seq_err), (0, 2, 1));
}

#[test]
fn a_fatal_nak_ends_an_rnr_wait() {
    let mut victim = requester(Options::default());
    post(&mut victim, 1, Operation::Send, 8);
    assert_eq!(requests(&mut victim).len(), 1);
    for syndrome in [Syndrome::ReceiverNotReady { timer: 14 }, Syndrome::Nak(NakCode::RemoteOperational)] {
        let packet = answer(&victim, Opcode::RC_ACKNOWLEDGE, 0, syndrome);
        victim.push(&packet);
    }
    assert_eq!(ended(&mut victim), [(1, Status::RemoteOperationError)]);
}

/// An acknowledge in the middle of a message does not complete it, and one of the end completes all before.
#[test]
fn acknowledges_are_cumulative() {
    let mut victim = requester(Options::default());
    for id in 0..3 {
        post(&mut victim, id, Operation::Write(REMOTE), 2 * MTU as u32);
    }
    assert_eq!(requests(&mut victim).len(), 6);
    let middle = answer(&victim, Opcode::RC_ACKNOWLEDGE, 2, ACK);
    victim.push(&middle);
    assert_eq!(ended(&mut victim), [(0, Status::Success)]);
    let end = answer(&victim, Opcode::RC_ACKNOWLEDGE, 5, ACK);
    victim.push(&end);
    assert_eq!(ended(&mut victim), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn answers_are_dropped_where_none_is_awaited() {
    let mut victim = requester(Options::default());
    post(&mut victim, 1, Operation::Write(REMOTE), 8);
    assert_eq!(requests(&mut victim).len(), 1);
    let error = crate::common::pair::to(State::Error);
    victim.pair.b.endpoint.modify_qp(victim.pair.now, victim.pair.b.qpn, &error).unwrap();
    let ack = answer(&victim, Opcode::RC_ACKNOWLEDGE, 0, ACK);
    victim.push(&ack);
    assert_eq!(ended(&mut victim), [(1, Status::FlushError)]);
    assert_eq!(victim.pair.b.counters().no_queue_pair, 1);
}

/// A READ that a probe asked for again is still one READ.
#[test]
fn a_probed_read_takes_one_place_of_the_depth() {
    let mut victim = requester(Options { rd_atomic: 2, timeout: 20, ..Options::default() });
    for id in 0..3 {
        post(&mut victim, id, Operation::Read(REMOTE), 8);
    }
    assert_eq!(requests(&mut victim).len(), 2);
    let mut asked_again = Vec::new();
    while asked_again.is_empty() {
        victim.pair.now = victim.pair.b.endpoint.next_timeout().unwrap();
        victim.pair.b.endpoint.on_timeout(victim.pair.now);
        asked_again = requests(&mut victim);
    }
    assert_eq!(asked_again.iter().map(|request| request.1).collect::<Vec<_>>(), [0]);
    assert_eq!(victim.pair.b.counters().ack_timeouts, 0);
    let first = answer(&victim, Opcode::RC_READ_RESPONSE_ONLY, 0, ACK).payload(&[7; 8]);
    victim.push(&first);
    assert_eq!(requests(&mut victim).iter().map(|request| request.1).collect::<Vec<_>>(), [2]);
}
