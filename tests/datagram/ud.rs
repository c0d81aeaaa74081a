//! UD: one packet a message, from anyone who knows the Q_Key.

use uroce::port::Verdict;
use uroce::qp::{AddressVector, Attributes, QpInit, QpType, State};
use uroce::queue::SrqInit;
use uroce::wire::{Grh, GrhKind, Qpn};
use uroce::work::{CompletionKind, Destination, Operation, ReceiveRequest, SendRequest, Status, Tag};

use crate::common::pair::{Options, Pair, QKEY, Side, connect, init, to};
use crate::common::watch::watch;
use crate::uc::SECOND;

/// The first 40 bytes of every receive.
pub(crate) const GRH: usize = Grh::LEN;

pub(crate) fn options() -> Options {
    Options { qp_type: QpType::Ud, ..Options::default() }
}

pub(crate) fn destination(side: &Side) -> Destination {
    let address = AddressVector { destination: side.address, source_gid_index: 0, hop_limit: 9, traffic_class: 0x28 };
    Destination { address, qpn: side.qpn, qkey: QKEY }
}

/// A datagram from A's first bytes to B.
fn post(pair: &mut Pair, id: u64, operation: Operation, length: u32) {
    let destination = destination(&pair.b);
    pair.post(SendRequest::new(id, operation, &[pair.a.sge(0, length)]).to(destination));
}

#[test]
fn the_header_comes_first_then_the_payload() {
    for (length, operation, tag) in [
        (0, Operation::Send, Tag::None),
        (1, Operation::SendImmediate(77), Tag::Immediate(77)),
        (1023, Operation::Send, Tag::None),
        (4096, Operation::SendImmediate(1), Tag::Immediate(1)),
    ] {
        let mut pair = Pair::clean(options());
        let bytes: Vec<u8> = (0..length).map(|i| (i * 5 + 1) as u8).collect();
        pair.a.fill(0, &bytes);
        // Cut where the header is, so that the border is nowhere special.
        let sges = [pair.b.sge(0, 17), pair.b.sge(17, 5000)];
        pair.b.endpoint.post_receive(pair.now, pair.b.qpn, ReceiveRequest::new(3, &sges)).unwrap();
        post(&mut pair, 1, operation, length as u32);
        pair.run(SECOND);
        assert_eq!(pair.a.completions.iter().map(|c| (c.id, c.status)).collect::<Vec<_>>(), [(1, Status::Success)]);
        let [received] = pair.b.completions[..] else { panic!("{length}: {:?}", pair.b.completions) };
        assert_eq!((received.id, received.status, received.kind), (3, Status::Success, CompletionKind::Receive));
        assert_eq!((received.byte_length as usize, received.tag), (GRH + length, tag));
        assert_eq!((received.source_qpn, received.grh), (pair.a.qpn, Some(GrhKind::Ipv4)));
        let grh = Grh::parse(&pair.b.bytes(0, GRH).try_into().unwrap()).expect("an IPv4 header");
        let (source, destination) = (pair.a.address, pair.b.address);
        assert_eq!(grh, Grh { source, destination, traffic_class: 0x28, hop_limit: 9 });
        assert_eq!(pair.b.bytes(GRH, length), bytes);
        assert_eq!(pair.b.counters().sent_pkts, 0);
        pair.assert_nothing_spurious();
    }
}

/// A queue pair answers whoever asked, from what the completion and the header say.
#[test]
fn several_peers_talk_to_one_queue_pair() {
    let mut pair = Pair::clean(options());
    let mut third = Side::new(&pair.network, 3, &options());
    let qpn = third.qpn;
    connect(&mut third, qpn, &options(), [5, 0], (Qpn::default(), pair.b.address));
    for id in 0..2 {
        pair.receive(id, id as usize * 4096, 4096);
    }
    let sge = third.sge(0, 4096);
    third.endpoint.post_receive(pair.now, qpn, ReceiveRequest::new(8, &[sge])).unwrap();
    let to_b = destination(&pair.b);
    post(&mut pair, 1, Operation::Send, 10);
    third
        .endpoint
        .post_send(pair.now, qpn, SendRequest::new(2, Operation::Send, &[third.sge(0, 20)]).to(to_b))
        .unwrap();
    third.progress(pair.now);
    pair.run(SECOND);
    let mut sources: Vec<_> = pair.b.completions.iter().map(|c| (c.source_qpn, c.byte_length)).collect();
    sources.sort();
    let mut expected = vec![(pair.a.qpn, 50), (qpn, 60)];
    expected.sort();
    assert_eq!(sources, expected);
    let late = pair.b.completions.iter().find(|c| c.byte_length == 60).unwrap();
    let grh = Grh::parse(&pair.b.bytes(late.id as usize * 4096, GRH).try_into().unwrap()).unwrap();
    let address = AddressVector { destination: grh.source, ..to_b.address };
    let answer = Destination { address, qpn: late.source_qpn, qkey: QKEY };
    let request = SendRequest::new(3, Operation::Send, &[pair.b.sge(0, 30)]).to(answer);
    pair.b.endpoint.post_send(pair.now, pair.b.qpn, request).unwrap();
    pair.run(SECOND);
    third.progress(pair.now);
    assert!(third.completions.iter().any(|c| c.id == 8 && c.byte_length == 70), "{:?}", third.completions);
}

