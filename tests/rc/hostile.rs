//! Requests that break the rules, made by hand: refused with the right NAK, or dropped and counted; never memory
//! outside what was granted, never more than a bounded answer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use uroce::event::AsyncEvent;
use uroce::memory::{Access, Buffer, Region};
use uroce::qp::State;
use uroce::wire::{NakCode, Opcode, Syndrome};
use uroce::work::Status;

use crate::common::craft::{Answer, Victim};
use crate::common::pair::{Options, Pair, to};

pub(crate) const PSN: u32 = 0xff_ffff;
pub(crate) const MTU: usize = 1024;
pub(crate) const GRANTED: usize = 16_384;
const GUARD: usize = 4096;
const IOVA: u64 = 0x10_0000;

/// A victim whose key opens `GRANTED` bytes, from address `IOVA` on, between two guards in its buffer; and that key.
fn guarded(access: Access) -> (Victim, u32) {
    let options = Options { psns: [PSN, 0], memory: GRANTED + 2 * GUARD, ..Options::default() };
    let mut pair = Pair::clean(options);
    pair.b.endpoint.memory_mut().deregister(pair.b.key).unwrap();
    pair.b.fill(0, &[0xee; GUARD]);
    pair.b.fill(GUARD + GRANTED, &[0xee; GUARD]);
    let start = std::ptr::NonNull::new((pair.b.buffer.address() as usize + GUARD) as *mut u8).unwrap();
    // SAFETY: inside the buffer, which the pair keeps as long as the endpoint; it is reached through copies only.
    let region = unsafe { Region::raw(start, GRANTED, IOVA, access, pair.b.pd) };
    let key = pair.b.endpoint.memory_mut().register(region).unwrap();
    (Victim::new(pair, PSN), key)
}

fn assert_guards_hold(victim: &Victim) {
    assert_eq!(victim.pair.b.bytes(0, GUARD), [0xee; GUARD]);
    assert_eq!(victim.pair.b.bytes(GUARD + GRANTED, GUARD), [0xee; GUARD]);
}

/// A victim, the key of its region, and where that begins.
pub(crate) fn victim() -> (Victim, u32, u64) {
    let options = Options { psns: [PSN, 0], memory: GRANTED, ..Options::default() };
    let pair = Pair::clean(options);
    let (key, base) = (pair.b.key, pair.b.buffer.address());
    (Victim::new(pair, PSN), key, base)
}

pub(crate) fn nak(psn: u32, code: NakCode) -> Answer {
    (Opcode::RC_ACKNOWLEDGE, psn & 0xff_ffff, Some(Syndrome::Nak(code)))
}

pub(crate) fn ack(psn: u32) -> Answer {
    (Opcode::RC_ACKNOWLEDGE, psn & 0xff_ffff, Some(Syndrome::Ack { credits: Syndrome::NO_CREDITS }))
}

/// The victim refused with `code`, is in the error state, and reported `event`.
pub(crate) fn assert_refused(victim: &mut Victim, answers: &[Answer], psn: u32, code: NakCode, story: &str) {
    assert_eq!(answers, [nak(psn, code)], "{story}");
    assert_eq!(victim.pair.b.state(), State::Error, "{story}");
    assert_eq!(victim.pair.b.counters().send_fatal_nak, 1, "{story}");
    victim.pair.b.progress(victim.pair.now);
    let qpn = victim.pair.b.qpn;
    let event = match code {
        NakCode::RemoteAccess => AsyncEvent::QpAccessError(qpn),
        _ => AsyncEvent::QpRequestError(qpn),
    };
    assert_eq!(victim.pair.b.events, [event], "{story}");
}

