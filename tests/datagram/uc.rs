//! UC: messages that arrive whole or not at all.

use uroce::memory::Access;
use uroce::port::{SimConfig, Verdict};
use uroce::qp::{QpType, State};
use uroce::time::Duration;
use uroce::wire::Opcode;
use uroce::work::{CompletionKind, Operation, SendRequest, Status, Tag};

use crate::common::pair::{Options, Pair};
use crate::common::watch::{drop_first, watch};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn options() -> Options {
    Options { qp_type: QpType::Uc, ..Options::default() }
}

/// Byte `i` of message `n`.
fn byte(n: usize, i: usize) -> u8 {
    (n * 31 + i * 7) as u8
}

fn message(n: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| byte(n, i)).collect()
}

#[test]
fn every_operation_arrives_and_nothing_is_acknowledged() {
    for length in [0, 1, 1023, 1024, 1025, 4096, 100_000] {
        let mut pair = Pair::clean(options());
        pair.a.fill(0, &message(1, length));
        let remote = pair.b.remote(200_000);
        let operations = [
            Operation::Send,
            Operation::SendImmediate(0x0102_0304),
            Operation::Write(remote),
            Operation::WriteImmediate(remote, 5),
        ];
        for id in 0..3 {
            pair.receive(id, 0, length as u32);
        }
        for (id, operation) in operations.into_iter().enumerate() {
            pair.post_simple(id as u64, operation, length as u32);
        }
        pair.run(SECOND);
        let sent: Vec<_> = pair.a.completions.iter().map(|c| (c.id, c.status, c.kind)).collect();
        let kinds = [CompletionKind::Send, CompletionKind::Send, CompletionKind::Write, CompletionKind::Write];
        let expected: Vec<_> = (0..4).map(|id| (id as u64, Status::Success, kinds[id])).collect();
        assert_eq!(sent, expected, "{length}");
        let received: Vec<_> =
            pair.b.completions.iter().map(|c| (c.id, c.status, c.kind, c.byte_length, c.tag, c.grh)).collect();
        let (receive, write) = (CompletionKind::Receive, CompletionKind::ReceiveWriteImmediate);
        let done = |id, kind, tag| (id, Status::Success, kind, length as u32, tag, None);
        assert_eq!(
            received,
            [
                done(0, receive, Tag::None),
                done(1, receive, Tag::Immediate(0x0102_0304)),
                done(2, write, Tag::Immediate(5))
            ],
            "{length}"
        );
        assert!(pair.b.completions.iter().all(|c| c.source_qpn == pair.a.qpn));
        assert_eq!(pair.b.bytes(0, length), message(1, length));
        assert_eq!(pair.b.bytes(200_000, length), message(1, length));
        assert_eq!(pair.b.counters().sent_pkts, 0, "nothing is acknowledged");
        pair.assert_nothing_spurious();
    }
}

/// A request is done when its packets are with the port, whether anyone is there or not.
#[test]
fn a_request_completes_without_a_peer() {
    let mut pair = Pair::clean(options());
    pair.network.partition(pair.a.address, pair.b.address, true);
    pair.post_simple(1, Operation::Send, 3000);
    pair.a.progress(pair.now);
    assert_eq!(pair.a.completions.iter().map(|c| (c.id, c.status)).collect::<Vec<_>>(), [(1, Status::Success)]);
    assert_eq!(pair.a.endpoint.next_timeout(), None, "nothing is awaited");
}

/// Whichever packet of a message is lost, that message is, and no other; its receive request serves the next.
#[test]
fn one_lost_packet_loses_one_message() {
    for lost in 0..3 {
        let mut pair = Pair::clean(options());
        let first = options().psns[0];
        let log = watch(&pair, drop_first(1, move |seen| seen.psn == (first + 3 + lost) & 0xff_ffff));
        for n in 0..3 {
            pair.a.fill(n * 4096, &message(n, 3000));
            pair.receive(n as u64, n * 4096, 3000);
        }
        for n in 0..3 {
            pair.post(SendRequest::new(n as u64, Operation::SendImmediate(n as u32), &[pair.a.sge(n * 4096, 3000)]));
        }
        pair.run(SECOND);
        assert_eq!(log.all().len(), 9);
        assert_eq!(pair.a.completions.len(), 3, "the sender does not hear of it");
        let received: Vec<_> = pair.b.completions.iter().map(|c| (c.id, c.tag, c.status)).collect();
        let whole = |id, n| (id, Tag::Immediate(n), Status::Success);
        assert_eq!(received, [whole(0, 0), whole(1, 2)], "packet {lost}");
        assert_eq!(pair.b.bytes(0, 3000), message(0, 3000));
        assert_eq!(pair.b.bytes(4096, 3000), message(2, 3000));
        assert_eq!((pair.b.state(), pair.b.counters().sent_pkts), (State::ReadyToSend, 0));
    }
}

/// Writes without a packet that would tell: what a lost packet carried stays as it was, the rest of that message too.
#[test]
fn the_rest_of_a_broken_write_is_not_placed() {
    let mut pair = Pair::clean(options());
    let log = watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::UC_WRITE_MIDDLE));
    pair.a.fill(0, &[7; 4096]);
    let remote = pair.b.remote(0);
    pair.receive(9, 8192, 0);
    pair.post_simple(1, Operation::WriteImmediate(remote, 1), 4096);
    pair.post_simple(2, Operation::WriteImmediate(pair.b.remote(4096), 2), 100);
    pair.run(SECOND);
    assert_eq!(log.of(Opcode::UC_WRITE_LAST_IMM).len(), 1);
    assert_eq!(pair.b.bytes(0, 4096), [vec![7; 1024], vec![0; 3072]].concat());
    assert_eq!(pair.b.bytes(4096, 100), [7; 100]);
    let received: Vec<_> = pair.b.completions.iter().map(|c| (c.id, c.tag, c.byte_length)).collect();
    assert_eq!(received, [(9, Tag::Immediate(2), 100)]);
    assert_eq!(pair.b.counters().dropped_messages, 1);
}

