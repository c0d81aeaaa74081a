//! Peers whose limits differ (scenario 22). Programs agree on a path MTU and on depths outside of the engine; what holds when they
//! do, and what becomes of those that did not.

use uroce::qp::{Mtu, State};
use uroce::time::Duration;
use uroce::work::{Operation, SendRequest, Status};

use crate::common::pair::{Options, Pair, connect};

const SECOND: Duration = Duration::from_secs(1);
const LENGTH: usize = 20_001;

/// Queue pairs connected by what each side believes.
fn connected(a: &Options, b: &Options) -> Pair {
    let mut pair = Pair::clean(*a);
    let (one, other) = (pair.a.create_qp(), pair.b.create_qp());
    let (to_a, to_b) = ((one, pair.a.address), (other, pair.b.address));
    connect(&mut pair.a, one, a, [7, 9], to_b);
    connect(&mut pair.b, other, b, [9, 7], to_a);
    (pair.a.qpn, pair.b.qpn) = (one, other);
    pair
}

fn send_write_and_read(pair: &mut Pair) {
    let bytes: Vec<u8> = (0..LENGTH).map(|i| (i * 7 + i / 256) as u8).collect();
    pair.a.fill(0, &bytes);
    pair.receive(1, 100_000, LENGTH as u32);
    let (write, read) = (pair.b.remote(200_000), pair.b.remote(100_000));
    pair.post_simple(2, Operation::Send, LENGTH as u32);
    pair.post_simple(3, Operation::Write(write), LENGTH as u32);
    pair.post(SendRequest::new(4, Operation::Read(read), &[pair.a.sge(300_000, LENGTH as u32)]));
    pair.run(SECOND);
    let done: Vec<_> = pair.a.completions.iter().map(|completion| (completion.id, completion.status)).collect();
    assert_eq!(done, [2, 3, 4].map(|id| (id, Status::Success)));
    assert!([pair.b.bytes(100_000, LENGTH), pair.b.bytes(200_000, LENGTH)].iter().all(|there| *there == bytes));
    assert!(pair.a.bytes(300_000, LENGTH) == bytes);
    pair.assert_nothing_spurious();
}

/// The endpoint of the test carries 4096 bytes in a packet; the connection goes by what was agreed on.
#[test]
fn a_path_mtu_below_what_the_link_carries_is_kept_to() {
    for mtu in Mtu::ALL {
        let options = Options { mtu, ..Options::default() };
        let mut pair = connected(&options, &options);
        send_write_and_read(&mut pair);
        // Two messages in packets of that size, and a request that has none; acknowledges came back.
        let packets = LENGTH.div_ceil(mtu.bytes() as usize) as u64;
        assert_eq!(pair.b.counters().rcvd_pkts, 2 * packets + 1, "{mtu:?}");
    }
}

/// One side sends packets that the other takes for none of its: a refusal that names the request, never a message cut or put together
/// wrongly.
#[test]
fn path_mtus_that_differ_are_an_error_of_the_first_message_that_tells() {
    let (small, large) =
        (Options { mtu: Mtu::Mtu1024, ..Options::default() }, Options { mtu: Mtu::Mtu4096, ..Options::default() });
    for (a, b) in [(small, large), (large, small)] {
        let mut pair = connected(&a, &b);
        // What fits into the smaller packet looks the same to both.
        pair.a.fill(0, &[0x77; 1024]);
        pair.post_simple(1, Operation::Write(pair.b.remote(0)), 1024);
        pair.run(SECOND);
        assert_eq!((pair.a.completions[0].status, pair.b.bytes(0, 1024)), (Status::Success, vec![0x77; 1024]));
        pair.receive(9, 100_000, 50_000);
        pair.post_simple(2, Operation::Send, LENGTH as u32);
        pair.run(SECOND);
        let last = pair.a.completions.last().unwrap();
        assert_eq!((last.id, last.status), (2, Status::RemoteInvalidRequestError), "{:?} to {:?}", a.mtu, b.mtu);
        assert_eq!((pair.a.state(), pair.b.state()), (State::Error, State::Error));
        assert!(pair.b.completions.iter().all(|completion| completion.status != Status::Success));
    }
}

/// A requester keeps to its own depth, however many the responder could serve.
#[test]
fn a_requester_of_a_smaller_depth_is_served() {
    for (a, b) in [(1, 16), (4, 128), (4, 4)] {
        let depth = |rd_atomic| Options { rd_atomic, ..Options::default() };
        let mut pair = connected(&depth(a), &depth(b));
        for id in 0..20 {
            let read = Operation::Read(pair.b.remote(0));
            pair.post(SendRequest::new(id, read, &[pair.a.sge(id as usize * 4096, 3000)]));
        }
        pair.run(SECOND);
        assert!(pair.a.completions.len() == 20 && pair.a.completions.iter().all(|done| done.status == Status::Success));
        pair.assert_nothing_spurious();
    }
}

/// One that asks for more at once than the responder keeps answers for gets all of them, or an error: it is never left waiting, and no
/// atomic operation is carried out twice.
#[test]
fn a_requester_of_a_larger_depth_gets_its_answers_or_an_error() {
    let depth = |rd_atomic| Options { rd_atomic, ..Options::default() };
    let mut pair = connected(&depth(16), &depth(1));
    for id in 0..20 {
        let add = Operation::FetchAndAdd { remote: pair.b.remote(0), add: 1 };
        pair.post(SendRequest::new(id, add, &[pair.a.sge(id as usize * 8, 8)]));
    }
    pair.run(100 * SECOND);
    assert_eq!(pair.a.completions.len(), 20);
    let done = pair.a.completions.iter().filter(|done| done.status == Status::Success).count() as u64;
    let failed = pair.a.completions.iter().find(|done| done.status != Status::Success).map(|done| done.status);
    assert!(matches!(failed, None | Some(Status::RemoteInvalidRequestError)), "{failed:?}");
    let added = pair.b.word(0);
    assert!((done..=20).contains(&added), "{added} additions, {done} told");
}
