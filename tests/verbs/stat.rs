//! What a device counted, asked from outside: each open device answers on a socket of its own.

use uroce::verbs::stat::{Snapshot, running};
use uroce::verbs::{CompletionKind, Context, Operation};

use crate::{Side, assert_success};

fn find(context: &Context) -> Option<Snapshot> {
    running().into_iter().find(|open| open.pid == std::process::id() && open.addresses == context.addresses())
}

#[test]
fn a_device_answers_with_its_counters_while_it_is_open() {
    let (a, b) = Side::pair();
    a.post(Operation::Write(b.region.remote(0)), 10_000);
    assert_success(a.poll(), CompletionKind::Write);
    let open = find(&a.context).expect("a snapshot");
    assert_eq!(open.device, "uroce_lo");
    let [pair] = &open.queue_pairs[..] else { panic!("{open:?}") };
    assert_eq!((pair.qpn, pair.peer_qpn), (a.qp.qpn().value(), Some(b.qp.qpn().value())));
    assert_eq!((pair.qp_type.as_str(), pair.state.as_str()), ("Rc", "ReadyToSend"));
    assert_eq!(pair.peer, b.context.addresses().first().copied());
    assert!(pair.counters["sent_pkts"] >= 3, "{pair:?}");
    assert!(open.counters["sent_pkts"] >= pair.counters["sent_pkts"], "{open:?}");
    assert!(open.port["sent_bytes"] > 10_000, "{open:?}");

    let context = a.context.clone();
    drop(a);
    let open = find(&context).expect("a snapshot");
    assert!(open.queue_pairs.is_empty() && open.counters["sent_pkts"] >= 3, "{open:?}");
    let addresses = context.addresses().to_vec();
    drop(context);
    assert!(running().iter().all(|open| open.addresses != addresses), "it is closed");
}

#[test]
fn a_device_that_does_not_want_to_be_seen_is_not() {
    let context = Context::options("uroce_lo").publish(false).open().unwrap();
    assert_eq!(find(&context), None);
}
