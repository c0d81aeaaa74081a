//! Requests that come again, by the network's doing or a peer's: answered again within bounds, never executed again.

use uroce::qp::State;
use uroce::wire::{NakCode, Opcode};

use crate::common::craft::{Craft, Victim};
use crate::common::pair::{Options, Pair};
use crate::hostile::{GRANTED, MTU, PSN, ack, assert_refused, nak, victim};

/// The network doubles a READ, and the peer, which has its answer, sends the next: that is not too many at a time.
/// Once, the doubled one counted, and the connection was torn down.
#[test]
fn a_doubled_read_does_not_count_against_the_depth() {
    let options = Options { psns: [PSN, 0], rd_atomic: 1, ..Options::default() };
    let pair = Pair::clean(options);
    let (key, base) = (pair.b.key, pair.b.buffer.address());
    let mut victim = Victim::new(pair, PSN);
    let first = victim.request(Opcode::RC_READ_REQUEST).reth(base, key, 8);
    assert_eq!(victim.ask(&first).len(), 1);
    victim.psn = 0;
    let second = victim.request(Opcode::RC_READ_REQUEST).reth(base, key, 8);
    victim.push(&first);
    victim.push(&second);
    assert_eq!(victim.answers().iter().map(|answer| answer.1).collect::<Vec<_>>(), [PSN, 0]);
    assert_eq!(victim.pair.b.state(), State::ReadyToSend);
}

#[test]
fn more_reads_than_agreed_are_refused_after_those_that_were() {
    for (agreed, served) in [(0, 0), (1, 1), (3, 4)] {
        let pair = Pair::clean(Options { psns: [PSN, 0], rd_atomic: agreed, ..Options::default() });
        let (key, base) = (pair.b.key, pair.b.buffer.address());
        let mut victim = Victim::new(pair, PSN);
        for n in 0..=served {
            victim.psn = PSN + n;
            let packet = victim.request(Opcode::RC_READ_REQUEST).reth(base, key, 8);
            victim.push(&packet);
        }
        let answers = victim.answers();
        assert_eq!(answers.len(), served as usize + 1);
        assert_eq!(answers.last(), Some(&nak(PSN + served, NakCode::InvalidRequest)), "{agreed} agreed");
    }
}

/// A duplicate of an old READ that comes after its memory was deregistered: refused, but not the end of the
/// connection, for the network may have doubled it. Once it was.
#[test]
fn an_old_read_that_comes_again_after_its_memory_went_does_no_harm() {
    let (mut victim, key, base) = victim();
    let read = victim.request(Opcode::RC_READ_REQUEST).reth(base, key, 8);
    assert_eq!(victim.ask(&read).len(), 1);
    victim.pair.b.endpoint.memory_mut().deregister(key).unwrap();
    assert_eq!(victim.ask(&read), [nak(PSN, NakCode::RemoteAccess)]);
    assert_eq!(victim.pair.b.state(), State::ReadyToSend);
    victim.psn = 0;
    let nothing = victim.request(Opcode::RC_WRITE_ONLY).reth(0, 0, 0);
    assert_eq!(victim.ask(&nothing), [ack(0)]);
}

/// A READ whose memory goes away between two of its answers ends with a NAK in the middle.
#[test]
fn a_read_whose_memory_goes_away_is_refused_in_the_middle() {
    let (mut victim, key, base) = victim();
    let read = victim.request(Opcode::RC_READ_REQUEST).reth(base, key, 4 * MTU as u32);
    victim.push(&read);
    let mut room = vec![0; uroce::wire::MAX_DATAGRAM];
    assert!(victim.pair.b.endpoint.poll_transmit(victim.pair.now, &mut room).is_some());
    victim.pair.b.endpoint.memory_mut().deregister(key).unwrap();
    let answers = victim.answers();
    assert_refused(&mut victim, &answers, 0, NakCode::RemoteAccess, "in the middle");
}