/// A network that loses, doubles, reorders and corrupts: each message at most once, in the order of sending, and whole.
#[test]
fn at_most_once_and_in_order_whatever_the_network_does() {
    const MESSAGES: u32 = 300;
    /// Those that may wait at a time: enough for what is late.
    const RECEIVES: usize = 100;
    for seed in 1..=8 {
        let config = SimConfig {
            loss: 0.03,
            duplicate: 0.05,
            reorder: 0.05,
            corrupt: 0.01,
            delay: Duration::from_micros(2)..=Duration::from_micros(9),
            ..SimConfig::default()
        };
        let mut pair = Pair::new(seed, config, options());
        let lengths = [0, 40, 1024, 2500, 5000];
        let mut received = Vec::new();
        for n in 0..MESSAGES {
            let length = lengths[n as usize % lengths.len()];
            pair.a.fill(0, &message(n as usize, length));
            if received.len() + RECEIVES > n as usize {
                pair.receive(n.into(), 65_536, 5000);
            }
            pair.post_simple(n.into(), Operation::SendImmediate(n), length as u32);
            // One at a time, or bytes would be overwritten before they are looked at.
            pair.run(Duration::from_micros(300));
            for completion in std::mem::take(&mut pair.b.completions) {
                assert_eq!(completion.status, Status::Success, "seed {seed}");
                let Tag::Immediate(m) = completion.tag else { panic!("seed {seed}: {completion:?}") };
                let length = lengths[m as usize % lengths.len()];
                assert_eq!(completion.byte_length, length as u32, "seed {seed}");
                assert_eq!(pair.b.bytes(65_536, length), message(m as usize, length), "seed {seed}, message {m}");
                received.push(m);
            }
        }
        assert_eq!(pair.a.completions.len(), MESSAGES as usize, "seed {seed}");
        assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: {received:?}");
        assert!(received.len() > 60, "seed {seed}: only {} arrived", received.len());
    }
}

/// On a clean network nothing is lost to speed alone: a burst is bounded, and the next one waits.
#[test]
fn a_long_message_leaves_in_bursts() {
    let mut pair = Pair::clean(options());
    let length = 1 << 19;
    pair.receive(1, 0, length);
    pair.post_simple(1, Operation::Send, length);
    pair.a.progress(pair.now);
    let burst = pair.network.counters().sent;
    assert!((16..=64).contains(&burst), "{burst}");
    assert!(pair.a.completions.is_empty());
    let next = pair.a.endpoint.next_timeout().expect("it goes on by itself");
    assert!(next > pair.now);
    pair.run(SECOND);
    assert_eq!(pair.network.counters().sent, 512);
    assert_eq!(pair.b.completions.iter().map(|c| c.byte_length).collect::<Vec<_>>(), [length]);
    pair.assert_nothing_spurious();
}

/// A message for which there is no receive request is dropped, and one that is too long for it: the next finds the request.
#[test]
fn what_finds_no_room_is_dropped() {
    let mut pair = Pair::clean(options());
    pair.post_simple(1, Operation::SendImmediate(1), 2000);
    pair.run(SECOND);
    pair.receive(1, 0, 1500);
    pair.post_simple(2, Operation::SendImmediate(2), 2000);
    pair.post_simple(3, Operation::SendImmediate(3), 1500);
    pair.run(SECOND);
    let received: Vec<_> = pair.b.completions.iter().map(|c| (c.id, c.tag, c.byte_length)).collect();
    assert_eq!(received, [(1, Tag::Immediate(3), 1500)]);
    assert_eq!(pair.b.counters().dropped_messages, 2);
    assert_eq!((pair.b.state(), pair.b.events.len()), (State::ReadyToSend, 0));
}

/// Without the right, or with a wrong key, nothing is written and nobody is told.
#[test]
fn a_write_that_is_not_allowed_is_dropped() {
    let mut pair = Pair::clean(Options { access: Access::LOCAL_WRITE | Access::REMOTE_READ, ..options() });
    pair.a.fill(0, &[1; 100]);
    let remote = pair.b.remote(0);
    pair.post_simple(1, Operation::Write(remote), 100);
    pair.run(SECOND);
    let mut pair_two = Pair::clean(options());
    pair_two.a.fill(0, &[1; 3000]);
    let mut wrong = pair_two.b.remote(0);
    wrong.rkey ^= 1;
    pair_two.post_simple(1, Operation::Write(wrong), 3000);
    pair_two.run(SECOND);
    for pair in [&pair, &pair_two] {
        assert_eq!(pair.b.bytes(0, 100), [0; 100]);
        assert_eq!(pair.b.counters().dropped_messages, 1);
        assert_eq!((pair.b.state(), pair.b.counters().sent_pkts), (State::ReadyToSend, 0));
        assert_eq!(pair.a.completions[0].status, Status::Success);
    }
}

/// What arrives twice on the way is delivered once, though the specification would begin a message with any first packet.
#[test]
fn a_doubled_message_comes_once() {
    let mut pair = Pair::clean(options());
    watch(&pair, |_| Verdict::Duplicate);
    for id in 0..4 {
        pair.receive(id, 0, 2000);
    }
    pair.post_simple(1, Operation::Send, 2000);
    pair.post_simple(2, Operation::Send, 10);
    pair.run(SECOND);
    assert_eq!(pair.b.completions.iter().map(|c| c.byte_length).collect::<Vec<_>>(), [2000, 10]);
    assert_eq!(pair.b.counters().duplicate_request, 3);
}
