//! The life of a queue pair: what each state takes, what a change of state does to what is posted.

use std::sync::{Arc, Mutex};

use uroce::event::AsyncEvent;
use uroce::memory::{Access, Buffer, Region};
use uroce::port::{SimDatagram, Verdict};
use uroce::qp::{AddressVector, Attributes, State};
use uroce::time::{Duration, Instant};
use uroce::wire::Opcode;
use uroce::work::{Completion, Operation, ReceiveRequest, SendFlags, SendRequest, Status};

use crate::common::craft::deliver;
use crate::common::mesh::Mesh;
use crate::common::pair::{Options, Pair, Side, connect, to, way_to_rts};
use crate::common::watch::{drop_first, watch};

const SECOND: Duration = Duration::from_secs(1);

fn statuses(completions: &[Completion]) -> Vec<(u64, Status)> {
    completions.iter().map(|c| (c.id, c.status)).collect()
}

fn modify(side: &mut Side, attributes: &Attributes) -> Result<(), String> {
    side.endpoint.modify_qp(Instant::ZERO, side.qpn, attributes).map_err(|error| error.to_string())
}

/// Two hosts, whose queue pairs are in RESET, and the attributes that lead the first one to RTS.
fn fresh() -> (Mesh, [Attributes; 3]) {
    let options = Options::default();
    let mesh = Mesh::new(1, uroce::port::SimConfig::default(), 2, options);
    let way = way_to_rts(&options, [5, 6], (mesh.hosts[1].qpn, mesh.hosts[1].address));
    (mesh, way)
}

#[test]
fn each_state_takes_the_requests_it_may() {
    let (mut mesh, [init, rtr, rts]) = fresh();
    let side = &mut mesh.hosts[0];
    let post = |side: &mut Side| {
        let sge = side.sge(0, 8);
        let send = SendRequest::new(1, Operation::Send, &[sge]);
        let sent = side.endpoint.post_send(Instant::ZERO, side.qpn, send).map_err(|error| error.to_string());
        let receive = ReceiveRequest::new(2, &[sge]);
        let received = side.endpoint.post_receive(Instant::ZERO, side.qpn, receive).map_err(|error| error.to_string());
        (sent, received)
    };
    let refused = |state: &str| Err(format!("qp: in state {state}; requests can be sent from RTS on"));
    let no_receive = Err("qp: in state Reset; receives can be posted from INIT on".to_owned());
    assert_eq!(post(side), (refused("Reset"), no_receive.clone()));
    for (attributes, state, sends) in [
        (init, State::Init, false),
        (rtr, State::ReadyToReceive, false),
        (rts, State::ReadyToSend, true),
        (to(State::SendQueueDrained), State::SendQueueDrained, true),
    ] {
        modify(side, &attributes).unwrap();
        assert_eq!(side.state(), state);
        let sent = if sends { Ok(()) } else { refused(&format!("{state:?}")) };
        assert_eq!(post(side), (sent, Ok(())), "{state:?}");
    }
    modify(side, &to(State::Error)).unwrap();
    side.progress(Instant::ZERO);
    let flushed = statuses(&side.completions);
    assert_eq!(flushed, [1, 1, 2, 2, 2, 2].map(|id| (id, Status::FlushError)), "sends and receives, each in order");
    side.completions.clear();
    assert_eq!(post(side), (Ok(()), Ok(())));
    side.progress(Instant::ZERO);
    assert_eq!(statuses(&side.completions), [(1, Status::FlushError), (2, Status::FlushError)], "at once");
    side.completions.clear();
    modify(side, &to(State::Reset)).unwrap();
    assert_eq!(post(side), (refused("Reset"), no_receive));
    side.progress(Instant::ZERO);
    assert_eq!(side.completions.len(), 0);
}

#[test]
fn what_reset_finds_posted_vanishes_without_a_completion() {
    let mut pair = Pair::clean(Options::default());
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 8);
    let receive = ReceiveRequest::new(2, &[pair.a.sge(0, 8)]);
    pair.a.endpoint.post_receive(pair.now, pair.a.qpn, receive).unwrap();
    modify(&mut pair.a, &to(State::Reset)).unwrap();
    pair.run(SECOND);
    assert_eq!((pair.a.completions.len(), pair.network.counters().sent), (0, 0));
    let attributes = pair.a.endpoint.query_qp(pair.a.qpn).unwrap().attributes;
    assert_eq!(attributes, Attributes::default());
}

