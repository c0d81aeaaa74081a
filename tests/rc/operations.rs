//! Every operation on a clean network: the right bytes, the right completions, and not one packet too many.

use uroce::memory::{Access, FastRegister, Holder};
use uroce::qp::Mtu;
use uroce::time::Duration;
use uroce::work::{CompletionKind, Operation, SendFlags, SendRequest, Sge, Status, Tag};

use crate::common::pair::{Options, Pair};

const SECOND: Duration = Duration::from_secs(1);

/// Bytes that differ from their neighbours, and from message to message.
fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

/// 0, 1, around one and several path MTUs, and long (scenarios 12 and 15).
fn sizes(mtu: usize) -> impl Iterator<Item = usize> {
    [0, 1, 3, mtu - 1, mtu, mtu + 1, 3 * mtu, 65_537, 500_000].into_iter()
}

#[test]
fn every_size_of_send_write_and_read_at_every_mtu() {
    for mtu in Mtu::ALL {
        let mut pair = Pair::clean(Options { mtu, ..Options::default() });
        for (n, size) in sizes(mtu.bytes() as usize).enumerate() {
            let bytes = pattern(n as u8, size);
            pair.a.fill(0, &bytes);
            pair.b.fill(0, &vec![0; size + 8]);
            let remote = pair.b.remote(4);
            pair.receive(100, 4, size as u32);
            pair.post_simple(1, Operation::Send, size as u32);
            pair.run(SECOND);
            assert_eq!(pair.b.bytes(0, size + 8), [&[0; 4], &bytes[..], &[0; 4]].concat(), "SEND {mtu:?} {size}");

            pair.b.fill(0, &vec![0; size + 8]);
            pair.post_simple(2, Operation::Write(remote), size as u32);
            pair.run(SECOND);
            assert_eq!(pair.b.bytes(0, size + 8), [&[0; 4], &bytes[..], &[0; 4]].concat(), "WRITE {mtu:?} {size}");

            pair.a.fill(0, &vec![0; size]);
            pair.post_simple(3, Operation::Read(remote), size as u32);
            pair.run(SECOND);
            assert_eq!(pair.a.bytes(0, size), bytes, "READ {mtu:?} {size}");

            let ended: Vec<_> = pair.a.completions.drain(..).map(|c| (c.id, c.status, c.kind)).collect();
            assert_eq!(
                ended,
                [
                    (1, Status::Success, CompletionKind::Send),
                    (2, Status::Success, CompletionKind::Write),
                    (3, Status::Success, CompletionKind::Read),
                ]
            );
            let received: Vec<_> = pair.b.completions.drain(..).map(|c| (c.id, c.kind, c.byte_length)).collect();
            assert_eq!(received, [(100, CompletionKind::Receive, size as u32)]);
        }
        pair.assert_nothing_spurious();
    }
}

#[test]
fn immediate_data_and_solicited_reach_the_receiver() {
    let mut pair = Pair::clean(Options::default());
    for (id, length) in [(1, 10), (2, 0), (3, 5000), (4, 5000)] {
        pair.receive(id, 0, 10_000);
        let immediate = 0x0102_0300 + id as u32;
        let operation = if id == 4 {
            Operation::WriteImmediate(pair.b.remote(0), immediate)
        } else {
            Operation::SendImmediate(immediate)
        };
        let request = SendRequest::new(id, operation, &[pair.a.sge(0, length)]);
        pair.post(request.with_flags(SendFlags::SOLICITED | SendFlags::SIGNALED));
        pair.run(SECOND);
        let received = pair.b.completions.pop().unwrap();
        assert_eq!((received.id, received.tag, received.byte_length), (id, Tag::Immediate(immediate), length));
        assert!(received.solicited);
        let kind = if id == 4 { CompletionKind::ReceiveWriteImmediate } else { CompletionKind::Receive };
        assert_eq!(received.kind, kind);
    }
    pair.assert_nothing_spurious();
}

#[test]
fn atomics_fetch_and_change() {
    let mut pair = Pair::clean(Options::default());
    pair.b.fill(16, &7u64.to_ne_bytes());
    let remote = pair.b.remote(16);
    pair.post_simple(1, Operation::FetchAndAdd { remote, add: u64::MAX }, 8);
    pair.run(SECOND);
    assert_eq!((pair.a.word(0), pair.b.word(16)), (7, 6));
    pair.post_simple(2, Operation::CompareAndSwap { remote, compare: 5, swap: 9 }, 8);
    pair.run(SECOND);
    assert_eq!((pair.a.word(0), pair.b.word(16)), (6, 6));
    pair.post_simple(3, Operation::CompareAndSwap { remote, compare: 6, swap: 9 }, 8);
    pair.run(SECOND);
    assert_eq!((pair.a.word(0), pair.b.word(16)), (6, 9));
    assert_eq!(
        pair.a.completions.iter().map(|c| (c.status, c.byte_length)).collect::<Vec<_>>(),
        [(Status::Success, 8); 3]
    );
    pair.assert_nothing_spurious();
}

