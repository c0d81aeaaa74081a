//! Memory windows between two endpoints: what they open, to whom, and until when.

use uroce::memory::{Access, WindowBind, WindowType, next_key};
use uroce::port::SimConfig;
use uroce::qp::State;
use uroce::wire::{NakCode, Opcode, Qpn, Syndrome};
use uroce::work::{CompletionKind, Operation, Remote, SendRequest, Status, Tag};

use crate::bench::{SECOND, assert_ended, bind, ended, holder, options, pair, post_b, window};
use crate::common::craft::Victim;
use crate::common::mesh::Mesh;
use crate::common::pair::{Pair, to};

const ACK: Syndrome = Syndrome::Ack { credits: Syndrome::NO_CREDITS };

/// Binds bytes 64 to 128 of B's region; the window's key.
fn bound(pair: &mut Pair, window_type: WindowType, access: Access) -> u32 {
    let window = window(&mut pair.b, window_type);
    let bind = bind(&pair.b, window, 64, 64, access);
    post_b(pair, 1, Operation::BindWindow(bind), &[]);
    pair.run(SECOND);
    assert_ended(&mut pair.b.completions, 1, Status::Success, CompletionKind::BindWindow);
    bind.rkey
}

fn through(pair: &Pair, rkey: u32, offset: usize) -> Remote {
    Remote { rkey, ..pair.b.remote(offset) }
}

#[test]
fn a_peer_reaches_through_a_window_what_it_was_opened_for() {
    for window_type in [WindowType::One, WindowType::Two] {
        let mut pair = pair();
        let rkey = bound(&mut pair, window_type, Access::REMOTE);
        pair.a.fill(0, &[7; 64]);
        let remote = through(&pair, rkey, 64);
        pair.post_simple(1, Operation::Write(remote), 64);
        pair.post_simple(2, Operation::FetchAndAdd { remote, add: 1 }, 8);
        pair.post(SendRequest::new(3, Operation::Read(remote), &[pair.a.sge(100, 64)]));
        pair.run(SECOND);
        let statuses: Vec<_> = ended(&mut pair.a.completions).iter().map(|done| done.1).collect();
        assert_eq!(statuses, [Status::Success; 3], "{window_type:?}");
        assert_eq!((pair.b.bytes(63, 2), pair.b.bytes(72, 57)), (vec![0, 8], [&[7; 56][..], &[0]].concat()));
        assert_eq!(pair.a.bytes(108, 56), [7; 56]);
        pair.assert_nothing_spurious();
    }
}

/// Programs bind a window with the flags that its region has, local write among them, as rdma-core's own tests do: such a bind was
/// refused. Local write says nothing about a peer.
#[test]
fn flags_that_are_not_about_a_peer_open_nothing_and_are_no_error() {
    for window_type in [WindowType::One, WindowType::Two] {
        let mut pair = pair();
        let rkey = bound(&mut pair, window_type, Access::LOCAL_WRITE | Access::MW_BIND | Access::REMOTE_WRITE);
        let remote = through(&pair, rkey, 64);
        pair.post_simple(1, Operation::Write(remote), 64);
        pair.run(SECOND);
        assert_ended(&mut pair.a.completions, 1, Status::Success, CompletionKind::Write);
        pair.post(SendRequest::new(2, Operation::Read(remote), &[pair.a.sge(0, 8)]));
        pair.run(SECOND);
        assert_ended(&mut pair.a.completions, 2, Status::RemoteAccessError, CompletionKind::Read);
    }
    let mut pair = pair();
    let rkey = bound(&mut pair, WindowType::Two, Access::LOCAL_WRITE);
    let remote = through(&pair, rkey, 64);
    pair.post_simple(1, Operation::Write(remote), 8);
    pair.run(SECOND);
    assert_ended(&mut pair.a.completions, 1, Status::RemoteAccessError, CompletionKind::Write);
}