/// A change that is refused names why, and changes nothing.
#[test]
fn a_refused_change_changes_nothing() {
    let (mut mesh, [init, rtr, rts]) = fresh();
    let side = &mut mesh.hosts[0];
    modify(side, &init).unwrap();
    let address = rtr.address.unwrap();
    let at = |destination: &str| Some(AddressVector { destination: destination.parse().unwrap(), ..address });
    let cases = [
        (Attributes { destination: None, ..rtr }, "attr_mask: Init to ReadyToReceive needs Mask(DEST_QPN) too"),
        (Attributes { timeout: Some(1), ..rtr }, "attr_mask: Init to ReadyToReceive does not take Mask(TIMEOUT)"),
        (Attributes { address: at("::1"), ..rtr }, "dgid: ::1 and 10.0.0.1 are of different address families"),
        (Attributes { address: at("224.0.0.1"), ..rtr }, "dgid: 224.0.0.1 is a group; only UD reaches groups"),
        (Attributes { address: at("0.0.0.0"), ..rtr }, "dgid: 0.0.0.0 is not the address of a peer"),
        (
            Attributes { address: Some(AddressVector { source_gid_index: 9, ..address }), ..rtr },
            "sgid_index: there is no GID 9",
        ),
        (Attributes { min_rnr_timer: Some(32), ..rtr }, "min_rnr_timer: 32; at most 31 is possible"),
        (Attributes { max_dest_rd_atomic: Some(129), ..rtr }, "max_dest_rd_atomic: 129; at most 128 is possible"),
        (Attributes { pkey_index: Some(1), ..rtr }, "pkey_index: 1; the only partition key has index 0"),
        (rts, "state: Rc cannot go from Init to ReadyToSend"),
        (to(State::SendQueueDrained), "state: Rc cannot go from Init to SendQueueDrained"),
    ];
    let before = side.endpoint.query_qp(side.qpn).unwrap();
    for (attributes, reason) in cases {
        assert_eq!(modify(side, &attributes), Err(reason.to_owned()));
        let after = side.endpoint.query_qp(side.qpn).unwrap();
        assert_eq!((after.state, after.attributes), (before.state, before.attributes), "{reason}");
    }
    modify(side, &rtr).unwrap();
    for (attributes, reason) in [
        (Attributes { retry_count: Some(8), ..rts }, "retry_cnt: 8; at most 7 is possible"),
        (Attributes { rnr_retry: Some(8), ..rts }, "rnr_retry: 8; at most 7 is possible"),
        (Attributes { timeout: Some(32), ..rts }, "timeout: 32; at most 31 is possible"),
        (Attributes { max_rd_atomic: Some(200), ..rts }, "max_rd_atomic: 200; at most 128 is possible"),
    ] {
        assert_eq!(modify(side, &attributes), Err(reason.to_owned()));
    }
    modify(side, &rts).unwrap();
    assert_eq!(side.state(), State::ReadyToSend);
}

#[test]
fn an_error_flushes_both_queues_in_order_signalled_or_not() {
    let mut pair = Pair::clean(Options::default());
    for id in 0..6 {
        let write = SendRequest::new(id, Operation::Write(pair.b.remote(0)), &[pair.a.sge(0, 8)]);
        let flags = if id % 2 == 0 { SendFlags::empty() } else { SendFlags::SIGNALED };
        pair.post(write.with_flags(flags));
        let receive = ReceiveRequest::new(100 + id, &[pair.a.sge(0, 8)]);
        pair.a.endpoint.post_receive(pair.now, pair.a.qpn, receive).unwrap();
    }
    modify(&mut pair.a, &to(State::Error)).unwrap();
    pair.run(SECOND);
    let expected: Vec<_> = (0..6).chain(100..106).map(|id| (id, Status::FlushError)).collect();
    assert_eq!(statuses(&pair.a.completions), expected);
    assert_eq!(pair.network.counters().sent, 0);
}

#[test]
fn sqd_finishes_what_was_begun_tells_once_and_holds_the_rest() {
    let mut pair = Pair::clean(Options::default());
    // More than the window: it is begun, and not all of it sent, when the move to SQD comes.
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 500_000);
    pair.post_simple(2, Operation::Write(pair.b.remote(0)), 8);
    pair.a.progress(pair.now);
    modify(&mut pair.a, &to(State::SendQueueDrained)).unwrap();
    pair.post_simple(3, Operation::Write(pair.b.remote(0)), 8);
    assert_eq!(pair.a.events, []);
    pair.run(SECOND);
    assert_eq!(statuses(&pair.a.completions), [(1, Status::Success)]);
    assert_eq!(pair.a.events, [AsyncEvent::SendQueueDrained(pair.a.qpn)]);
    let faster =
        Attributes { timeout: Some(10), max_rd_atomic: Some(2), max_dest_rd_atomic: Some(1), ..Attributes::default() };
    modify(&mut pair.a, &faster).unwrap();
    modify(&mut pair.a, &to(State::ReadyToSend)).unwrap();
    pair.run(SECOND);
    assert_eq!(statuses(&pair.a.completions), [1, 2, 3].map(|id| (id, Status::Success)));
    assert_eq!(pair.a.events.len(), 1, "not again");
    modify(&mut pair.a, &to(State::SendQueueDrained)).unwrap();
    pair.run(SECOND);
    assert_eq!(pair.a.events, [AsyncEvent::SendQueueDrained(pair.a.qpn); 2], "an idle queue is drained at once");
}

