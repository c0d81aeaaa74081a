//! States of UC and UD: a send queue that fails alone, draining, and what each change of state takes.

use uroce::event::AsyncEvent;
use uroce::qp::{Attributes, QpType, State};
use uroce::wire::Psn;
use uroce::work::{Operation, SendRequest, Status};

use crate::common::pair::{Options, Pair, to};
use crate::uc::SECOND;
use crate::{uc, ud};

/// A request of A for B with a wrong key, or a right one.
fn post(pair: &mut Pair, id: u64, length: u32, is_right: bool) {
    let mut sge = pair.a.sge(0, length);
    sge.lkey ^= u32::from(!is_right);
    let request = SendRequest::new(id, Operation::Send, &[sge]);
    let info = pair.a.endpoint.query_qp(pair.a.qpn).unwrap();
    let is_datagram = info.attributes.qkey.is_some();
    pair.post(if is_datagram { request.to(ud::destination(&pair.b)) } else { request });
}

/// A request that fails here stops the send queue; what the peer sends still arrives; and the way back is RTS.
#[test]
fn a_failed_request_stops_the_send_queue_alone() {
    for options in [uc::options(), ud::options()] {
        let mut pair = Pair::clean(options);
        for id in 0..4 {
            pair.receive(id, 0, 4096);
        }
        for (id, is_right) in [(1, true), (2, false), (3, true)] {
            post(&mut pair, id, 1000, is_right);
        }
        pair.run(SECOND);
        let story = format!("{:?}", options.qp_type);
        let sent: Vec<_> = pair.a.completions.drain(..).map(|c| (c.id, c.status)).collect();
        let expected = [(1, Status::Success), (2, Status::LocalProtectionError), (3, Status::FlushError)];
        assert_eq!(sent, expected, "{story}");
        assert_eq!(pair.a.state(), State::SendQueueError, "{story}");
        assert_eq!(pair.b.completions.len(), 1, "{story}");
        post(&mut pair, 4, 8, true);
        pair.run(SECOND);
        assert_eq!(pair.a.completions.drain(..).map(|c| c.status).collect::<Vec<_>>(), [Status::FlushError]);
        // The other direction still works.
        let request = uroce::work::ReceiveRequest::new(9, &[pair.a.sge(4096, 4096)]);
        pair.a.endpoint.post_receive(pair.now, pair.a.qpn, request).unwrap();
        let request = SendRequest::new(1, Operation::Send, &[pair.b.sge(0, 8)]);
        let request = if options.qp_type == QpType::Ud { request.to(ud::destination(&pair.a)) } else { request };
        pair.b.endpoint.post_send(pair.now, pair.b.qpn, request).unwrap();
        pair.run(SECOND);
        assert_eq!(pair.a.completions.drain(..).map(|c| (c.id, c.status)).collect::<Vec<_>>(), [(9, Status::Success)]);
        // And back.
        pair.a.endpoint.modify_qp(pair.now, pair.a.qpn, &to(State::ReadyToSend)).unwrap();
        post(&mut pair, 5, 8, true);
        pair.run(SECOND);
        assert_eq!(pair.a.completions.iter().map(|c| (c.id, c.status)).collect::<Vec<_>>(), [(5, Status::Success)]);
        assert_eq!(pair.b.completions.len(), 3, "{story}: the peer missed a message, or had one too many");
    }
}

/// A receive request over memory that is not there is the program's fault, and ends the queue pair.
#[test]
fn a_receive_that_cannot_be_filled_ends_the_queue_pair() {
    for options in [uc::options(), ud::options()] {
        let mut pair = Pair::clean(options);
        let mut sge = pair.b.sge(0, 4096);
        sge.lkey ^= 1;
        let request = uroce::work::ReceiveRequest::new(1, &[sge]);
        pair.b.endpoint.post_receive(pair.now, pair.b.qpn, request).unwrap();
        pair.receive(2, 0, 4096);
        post(&mut pair, 1, 100, true);
        pair.run(SECOND);
        let received: Vec<_> = pair.b.completions.iter().map(|c| (c.id, c.status)).collect();
        assert_eq!(received, [(1, Status::LocalProtectionError), (2, Status::FlushError)]);
        assert_eq!(pair.b.state(), State::Error);
    }
}