/// One access each, and the peer is cut off.
#[test]
fn what_a_window_does_not_open_is_a_remote_access_error() {
    type Access1 = fn(&Pair, u32) -> (Operation, u32);
    let cases: [(&str, Access1); 6] = [
        ("a READ through a window for writing", |pair, key| (Operation::Read(through(pair, key, 64)), 8)),
        ("an ATOMIC through it", |pair, key| (Operation::FetchAndAdd { remote: through(pair, key, 64), add: 1 }, 8)),
        ("a byte before", |pair, key| (Operation::Write(through(pair, key, 63)), 2)),
        ("a byte behind", |pair, key| (Operation::Write(through(pair, key, 120)), 9)),
        ("the key before", |pair, key| {
            (Operation::Write(through(pair, key & !0xff | key.wrapping_sub(1) & 0xff, 64)), 8)
        }),
        ("the next key", |pair, key| (Operation::Write(through(pair, next_key(key), 64)), 8)),
    ];
    for (story, access) in cases {
        let mut pair = pair();
        let rkey = bound(&mut pair, WindowType::Two, Access::REMOTE_WRITE);
        let before = pair.b.bytes(0, 256);
        let (operation, length) = access(&pair, rkey);
        pair.post_simple(1, operation, length);
        pair.run(SECOND);
        assert_eq!(ended(&mut pair.a.completions)[0].1, Status::RemoteAccessError, "{story}");
        assert_eq!((pair.b.state(), pair.b.bytes(0, 256)), (State::Error, before), "{story}");
    }
}

#[test]
fn a_type_2_window_is_its_queue_pairs_alone_and_a_type_1_window_its_domains() {
    for (window_type, expected) in [(WindowType::One, Status::Success), (WindowType::Two, Status::RemoteAccessError)] {
        let mut mesh = Mesh::new(1, SimConfig::default(), 2, options());
        let [_, first] = mesh.connect(0, 1);
        let [second, _] = mesh.connect(0, 1);
        let window = window(&mut mesh.hosts[1], window_type);
        let bind = bind(&mesh.hosts[1], window, 0, 64, Access::REMOTE_WRITE);
        let request = SendRequest::new(1, Operation::BindWindow(bind), &[]);
        let now = mesh.now;
        mesh.hosts[1].endpoint.post_send(now, first, request).unwrap();
        mesh.run(SECOND);
        let remote = Remote { rkey: bind.rkey, ..mesh.hosts[1].remote(0) };
        let request = SendRequest::new(2, Operation::Write(remote), &[mesh.hosts[0].sge(0, 64)]);
        let now = mesh.now;
        mesh.hosts[0].endpoint.post_send(now, second, request).unwrap();
        mesh.run(SECOND);
        assert_eq!(mesh.hosts[0].completions.last().unwrap().status, expected, "{window_type:?}");
    }
}

#[test]
fn a_window_ends_with_its_queue_pair_which_another_peer_may_get() {
    let mut pair = pair();
    let rkey = bound(&mut pair, WindowType::Two, Access::REMOTE_WRITE);
    let (qpn, now) = (pair.b.qpn, pair.now);
    let open = |pair: &Pair| {
        let holder = holder(&pair.b);
        let address = pair.b.remote(64).address;
        pair.b.endpoint.memory().resolve_remote(rkey, holder, address, 8, Access::REMOTE_WRITE).is_ok()
    };
    assert!(open(&pair));
    pair.b.endpoint.modify_qp(now, qpn, &to(State::Error)).unwrap();
    assert!(open(&pair), "an error alone leaves it");
    pair.b.endpoint.modify_qp(now, qpn, &to(State::Reset)).unwrap();
    assert!(!open(&pair));
    assert!(pair.b.endpoint.memory_mut().deregister(pair.b.key).is_ok(), "nothing is bound any more");
}

#[test]
fn an_invalidated_window_is_closed_whoever_did_it() {
    for by_peer in [false, true] {
        let mut pair = pair();
        let rkey = bound(&mut pair, WindowType::Two, Access::REMOTE_WRITE);
        if by_peer {
            pair.receive(9, 0, 64);
            pair.post_simple(1, Operation::SendInvalidate(rkey), 4);
            pair.run(SECOND);
            let received = pair.b.completions.pop().unwrap();
            assert_eq!((received.id, received.tag), (9, Tag::Invalidated(rkey)));
            assert_ended(&mut pair.a.completions, 1, Status::Success, CompletionKind::Send);
        } else {
            post_b(&mut pair, 2, Operation::LocalInvalidate(rkey), &[]);
            pair.run(SECOND);
            assert_ended(&mut pair.b.completions, 2, Status::Success, CompletionKind::LocalInvalidate);
        }
        pair.assert_nothing_spurious();
        // Bound again under another key, it is open; the former key stays worthless.
        let again = bind(&pair.b, rkey, 64, 64, Access::REMOTE_WRITE);
        post_b(&mut pair, 3, Operation::BindWindow(again), &[]);
        pair.run(SECOND);
        let remote = through(&pair, again.rkey, 64);
        pair.post_simple(4, Operation::Write(remote), 64);
        pair.run(SECOND);
        assert_ended(&mut pair.a.completions, 4, Status::Success, CompletionKind::Write);
        let remote = through(&pair, rkey, 64);
        pair.post_simple(5, Operation::Write(remote), 64);
        pair.run(SECOND);
        assert_ended(&mut pair.a.completions, 5, Status::RemoteAccessError, CompletionKind::Write);
    }
}