/// A queue pair is reset and connected again; what the network kept of the old connection changes nothing. The
/// event of the first packet comes for the new connection too: once, it came only for the first.
#[test]
fn packets_of_an_old_connection_do_not_reach_the_new_one() {
    let options = Options::default();
    let mut pair = Pair::clean(options);
    let kept = Arc::new(Mutex::new(Vec::<SimDatagram>::new()));
    let keeper = Arc::clone(&kept);
    pair.network.set_filter(move |datagram| {
        keeper.lock().unwrap().push(datagram.clone());
        Verdict::Forward
    });
    pair.a.fill(0, &[7; 3000]);
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 3000);
    pair.post_simple(2, Operation::FetchAndAdd { remote: pair.b.remote(4000), add: 1 }, 8);
    pair.run(SECOND);
    assert_eq!(pair.a.completions.len(), 2);
    pair.network.clear_filter();

    let (peer_of_a, peer_of_b) = ((pair.b.qpn, pair.b.address), (pair.a.qpn, pair.a.address));
    for side in [&mut pair.a, &mut pair.b] {
        modify(side, &to(State::Reset)).unwrap();
    }
    pair.b.fill(0, &[1; 3000]);
    let psns = [0xff_fff0 + 100, 77];
    connect(&mut pair.a, peer_of_b.0, &options, psns, peer_of_a);
    let [init, rtr, rts] = way_to_rts(&options, [psns[1], psns[0]], peer_of_b);
    modify(&mut pair.b, &init).unwrap();
    modify(&mut pair.b, &rtr).unwrap();
    for datagram in kept.lock().unwrap().iter() {
        let side = if datagram.flow.destination == pair.a.address { &mut pair.a } else { &mut pair.b };
        deliver(side, pair.now, datagram.flow.source, &datagram.bytes);
    }
    pair.run(SECOND);
    assert_eq!(pair.b.bytes(0, 3000), [1; 3000]);
    assert_eq!((pair.b.word(4000), pair.a.completions.len()), (1, 2));
    modify(&mut pair.b, &rts).unwrap();
    pair.post_simple(3, Operation::Write(pair.b.remote(0)), 3000);
    pair.run(SECOND);
    assert_eq!(statuses(&pair.a.completions)[2..], [(3, Status::Success)]);
    assert_eq!(pair.b.events, [AsyncEvent::CommunicationEstablished(pair.b.qpn)]);
}

#[test]
fn a_peer_notices_that_the_queue_pair_is_destroyed() {
    for operation in 0..3 {
        let mut pair = Pair::clean(Options { timeout: 8, retry_count: 2, ..Options::default() });
        let operation =
            [Operation::Send, Operation::Write(pair.b.remote(0)), Operation::Read(pair.b.remote(0))][operation];
        pair.receive(1, 0, 500_000);
        pair.post_simple(1, operation, 500_000);
        pair.post_simple(2, operation, 8);
        pair.run(Duration::from_micros(20));
        pair.b.endpoint.destroy_qp(pair.b.qpn).unwrap();
        pair.b.endpoint.memory_mut().deregister(pair.b.key).unwrap();
        pair.run(SECOND);
        assert_eq!(statuses(&pair.a.completions), [(1, Status::RetryExceededError), (2, Status::FlushError)]);
        assert_eq!(pair.b.completions.len(), 0);
        assert!(pair.b.counters().no_queue_pair > 0);
        assert!(pair.b.endpoint.destroy_qp(pair.b.qpn).is_err(), "it is gone");
    }
}

/// Destroying our own queue pair in the middle: nothing more is sent, and no timer is left that finds something.
#[test]
fn a_destroyed_queue_pair_falls_silent() {
    let mut pair = Pair::clean(Options::default());
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 500_000);
    pair.a.progress(pair.now);
    pair.a.endpoint.destroy_qp(pair.a.qpn).unwrap();
    let sent = pair.network.counters().sent;
    pair.run(10 * SECOND);
    let by_b = pair.b.counters().sent_pkts;
    assert_eq!(pair.network.counters().sent, sent + by_b);
    assert_eq!(pair.a.completions.len(), 0);
    assert_eq!(pair.a.endpoint.queue_pairs(), 0);
}

