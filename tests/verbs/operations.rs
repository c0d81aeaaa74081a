//! What work requests do, and how they fail.

use uroce::verbs::{AsyncEvent, ReceiveRequest, Remote, State, Tag};

use super::*;

#[test]
fn a_send_arrives_with_its_immediate_data() {
    let (a, b) = Side::pair();
    b.qp.post_receive([ReceiveRequest::new(1, &[b.region.sge(100, 50), b.region.sge(300, 50)])]).unwrap();
    let payload: Vec<u8> = (0..70).collect();
    a.region.write(0, &payload).unwrap();
    a.post(Operation::SendImmediate(0xdead_beef), 70);
    let received = b.poll();
    assert_success(received, CompletionKind::Receive);
    assert_eq!((received.id, received.byte_length, received.qpn), (1, 70, b.qp.qpn()));
    assert_eq!(received.tag, Tag::Immediate(0xdead_beef));
    assert_eq!([b.bytes(100, 50), b.bytes(300, 20)].concat(), payload);
    assert_success(a.poll(), CompletionKind::Send);
}

#[test]
fn a_list_of_requests_is_posted_in_order() {
    let (a, b) = Side::pair();
    b.qp.post_receive((0..20).map(|id| ReceiveRequest::new(id, &[b.region.sge(id as usize * 8, 8)]))).unwrap();
    a.qp.post_send((0..20_u64).map(|id| SendRequest::inline(id, Operation::Send, &id.to_be_bytes()))).unwrap();
    for id in 0..20 {
        let received = b.poll();
        assert_success(received, CompletionKind::Receive);
        assert_eq!(received.id, id);
        assert_eq!(b.bytes(id as usize * 8, 8), id.to_be_bytes());
        assert_eq!(a.poll().id, id);
    }
    assert_eq!(b.qp.counters().unwrap(), b.context.counters(), "the only queue pair counts for all");
}

#[test]
fn one_sided_operations_need_no_program_at_the_target() {
    let (a, b) = Side::pair();
    let payload: Vec<u8> = (0..60_000_u32).map(|i| (i % 251) as u8).collect();
    a.region.write(0, &payload).unwrap();
    a.post(Operation::Write(b.region.remote(1000)), 60_000);
    assert_success(a.poll(), CompletionKind::Write);
    assert_eq!(b.bytes(1000, 60_000), payload);

    b.region.write(0, &[0x5a; 9000]).unwrap();
    a.post(Operation::Read(b.region.remote(0)), 9000);
    let completion = a.poll();
    assert_success(completion, CompletionKind::Read);
    assert_eq!(completion.byte_length, 9000);
    assert_eq!(a.bytes(0, 9000), [0x5a; 9000]);

    b.region.write(0, &40_u64.to_ne_bytes()).unwrap();
    a.post(Operation::FetchAndAdd { remote: b.region.remote(0), add: 2 }, 8);
    assert_success(a.poll(), CompletionKind::FetchAndAdd);
    assert_eq!(a.bytes(0, 8), 40_u64.to_ne_bytes());
    a.post(Operation::CompareAndSwap { remote: b.region.remote(0), compare: 42, swap: 1 }, 8);
    assert_success(a.poll(), CompletionKind::CompareAndSwap);
    assert_eq!((a.bytes(0, 8), b.bytes(0, 8)), (42_u64.to_ne_bytes().into(), 1_u64.to_ne_bytes().into()));
}

#[test]
fn a_forged_key_is_refused_at_both_ends() {
    let (a, b) = Side::pair();
    let forged = Remote { rkey: b.region.rkey() ^ 1, ..b.region.remote(0) };
    a.post(Operation::Write(forged), 8);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
    let events = b.context.events();
    let mut seen = Vec::new();
    while !seen.contains(&AsyncEvent::QpAccessError(b.qp.qpn())) {
        seen.push(events.wait(None).unwrap().expect("no time-out"));
    }
    assert_eq!(b.qp.query().unwrap().state, State::Error);
}

#[test]
fn a_region_that_was_dropped_is_out_of_reach() {
    let (a, b) = Side::pair();
    let region = b.pd.register(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let remote = region.remote(0);
    a.post(Operation::Write(remote), 8);
    assert_success(a.poll(), CompletionKind::Write);
    drop(region);
    a.post(Operation::Write(remote), 8);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
}

#[test]
fn what_was_posted_before_the_one_at_fault_stays_posted() {
    let (a, _b) = Side::pair();
    let fresh = a.pd.create_qp(&QpConfig::new(&a.cq, &a.cq)).unwrap();
    let sends = |lengths: [usize; 3]| lengths.map(|length| SendRequest::inline(0, Operation::Send, &vec![1; length]));
    let error = fresh.post_send(sends([1, 1, 1])).unwrap_err();
    assert_eq!((error.posted, error.error.errno()), (0, 22), "{error}");
    let error = a.qp.post_send(sends([1, 1, 5000])).unwrap_err();
    assert_eq!((error.posted, error.error.errno()), (2, 22), "{error}");
}
