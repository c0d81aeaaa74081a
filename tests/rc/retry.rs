//! What is lost comes again, once, and no later than it must; what never comes ends the connection in order.

use uroce::port::{SimConfig, Verdict};
use uroce::qp::{Mtu, State};
use uroce::time::Duration;
use uroce::wire::{NakCode, Opcode, Syndrome};
use uroce::work::{Operation, ReceiveRequest, SendFlags, SendRequest, Status};

use crate::common::pair::{Options, Pair};
use crate::common::watch::{drop_first, watch};

const SECOND: Duration = Duration::from_secs(1);
const MTU: usize = 1024;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn statuses(pair: &Pair) -> Vec<(u64, Status)> {
    pair.a.completions.iter().map(|c| (c.id, c.status)).collect()
}

/// Bytes that differ from packet to packet.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i ^ (i >> 8).wrapping_mul(37)) as u8).collect()
}

#[test]
fn an_atomic_whose_acknowledge_is_lost_is_executed_once() {
    let mut pair = Pair::clean(Options::default());
    watch(&pair, drop_first(2, |seen| seen.opcode == Opcode::RC_ATOMIC_ACKNOWLEDGE));
    let remote = pair.b.remote(0);
    for (id, offset) in [(1, 0), (2, 8)] {
        let request = SendRequest::new(id, Operation::FetchAndAdd { remote, add: 5 }, &[pair.a.sge(offset, 8)]);
        pair.post(request);
    }
    pair.run(SECOND);
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!((pair.a.word(0), pair.a.word(8), pair.b.word(0)), (0, 5, 10));
    assert!(pair.b.counters().duplicate_request >= 2);
}

#[test]
fn the_ack_timer_does_not_cut_an_rnr_wait_short() {
    // Code 0 is 655.36 ms; the ack timeout is 16 µs, and one retry is all there is.
    let options = Options { min_rnr_timer: 0, timeout: 1, retry_count: 1, ..Options::default() };
    let mut pair = Pair::clean(options);
    let log = watch(&pair, |_| Verdict::Forward);
    pair.post_simple(1, Operation::Send, 10);
    pair.run(millis(655));
    assert_eq!(log.of(Opcode::RC_SEND_ONLY).len(), 1, "nothing is sent during the wait");
    pair.receive(1, 0, 10);
    pair.run(millis(1));
    assert_eq!(log.of(Opcode::RC_SEND_ONLY).len(), 2);
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!((pair.a.counters().ack_timeouts, pair.a.counters().rcvd_rnr_err), (0, 1));
}

#[test]
fn rnr_retries_are_counted_and_then_it_fails() {
    let mut pair = Pair::clean(Options { rnr_retry: 2, min_rnr_timer: 5, ..Options::default() });
    let log = watch(&pair, |_| Verdict::Forward);
    pair.post_simple(1, Operation::Send, 10);
    pair.post_simple(2, Operation::Send, 10);
    pair.run(SECOND);
    assert_eq!(statuses(&pair), [(1, Status::RnrRetryExceededError), (2, Status::FlushError)]);
    assert_eq!(pair.a.completions[0].vendor_error, 0x25, "the syndrome of the RNR NAK");
    let firsts = log.of(Opcode::RC_SEND_ONLY).iter().filter(|seen| seen.psn == 0xff_fff0).count();
    assert_eq!(firsts, 3, "once, and twice again");
    assert_eq!((pair.a.state(), pair.a.counters().retry_rnr_exceeded_err), (State::Error, 1));
}

#[test]
fn an_rnr_retry_of_seven_is_for_ever() {
    let mut pair = Pair::clean(Options { rnr_retry: 7, min_rnr_timer: 1, retry_count: 0, ..Options::default() });
    pair.post_simple(1, Operation::Send, 10);
    pair.run(millis(20));
    assert!(pair.a.counters().rcvd_rnr_err > 100, "{}", pair.a.counters().rcvd_rnr_err);
    pair.receive(1, 0, 10);
    pair.run(SECOND);
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
}