#[test]
fn every_way_to_miss_the_granted_memory_is_a_remote_access_error() {
    use Opcode as O;
    // Where to, from the start of the region; the change of its key; the length; what is carried.
    let end = GRANTED as u64;
    let start: u64 = 0;
    let cases: &[(&str, O, u64, u32, u32, usize)] = &[
        ("WRITE, unknown key", O::RC_WRITE_ONLY, 0, 1, 8, 8),
        ("READ, unknown key", O::RC_READ_REQUEST, 0, 1, 8, 0),
        ("ATOMIC, unknown key", O::RC_FETCH_ADD, 0, 1, 8, 0),
        ("WRITE, one byte beyond", O::RC_WRITE_ONLY, end - 7, 0, 8, 8),
        ("WRITE, one byte before", O::RC_WRITE_ONLY, start.wrapping_sub(1), 0, 8, 8),
        ("WRITE, half the address space away", O::RC_WRITE_ONLY, 1 << 63, 0, 8, 8),
        ("READ, one byte beyond", O::RC_READ_REQUEST, end - 7, 0, 8, 0),
        ("READ of 2^31", O::RC_READ_REQUEST, 0, 0, 1 << 31, 0),
        ("ATOMIC behind the end", O::RC_FETCH_ADD, end, 0, 8, 0),
        ("a long WRITE whose end is outside", O::RC_WRITE_FIRST, end - 1500, 0, 2000, MTU),
    ];
    for &(story, opcode, offset, change, length, carried) in cases {
        let (mut victim, key, base) = victim();
        let (address, key) = (base.wrapping_add(offset), key ^ change);
        let packet = victim.request(opcode).reth(address, key, length).atomic(address, key, 1);
        let answers = victim.ask(&packet.payload(&[7; MTU][..carried]));
        assert_refused(&mut victim, &answers, PSN, NakCode::RemoteAccess, story);
        assert_eq!(victim.pair.b.bytes(0, GRANTED), vec![0; GRANTED], "{story}");
    }
    let (mut victim, _, _) = victim();
    let around = victim.request(O::RC_WRITE_ONLY).reth(u64::MAX - 3, victim.pair.b.key, 8).payload(&[7; 8]);
    let answers = victim.ask(&around);
    assert_refused(&mut victim, &answers, PSN, NakCode::RemoteAccess, "around the end of the address space");
}

#[test]
fn a_region_grants_only_what_it_was_registered_for() {
    let all = Access::LOCAL_WRITE | Access::REMOTE;
    for (story, access, packet) in [
        ("READ of what may be written only", all - Access::REMOTE_READ, Opcode::RC_READ_REQUEST),
        ("WRITE to what may be read only", all - Access::REMOTE_WRITE, Opcode::RC_WRITE_ONLY),
        ("ATOMIC on what allows none", all - Access::REMOTE_ATOMIC, Opcode::RC_COMPARE_SWAP),
    ] {
        let (mut victim, key) = guarded(access);
        let packet = victim.request(packet).reth(IOVA, key, 8).atomic(IOVA, key, 1);
        let packet = if packet.bth.opcode == Opcode::RC_WRITE_ONLY { packet.payload(&[7; 8]) } else { packet };
        let answers = victim.ask(&packet);
        assert_refused(&mut victim, &answers, PSN, NakCode::RemoteAccess, story);
        assert_eq!(victim.pair.b.bytes(GUARD, GRANTED), [0; GRANTED], "{story}");
    }
}

#[test]
fn a_key_of_another_protection_domain_opens_nothing() {
    let (mut victim, ..) = victim();
    let memory = victim.pair.b.endpoint.memory_mut();
    let other = memory.allocate_pd();
    let access = Access::LOCAL_WRITE | Access::REMOTE;
    let key = memory.register(Region::owned(Arc::new(Buffer::zeroed(64)), 0, access, other)).unwrap();
    let packet = victim.request(Opcode::RC_READ_REQUEST).reth(0, key, 8);
    let answers = victim.ask(&packet);
    assert_refused(&mut victim, &answers, PSN, NakCode::RemoteAccess, "other PD");
}