/// Duplicates by the ten thousand while nothing can be sent: what is owed stays bounded.
#[test]
fn a_flood_of_duplicates_owes_a_bounded_answer() {
    let (mut victim, key, base) = victim();
    let packets = GRANTED as u32 / MTU as u32;
    let read = victim.request(Opcode::RC_READ_REQUEST).reth(base, key, GRANTED as u32);
    assert_eq!(victim.ask(&read).len(), packets as usize);
    victim.psn = (PSN + packets) & 0xff_ffff;
    let atomic = victim.request(Opcode::RC_FETCH_ADD).atomic(base, key, 1);
    assert_eq!(victim.ask(&atomic).len(), 1);
    for n in 0..10_000u32 {
        let skip = n % packets;
        let left = GRANTED as u32 - skip * MTU as u32;
        let at = base + u64::from(skip) * MTU as u64;
        // Single packets out of the middle of the READ, far more of them than READs may be outstanding.
        let mut piece = Craft::new(Opcode::RC_READ_REQUEST, victim.pair.b.qpn, PSN + skip);
        piece = piece.reth(at, key, left.min(MTU as u32));
        victim.push(&piece);
        victim.push(&atomic);
        victim.push(&Craft::new(Opcode::RC_WRITE_ONLY, victim.pair.b.qpn, PSN).reth(base, key, 0));
    }
    let answers = victim.answers();
    assert!(answers.len() <= 6, "{} packets owed", answers.len());
    assert_eq!(victim.pair.b.word(0), 1, "the atomic was executed once");
    assert_eq!(victim.pair.b.counters().duplicate_request, 30_000);
}

/// READs that are each asked for twice, while nothing can be sent: the depth still holds.
#[test]
fn asking_twice_does_not_get_around_the_depth() {
    let (mut victim, key, base) = victim();
    for n in 0..100 {
        let packet = Craft::new(Opcode::RC_READ_REQUEST, victim.pair.b.qpn, PSN + n).reth(base, key, 8);
        victim.push(&packet);
        victim.push(&packet);
    }
    let answers = victim.answers();
    assert_eq!(answers.len(), 5, "four that were agreed, and the refusal");
    assert_eq!(answers[4], nak(PSN + 4, NakCode::InvalidRequest));
}

#[test]
fn duplicates_are_acknowledged_with_the_newest_psn_and_not_executed() {
    let (mut victim, key, base) = victim();
    let write = victim.request(Opcode::RC_WRITE_ONLY).reth(base, key, 8).payload(&[7; 8]);
    assert_eq!(victim.ask(&write), [ack(PSN)]);
    victim.psn = 0;
    let second = victim.request(Opcode::RC_WRITE_ONLY).reth(base + 8, key, 8).payload(&[7; 8]);
    assert_eq!(victim.ask(&second), [ack(0)]);
    victim.pair.b.fill(0, &[1; 8]);
    assert_eq!(victim.ask(&write), [ack(0)]);
    assert_eq!(victim.pair.b.bytes(0, 8), [1; 8]);
}

#[test]
fn a_gap_draws_one_nak_until_it_is_filled() {
    let (mut victim, key, base) = victim();
    let at = |victim: &Victim, psn| {
        Craft::new(Opcode::RC_WRITE_ONLY, victim.pair.b.qpn, psn).reth(base, key, 8).payload(&[7; 8])
    };
    for psn in [0, 1, 5, 0x7f_fffe] {
        let packet = at(&victim, psn);
        victim.push(&packet);
    }
    assert_eq!(victim.answers(), [nak(PSN, NakCode::SequenceError)]);
    let filled = at(&victim, PSN);
    // 0 and 1 were held; 5 was, too, and shows the next gap.
    assert_eq!(victim.ask(&filled), [nak(2, NakCode::SequenceError)]);
    let early = at(&victim, 4);
    assert_eq!(victim.ask(&early), [nak(2, NakCode::SequenceError)], "sent again, so what is missing was lost again");
    assert_eq!(victim.pair.b.counters().out_of_seq_request, 5);
}

/// The NAKed packet is sent again and lost again: what follows on it tells that, and draws another NAK.
#[test]
fn a_gap_that_is_missed_again_draws_another_nak() {
    let (mut victim, key, base) = victim();
    let (qpn, missed) = (victim.pair.b.qpn, nak(PSN, NakCode::SequenceError));
    let at = |psn| Craft::new(Opcode::RC_WRITE_ONLY, qpn, psn).reth(base, key, 8).payload(&[7; 8]);
    assert_eq!(victim.ask(&at(0)), [missed]);
    assert_eq!(victim.ask(&at(1)), []);
    assert_eq!(victim.ask(&at(0)), [missed]);
    assert_eq!(victim.ask(&at(1)), []);
    assert_eq!(victim.pair.b.counters().send_seq_err, 2);
}