/// A request for the receive queue is refused, those behind it are on their way already: they draw no NAK, are not
/// executed, and all arrive in the end.
#[test]
fn what_was_on_its_way_behind_an_rnr_nak_is_sent_again() {
    let mut pair = Pair::clean(Options { min_rnr_timer: 5, ..Options::default() });
    pair.a.fill(0, &pattern(5 * MTU));
    pair.post_simple(1, Operation::Send, 5 * MTU as u32);
    let write = SendRequest::new(2, Operation::Write(pair.b.remote(100_000)), &[pair.a.sge(0, 100)]);
    pair.post(write);
    pair.run(Duration::from_micros(40));
    assert_eq!(pair.b.bytes(100_000, 100), vec![0; 100], "not out of order");
    pair.receive(1, 0, 5 * MTU as u32);
    pair.run(SECOND);
    assert_eq!(pair.b.bytes(0, 5 * MTU), pattern(5 * MTU));
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.b.counters().send_seq_err, 0);
}

#[test]
fn a_read_resumes_at_the_first_missing_response() {
    let mut pair = Pair::clean(Options::default());
    pair.b.fill(0, &pattern(10 * MTU));
    let log = watch(&pair, drop_first(1, |seen| !seen.from_a && seen.psn == 0xff_fff0 + 3));
    pair.post_simple(1, Operation::Read(pair.b.remote(0)), 10 * MTU as u32 - 5);
    pair.run(SECOND);
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(pair.a.bytes(0, 10 * MTU - 5), pattern(10 * MTU)[..10 * MTU - 5]);
    let requests: Vec<_> = log.of(Opcode::RC_READ_REQUEST);
    let reths: Vec<_> = requests.iter().map(|seen| (seen.psn, seen.reth.unwrap())).collect();
    let [(first_psn, first), (again_psn, again)] = reths[..] else { panic!("{reths:?}") };
    assert_eq!((first_psn, first.length), (0xff_fff0, 10 * MTU as u32 - 5));
    assert_eq!(again_psn, 0xff_fff3);
    assert_eq!((again.address, again.rkey), (first.address + 3 * MTU as u64, first.rkey));
    assert_eq!(again.length, 7 * MTU as u32 - 5);
    assert_eq!((pair.a.counters().implied_nak, pair.a.counters().ack_timeouts), (1, 0));
}

#[test]
fn an_acknowledge_beyond_an_unanswered_read_is_a_nak_of_it() {
    let mut pair = Pair::clean(Options::default());
    pair.b.fill(0, &pattern(MTU));
    watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::RC_READ_RESPONSE_ONLY));
    pair.post_simple(1, Operation::Read(pair.b.remote(0)), 100);
    let write = SendRequest::new(2, Operation::Write(pair.b.remote(5000)), &[pair.a.sge(5000, 10)]);
    pair.post(write);
    pair.run(SECOND);
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.a.bytes(0, 100), pattern(100));
    let counters = pair.a.counters();
    assert_eq!((counters.implied_nak, counters.tail_probes, counters.ack_timeouts), (1, 0, 0));
}

#[test]
fn a_lost_read_request_is_found_before_the_ack_timeout() {
    let mut pair = Pair::clean(Options { retry_count: 0, timeout: 20, ..Options::default() });
    pair.b.fill(0, &pattern(3 * MTU));
    watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::RC_READ_REQUEST));
    pair.post_simple(1, Operation::Read(pair.b.remote(0)), 3 * MTU as u32);
    pair.run(millis(200));
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(pair.a.bytes(0, 3 * MTU), pattern(3 * MTU));
}

#[test]
fn the_tail_probe_finds_a_lost_last_packet_and_costs_no_retry() {
    // An ack timeout of 8.6 s, and no retry to spare.
    let mut pair = Pair::clean(Options { retry_count: 0, timeout: 20, ..Options::default() });
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 10);
    pair.run(millis(1));
    watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::RC_WRITE_LAST));
    pair.post_simple(2, Operation::Write(pair.b.remote(0)), 3000);
    pair.run(millis(4));
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
    let counters = pair.a.counters();
    assert_eq!((counters.tail_probes, counters.ack_timeouts, counters.retransmitted_pkts), (1, 0, 1));
}

#[test]
fn a_lost_acknowledge_is_asked_for_again_and_nothing_is_executed_twice() {
    let mut pair = Pair::clean(Options { retry_count: 0, ..Options::default() });
    watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::RC_ACKNOWLEDGE));
    pair.receive(1, 0, 100);
    pair.receive(2, 0, 100);
    pair.post_simple(1, Operation::Send, 100);
    pair.run(SECOND);
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(pair.b.completions.len(), 1, "one receive is consumed, not two");
    assert_eq!(pair.b.counters().duplicate_request, 1);
}

