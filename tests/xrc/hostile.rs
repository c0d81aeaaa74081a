//! Requests to a target that break the rules of XRC.

use uroce::event::AsyncEvent;
use uroce::qp::State;
use uroce::queue::SrqInit;
use uroce::time::Instant;
use uroce::wire::{NakCode, Opcode, Packet, SrqNumber, Syndrome, Xrceth};
use uroce::work::{Completion, Operation, SendRequest, Status};

use crate::bench::{Service, Xrc};
use crate::common::craft::{Craft, deliver, drain};
use crate::common::pair::{Options, to};

fn packet(xrc: &Xrc, opcode: Opcode, psn: u32, srq: SrqNumber) -> Craft {
    let mut craft = Craft::new(opcode, xrc.target, xrc.mesh.options.psns[0] + psn);
    craft.extensions.xrceth = Some(Xrceth { srq });
    craft
}

/// Hands the target a packet of its peer; opcode and verdict of each answer.
fn give(xrc: &mut Xrc, craft: &Craft) -> Vec<(Opcode, Option<Syndrome>)> {
    let (now, source) = (xrc.mesh.now, xrc.mesh.hosts[0].address);
    deliver(&mut xrc.mesh.hosts[1], now, source, &craft.bytes());
    let answers = drain(&mut xrc.mesh.hosts[1], now);
    let verdict = |datagram: &Vec<u8>| {
        let packet = Packet::parse(datagram).unwrap();
        (packet.bth.opcode, packet.extensions.aeth.map(|aeth| aeth.syndrome))
    };
    answers.iter().map(verdict).collect()
}

const INVALID: (Opcode, Option<Syndrome>) = (Opcode::XRC_ACKNOWLEDGE, Some(Syndrome::Nak(NakCode::InvalidRequest)));

/// A number that names nothing, one of another domain, one of no domain: refused, whatever the operation.
#[test]
fn a_queue_that_is_not_of_the_domain_is_refused() {
    for case in 0..4 {
        for opcode in [Opcode::XRC_SEND_ONLY, Opcode::XRC_WRITE_ONLY, Opcode::XRC_READ_REQUEST, Opcode::XRC_FETCH_ADD] {
            let mut xrc = Xrc::clean(Options::default());
            let host = &mut xrc.mesh.hosts[1];
            let srq = match case {
                0 => SrqNumber::new(0),
                1 => SrqNumber::new(0xff_ffff),
                2 => {
                    let domain = host.endpoint.allocate_xrcd();
                    Service::new(host, domain, 13).number
                }
                _ => {
                    let init = SrqInit { pd: host.pd, max_wr: 1, max_sge: 1, extended: None };
                    host.endpoint.create_srq(init).unwrap()
                }
            };
            let (rkey, address) = (xrc.services[0].key, 0);
            let craft = packet(&xrc, opcode, 0, srq).reth(address, rkey, 0).atomic(address, rkey, 1);
            assert_eq!(give(&mut xrc, &craft), [INVALID], "case {case}, {opcode}");
            xrc.mesh.hosts[1].progress(Instant::ZERO);
            let events = &xrc.mesh.hosts[1].events;
            assert_eq!(events[..], [AsyncEvent::QpRequestError(xrc.target), AsyncEvent::QpLastWqeReached(xrc.target)]);
            assert_eq!(xrc.target_state(), State::Error);
        }
    }
}

#[test]
fn a_message_cannot_change_its_queue() {
    let mut xrc = Xrc::clean(Options::default());
    let [first, second] = [0, 1].map(|service| xrc.services[service].number);
    for service in 0..2 {
        xrc.receive(service, 5, 0, 4096);
    }
    let start = packet(&xrc, Opcode::XRC_SEND_FIRST, 0, first).payload(&[1; 1024]);
    let mut start = start;
    start.bth.ack_request = false;
    assert_eq!(give(&mut xrc, &start), []);
    let end = packet(&xrc, Opcode::XRC_SEND_LAST, 1, second).payload(&[1; 10]);
    assert_eq!(give(&mut xrc, &end), [INVALID]);
    let flushed = xrc.services[0].completions();
    let [Completion { id: 5, status: Status::FlushError, .. }] = flushed[..] else { panic!("{flushed:?}") };
    assert!(xrc.services[1].completions().is_empty());
}