/// Sizes against opcode (scenario 6) and RETH (scenario 15), the order of opcodes, and what is not offered.
#[test]
fn what_makes_no_sense_is_an_invalid_request() {
    use Opcode as O;
    let long = vec![1; MTU + 1];
    let cases: &[(&str, O, u32, usize)] = &[
        ("FIRST that is short", O::RC_SEND_FIRST, 0, MTU - 1),
        ("FIRST that is empty", O::RC_SEND_FIRST, 0, 0),
        ("FIRST that is long", O::RC_SEND_FIRST, 0, MTU + 1),
        ("ONLY that is long", O::RC_SEND_ONLY, 0, MTU + 1),
        ("MIDDLE of nothing", O::RC_SEND_MIDDLE, 0, MTU),
        ("LAST of nothing", O::RC_SEND_LAST, 0, 8),
        ("WRITE FIRST that is short", O::RC_WRITE_FIRST, 2 * MTU as u32, MTU - 1),
        ("WRITE FIRST that is all there is", O::RC_WRITE_FIRST, MTU as u32, MTU),
        ("WRITE MIDDLE of nothing", O::RC_WRITE_MIDDLE, 0, MTU),
        ("WRITE LAST of nothing", O::RC_WRITE_LAST, 0, 8),
        ("WRITE ONLY with less than its RETH says", O::RC_WRITE_ONLY, 9, 8),
        ("WRITE ONLY with more than its RETH says", O::RC_WRITE_ONLY, 7, 8),
        ("WRITE of nothing with something", O::RC_WRITE_ONLY, 0, 8),
        ("WRITE ONLY of more than a packet", O::RC_WRITE_ONLY, MTU as u32 + 1, MTU + 1),
        ("READ of 2^31 + 1", O::RC_READ_REQUEST, (1 << 31) + 1, 0),
        ("FLUSH that places nowhere", O::RC_FLUSH, 8, 0),
        ("ATOMIC WRITE of nothing (scenario 3)", O::RC_ATOMIC_WRITE, 0, 0),
        ("ATOMIC WRITE of less than its RETH says", O::RC_ATOMIC_WRITE, 8, 0),
        ("ATOMIC WRITE of more than its RETH says", O::RC_ATOMIC_WRITE, 0, 8),
        ("ATOMIC WRITE of nine bytes", O::RC_ATOMIC_WRITE, 9, 9),
    ];
    for &(story, opcode, length, payload) in cases {
        let (mut victim, key, base) = victim();
        victim.pair.receive(1, 0, 8192);
        let packet = victim.request(opcode).reth(base, key, length).payload(&long[..payload]);
        let answers = victim.ask(&packet);
        assert_refused(&mut victim, &answers, PSN, NakCode::InvalidRequest, story);
        assert_eq!(victim.pair.b.completions.len(), 1, "{story}: the receive is flushed");
    }
}

/// Pairs of packets of which the second does not fit the first.
#[test]
fn a_message_goes_on_as_it_began() {
    use Opcode as O;
    let firsts = [(O::RC_SEND_FIRST, O::RC_SEND_LAST), (O::RC_WRITE_FIRST, O::RC_WRITE_LAST)];
    for (first, last) in firsts {
        for second in O::known().filter(|info| info.name.starts_with("RC_") && info.kind.is_request()) {
            let (mut victim, key, address) = victim();
            victim.pair.receive(1, 0, 8192);
            let length = MTU as u32 + 8;
            let begin = victim.request(first).reth(address, key, length).payload(&[1; MTU]);
            assert_eq!(victim.ask(&begin), [ack(PSN)]);
            victim.psn = 0;
            let is_full = second.position == uroce::wire::Position::Middle;
            let is_empty = second.payload == uroce::wire::PayloadRule::None;
            let bytes = vec![
                2;
                if is_empty {
                    0
                } else if is_full {
                    MTU
                } else {
                    8
                }
            ];
            let next = victim.request(second.opcode).reth(address, key, 8).atomic(address, key, 1).payload(&bytes);
            let answers = victim.ask(&next);
            let same_kind = last.info().unwrap().kind == second.kind && !second.position.is_first();
            // A WRITE of 8 more bytes cannot have a full packet in the middle; a SEND may go on.
            let fits = same_kind && !(is_full && first == O::RC_WRITE_FIRST);
            let invalidates = second.name.contains("INVALIDATE");
            let story = format!("{} after {first}", second.name);
            match (fits, invalidates) {
                (true, true) => assert_eq!(answers, [nak(0, NakCode::RemoteAccess)], "{story}"),
                (true, false) => assert_eq!(answers, [ack(0)], "{story}"),
                (false, _) => assert_eq!(answers, [nak(0, NakCode::InvalidRequest)], "{story}"),
            }
        }
    }
}

#[test]
fn what_the_queue_pair_does_not_allow_is_an_invalid_request_whatever_the_key() {
    for (opcode, right) in [
        (Opcode::RC_WRITE_ONLY, Access::REMOTE_WRITE),
        (Opcode::RC_READ_REQUEST, Access::REMOTE_READ),
        (Opcode::RC_FETCH_ADD, Access::REMOTE_ATOMIC),
    ] {
        let (mut victim, key, address) = victim();
        let qpn = victim.pair.b.qpn;
        let less = uroce::qp::Attributes { access: Some(Access::REMOTE - right), ..uroce::qp::Attributes::default() };
        victim.pair.b.endpoint.modify_qp(victim.pair.now, qpn, &less).unwrap();
        let bytes: &[u8] = if opcode == Opcode::RC_WRITE_ONLY { &[7; 8] } else { &[] };
        let packet = victim.request(opcode).reth(address, key, 8).atomic(address, key, 1).payload(bytes);
        let answers = victim.ask(&packet);
        assert_refused(&mut victim, &answers, PSN, NakCode::InvalidRequest, "no such right");
    }
}