#[test]
fn a_peer_invalidates_no_region_no_type_1_window_and_nothing_twice() {
    for case in 0..4 {
        let mut pair = pair();
        let key = match case {
            0 => pair.b.key,
            1 => bound(&mut pair, WindowType::One, Access::REMOTE_WRITE),
            2 => window(&mut pair.b, WindowType::Two),
            _ => bound(&mut pair, WindowType::Two, Access::REMOTE_WRITE) ^ 1,
        };
        pair.receive(9, 0, 64);
        pair.post_simple(1, Operation::SendInvalidate(key), 4);
        pair.run(SECOND);
        assert_ended(&mut pair.a.completions, 1, Status::RemoteAccessError, CompletionKind::Send);
        let received = ended(&mut pair.b.completions);
        assert_eq!(received[0].1, Status::LocalProtectionError, "case {case}");
        assert_eq!(pair.b.state(), State::Error, "case {case}");
    }
}

#[test]
fn a_write_that_is_under_way_ends_with_its_window() {
    const PSN: u32 = 0xff_fff0;
    let mut victim = Victim::new(pair(), PSN);
    let rkey = bound(&mut victim.pair, WindowType::Two, Access::REMOTE_WRITE);
    let holder = holder(&victim.pair.b);
    let address = victim.pair.b.remote(64).address;
    let first = victim.request(Opcode::RC_WRITE_FIRST).payload(&[1; 1024]);
    assert!(victim.pair.b.endpoint.memory_mut().invalidate(rkey, holder).is_ok());
    let window = bind(&victim.pair.b, rkey, 64, 2048, Access::REMOTE_WRITE);
    victim.pair.b.endpoint.memory_mut().bind_window(holder, &window).unwrap();
    assert_eq!(victim.ask(&first.reth(address, window.rkey, 2048)), [(Opcode::RC_ACKNOWLEDGE, PSN, Some(ACK))]);
    assert!(victim.pair.b.endpoint.memory_mut().invalidate(window.rkey, holder).is_ok());
    victim.psn += 1;
    let last = victim.request(Opcode::RC_WRITE_LAST).payload(&[1; 1024]);
    let refused = Some(Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(victim.ask(&last), [(Opcode::RC_ACKNOWLEDGE, PSN + 1, refused)]);
    assert_eq!((victim.pair.b.bytes(64, 1024), victim.pair.b.bytes(1088, 1024)), (vec![1; 1024], vec![0; 1024]));
}

#[test]
fn a_bind_that_breaks_a_rule_breaks_the_queue_pair() {
    let mut pair = pair();
    let window = window(&mut pair.b, WindowType::Two);
    let good = bind(&pair.b, window, 0, 8, Access::REMOTE_WRITE);
    let sge = pair.b.sge(0, 8);
    let to_a = pair.a.remote(0);
    post_b(&mut pair, 1, Operation::Write(to_a), &[sge]);
    post_b(&mut pair, 2, Operation::BindWindow(WindowBind { length: u64::MAX, ..good }), &[]);
    post_b(&mut pair, 3, Operation::Write(to_a), &[sge]);
    pair.run(SECOND);
    assert_eq!(
        ended(&mut pair.b.completions),
        [
            (1, Status::Success, CompletionKind::Write),
            (2, Status::MemoryWindowBindError, CompletionKind::BindWindow),
            (3, Status::FlushError, CompletionKind::Write),
        ]
    );
    assert_eq!(pair.b.state(), State::Error);
}

#[test]
fn destroying_a_queue_pair_frees_the_region_of_its_windows() {
    let mut pair = pair();
    bound(&mut pair, WindowType::Two, Access::REMOTE_WRITE);
    let (key, qpn): (u32, Qpn) = (pair.b.key, pair.b.qpn);
    assert_eq!(pair.b.endpoint.memory_mut().deregister(key).unwrap_err().errno(), 16);
    pair.b.endpoint.destroy_qp(qpn).unwrap();
    assert!(pair.b.endpoint.memory_mut().deregister(key).is_ok());
}