/// Keys that do not fit (scenario 14): a completion for each operation, never a hang.
#[test]
fn a_wrong_lkey_is_a_local_protection_error_of_every_operation() {
    for case in 0..5 {
        for operation in 0..6 {
            let mut pair = Pair::clean(Options { retry_count: 0, ..Options::default() });
            let remote = pair.b.remote(0);
            let operation = [
                Operation::Send,
                Operation::Write(remote),
                Operation::WriteImmediate(remote, 1),
                Operation::Read(remote),
                Operation::FetchAndAdd { remote, add: 1 },
                Operation::CompareAndSwap { remote, compare: 0, swap: 1 },
            ][operation];
            let mut sge = pair.a.sge(0, 8);
            let memory = pair.a.endpoint.memory_mut();
            let buffer = Arc::new(Buffer::zeroed(64));
            match case {
                0 => sge.lkey ^= 1,
                1 => sge.lkey = 0,
                2 => sge.address += (1 << 20) - 4,
                3 => {
                    let other = memory.allocate_pd();
                    let region = Region::owned(buffer, sge.address, Access::LOCAL_WRITE, other);
                    sge.lkey = memory.register(region).unwrap();
                }
                // Memory that may only be read is fit for what is sent.
                _ => {
                    let region = Region::owned(buffer, sge.address, Access::empty(), pair.a.pd);
                    sge.lkey = memory.register(region).unwrap();
                }
            }
            pair.receive(1, 0, 8);
            pair.post(SendRequest::new(1, operation, &[sge]));
            pair.post_simple(2, Operation::Send, 8);
            pair.run(SECOND);
            let ends = statuses(&pair.a.completions);
            if case == 4 && !operation.fetches() {
                assert_eq!(ends[0], (1, Status::Success));
            } else {
                let expected = [(1, Status::LocalProtectionError), (2, Status::FlushError)];
                assert_eq!(ends, expected, "case {case}, {operation:?}");
                assert_eq!((pair.b.word(0), pair.b.counters().rcvd_pkts), (0, 0), "nothing was sent");
            }
        }
    }
}

#[test]
fn memory_that_goes_away_in_the_middle_fails_the_request() {
    for reads in [false, true] {
        let mut pair = Pair::clean(Options { timeout: 10, ..Options::default() });
        let remote = pair.b.remote(0);
        pair.post_simple(1, if reads { Operation::Read(remote) } else { Operation::Write(remote) }, 500_000);
        pair.post_simple(2, Operation::Send, 8);
        pair.run(Duration::from_micros(6));
        pair.a.endpoint.memory_mut().deregister(pair.a.key).unwrap();
        pair.run(SECOND);
        let expected = [(1, Status::LocalProtectionError), (2, Status::FlushError)];
        assert_eq!(statuses(&pair.a.completions), expected, "reads: {reads}");
        assert_eq!(pair.a.state(), State::Error);
    }
}

/// A probe finds the memory of its packet gone. The peer has that packet for long, and what comes before it is sent
/// again: the acknowledge of both is what counts.
#[test]
fn memory_that_goes_away_before_a_probe_fails_nothing_that_arrived() {
    let mut pair = Pair::clean(Options::default());
    watch(&pair, drop_first(1, |seen| seen.opcode == Opcode::RC_ACKNOWLEDGE));
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 8);
    let buffer = Arc::new(Buffer::zeroed(64));
    let region = Region::owned(buffer, 0, Access::empty(), pair.a.pd);
    let key = pair.a.endpoint.memory_mut().register(region).unwrap();
    let sge = uroce::work::Sge { address: 0, length: 8, lkey: key };
    pair.post(SendRequest::new(2, Operation::Write(pair.b.remote(0)), &[sge]));
    pair.run(Duration::from_millis(1));
    pair.a.endpoint.memory_mut().deregister(key).unwrap();
    pair.run(SECOND);
    assert_eq!(statuses(&pair.a.completions), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn events_come_once_each() {
    let (mut mesh, [init, rtr, _]) = fresh();
    let options = mesh.options;
    let peer = (mesh.hosts[0].qpn, mesh.hosts[0].address);
    let qpn = mesh.hosts[1].qpn;
    connect(&mut mesh.hosts[1], qpn, &options, [6, 5], peer);
    modify(&mut mesh.hosts[0], &init).unwrap();
    modify(&mut mesh.hosts[0], &rtr).unwrap();
    let remote = mesh.hosts[0].remote(0);
    for id in 0..3 {
        let write = SendRequest::new(id, Operation::Write(remote), &[mesh.hosts[1].sge(0, 8)]);
        mesh.hosts[1].endpoint.post_send(mesh.now, qpn, write).unwrap();
        mesh.run(SECOND);
    }
    assert_eq!(mesh.hosts[0].events, [AsyncEvent::CommunicationEstablished(peer.0)]);
    assert_eq!(mesh.hosts[1].events, []);
}
