//! Multicast: what is sent to a group comes to every queue pair that is attached to it.

use std::net::IpAddr;

use uroce::endpoint::Membership;
use uroce::port::Port;
use uroce::qp::{Attributes, QpInit, QpType, State};
use uroce::wire::Qpn;
use uroce::work::{Destination, Operation, ReceiveRequest, SendRequest};

use crate::common::pair::{Options, Pair, QKEY, Side, connect, init, to};
use crate::uc::SECOND;
use crate::ud::{destination, options};

fn group(n: u8) -> IpAddr {
    IpAddr::from([239, 1, 2, n])
}

fn to_group(pair: &Pair, n: u8) -> Destination {
    let mut to = destination(&pair.b);
    to.address.destination = group(n);
    Destination { qpn: Qpn::MULTICAST, ..to }
}

/// Attaches, and tells the port.
fn attach(side: &mut Side, qpn: Qpn, n: u8) {
    side.endpoint.attach_multicast(qpn, group(n)).unwrap();
    update(side);
}

fn update(side: &mut Side) {
    while let Some(membership) = side.endpoint.poll_membership() {
        match membership {
            Membership::Join(group) => side.port.join(group).unwrap(),
            Membership::Leave(group) => side.port.leave(group),
        }
    }
}

/// Another UD queue pair of a side, in RTS, with a receive request `id` in it.
fn another(side: &mut Side, id: u64) -> Qpn {
    let qpn = side.endpoint.create_qp(QpInit { qp_type: QpType::Ud, ..init(side.pd, &side.cq) }).unwrap();
    let address = side.address;
    connect(side, qpn, &options(), [0, 0], (Qpn::default(), address));
    receive(side, qpn, id);
    qpn
}

fn receive(side: &mut Side, qpn: Qpn, id: u64) {
    let request = ReceiveRequest::new(id, &[side.sge(id as usize * 4096, 4096)]);
    side.endpoint.post_receive(uroce::time::Instant::ZERO, qpn, request).unwrap();
}

fn send(pair: &mut Pair, n: u8) {
    let request = SendRequest::new(1, Operation::SendImmediate(n.into()), &[pair.a.sge(0, 64)]).to(to_group(pair, n));
    pair.post(request);
    pair.run(SECOND);
}

fn received(side: &mut Side) -> Vec<(u64, Qpn)> {
    let taken = side.completions.drain(..).filter(|c| c.grh.is_some());
    taken.map(|c| (c.id, c.qpn)).collect()
}

#[test]
fn every_attached_queue_pair_gets_a_copy() {
    let mut pair = Pair::clean(options());
    let (own, first) = (pair.a.qpn, pair.b.qpn);
    let second = another(&mut pair.b, 2);
    let other = another(&mut pair.b, 3);
    receive(&mut pair.a, own, 7);
    receive(&mut pair.b, first, 1);
    attach(&mut pair.b, first, 1);
    attach(&mut pair.b, second, 1);
    attach(&mut pair.b, first, 1);
    attach(&mut pair.b, other, 2);
    // The sender hears itself when it is attached, as on the kernel's rxe.
    attach(&mut pair.a, own, 1);
    pair.a.fill(0, &[0x5a; 64]);
    send(&mut pair, 1);
    assert_eq!(received(&mut pair.b), [(1, first), (2, second)]);
    assert_eq!(received(&mut pair.a), [(7, own)]);
    for id in [1, 2] {
        assert_eq!(pair.b.bytes(id * 4096 + 40, 64), [0x5a; 64]);
    }
    pair.assert_nothing_spurious();
    // Detached, destroyed: no more.
    receive(&mut pair.b, first, 1);
    receive(&mut pair.b, second, 2);
    pair.b.endpoint.detach_multicast(first, group(1)).unwrap();
    send(&mut pair, 1);
    assert_eq!(received(&mut pair.b), [(2, second)]);
    assert!(pair.b.endpoint.poll_membership().is_none(), "one is still there");
    pair.b.endpoint.destroy_qp(second).unwrap();
    assert_eq!(pair.b.endpoint.poll_membership(), Some(Membership::Leave(group(1))));
    assert_eq!(pair.b.endpoint.poll_membership(), None);
}

#[test]
fn the_key_counts_for_each() {
    let mut pair = Pair::clean(options());
    let first = pair.b.qpn;
    let second = another(&mut pair.b, 2);
    receive(&mut pair.b, first, 1);
    for qpn in [first, second] {
        attach(&mut pair.b, qpn, 1);
    }
    let other_key = Attributes { qkey: Some(QKEY + 1), ..to(State::ReadyToSend) };
    pair.b.endpoint.modify_qp(pair.now, first, &other_key).unwrap();
    send(&mut pair, 1);
    assert_eq!(received(&mut pair.b), [(2, second)]);
    assert_eq!(pair.b.counters().bad_qkey, 1);
}

#[test]
fn what_is_no_group_or_no_datagram_queue_pair_is_refused() {
    let mut pair = Pair::clean(options());
    let qpn = pair.a.qpn;
    let error = pair.a.endpoint.attach_multicast(qpn, pair.b.address).unwrap_err();
    assert!(error.to_string().contains("10.0.0.2 is not a multicast group"), "{error}");
    let error = pair.a.endpoint.detach_multicast(qpn, group(1)).unwrap_err();
    assert!(error.errno() == 22 && error.to_string().contains("not attached"), "{error}");
    let mut pair = Pair::clean(Options { qp_type: QpType::Uc, ..options() });
    let error = pair.a.endpoint.attach_multicast(pair.a.qpn, group(1)).unwrap_err();
    assert!(error.errno() == 22 && error.to_string().contains("UD"), "{error}");
    assert!(pair.a.endpoint.poll_membership().is_none());
}

#[test]
fn a_group_is_bounded() {
    let mut pair = Pair::clean(options());
    let endpoint = &mut pair.a.endpoint;
    let mut attached = 0;
    let error = loop {
        let qp = QpInit { qp_type: QpType::Ud, ..init(pair.a.pd, &pair.a.cq) };
        let qpn = endpoint.create_qp(qp).unwrap();
        match endpoint.attach_multicast(qpn, group(1)) {
            Ok(()) => attached += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((attached, error.errno()), (56, 12));
}