/// An RC packet to a target, an XRC packet to an RC queue pair, a request to an initiator: dropped without a word.
#[test]
fn packets_of_the_wrong_kind_are_dropped() {
    let mut xrc = Xrc::clean(Options::default());
    let srq = xrc.services[0].number;
    let craft = packet(&xrc, Opcode::RC_SEND_ONLY, 0, srq);
    assert_eq!(give(&mut xrc, &craft), []);
    assert_eq!(xrc.mesh.hosts[1].counters().wrong_transport, 1);
    let mut craft = packet(&xrc, Opcode::XRC_SEND_ONLY, 0, srq);
    craft.bth.destination = xrc.initiator;
    craft.bth.psn = uroce::wire::Psn::new(xrc.mesh.options.psns[1]);
    let source = xrc.mesh.hosts[1].address;
    deliver(&mut xrc.mesh.hosts[0], Instant::ZERO, source, &craft.bytes());
    assert_eq!(drain(&mut xrc.mesh.hosts[0], Instant::ZERO), Vec::<Vec<u8>>::new());
    assert_eq!(xrc.mesh.hosts[0].counters().wrong_transport, 1);
    assert_eq!(xrc.target_state(), State::ReadyToSend);
}

/// The queue goes away while a message fills one of its requests: the message is finished, the next is refused.
#[test]
fn a_queue_that_is_destroyed_finishes_the_message_at_hand() {
    let mut xrc = Xrc::clean(Options::default());
    let srq = xrc.services[0].number;
    xrc.receive(0, 5, 0, 4096);
    xrc.receive(0, 6, 0, 4096);
    let start = packet(&xrc, Opcode::XRC_SEND_FIRST, 0, srq).payload(&[7; 1024]);
    give(&mut xrc, &start);
    xrc.mesh.hosts[1].endpoint.destroy_srq(srq).unwrap();
    let end = packet(&xrc, Opcode::XRC_SEND_LAST, 1, srq).payload(&[7; 10]);
    assert_eq!(give(&mut xrc, &end), [INVALID]);
    let done = xrc.services[0].completions();
    let [Completion { id: 5, status: Status::FlushError, .. }] = done[..] else { panic!("{done:?}") };
}

/// The completion queue of a shared receive queue overruns: the queue can no longer report, and takes nothing more.
#[test]
fn an_overrun_of_its_completion_queue_breaks_the_shared_receive_queue() {
    let mut xrc = Xrc::clean(Options::default());
    xrc.services[0].cq.resize(2).unwrap();
    let [broken, sound] = [0, 1].map(|service| xrc.services[service].number);
    for id in 0..5 {
        xrc.receive(0, id, 0, 8);
    }
    for id in 0..3 {
        xrc.post(0, id, Operation::Send, 8);
    }
    xrc.run();
    assert_eq!(xrc.mesh.hosts[1].events, [AsyncEvent::CqError(11), AsyncEvent::SrqError(broken)]);
    assert_eq!(xrc.services[0].completions().len(), 2);
    xrc.receive(1, 9, 0, 8);
    xrc.post(1, 3, Operation::Send, 8);
    xrc.run();
    assert_eq!(xrc.sent()[3], (3, Status::Success), "{sound} still works");
    xrc.post(0, 4, Operation::Send, 8);
    xrc.run();
    assert_eq!(xrc.sent()[4], (4, Status::RemoteInvalidRequestError));
    assert_eq!(xrc.target_state(), State::Error);
}

/// An error of the target flushes what is being filled to the queue that it came from, once.
#[test]
fn an_error_flushes_what_is_being_filled_where_it_belongs() {
    let mut xrc = Xrc::clean(Options::default());
    let srq = xrc.services[1].number;
    xrc.receive(1, 5, 0, 4096);
    xrc.receive(1, 6, 0, 4096);
    let start = packet(&xrc, Opcode::XRC_SEND_FIRST, 0, srq).payload(&[7; 1024]);
    give(&mut xrc, &start);
    xrc.mesh.hosts[1].endpoint.modify_qp(Instant::ZERO, xrc.target, &to(State::Error)).unwrap();
    let flushed = xrc.services[1].completions();
    let [Completion { id: 5, status: Status::FlushError, qpn, .. }] = flushed[..] else { panic!("{flushed:?}") };
    assert_eq!(qpn, xrc.target);
    assert_eq!(xrc.mesh.hosts[1].endpoint.srq_waiting(srq).unwrap(), 1);
    let (initiator, _) = xrc.connect();
    let host = &mut xrc.mesh.hosts[0];
    let request = SendRequest::new(1, Operation::Send, &[host.sge(0, 8)]).to_srq(srq);
    host.endpoint.post_send(Instant::ZERO, initiator, request).unwrap();
    xrc.run();
    assert_eq!(xrc.services[1].completions()[0].id, 6, "what was left serves another connection");
}
