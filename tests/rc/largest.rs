//! The largest message that there is in InfiniBand: 2^31 bytes (scenario 15). Lengths, packet counts and addresses of it do not fit
//! into 31 bits, and nearly 2^19 packets belong to one message.

use uroce::qp::Mtu;
use uroce::time::Duration;
use uroce::work::{Operation, ReceiveRequest, SendRequest, Sge, Status};

use crate::common::pair::{Options, Pair};

/// Elements of a list: it names the same memory so many times, and memory stays small.
const TIMES: usize = 32;
const PIECE: usize = (1 << 31) / TIMES;

/// A SEND of 2^31 bytes is one message, one completion of that length, and the right bytes.
#[test]
#[ignore = "two gigabytes take minutes without optimization; tools/check runs it with"]
fn a_message_of_two_to_the_thirty_first_bytes_arrives() {
    let options = Options { mtu: Mtu::Mtu4096, memory: PIECE, ..Options::default() };
    let mut pair = Pair::clean(options);
    let pattern: Vec<u8> = (0..PIECE).map(|i| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    pair.a.fill(0, &pattern);
    let list = |sge: Sge| [sge; TIMES];
    let receive = ReceiveRequest::new(1, &list(pair.b.sge(0, PIECE as u32)));
    pair.b.endpoint.post_receive(pair.now, pair.b.qpn, receive).unwrap();
    pair.post(SendRequest::new(2, Operation::Send, &list(pair.a.sge(0, PIECE as u32))));
    pair.run(Duration::from_secs(3600));
    let [received] = pair.b.completions[..] else { panic!("{:?}", pair.b.completions) };
    assert_eq!((received.id, received.status, received.byte_length), (1, Status::Success, 1 << 31));
    let [sent] = pair.a.completions[..] else { panic!("{:?}", pair.a.completions) };
    assert_eq!((sent.id, sent.status), (2, Status::Success));
    assert!(pair.b.bytes(0, PIECE) == pattern, "the bytes are others");
    assert_eq!(pair.b.counters().rcvd_pkts, (1 << 31) / 4096);
    pair.assert_nothing_spurious();
    // Around the corner of sequence numbers, on which the next message builds.
    pair.receive(3, 0, 8);
    pair.post_simple(4, Operation::Send, 8);
    pair.run(Duration::from_secs(1));
    assert_eq!((pair.b.completions[1].id, pair.b.completions[1].byte_length), (3, 8));
}