/// Draining lets the message that was begun go on to its end, and no other begin.
#[test]
fn draining_ends_between_messages() {
    let mut pair = Pair::clean(uc::options());
    let length = 200_000;
    for id in 0..2 {
        pair.receive(id, 0, length);
        post(&mut pair, id, length, true);
    }
    pair.a.progress(pair.now);
    pair.a.endpoint.modify_qp(pair.now, pair.a.qpn, &to(State::SendQueueDrained)).unwrap();
    pair.a.progress(pair.now);
    assert_eq!(pair.a.events, [], "a message is half way");
    pair.run(SECOND);
    assert_eq!(pair.a.events, [AsyncEvent::SendQueueDrained(pair.a.qpn)]);
    assert_eq!((pair.a.completions.len(), pair.b.completions.len()), (1, 1));
    pair.a.endpoint.modify_qp(pair.now, pair.a.qpn, &to(State::ReadyToSend)).unwrap();
    pair.run(SECOND);
    assert_eq!((pair.a.completions.len(), pair.b.completions.len()), (2, 2));
    pair.assert_nothing_spurious();
}

#[test]
fn each_type_takes_its_own_attributes() {
    let mut pair = Pair::clean(Options { qp_type: QpType::Ud, ..Options::default() });
    let mut refused = |attributes: Attributes, blamed: &str| {
        let error = pair.a.endpoint.modify_qp(pair.now, pair.a.qpn, &attributes).unwrap_err();
        assert!(error.to_string().contains(blamed), "{blamed}: {error}");
    };
    let rts = to(State::ReadyToSend);
    refused(Attributes { timeout: Some(14), ..rts }, "TIMEOUT");
    refused(Attributes { access: Some(uroce::memory::Access::empty()), ..rts }, "ACCESS_FLAGS");
    let mut pair = Pair::clean(uc::options());
    let mut refused = |attributes: Attributes, blamed: &str| {
        let error = pair.a.endpoint.modify_qp(pair.now, pair.a.qpn, &attributes).unwrap_err();
        assert!(error.to_string().contains(blamed), "{blamed}: {error}");
    };
    refused(Attributes { qkey: Some(1), ..rts }, "QKEY");
    refused(Attributes { min_rnr_timer: Some(1), ..rts }, "MIN_RNR_TIMER");
    pair.a.endpoint.modify_qp(pair.now, pair.a.qpn, &to(State::Reset)).unwrap();
    let early = Attributes { send_psn: Some(Psn::new(1)), ..to(State::ReadyToSend) };
    let error = pair.a.endpoint.modify_qp(pair.now, pair.a.qpn, &early).unwrap_err();
    assert!(error.to_string().contains("cannot go from Reset"), "{error}");
}

/// What a connection cannot carry is refused when posted.
#[test]
fn uc_refuses_what_needs_an_answer() {
    let mut pair = Pair::clean(uc::options());
    let sge = [pair.a.sge(0, 8)];
    let remote = pair.b.remote(0);
    for operation in [
        Operation::Read(remote),
        Operation::FetchAndAdd { remote, add: 1 },
        Operation::CompareAndSwap { remote, compare: 0, swap: 1 },
        Operation::SendInvalidate(1),
    ] {
        let error = pair.a.endpoint.post_send(pair.now, pair.a.qpn, SendRequest::new(1, operation, &sge)).unwrap_err();
        assert!(error.errno() == 22 && error.to_string().contains("opcode"), "{error}");
    }
    let request = SendRequest::new(1, Operation::Send, &sge).to(ud::destination(&pair.b));
    let error = pair.a.endpoint.post_send(pair.now, pair.a.qpn, request).unwrap_err();
    assert!(error.to_string().contains("ah"), "{error}");
}