#[test]
fn a_list_of_32_elements_with_empty_ones_is_one_message() {
    let mut pair = Pair::clean(Options { mtu: Mtu::Mtu256, ..Options::default() });
    let bytes = pattern(9, 4096);
    pair.a.fill(0, &bytes);
    let nowhere = Sge { address: 1, length: 0, lkey: 0 };
    let mut list = vec![nowhere];
    let mut offset = 0;
    for n in 0..31u32 {
        let length = n * 7 % 200;
        list.push(pair.a.sge(offset, length));
        offset += length as usize;
    }
    pair.receive(1, 10_000, offset as u32);
    pair.post(SendRequest::new(1, Operation::Send, &list));
    pair.run(SECOND);
    assert_eq!(pair.b.bytes(10_000, offset), bytes[..offset]);
    pair.assert_nothing_spurious();
}

#[test]
fn inline_data_is_copied_when_posted_and_needs_no_key() {
    let mut pair = Pair::clean(Options { mtu: Mtu::Mtu256, ..Options::default() });
    let bytes = pattern(3, 512);
    pair.post(SendRequest::inline(1, Operation::Write(pair.b.remote(0)), &bytes));
    pair.run(SECOND);
    assert_eq!(pair.b.bytes(0, 512), bytes);
    pair.assert_nothing_spurious();
}

#[test]
fn unsignalled_requests_complete_silently() {
    let mut pair = Pair::clean(Options::default());
    for id in 0..10 {
        let request = SendRequest::new(id, Operation::Write(pair.b.remote(0)), &[pair.a.sge(0, 10)]);
        pair.post(if id % 5 == 4 { request } else { request.with_flags(SendFlags::empty()) });
    }
    pair.run(SECOND);
    assert_eq!(pair.a.completions.iter().map(|c| c.id).collect::<Vec<_>>(), [4, 9]);
}

#[test]
fn a_fenced_request_waits_for_the_read_before_it() {
    let mut pair = Pair::clean(Options::default());
    pair.b.fill(0, &pattern(1, 3000));
    // The WRITE takes its bytes from where the READ puts them.
    let read = SendRequest::new(1, Operation::Read(pair.b.remote(0)), &[pair.a.sge(0, 3000)]);
    let write = SendRequest::new(2, Operation::Write(pair.b.remote(5000)), &[pair.a.sge(0, 3000)]);
    pair.post(read);
    pair.post(write.with_flags(SendFlags::FENCE | SendFlags::SIGNALED));
    pair.run(SECOND);
    assert_eq!(pair.b.bytes(5000, 3000), pattern(1, 3000));
    pair.assert_nothing_spurious();
}

#[test]
fn more_reads_than_the_depth_wait_their_turn() {
    let mut pair = Pair::clean(Options { rd_atomic: 2, ..Options::default() });
    let bytes = pattern(5, 400_000);
    pair.b.fill(0, &bytes);
    for n in 0..20 {
        let (offset, length) = (n * 20_000, 20_000);
        let request = SendRequest::new(n as u64, Operation::Read(pair.b.remote(offset)), &[pair.a.sge(offset, length)]);
        pair.post(request);
    }
    pair.run(SECOND);
    assert_eq!(pair.a.bytes(0, 400_000), bytes);
    assert_eq!(pair.a.completions.iter().map(|c| c.id).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    pair.assert_nothing_spurious();
}

#[test]
fn a_send_invalidates_only_what_allows_it() {
    let mut pair = Pair::clean(Options::default());
    let (pd, qpn, lkey) = (pair.b.pd, pair.b.qpn, pair.b.key);
    let memory = pair.b.endpoint.memory_mut();
    let key = memory.allocate_fast(pd, 1).unwrap();
    let address = pair.b.buffer.address();
    let register = FastRegister { key, lkey, address, length: 64, iova: 0, access: Access::LOCAL_WRITE };
    memory.register_fast(Holder { pd, qpn }, &register).unwrap();
    pair.receive(1, 0, 10);
    pair.post_simple(1, Operation::SendInvalidate(key), 10);
    pair.run(SECOND);
    assert_eq!(pair.b.completions.pop().unwrap().tag, Tag::Invalidated(key));
    assert!(pair.b.endpoint.memory().resolve(key, pd, 0, 1, Access::empty()).is_err(), "the key is dead");
    pair.assert_nothing_spurious();

    let lasting = pair.b.key;
    pair.receive(2, 0, 10);
    pair.post_simple(2, Operation::SendInvalidate(lasting), 10);
    pair.run(SECOND);
    assert_eq!(pair.a.completions.last().unwrap().status, Status::RemoteAccessError);
    assert!(pair.b.endpoint.memory_mut().deregister(lasting).is_ok());
}

#[test]
fn many_small_messages_cost_few_acknowledges() {
    let mut pair = Pair::clean(Options::default());
    for id in 0..100 {
        pair.post_simple(id, Operation::Write(pair.b.remote(0)), 8);
    }
    pair.run(SECOND);
    assert_eq!(pair.a.completions.len(), 100);
    assert!(pair.b.counters().sent_pkts <= 5, "{} acknowledges", pair.b.counters().sent_pkts);
    pair.assert_nothing_spurious();
}
