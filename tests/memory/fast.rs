//! Fast regions between two endpoints.

use uroce::memory::{Access, FastRegister, next_key};
use uroce::qp::State;
use uroce::work::{CompletionKind, Operation, Remote, SendRequest, Sge, Status, Tag};

use crate::bench::{SECOND, assert_ended, ended, fast, pair, post_b};

const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE);

/// The usual life of a key: registered, told to the peer, used, and invalidated by the peer's answer (NVMe over fabrics).
#[test]
fn a_key_lives_from_its_registration_to_the_peers_answer() {
    let mut pair = pair();
    let mut register = fast(&mut pair.b, 128, 64, ALL);
    for round in 0..5 {
        let sge = pair.b.sge(0, 4);
        post_b(&mut pair, 1, Operation::FastRegister(register), &[]);
        post_b(&mut pair, 2, Operation::Send, &[sge]);
        let receive = uroce::work::ReceiveRequest::new(7, &[pair.a.sge(1000, 64)]);
        pair.a.endpoint.post_receive(pair.now, pair.a.qpn, receive).unwrap();
        pair.run(SECOND);
        assert_eq!(
            ended(&mut pair.b.completions),
            [(1, Status::Success, CompletionKind::FastRegister), (2, Status::Success, CompletionKind::Send)]
        );
        assert_ended(&mut pair.a.completions, 7, Status::Success, CompletionKind::Receive);

        pair.a.fill(0, &[round; 64]);
        pair.receive(8, 0, 64);
        pair.post_simple(3, Operation::Write(Remote { address: register.iova, rkey: register.key }), 64);
        pair.post_simple(4, Operation::SendInvalidate(register.key), 4);
        pair.run(SECOND);
        assert_eq!(ended(&mut pair.a.completions).len(), 2);
        assert_eq!(pair.b.completions.pop().unwrap().tag, Tag::Invalidated(register.key));
        assert_eq!(pair.b.bytes(128, 64), [round; 64]);
        register.key = next_key(register.key);
    }
    pair.assert_nothing_spurious();
}

#[test]
fn a_fast_region_is_good_for_our_own_requests() {
    let mut pair = pair();
    let register = FastRegister { iova: 0x100, access: Access::LOCAL_WRITE, ..fast(&mut pair.b, 64, 64, ALL) };
    pair.a.fill(0, &[9; 64]);
    let from_a = pair.a.remote(0);
    let sge = Sge { address: 0x100, length: 64, lkey: register.key };
    post_b(&mut pair, 1, Operation::FastRegister(register), &[]);
    post_b(&mut pair, 2, Operation::Read(from_a), &[sge]);
    post_b(&mut pair, 3, Operation::LocalInvalidate(register.key), &[]);
    pair.run(SECOND);
    let statuses: Vec<_> = ended(&mut pair.b.completions).iter().map(|done| (done.0, done.1)).collect();
    assert_eq!(statuses, [1, 2, 3].map(|id| (id, Status::Success)));
    assert_eq!(pair.b.bytes(64, 64), [9; 64]);
    post_b(&mut pair, 4, Operation::Read(from_a), &[sge]);
    pair.run(SECOND);
    assert_ended(&mut pair.b.completions, 4, Status::LocalProtectionError, CompletionKind::Read);
}

#[test]
fn a_stale_key_opens_nothing() {
    let mut pair = pair();
    let register = fast(&mut pair.b, 0, 64, ALL);
    post_b(&mut pair, 1, Operation::FastRegister(register), &[]);
    post_b(&mut pair, 2, Operation::LocalInvalidate(register.key), &[]);
    let again = FastRegister { key: next_key(register.key), ..register };
    post_b(&mut pair, 3, Operation::FastRegister(again), &[]);
    pair.run(SECOND);
    pair.post_simple(4, Operation::Write(Remote { address: register.iova, rkey: register.key }), 8);
    pair.run(SECOND);
    assert_ended(&mut pair.a.completions, 4, Status::RemoteAccessError, CompletionKind::Write);
}

#[test]
fn what_breaks_a_rule_breaks_the_queue_pair() {
    let mut pair = pair();
    let register = fast(&mut pair.b, 0, 64, ALL);
    let cases = [
        ("too long", Operation::FastRegister(FastRegister { length: 4097, ..register }), CompletionKind::FastRegister),
        ("not registered", Operation::LocalInvalidate(register.key), CompletionKind::LocalInvalidate),
        ("an ordinary region", Operation::LocalInvalidate(pair.b.key), CompletionKind::LocalInvalidate),
    ];
    for (story, operation, kind) in cases {
        let mut pair = crate::bench::pair();
        fast(&mut pair.b, 0, 64, ALL);
        post_b(&mut pair, 1, operation, &[]);
        pair.run(SECOND);
        assert_eq!(ended(&mut pair.b.completions), [(1, Status::LocalQpOperationError, kind)], "{story}");
        assert_eq!(pair.b.state(), State::Error, "{story}");
    }
    let error = pair.a.endpoint.post_send(
        pair.now,
        pair.a.qpn,
        SendRequest::new(1, Operation::LocalInvalidate(1), &[pair.a.sge(0, 8)]),
    );
    assert_eq!(error.unwrap_err().errno(), 22, "it moves no bytes");
}