#[test]
fn a_silent_peer_exhausts_the_retries_and_the_rest_is_flushed_in_order() {
    let options = Options { timeout: 8, retry_count: 3, ..Options::default() };
    let mut pair = Pair::clean(options);
    pair.network.partition(pair.a.address, pair.b.address, true);
    for id in 1..=5 {
        let request = SendRequest::new(id, Operation::Write(pair.b.remote(0)), &[pair.a.sge(0, 10)]);
        let flags = if id % 2 == 0 { SendFlags::empty() } else { SendFlags::SIGNALED };
        pair.post(request.with_flags(flags));
    }
    let receive = ReceiveRequest::new(9, &[pair.a.sge(0, 10)]);
    pair.a.endpoint.post_receive(pair.now, pair.a.qpn, receive).unwrap();
    pair.run(SECOND);
    assert_eq!(
        statuses(&pair),
        [
            (1, Status::RetryExceededError),
            (2, Status::FlushError),
            (3, Status::FlushError),
            (4, Status::FlushError),
            (5, Status::FlushError),
            (9, Status::FlushError),
        ]
    );
    let counters = pair.a.counters();
    assert_eq!((counters.ack_timeouts, counters.retry_exceeded_err), (4, 1), "once, and three times again");
    assert_eq!(pair.a.state(), State::Error);
    assert_eq!(pair.a.endpoint.next_timeout().filter(|&at| at > pair.now), None, "no timer outlives it");
}

#[test]
fn a_timeout_of_zero_never_fails() {
    let mut pair = Pair::clean(Options { timeout: 0, retry_count: 0, ..Options::default() });
    pair.network.partition(pair.a.address, pair.b.address, true);
    pair.a.fill(0, &pattern(100));
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 100);
    pair.run(Duration::from_secs(3600));
    assert_eq!((pair.a.state(), pair.a.completions.len()), (State::ReadyToSend, 0));
    pair.network.partition(pair.a.address, pair.b.address, false);
    pair.run(2 * SECOND);
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(pair.b.bytes(0, 100), pattern(100));
}

/// Bulk transfers stalled in the field when acknowledges were merged, delayed, or lost one by one (scenario 21). Here each
/// second acknowledge is lost from the start, so that every measurement of the round trip was void, and each wait the
/// longest.
#[test]
fn bulk_flows_on_with_few_and_late_acknowledges() {
    let mut pair = Pair::clean(Options::default());
    pair.a.fill(0, &pattern(1_000_000));
    let mut n = 0;
    watch(&pair, move |seen| match seen.opcode {
        Opcode::RC_ACKNOWLEDGE => {
            n += 1;
            if n % 2 == 0 { Verdict::Delay(Duration::from_micros(300)) } else { Verdict::Drop }
        }
        _ => Verdict::Forward,
    });
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 1_000_000);
    pair.run(millis(50));
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(pair.b.bytes(0, 1_000_000), pattern(1_000_000));
    assert_eq!(pair.a.counters().ack_timeouts, 0);
}

/// Every kind of message, several packets each, across the wrap of the PSNs: whichever packet is lost, in whichever
/// direction, all of it arrives once.
#[test]
fn any_single_packet_may_be_lost_across_the_psn_wrap() {
    let mut lost = 0;
    loop {
        let options = Options { psns: [0xff_fffa, 0xff_fff8], mtu: Mtu::Mtu256, retry_count: 1, ..Options::default() };
        let mut pair = Pair::clean(options);
        let mut n = 0;
        let log = watch(&pair, move |_| {
            n += 1;
            if n == lost + 1 { Verdict::Drop } else { Verdict::Forward }
        });
        exchange(&mut pair);
        if log.all().len() <= lost {
            break;
        }
        lost += 1;
    }
    assert!(lost > 20, "the exchange has only {lost} packets");
}