#[test]
fn a_misaligned_atomic_changes_nothing() {
    for offset in [1, 4, 7] {
        let (mut victim, key, base) = victim();
        let packet = victim.request(Opcode::RC_FETCH_ADD).atomic(base + offset, key, 1);
        let answers = victim.ask(&packet);
        assert_refused(&mut victim, &answers, PSN, NakCode::InvalidRequest, "misaligned");
        assert_eq!(victim.pair.b.bytes(0, 64), [0; 64]);
    }
}

#[test]
fn a_message_longer_than_its_receive_fails_both_ends() {
    let (mut victim, ..) = victim();
    victim.pair.receive(1, 0, 10);
    victim.pair.receive(2, 64, 10);
    let packet = victim.request(Opcode::RC_SEND_ONLY).payload(&[7; 11]);
    let answers = victim.ask(&packet);
    assert_refused(&mut victim, &answers, PSN, NakCode::InvalidRequest, "too long");
    let ended: Vec<_> = victim.pair.b.completions.iter().map(|c| (c.id, c.status)).collect();
    assert_eq!(ended, [(1, Status::LocalLengthError), (2, Status::FlushError)]);
    assert_eq!(victim.pair.b.bytes(10, 54), [0; 54], "nothing beyond the element");
}

/// A WRITE with immediate takes a receive request before its memory is checked. When that is refused, the receive is
/// flushed like the others: once, it vanished (found by fuzzing).
#[test]
fn a_receive_that_a_refused_write_took_is_flushed() {
    let (mut victim, key, base) = victim();
    victim.pair.receive(1, 0, 8);
    victim.pair.receive(2, 0, 8);
    let packet = victim.request(Opcode::RC_WRITE_ONLY_IMM).reth(base, key ^ 1, 8).payload(&[7; 8]);
    let answers = victim.ask(&packet);
    assert_refused(&mut victim, &answers, PSN, NakCode::RemoteAccess, "unknown key");
    let ended: Vec<_> = victim.pair.b.completions.iter().map(|c| (c.id, c.status)).collect();
    assert_eq!(ended, [(1, Status::FlushError), (2, Status::FlushError)]);
}

#[test]
fn a_receive_into_memory_that_is_gone_is_a_remote_operational_error() {
    let (mut victim, ..) = victim();
    victim.pair.receive(1, 0, 10);
    let key = victim.pair.b.key;
    victim.pair.b.endpoint.memory_mut().deregister(key).unwrap();
    let packet = victim.request(Opcode::RC_SEND_ONLY).payload(&[7; 8]);
    let answers = victim.ask(&packet);
    assert_refused(&mut victim, &answers, PSN, NakCode::RemoteOperational, "gone");
    assert_eq!(victim.pair.b.completions[0].status, Status::LocalProtectionError);
}

#[test]
fn no_bytes_need_no_key() {
    for opcode in [Opcode::RC_WRITE_ONLY, Opcode::RC_READ_REQUEST] {
        let (mut victim, ..) = victim();
        let packet = victim.request(opcode).reth(0xdead_beef, 0x1234, 0);
        let answers = victim.ask(&packet);
        let expected =
            if opcode == Opcode::RC_READ_REQUEST { Opcode::RC_READ_RESPONSE_ONLY } else { Opcode::RC_ACKNOWLEDGE };
        assert_eq!((answers.len(), answers[0].0, answers[0].1), (1, expected, PSN));
        assert_eq!(victim.pair.b.state(), State::ReadyToSend);
    }
}

