//! ATOMIC WRITE: eight bytes in one step, answered without data, executed once.

use uroce::memory::{Access, Buffer, Region};
use uroce::qp::{Attributes, State};
use uroce::time::Duration;
use uroce::wire::{NakCode, Opcode, Syndrome};
use uroce::work::{CompletionKind, Operation, Remote, SendRequest, Status};

use crate::bench::{SECOND, assert_ended, ended, options, pair};
use crate::common::craft::Victim;
use crate::common::pair::{Options, Pair};
use crate::common::watch::{drop_first, watch};

#[test]
fn eight_bytes_arrive_from_memory_and_inline() {
    let mut pair = pair();
    pair.a.fill(0, b"8 bytes!");
    pair.post_simple(1, Operation::AtomicWrite(pair.b.remote(16)), 8);
    pair.post(SendRequest::inline(2, Operation::AtomicWrite(pair.b.remote(24)), b"inlined!"));
    pair.run(SECOND);
    assert_eq!(ended(&mut pair.a.completions), [1, 2].map(|id| (id, Status::Success, CompletionKind::AtomicWrite)));
    assert_eq!(pair.b.bytes(16, 16), b"8 bytes!inlined!");
    pair.assert_nothing_spurious();
}

#[test]
fn more_than_the_depth_wait_their_turn() {
    let mut pair = Pair::clean(Options { rd_atomic: 1, ..options() });
    for n in 0..20 {
        let remote = pair.b.remote(8 * n);
        pair.post(SendRequest::inline(n as u64, Operation::AtomicWrite(remote), &[n as u8 + 1; 8]));
    }
    pair.run(SECOND);
    assert_eq!(pair.a.completions.len(), 20);
    assert!((0..20).all(|n| pair.b.bytes(8 * n, 8) == [n as u8 + 1; 8]));
    pair.assert_nothing_spurious();
}

/// The answer is lost; meanwhile the responder's program changed the bytes, which a second execution would undo.
#[test]
fn a_lost_answer_is_given_again_and_nothing_is_done_twice() {
    let mut pair = pair();
    let log = watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::RC_READ_RESPONSE_ONLY));
    pair.post(SendRequest::inline(1, Operation::AtomicWrite(pair.b.remote(0)), b"eternity"));
    pair.run(Duration::from_micros(100));
    assert_eq!(pair.b.bytes(0, 8), b"eternity");
    pair.b.fill(0, b"changed!");
    pair.run(SECOND);
    assert_ended(&mut pair.a.completions, 1, Status::Success, CompletionKind::AtomicWrite);
    assert_eq!(pair.b.bytes(0, 8), b"changed!");
    assert!(log.of(Opcode::RC_ATOMIC_WRITE).len() > 1);
    assert_eq!(log.of(Opcode::RC_READ_RESPONSE_ONLY).len(), 2);
}

/// An acknowledge of what comes behind it is an implied NAK of it, as for a READ.
#[test]
fn a_write_behind_it_does_not_acknowledge_it() {
    let mut pair = pair();
    watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::RC_READ_RESPONSE_ONLY));
    pair.post(SendRequest::inline(1, Operation::AtomicWrite(pair.b.remote(0)), &[1; 8]));
    pair.post_simple(2, Operation::Write(pair.b.remote(8)), 8);
    pair.run(SECOND);
    let done: Vec<_> = ended(&mut pair.a.completions).iter().map(|done| (done.0, done.1)).collect();
    assert_eq!(done, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.a.counters().implied_nak, 1);
}

#[test]
fn what_is_refused_and_how() {
    const PSN: u32 = 0xff_fff0;
    let case = |story: &str, offset: u64, key: u32, length: u32, payload: &[u8], code: NakCode| {
        let mut victim = Victim::new(pair(), PSN);
        let remote = victim.pair.b.remote(0);
        let packet = victim.request(Opcode::RC_ATOMIC_WRITE).reth(remote.address + offset, remote.rkey ^ key, length);
        let answers = victim.ask(&packet.payload(payload));
        assert_eq!(answers, [(Opcode::RC_ACKNOWLEDGE, PSN, Some(Syndrome::Nak(code)))], "{story}");
        assert_eq!(victim.pair.b.state(), State::Error, "{story}");
        assert_eq!(victim.pair.b.bytes(0, 64), [0; 64], "{story}");
    };
    case("not aligned", 4, 0, 8, &[1; 8], NakCode::InvalidRequest);
    case("four bytes", 0, 0, 4, &[1; 4], NakCode::InvalidRequest);
    case("a RETH of nothing (scenario 3)", 0, 0, 0, &[1; 8], NakCode::InvalidRequest);
    case("no payload (scenario 3)", 0, 0, 8, &[], NakCode::InvalidRequest);
    case("sixteen bytes", 0, 0, 16, &[1; 16], NakCode::InvalidRequest);
    case("another key", 0, 1, 8, &[1; 8], NakCode::RemoteAccess);
    case("outside", 1 << 20, 0, 8, &[1; 8], NakCode::RemoteAccess);
}

#[test]
fn queue_pair_and_region_must_allow_writing() {
    let mut pair = pair();
    let (pd, now, qpn) = (pair.b.pd, pair.now, pair.b.qpn);
    let region = Region::owned(Buffer::zeroed(64).into(), 0, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC, pd);
    let rkey = pair.b.endpoint.memory_mut().register(region).unwrap();
    pair.post(SendRequest::inline(1, Operation::AtomicWrite(Remote { address: 0, rkey }), &[1; 8]));
    pair.run(SECOND);
    assert_ended(&mut pair.a.completions, 1, Status::RemoteAccessError, CompletionKind::AtomicWrite);

    let mut pair = crate::bench::pair();
    let access = Attributes { access: Some(Access::REMOTE_ATOMIC), ..Attributes::default() };
    pair.b.endpoint.modify_qp(now, qpn, &access).unwrap();
    pair.post(SendRequest::inline(1, Operation::AtomicWrite(pair.b.remote(0)), &[1; 8]));
    pair.run(SECOND);
    assert_ended(&mut pair.a.completions, 1, Status::RemoteInvalidRequestError, CompletionKind::AtomicWrite);
}

#[test]
fn eight_bytes_exactly_are_taken_when_posting() {
    let mut pair = pair();
    for length in [0, 4, 16] {
        let request = SendRequest::new(1, Operation::AtomicWrite(pair.b.remote(0)), &[pair.a.sge(0, length)]);
        let error = pair.a.endpoint.post_send(pair.now, pair.a.qpn, request).unwrap_err();
        assert_eq!(error.errno(), 22, "{length}");
    }
}
