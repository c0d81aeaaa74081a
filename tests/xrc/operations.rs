//! Every operation over XRC, and what its packets are.

use std::sync::{Arc, Mutex};

use uroce::event::AsyncEvent;
use uroce::port::Verdict;
use uroce::wire::{Opcode, Packet, SrqNumber, Transport};
use uroce::work::{CompletionKind, Operation, Status, Tag};

use crate::bench::{SECOND, Service, Xrc};
use crate::common::pair::Options;

/// Opcode and, where there is one, the number in the XRCETH.
type Seen = (Opcode, Option<SrqNumber>);

fn watch(xrc: &Xrc) -> Arc<Mutex<Vec<Seen>>> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&log);
    xrc.mesh.network.set_filter(move |datagram| {
        let packet = Packet::parse(&datagram.bytes).unwrap();
        assert_eq!(packet.info.transport, Transport::Xrc);
        written.lock().unwrap().push((packet.bth.opcode, packet.extensions.xrceth.map(|xrceth| xrceth.srq)));
        Verdict::Forward
    });
    log
}

#[test]
fn each_operation_does_what_it_does_over_rc_with_its_own_headers() {
    const LENGTH: u32 = 2500;
    let mut xrc = Xrc::clean(Options::default());
    let number = xrc.services[0].number;
    let remote = xrc.services[0].remote(50_000);
    let asked = |opcodes: &[Opcode]| opcodes.iter().map(|opcode| (*opcode, Some(number))).collect::<Vec<_>>();
    let answered = |opcodes: &[Opcode]| opcodes.iter().map(|opcode| (*opcode, None)).collect::<Vec<_>>();
    let ack = &[Opcode::XRC_ACKNOWLEDGE][..];
    let cases = [
        (Operation::Send, &[Opcode::XRC_SEND_FIRST, Opcode::XRC_SEND_MIDDLE, Opcode::XRC_SEND_LAST][..], ack),
        (
            Operation::SendImmediate(5),
            &[Opcode::XRC_SEND_FIRST, Opcode::XRC_SEND_MIDDLE, Opcode::XRC_SEND_LAST_IMM],
            ack,
        ),
        (Operation::Write(remote), &[Opcode::XRC_WRITE_FIRST, Opcode::XRC_WRITE_MIDDLE, Opcode::XRC_WRITE_LAST], ack),
        (
            Operation::WriteImmediate(remote, 6),
            &[Opcode::XRC_WRITE_FIRST, Opcode::XRC_WRITE_MIDDLE, Opcode::XRC_WRITE_LAST_IMM],
            ack,
        ),
        (
            Operation::Read(remote),
            &[Opcode::XRC_READ_REQUEST],
            &[Opcode::XRC_READ_RESPONSE_FIRST, Opcode::XRC_READ_RESPONSE_MIDDLE, Opcode::XRC_READ_RESPONSE_LAST],
        ),
        (Operation::FetchAndAdd { remote, add: 1 }, &[Opcode::XRC_FETCH_ADD], &[Opcode::XRC_ATOMIC_ACKNOWLEDGE]),
        (
            Operation::CompareAndSwap { remote, compare: 0, swap: 1 },
            &[Opcode::XRC_COMPARE_SWAP],
            &[Opcode::XRC_ATOMIC_ACKNOWLEDGE],
        ),
    ];
    for (id, (operation, requests, answers)) in cases.into_iter().enumerate() {
        let id = id as u64;
        let log = watch(&xrc);
        xrc.mesh.hosts[0].fill(0, &[id as u8 + 1; LENGTH as usize]);
        xrc.receive(0, id, 0, LENGTH);
        xrc.post(0, id, operation, if operation.is_atomic() { 8 } else { LENGTH });
        xrc.run();
        let expected = [asked(requests), answered(answers)].concat();
        assert_eq!(*log.lock().unwrap(), expected, "{operation:?}");
        assert_eq!(xrc.sent().last(), Some(&(id, Status::Success)), "{operation:?}");
    }
    assert_eq!(xrc.sent().len(), 7);
    // Four of seven took none.
    assert_eq!(xrc.mesh.hosts[1].endpoint.srq_waiting(number).unwrap(), 4);
    let received = xrc.services[0].completions();
    let kinds: Vec<_> = received.iter().map(|c| (c.kind, c.tag, c.byte_length)).collect();
    let receive = CompletionKind::Receive;
    let expected = [
        (receive, Tag::None, LENGTH),
        (receive, Tag::Immediate(5), LENGTH),
        (CompletionKind::ReceiveWriteImmediate, Tag::Immediate(6), LENGTH),
    ];
    assert_eq!(kinds, expected);
    assert!(received.iter().all(|c| c.qpn == xrc.target && c.source_qpn == xrc.initiator));
    assert!(xrc.mesh.hosts[1].completions.is_empty(), "none on the target's own queue");
}