/// Packets that are no request of this connection: dropped without an answer, under the counter of the reason.
#[test]
fn strangers_are_dropped_and_counted() {
    let (mut victim, key, base) = victim();
    let good = victim.request(Opcode::RC_WRITE_ONLY).reth(base, key, 8).payload(&[7; 8]);
    let stranger = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77));
    victim.push_from(stranger, &good.bytes());
    let mut other = good.clone();
    other.bth.pkey = 0x8001;
    victim.push(&other);
    let mut nobody = good.clone();
    nobody.bth.destination = uroce::wire::Qpn::new(0x01_0fff);
    victim.push(&nobody);
    for opcode in [Opcode::UC_SEND_ONLY, Opcode::UD_SEND_ONLY, Opcode::XRC_SEND_ONLY, Opcode::CNP] {
        let payload = if opcode == Opcode::CNP { vec![0; 16] } else { vec![1; 8] };
        let packet = victim.request(opcode).payload(&payload);
        victim.push(&packet);
    }
    // Every opcode that does not exist, to the multicast number too (scenario 1), a runt, and a forged pad (scenario 2).
    let mut malformed = 0;
    for value in (0..=255).filter(|&value| Opcode::new(value).info().is_none()) {
        for destination in [0xff_ffff, victim.pair.b.qpn.value()] {
            let mut bytes = good.bytes();
            bytes[0] = value;
            bytes[5..8].copy_from_slice(&destination.to_be_bytes()[1..]);
            victim.push_from(victim.pair.a.address, &bytes);
            malformed += 1;
        }
    }
    let mut padded = victim.request(Opcode::RC_SEND_ONLY);
    padded.bth.pad = 3;
    let padded = padded.bytes()[..12].to_vec();
    victim.push_from(victim.pair.a.address, &padded);
    for length in 0..good.bytes().len() - 8 {
        victim.push_from(victim.pair.a.address, &good.bytes()[..length]);
    }
    malformed += 1 + good.bytes().len() as u64 - 8;
    assert!(victim.drain().is_empty());
    assert_eq!(victim.pair.b.bytes(0, 64), [0; 64]);
    let counters = victim.pair.b.counters();
    assert_eq!((counters.wrong_address, counters.bad_pkey, counters.no_queue_pair), (1, 1, 1));
    assert_eq!((counters.wrong_transport, counters.malformed, counters.rcvd_pkts), (4, malformed, 0));
    assert_eq!(victim.ask(&good), [ack(PSN)], "the connection is none the worse");
}

#[test]
fn only_states_from_rtr_on_take_packets() {
    for state in [State::Reset, State::Error] {
        let (mut victim, key, base) = victim();
        let qpn = victim.pair.b.qpn;
        victim.pair.b.endpoint.modify_qp(victim.pair.now, qpn, &to(state)).unwrap();
        let packet = victim.request(Opcode::RC_WRITE_ONLY).reth(base, key, 8).payload(&[7; 8]);
        assert_eq!(victim.ask(&packet), []);
        assert_eq!(victim.pair.b.counters().no_queue_pair, 1);
    }
}

/// Requests at both edges of a region, inside and one byte outside: the guards around it stay as they are.
#[test]
fn the_edges_of_a_region_hold() {
    let all = Access::LOCAL_WRITE | Access::REMOTE;
    let (first, last) = (IOVA, IOVA + GRANTED as u64 - 8);
    let (mut victim, key) = guarded(all);
    for address in [first, last] {
        let write = victim.request(Opcode::RC_WRITE_ONLY).reth(address, key, 8).payload(&[7; 8]);
        assert_eq!(victim.ask(&write), [ack(victim.psn)]);
        victim.psn = (victim.psn + 1) & 0xff_ffff;
        let add = victim.request(Opcode::RC_FETCH_ADD).atomic(address, key, 1);
        assert_eq!(victim.ask(&add)[0].0, Opcode::RC_ATOMIC_ACKNOWLEDGE);
        victim.psn = (victim.psn + 1) & 0xff_ffff;
    }
    assert_guards_hold(&victim);
    assert_eq!(victim.pair.b.bytes(GUARD + 8, GRANTED - 16), vec![0; GRANTED - 16]);
    for address in [first - 1, last + 1, first - 8, last + 8] {
        for opcode in [Opcode::RC_WRITE_ONLY, Opcode::RC_FETCH_ADD, Opcode::RC_COMPARE_SWAP] {
            let (mut victim, key) = guarded(all);
            let bytes: &[u8] = if opcode == Opcode::RC_WRITE_ONLY { &[7; 8] } else { &[] };
            let packet = victim.request(opcode).reth(address, key, 8).atomic(address, key, 1).payload(bytes);
            let answers = victim.ask(&packet);
            assert!(matches!(answers[..], [(_, PSN, Some(Syndrome::Nak(_)))]), "{answers:?}");
            assert_guards_hold(&victim);
        }
    }
}
