//! Every asynchronous event of the engine, and what causes it. `DeviceFatal` is the driver's, and tested there.

use std::sync::Arc;

use uroce::event::AsyncEvent;
use uroce::memory::{Access, Buffer, Region};
use uroce::port::SimConfig;
use uroce::qp::State;
use uroce::work::{Operation, Remote, SendRequest, Status};

use crate::bench::{SECOND, Shared};
use crate::common::mesh::Mesh;
use crate::common::pair::{Options, Pair, to, way_to_rts};

#[test]
fn a_peer_that_is_refused_access_is_an_access_error() {
    for operation in 0..3 {
        let mut pair = Pair::clean(Options::default());
        let remote = Remote { rkey: pair.b.key ^ 1, ..pair.b.remote(0) };
        let operation =
            [Operation::Write(remote), Operation::Read(remote), Operation::FetchAndAdd { remote, add: 1 }][operation];
        pair.post_simple(1, operation, 8);
        pair.run(SECOND);
        assert_eq!(pair.a.completions[0].status, Status::RemoteAccessError);
        assert_eq!((&pair.b.events[..], &pair.a.events[..]), (&[AsyncEvent::QpAccessError(pair.b.qpn)][..], &[][..]));
        assert_eq!(pair.b.state(), State::Error);
    }
}

/// The memory of a READ goes away between two packets of its answer.
#[test]
fn memory_that_goes_away_under_a_read_is_an_access_error() {
    let mut pair = Pair::clean(Options::default());
    let buffer = Arc::new(Buffer::zeroed(500_000));
    let region = Region::owned(buffer, 0, Access::REMOTE_READ, pair.b.pd);
    let rkey = pair.b.endpoint.memory_mut().register(region).unwrap();
    pair.post_simple(1, Operation::Read(Remote { address: 0, rkey }), 500_000);
    let (now, at_a) = (pair.now, pair.a.address);
    for datagram in crate::common::craft::drain(&mut pair.a, now) {
        crate::common::craft::deliver(&mut pair.b, now, at_a, &datagram);
    }
    let mut room = vec![0; uroce::wire::MAX_DATAGRAM];
    assert!(pair.b.endpoint.poll_transmit(now, &mut room).is_some());
    pair.b.endpoint.memory_mut().deregister(rkey).unwrap();
    pair.run(SECOND);
    assert_eq!(pair.b.events, [AsyncEvent::QpAccessError(pair.b.qpn)]);
}

#[test]
fn a_message_that_does_not_fit_is_a_request_error() {
    let mut pair = Pair::clean(Options::default());
    pair.receive(1, 0, 7);
    pair.post_simple(1, Operation::Send, 8);
    pair.run(SECOND);
    assert_eq!(pair.b.events, [AsyncEvent::QpRequestError(pair.b.qpn)]);
}

#[test]
fn the_first_packet_in_rtr_establishes_communication() {
    let options = Options::default();
    let mut mesh = Mesh::new(1, SimConfig::default(), 2, options);
    let [near, far] = [0, 1].map(|host| (mesh.hosts[host].qpn, mesh.hosts[host].address));
    let [init, rtr, _] = way_to_rts(&options, [2, 1], far);
    for attributes in [init, rtr] {
        mesh.hosts[0].endpoint.modify_qp(mesh.now, near.0, &attributes).unwrap();
    }
    crate::common::pair::connect(&mut mesh.hosts[1], far.0, &options, [1, 2], near);
    let write = SendRequest::inline(1, Operation::Write(mesh.hosts[0].remote(0)), &[1]);
    mesh.hosts[1].endpoint.post_send(mesh.now, far.0, write).unwrap();
    mesh.run(SECOND);
    assert_eq!(mesh.hosts[0].events, [AsyncEvent::CommunicationEstablished(near.0)]);
}

#[test]
fn the_last_request_is_told_once_on_every_way_to_the_error_state() {
    let mut shared = Shared::clean(3, Options { retry_count: 1, timeout: 8, ..Options::default() });
    let [by_program, by_peer, by_silence] = [0, 1, 2].map(|link| shared.links[link]);
    let now = shared.mesh.now;
    let host = &mut shared.mesh.hosts[0];
    host.endpoint.modify_qp(now, by_program.receiver, &to(State::Error)).unwrap();
    host.endpoint.modify_qp(now, by_program.receiver, &to(State::Error)).unwrap();
    host.progress(now);
    assert_eq!(host.events, [AsyncEvent::QpLastWqeReached(by_program.receiver)]);
    host.events.clear();

    let forged = Remote { rkey: host.key ^ 1, ..host.remote(0) };
    shared.post(1, 1, Operation::Write(forged), 8);
    shared.run();
    let host = &mut shared.mesh.hosts[0];
    let expected = [AsyncEvent::QpAccessError(by_peer.receiver), AsyncEvent::QpLastWqeReached(by_peer.receiver)];
    assert_eq!(host.events, expected);
    host.events.clear();

    let write = SendRequest::inline(1, Operation::Write(host.remote(0)), &[1]);
    host.endpoint.post_send(shared.mesh.now, by_silence.receiver, write).unwrap();
    shared.mesh.hosts[3].endpoint.destroy_qp(by_silence.sender).unwrap();
    shared.run();
    assert_eq!(shared.mesh.hosts[0].events, [AsyncEvent::QpLastWqeReached(by_silence.receiver)]);
}
