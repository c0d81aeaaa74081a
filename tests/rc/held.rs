//! Packets that arrive before their turn are held, and only what was lost is sent again.

use uroce::port::Verdict;
use uroce::time::Duration;
use uroce::wire::Opcode;
use uroce::work::{Operation, Status};

use crate::common::pair::{Options, Pair};
use crate::common::watch::{Seen, drop_first, watch};

const MTU: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8).collect()
}

/// WRITEs 20 packets from A to B, some of which `decide` loses; the packets sent again.
fn write_20(pair: &mut Pair, decide: impl FnMut(&Seen) -> Verdict + Send + 'static) -> u64 {
    let (length, before) = (20 * MTU, pair.a.counters().retransmitted_pkts);
    pair.a.fill(0, &pattern(length));
    pair.b.fill(0, &vec![0; length]);
    watch(pair, decide);
    let arrival = pair.b.remote(0);
    pair.post_simple(1, Operation::Write(arrival), length as u32);
    pair.run(SECOND);
    assert_eq!(pair.a.completions.pop().map(|done| done.status), Some(Status::Success));
    assert_eq!(pair.b.bytes(0, length), pattern(length));
    pair.a.counters().retransmitted_pkts - before
}

/// Loses the middle packets with these numbers, once each.
fn lose(mut numbers: Vec<usize>) -> impl FnMut(&Seen) -> Verdict + Send {
    let mut middle = 0;
    move |seen| {
        if seen.opcode != Opcode::RC_WRITE_MIDDLE {
            return Verdict::Forward;
        }
        middle += 1;
        if numbers.first() == Some(&middle) {
            numbers.remove(0);
            return Verdict::Drop;
        }
        Verdict::Forward
    }
}

#[test]
fn one_lost_packet_is_sent_again_alone() {
    let mut pair = Pair::clean(Options::default());
    assert_eq!(write_20(&mut pair, lose(vec![5])), 1);
    let (ours, theirs) = (pair.a.counters(), pair.b.counters());
    assert_eq!((ours.rcvd_seq_err, ours.ack_timeouts, ours.tail_probes), (1, 0, 0));
    assert_eq!(theirs.duplicate_request, 0);
}

#[test]
fn every_gap_is_told_in_turn() {
    let mut pair = Pair::clean(Options::default());
    assert_eq!(write_20(&mut pair, lose(vec![3, 4, 9, 17])), 4);
    assert_eq!(pair.a.counters().rcvd_seq_err, 4);
    assert_eq!(pair.b.counters().duplicate_request, 0);
}

/// The kernel's rxe drops what arrives early: that shows once, and from then on everything is sent again at once.
#[test]
fn a_peer_that_holds_nothing_is_found_out() {
    let mut pair = Pair::clean(Options { hold_bytes: 0, ..Options::default() });
    let rest = 20 - 6;
    assert_eq!(write_20(&mut pair, lose(vec![5])), 1 + rest);
    let probed = pair.a.counters().completer_retry_err;
    assert_eq!(probed, 2, "the missing packet alone, then what follows it");
    assert_eq!(write_20(&mut pair, lose(vec![5])), 1 + rest);
    assert_eq!(pair.a.counters().completer_retry_err - probed, 1, "both at once");
}

#[test]
fn messages_complete_in_order_though_the_first_was_lost() {
    let mut pair = Pair::clean(Options::default());
    watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::RC_SEND_ONLY));
    for id in 0..5 {
        pair.receive(id, 100 * id as usize, 100);
        pair.post_simple(id, Operation::Send, 10 + id as u32);
    }
    pair.run(SECOND);
    let received: Vec<_> = pair.b.completions.iter().map(|done| (done.id, done.byte_length)).collect();
    assert_eq!(received, [(0, 10), (1, 11), (2, 12), (3, 13), (4, 14)]);
    assert_eq!(pair.a.completions.iter().map(|done| done.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(pair.a.counters().retransmitted_pkts, 1);
}

/// A SEND that was held finds no receive request when its turn comes: the peer waits, and sends it and all behind it
/// again.
#[test]
fn a_held_message_may_find_no_receive_request() {
    let mut pair = Pair::clean(Options::default());
    watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::RC_SEND_ONLY));
    pair.receive(0, 0, 100);
    for id in 0..3 {
        pair.post_simple(id, Operation::Send, 10);
    }
    pair.run(Duration::from_millis(2));
    assert_eq!(pair.b.completions.len(), 1);
    assert!(pair.b.counters().send_rnr_err > 0);
    pair.receive(1, 0, 100);
    pair.receive(2, 0, 100);
    pair.run(SECOND);
    assert_eq!(pair.b.completions.iter().map(|done| done.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(pair.a.completions.iter().map(|done| done.id).collect::<Vec<_>>(), [0, 1, 2]);
}