/// SEND, WRITE, READ and ATOMIC in one go, checked.
fn exchange(pair: &mut Pair) {
    let bytes = pattern(2000);
    pair.a.fill(0, &bytes);
    pair.b.fill(20_000, &bytes);
    pair.receive(7, 0, 1000);
    let (write, read, cell) = (pair.b.remote(5000), pair.b.remote(20_000), pair.b.remote(40_000));
    pair.post_simple(1, Operation::SendImmediate(0x55), 1000);
    pair.post_simple(2, Operation::Write(write), 1500);
    let reads_into = pair.a.sge(10_000, 1100);
    pair.post(SendRequest::new(3, Operation::Read(read), &[reads_into]));
    let fetches_into = pair.a.sge(30_000, 8);
    pair.post(SendRequest::new(4, Operation::FetchAndAdd { remote: cell, add: 3 }, &[fetches_into]));
    pair.post_simple(5, Operation::Write(pair.b.remote(8000)), 300);
    pair.run(10 * SECOND);
    assert_eq!(statuses(pair), [1, 2, 3, 4, 5].map(|id| (id, Status::Success)));
    assert_eq!(pair.b.completions.iter().map(|c| (c.id, c.byte_length)).collect::<Vec<_>>(), [(7, 1000)]);
    assert_eq!(pair.b.bytes(0, 1000), bytes[..1000]);
    assert_eq!(pair.b.bytes(5000, 1500), bytes[..1500]);
    assert_eq!(pair.b.bytes(8000, 300), bytes[..300]);
    assert_eq!(pair.a.bytes(10_000, 1100), bytes[..1100]);
    assert_eq!((pair.a.word(30_000), pair.b.word(40_000)), (0, 3));
    assert_eq!(pair.a.counters().ack_timeouts, 0, "a single loss is found without the ack timeout");
}

/// A request that cannot be sent fails when all before it are done, also when these have to be sent again meanwhile.
/// Once, the first to be sent again was failed instead.
#[test]
fn an_unsendable_request_fails_in_its_turn_after_the_loss_before_it() {
    let mut pair = Pair::clean(Options::default());
    pair.a.fill(0, &pattern(100));
    watch(&pair, drop_first(2, |seen| seen.opcode == Opcode::RC_WRITE_ONLY));
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 100);
    let mut unknown = pair.a.sge(0, 100);
    unknown.lkey ^= 1;
    pair.post(SendRequest::new(2, Operation::Write(pair.b.remote(0)), &[unknown]));
    pair.post_simple(3, Operation::Write(pair.b.remote(0)), 100);
    pair.run(SECOND);
    let expected = [(1, Status::Success), (2, Status::LocalProtectionError), (3, Status::FlushError)];
    assert_eq!(statuses(&pair), expected);
    assert_eq!(pair.b.bytes(0, 100), pattern(100));
}

#[test]
fn sequence_naks_carry_the_missing_psn_once() {
    let mut pair = Pair::clean(Options::default());
    let log = watch(&pair, drop_first(1, |seen| seen.psn == 0xff_fff2));
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 10 * MTU as u32);
    pair.run(millis(1));
    assert_eq!(statuses(&pair), [(1, Status::Success)], "found at once");
    let nak = Some(Syndrome::Nak(NakCode::SequenceError));
    let naks: Vec<_> = log.all().into_iter().filter(|seen| seen.syndrome == nak).map(|seen| seen.psn).collect();
    assert_eq!(naks, [0xff_fff2]);
}

/// Spurious retries on a clean link cost Soft-RoCE about 40 a second (scenario 11). Here none; where traffic the other
/// way fills a slow link's queue, so that the round trip suddenly grows tenfold, a probe now and then, of one packet.
#[test]
fn a_clean_link_sees_no_retry_at_any_rate() {
    for rate in [10_000_000_000, 1_000_000_000, 100_000_000] {
        let delay = Duration::from_micros(50);
        let config = SimConfig { delay: delay..=delay, rate: Some(rate), ..SimConfig::default() };
        let mut pair = Pair::new(1, config, Options::default());
        for id in 0..5 {
            pair.receive(id, 0, 500_000);
            pair.post_simple(3 * id, Operation::Send, 500_000);
            pair.post_simple(3 * id + 1, Operation::Write(pair.b.remote(0)), 500_000);
            pair.post_simple(3 * id + 2, Operation::Read(pair.b.remote(0)), 500_000);
            // The other way at the same time.
            let read = SendRequest::new(id, Operation::Read(pair.a.remote(500_000)), &[pair.b.sge(500_000, 500_000)]);
            pair.b.endpoint.post_send(pair.now, pair.b.qpn, read).unwrap();
        }
        pair.run(10 * SECOND);
        assert_eq!(statuses(&pair), (0..15).map(|id| (id, Status::Success)).collect::<Vec<_>>());
        assert_eq!(pair.b.completions.len(), 10);
        if rate >= 1_000_000_000 {
            pair.assert_nothing_spurious();
        } else {
            let counters = pair.a.counters();
            assert!(counters.retransmitted_pkts <= 5, "{} of {}", counters.retransmitted_pkts, counters.sent_pkts);
            assert_eq!((counters.ack_timeouts, counters.completer_retry_err), (0, 0));
        }
    }
}