#[test]
fn the_key_decides_who_is_let_in() {
    let mut pair = Pair::clean(options());
    pair.receive(1, 0, 4096);
    let right = destination(&pair.b);
    let send = |pair: &mut Pair, id, qkey| {
        let request = SendRequest::new(id, Operation::Send, &[pair.a.sge(0, 4)]).to(Destination { qkey, ..right });
        pair.post(request);
        pair.run(SECOND);
    };
    send(&mut pair, 1, QKEY ^ 1);
    assert_eq!((pair.b.completions.len(), pair.b.counters().bad_qkey), (0, 1));
    // The highest bit: the sender's own, whatever else is given.
    send(&mut pair, 2, Destination::OWN_QKEY | 0x1234);
    assert_eq!(pair.b.completions.len(), 1);
    // Changed while it works.
    let changed = Attributes { qkey: Some(0x77), ..to(State::ReadyToSend) };
    pair.b.endpoint.modify_qp(pair.now, pair.b.qpn, &changed).unwrap();
    pair.receive(2, 0, 4096);
    send(&mut pair, 3, QKEY);
    send(&mut pair, 4, 0x77);
    assert_eq!((pair.b.completions.len(), pair.b.counters().bad_qkey), (2, 2));
    assert_eq!(pair.a.completions.len(), 4, "the sender never hears of it");
}

#[test]
fn what_cannot_be_a_datagram_is_refused_when_posted() {
    let mut pair = Pair::clean(options());
    let good = destination(&pair.b);
    let sge = [pair.a.sge(0, 8)];
    let plain = SendRequest::new(1, Operation::Send, &sge);
    let vector = |change: &dyn Fn(&mut AddressVector)| {
        let mut changed = good;
        change(&mut changed.address);
        plain.clone().to(changed)
    };
    let v6 = "2001:db8::1".parse().unwrap();
    let group = "224.1.2.3".parse().unwrap();
    let cases = [
        (plain.clone(), "ah"),
        (SendRequest::new(1, Operation::Write(pair.b.remote(0)), &sge).to(good), "opcode"),
        (SendRequest::new(1, Operation::SendInvalidate(1), &sge).to(good), "opcode"),
        (SendRequest::new(1, Operation::Send, &[pair.a.sge(0, 4097)]).to(good), "sg_list: 4097"),
        (vector(&|vector| vector.source_gid_index = 1), "sgid_index"),
        (vector(&|vector| vector.destination = v6), "dgid"),
        (vector(&|vector| vector.destination = group), "remote_qpn"),
        (plain.clone().to(Destination { qpn: Qpn::MULTICAST, ..good }), "remote_qpn"),
    ];
    for (request, blamed) in cases {
        let error = pair.a.endpoint.post_send(pair.now, pair.a.qpn, request).unwrap_err();
        assert!(error.errno() == 22 && error.to_string().contains(blamed), "{blamed}: {error}");
    }
    pair.run(SECOND);
    assert_eq!((pair.a.counters().sent_pkts, pair.a.completions.len()), (0, 0));
}

