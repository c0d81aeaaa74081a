//! A queue pair that lives: what is asked of it, and what is changed, while it works.

use uroce::event::AsyncEvent;
use uroce::memory::Access;
use uroce::qp::{Attributes, Capacity, QpInit, State};
use uroce::time::Duration;
use uroce::wire::{Opcode, Psn, Syndrome};
use uroce::work::{Operation, Status};

use crate::bench::{SECOND, statuses};
use crate::common::pair::{Options, Pair, init, to, way_to_rts};
use crate::common::watch::{drop_first, watch};

#[test]
fn a_query_returns_what_was_set_and_the_present_psns() {
    let options = Options { mtu: uroce::qp::Mtu::Mtu1024, psns: [0xff_fffe, 7], ..Options::default() };
    let mut pair = Pair::clean(options);
    let info = pair.a.endpoint.query_qp(pair.a.qpn).unwrap();
    let [init, rtr, rts] = way_to_rts(&options, options.psns, (pair.b.qpn, pair.b.address));
    let expected = Attributes { access: init.access, pkey_index: Some(0), port: Some(1), state: None, ..rtr };
    let expected = Attributes {
        timeout: rts.timeout,
        retry_count: rts.retry_count,
        rnr_retry: rts.rnr_retry,
        send_psn: rts.send_psn,
        max_rd_atomic: rts.max_rd_atomic,
        ..expected
    };
    assert_eq!(info.attributes, expected);
    pair.receive(1, 0, 5000);
    pair.post_simple(1, Operation::Send, 5000);
    pair.post_simple(2, Operation::Read(pair.b.remote(0)), 3000);
    pair.run(SECOND);
    let psns = |side: &crate::common::pair::Side| {
        let attributes = side.endpoint.query_qp(side.qpn).unwrap().attributes;
        [attributes.send_psn, attributes.receive_psn].map(|psn| psn.map(Psn::value))
    };
    // Five packets of the SEND, three of the READ's answer; across the wrap.
    assert_eq!(psns(&pair.a), [Some(6), Some(7)]);
    assert_eq!(psns(&pair.b), [Some(7), Some(6)]);
    pair.a.endpoint.modify_qp(pair.now, pair.a.qpn, &to(State::Reset)).unwrap();
    assert_eq!(psns(&pair.a), [None, None]);
}

#[test]
fn draining_shows_until_it_is_done() {
    let mut pair = Pair::clean(Options::default());
    let draining = |pair: &Pair| pair.a.endpoint.query_qp(pair.a.qpn).unwrap().is_draining;
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 5000);
    pair.a.progress(pair.now);
    assert!(!draining(&pair));
    pair.a.endpoint.modify_qp(pair.now, pair.a.qpn, &to(State::SendQueueDrained)).unwrap();
    assert!(draining(&pair));
    pair.run(SECOND);
    assert!(!draining(&pair));
    assert_eq!(pair.a.events, [AsyncEvent::SendQueueDrained(pair.a.qpn)]);
}

#[test]
fn access_changes_while_the_connection_lives() {
    let mut pair = Pair::clean(Options::default());
    let set = |pair: &mut Pair, access| {
        let attributes = Attributes { access: Some(access), ..Attributes::default() };
        pair.b.endpoint.modify_qp(pair.now, pair.b.qpn, &attributes).unwrap();
    };
    set(&mut pair, Access::REMOTE_WRITE);
    pair.post_simple(1, Operation::Write(pair.b.remote(0)), 8);
    pair.run(SECOND);
    set(&mut pair, Access::REMOTE_READ);
    pair.post_simple(2, Operation::Read(pair.b.remote(0)), 8);
    pair.run(SECOND);
    assert_eq!(statuses(&pair.a.completions), [(1, Status::Success), (2, Status::Success)]);
    pair.post_simple(3, Operation::Write(pair.b.remote(0)), 8);
    pair.run(SECOND);
    assert_eq!(statuses(&pair.a.completions)[2], (3, Status::RemoteInvalidRequestError));
    assert_eq!(pair.b.events, [AsyncEvent::QpRequestError(pair.b.qpn)]);
}

#[test]
fn the_rnr_timer_changes_while_the_connection_lives() {
    let mut pair = Pair::clean(Options { min_rnr_timer: 5, ..Options::default() });
    let log = watch(&pair, drop_first(0, |_| false));
    pair.post_simple(1, Operation::Send, 8);
    pair.run(Duration::from_micros(30));
    let attributes = Attributes { min_rnr_timer: Some(20), ..Attributes::default() };
    pair.b.endpoint.modify_qp(pair.now, pair.b.qpn, &attributes).unwrap();
    pair.run(Duration::from_millis(1));
    let timers: Vec<_> = log.of(Opcode::RC_ACKNOWLEDGE).into_iter().map(|seen| seen.syndrome).collect();
    let not_ready = |timer| Some(Syndrome::ReceiverNotReady { timer });
    assert_eq!((timers.first(), timers.last()), (Some(&not_ready(5)), Some(&not_ready(20))));
    pair.receive(1, 0, 8);
    pair.run(SECOND);
    assert_eq!(statuses(&pair.a.completions), [(1, Status::Success)]);
}

#[test]
fn the_capacity_that_is_granted_is_written_back() {
    let mut pair = Pair::clean(Options::default());
    let capacity = Capacity { max_send_wr: 3, max_receive_wr: 5, max_send_sge: 1, max_receive_sge: 2, max_inline: 100 };
    for signal_all in [false, true] {
        let init = QpInit { capacity, signal_all, ..init(pair.a.pd, &pair.a.cq) };
        let qpn = pair.a.endpoint.create_qp(init).unwrap();
        let info = pair.a.endpoint.query_qp(qpn).unwrap();
        assert_eq!((info.capacity, info.signal_all, info.srq), (capacity, signal_all, None));
    }
}