/// One connection serves every shared receive queue of the domain: each has its requests, memory and completions.
#[test]
fn one_connection_reaches_every_queue_of_the_domain() {
    let mut xrc = Xrc::clean(Options::default());
    for id in 0..4 {
        xrc.receive(0, id, id * 10, 10);
        xrc.receive(1, 100 + id, id * 10, 10);
    }
    for (id, service) in [1, 0, 0, 1, 1, 0].into_iter().enumerate() {
        xrc.mesh.hosts[0].fill(0, &[id as u8 + 1; 10]);
        xrc.post(service, id as u64, Operation::Send, 10);
        xrc.run();
    }
    let ids = |xrc: &Xrc, service: usize| xrc.services[service].completions().iter().map(|c| c.id).collect::<Vec<_>>();
    assert_eq!((ids(&xrc, 0), ids(&xrc, 1)), (vec![0, 1, 2], vec![100, 101, 102]));
    assert_eq!(xrc.services[0].bytes(0, 30), [[2; 10], [3; 10], [6; 10]].concat());
    assert_eq!(xrc.services[1].bytes(0, 30), [[1; 10], [4; 10], [5; 10]].concat());
}

/// The memory that a request may touch is that of the shared receive queue that it names.
#[test]
fn the_queue_that_is_named_stands_for_its_protection_domain() {
    for operation in 0..3 {
        let mut xrc = Xrc::clean(Options::default());
        let own = xrc.services[1].remote(0);
        let operation =
            [Operation::Write(own), Operation::Read(own), Operation::FetchAndAdd { remote: own, add: 1 }][operation];
        xrc.post(1, 1, operation, 8);
        xrc.run();
        xrc.post(0, 2, operation, 8);
        xrc.run();
        assert_eq!(xrc.sent(), [(1, Status::Success), (2, Status::RemoteAccessError)], "{operation:?}");
        let events = &xrc.mesh.hosts[1].events;
        assert_eq!(events[..], [AsyncEvent::QpAccessError(xrc.target), AsyncEvent::QpLastWqeReached(xrc.target)]);
    }
}

/// Answers to READs for two queues are on their way at the same time, each from its own memory; one is asked for again.
#[test]
fn answers_come_from_the_memory_of_their_own_queue() {
    let mut xrc = Xrc::clean(Options::default());
    for (service, byte) in [(0, 1), (1, 2)] {
        xrc.services[service].buffer.span(0, 3000).unwrap().copy_in(&[byte; 3000]).unwrap();
    }
    let mut drops = 1;
    xrc.mesh.network.set_filter(move |datagram| {
        let is_first = datagram.bytes[0] == Opcode::XRC_READ_RESPONSE_FIRST.value();
        if is_first && drops > 0 {
            drops -= 1;
            return Verdict::Drop;
        }
        Verdict::Forward
    });
    let host = &mut xrc.mesh.hosts[0];
    for (service, offset) in [(0, 0), (1, 3000)] {
        let Service { number, key, .. } = &xrc.services[service];
        let remote = uroce::work::Remote { address: 0, rkey: *key };
        let request = uroce::work::SendRequest::new(service as u64, Operation::Read(remote), &[host.sge(offset, 3000)]);
        host.endpoint.post_send(xrc.mesh.now, xrc.initiator, request.to_srq(*number)).unwrap();
    }
    xrc.mesh.run(SECOND);
    assert_eq!(xrc.sent(), [(0, Status::Success), (1, Status::Success)]);
    assert_eq!(xrc.mesh.hosts[0].bytes(0, 6000), [[1; 3000], [2; 3000]].concat());
}

#[test]
fn an_empty_queue_holds_back_the_connection_until_it_has_a_request() {
    let mut xrc = Xrc::clean(Options::default());
    xrc.receive(1, 9, 0, 8);
    xrc.post(0, 1, Operation::Send, 8);
    xrc.post(1, 2, Operation::Send, 8);
    xrc.mesh.run(uroce::time::Duration::from_millis(3));
    assert_eq!(xrc.sent(), [], "in order, whatever queue it is for");
    assert!(xrc.mesh.hosts[1].counters().send_rnr_err > 0);
    xrc.receive(0, 8, 0, 8);
    xrc.run();
    assert_eq!(xrc.sent(), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn the_limit_event_comes_for_the_queue_that_runs_low() {
    let mut xrc = Xrc::clean(Options::default());
    let [low, high] = [0, 1].map(|service| xrc.services[service].number);
    for id in 0..2 {
        xrc.receive(0, id, 0, 8);
        xrc.receive(1, id, 0, 8);
    }
    for srq in [low, high] {
        xrc.mesh.hosts[1].endpoint.modify_srq(srq, None, Some(2)).unwrap();
    }
    xrc.post(0, 1, Operation::Send, 8);
    xrc.run();
    assert_eq!(xrc.mesh.hosts[1].events, [AsyncEvent::SrqLimitReached(low)]);
}

#[test]
fn an_invalidated_key_must_be_one_of_the_queues_domain() {
    use uroce::memory::{Access, FastRegister, Holder};
    for (service, status) in [(0, Status::Success), (1, Status::RemoteAccessError)] {
        let mut xrc = Xrc::clean(Options::default());
        let (holder, lkey) = (Holder { pd: xrc.services[0].pd, qpn: xrc.target }, xrc.services[0].key);
        let memory = xrc.mesh.hosts[1].endpoint.memory_mut();
        let key = memory.allocate_fast(holder.pd, 1).unwrap();
        let register = FastRegister { key, lkey, address: 0, length: 8, iova: 0, access: Access::LOCAL_WRITE };
        memory.register_fast(holder, &register).unwrap();
        xrc.receive(service, 1, 0, 8);
        xrc.post(service, 1, Operation::SendInvalidate(key), 8);
        xrc.run();
        assert_eq!(xrc.sent(), [(1, status)]);
    }
}