/// Scenario 5: a datagram that is too large for the receive request must not stop the queue pair; nor may it use the
/// request up, or one sender could take them all.
#[test]
fn a_buffer_that_is_too_small_waits_for_the_next() {
    let mut pair = Pair::clean(options());
    pair.receive(1, 0, 139);
    post(&mut pair, 1, Operation::Send, 100);
    post(&mut pair, 2, Operation::Send, 99);
    pair.run(SECOND);
    assert_eq!(pair.b.completions.iter().map(|c| (c.id, c.byte_length)).collect::<Vec<_>>(), [(1, 139)]);
    assert_eq!(pair.b.counters().dropped_messages, 1);
    assert_eq!((pair.b.state(), pair.b.events.len()), (State::ReadyToSend, 0));
    // The same without any request; and a request that is too small is flushed in the end, like the others.
    post(&mut pair, 3, Operation::Send, 0);
    pair.run(SECOND);
    pair.receive(2, 0, 39);
    pair.receive(3, 0, 4096);
    post(&mut pair, 4, Operation::Send, 0);
    pair.run(SECOND);
    assert_eq!((pair.b.completions.len(), pair.b.counters().dropped_messages), (1, 3));
    pair.b.endpoint.modify_qp(pair.now, pair.b.qpn, &to(State::Error)).unwrap();
    pair.run(SECOND);
    let flushed: Vec<_> = pair.b.completions[1..].iter().map(|c| (c.id, c.status)).collect();
    assert_eq!(flushed, [(2, Status::FlushError), (3, Status::FlushError)]);
}

/// PSNs are counted and not looked at: datagrams of many senders come in any order, and what the network doubles comes twice.
#[test]
fn order_means_nothing() {
    let mut pair = Pair::clean(options());
    let log = watch(&pair, |seen| if seen.psn % 2 == 0 { Verdict::Delay(SECOND / 1000) } else { Verdict::Forward });
    for id in 0..8 {
        pair.receive(id, id as usize * 512, 512);
        post(&mut pair, id, Operation::SendImmediate(id as u32), 16);
    }
    pair.run(SECOND);
    let psns: Vec<_> = log.all().iter().map(|seen| seen.psn).collect();
    assert_eq!(psns, (0..8).map(|n| (options().psns[0] + n) & 0xff_ffff).collect::<Vec<_>>());
    assert!(log.all().iter().all(|seen| !seen.ack_request));
    let mut tags: Vec<_> = pair.b.completions.iter().map(|c| c.tag).collect();
    assert_eq!(tags[0], Tag::Immediate(1));
    tags.sort_by_key(|tag| if let Tag::Immediate(n) = tag { *n } else { 99 });
    assert_eq!(tags, (0..8).map(Tag::Immediate).collect::<Vec<_>>());
}

/// A shared receive queue serves datagrams and connections alike; a datagram that finds nothing there is dropped, and
/// the completion tells which queue pair it came to.
#[test]
fn a_shared_receive_queue_serves_datagrams() {
    for options in [options(), crate::uc::options()] {
        let mut pair = Pair::clean(options);
        let limits = SrqInit { pd: pair.b.pd, max_wr: 4, max_sge: 1, extended: None };
        let srq = pair.b.endpoint.create_srq(limits).unwrap();
        let init = QpInit { qp_type: options.qp_type, srq: Some(srq), ..init(pair.b.pd, &pair.b.cq) };
        let shared = pair.b.endpoint.create_qp(init).unwrap();
        let psns = options.psns;
        let (to_a, to_b) = ((pair.a.qpn, pair.a.address), (shared, pair.b.address));
        connect(&mut pair.b, shared, &options, [psns[1], psns[0]], to_a);
        let from = pair.a.qpn;
        pair.a.endpoint.modify_qp(pair.now, from, &to(State::Reset)).unwrap();
        connect(&mut pair.a, from, &options, psns, to_b);
        pair.b.endpoint.post_srq_receive(srq, ReceiveRequest::new(7, &[pair.b.sge(0, 4096)])).unwrap();
        for id in 0..2 {
            let request = SendRequest::new(id, Operation::SendImmediate(id as u32), &[pair.a.sge(0, 64)]);
            let to_shared = Destination { qpn: shared, ..destination(&pair.b) };
            let is_datagram = options.qp_type == QpType::Ud;
            let request = if is_datagram { request.to(to_shared) } else { request };
            pair.a.endpoint.post_send(pair.now, from, request).unwrap();
        }
        pair.run(SECOND);
        let received: Vec<_> = pair.b.completions.iter().map(|c| (c.id, c.qpn, c.tag)).collect();
        assert_eq!(received, [(7, shared, Tag::Immediate(0))]);
        assert_eq!(pair.b.counters().dropped_messages, 1);
    }
}
