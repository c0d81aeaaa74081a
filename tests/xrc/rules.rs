//! What initiators and targets take from their program.

use uroce::qp::{Attributes, QpInit, QpType, State};
use uroce::queue::SrqInit;
use uroce::time::Instant;
use uroce::work::{Operation, ReceiveRequest, SendRequest};

use crate::bench::{Xrc, create, way};
use crate::common::pair::{Options, init, to};

fn refused<T: std::fmt::Debug>(result: uroce::error::Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.errno(), 22, "{error}");
    error.to_string()
}

#[test]
fn each_end_posts_only_what_it_can() {
    let mut xrc = Xrc::clean(Options::default());
    let (initiator, target, now) = (xrc.initiator, xrc.target, Instant::ZERO);
    let srq = xrc.services[0].number;
    let send = |sge| SendRequest::new(1, Operation::Send, &[sge]);
    let host = &mut xrc.mesh.hosts[0];
    let unnamed = send(host.sge(0, 8));
    let error = refused(host.endpoint.post_send(now, initiator, unnamed));
    assert!(error.starts_with("remote_srqn: "), "{error}");
    let error = refused(host.endpoint.post_receive(now, initiator, ReceiveRequest::default()));
    assert_eq!(error, "qp: an XRC initiator only sends");
    let host = &mut xrc.mesh.hosts[1];
    let named = send(host.sge(0, 8)).to_srq(srq);
    assert_eq!(refused(host.endpoint.post_send(now, target, named)), "qp: an XRC target only receives");
    let error = refused(host.endpoint.post_receive(now, target, ReceiveRequest::default()));
    assert_eq!(error, "qp: its receives are posted to a shared receive queue");
}

#[test]
fn capacities_of_what_there_is_not_are_zero() {
    let xrc = Xrc::clean(Options::default());
    let initiator = xrc.mesh.hosts[0].endpoint.query_qp(xrc.initiator).unwrap();
    let target = xrc.mesh.hosts[1].endpoint.query_qp(xrc.target).unwrap();
    assert_eq!((initiator.capacity.max_receive_wr, initiator.capacity.max_send_wr), (0, 128));
    assert_eq!((target.capacity.max_receive_wr, target.capacity.max_send_wr, target.srq), (0, 0, None));
}

#[test]
fn a_domain_goes_with_targets_and_with_nothing_else() {
    let mut xrc = Xrc::clean(Options::default());
    let host = &mut xrc.mesh.hosts[1];
    let base = init(host.pd, &host.cq);
    let plain = SrqInit { pd: host.pd, max_wr: 1, max_sge: 1, extended: None };
    let plain = host.endpoint.create_srq(plain).unwrap();
    let extended = xrc.services[0].number;
    for wrong in [
        QpInit { qp_type: QpType::XrcTarget, ..base.clone() },
        QpInit { qp_type: QpType::XrcInitiator, xrcd: Some(xrc.domain), ..base.clone() },
        QpInit { xrcd: Some(xrc.domain), ..base.clone() },
        QpInit { qp_type: QpType::XrcInitiator, srq: Some(plain), ..base.clone() },
        QpInit { srq: Some(extended), ..base },
    ] {
        refused(host.endpoint.create_qp(wrong));
    }
}

/// IBTA 11.2.5.3 and the kernel's `qp_state_table`: an initiator has no responder to configure, a target no requester.
#[test]
fn each_end_takes_the_attributes_of_its_half() {
    let mut xrc = Xrc::clean(Options::default());
    let options = xrc.mesh.options;
    let (domain, peer) = (xrc.domain, (xrc.target, xrc.mesh.hosts[1].address));
    for (qp_type, lacks) in [(QpType::XrcInitiator, "MAX_DEST_RD_ATOMIC"), (QpType::XrcTarget, "RETRY_CNT")] {
        let is_target = qp_type == QpType::XrcTarget;
        let host = &mut xrc.mesh.hosts[usize::from(is_target)];
        let qpn = create(host, is_target.then_some(domain));
        let peer = if is_target { (xrc.initiator, "10.0.0.1".parse().unwrap()) } else { peer };
        let [init, rtr, rts] = way(&options, [1, 2], peer, qp_type);
        let mut modify = |attributes: &Attributes| host.endpoint.modify_qp(Instant::ZERO, qpn, attributes);
        modify(&init).unwrap();
        if is_target {
            let error = refused(modify(&Attributes { min_rnr_timer: None, ..rtr }));
            assert!(error.contains("needs Mask(MIN_RNR_TIMER)"), "{error}");
            modify(&rtr).unwrap();
            let error = refused(modify(&Attributes { retry_count: Some(1), ..rts }));
            assert!(error.contains(lacks), "{error}");
        } else {
            let error = refused(modify(&Attributes { max_dest_rd_atomic: Some(1), ..rtr }));
            assert!(error.contains(lacks), "{error}");
            modify(&rtr).unwrap();
            let error = refused(modify(&Attributes { rnr_retry: None, ..rts }));
            assert!(error.contains("needs Mask(RNR_RETRY)"), "{error}");
        }
        modify(&rts).unwrap();
        let live = Attributes { min_rnr_timer: Some(3), ..Attributes::default() };
        assert_eq!(modify(&live).is_ok(), is_target);
        modify(&to(State::SendQueueDrained)).unwrap();
        modify(&Attributes { timeout: Some(9), ..Attributes::default() }).unwrap();
        modify(&to(State::ReadyToSend)).unwrap();
        modify(&to(State::Error)).unwrap();
        modify(&to(State::Reset)).unwrap();
    }
}

/// The attributes of a reliable connection, fitted: each end keeps what it takes.
#[test]
fn the_attributes_of_a_connection_are_fitted_to_each_end() {
    let options = Options::default();
    let peer = (uroce::wire::Qpn::new(0x1_0011), "10.0.0.2".parse().unwrap());
    for qp_type in [QpType::Rc, QpType::XrcInitiator, QpType::XrcTarget] {
        let steps = crate::common::pair::way_to_rts(&options, [1, 2], peer);
        let from = [State::Reset, State::Init, State::ReadyToReceive];
        let fitted: Vec<_> = steps.iter().zip(from).map(|(step, from)| step.fitted(qp_type, from)).collect();
        for (attributes, from) in fitted.iter().zip(from) {
            attributes.check(qp_type, from).unwrap();
        }
        match qp_type {
            QpType::Rc => assert_eq!(fitted, steps),
            _ => assert_eq!(fitted, way(&options, [1, 2], peer, qp_type)),
        }
    }
}
