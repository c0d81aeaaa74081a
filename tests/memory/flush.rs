//! FLUSH: answered once what it covers is placed as far as it asks.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use uroce::memory::{Access, Buffer, Region};
use uroce::qp::{Attributes, State};
use uroce::wire::{NakCode, Opcode, Placement, Selectivity, Syndrome};
use uroce::work::{CompletionKind, Flush, Operation, Remote, SendRequest, Status};

use crate::bench::{SECOND, assert_ended, ended, pair};
use crate::common::craft::{Victim, deliver, drain};
use crate::common::pair::Pair;
use crate::common::watch::{drop_first, watch};

const GLOBAL: Placement = Placement::GLOBAL_VISIBILITY;

fn flush(remote: Remote, length: u32, placement: Placement, selectivity: Selectivity) -> Operation {
    Operation::Flush(Flush { remote, length, placement, selectivity })
}

fn post(pair: &mut Pair, id: u64, operation: Operation) {
    pair.post(SendRequest::new(id, operation, &[]));
}

#[test]
fn a_flush_of_a_range_or_a_region_completes_after_the_write_before_it() {
    for (selectivity, length) in [(Selectivity::Range, 5000), (Selectivity::Range, 0), (Selectivity::Region, 0)] {
        let mut pair = pair();
        pair.a.fill(0, &[3; 5000]);
        pair.post_simple(1, Operation::Write(pair.b.remote(0)), 5000);
        let operation = flush(pair.b.remote(0), length, GLOBAL, selectivity);
        post(&mut pair, 2, operation);
        pair.run(SECOND);
        assert_eq!(
            ended(&mut pair.a.completions),
            [(1, Status::Success, CompletionKind::Write), (2, Status::Success, CompletionKind::Flush)],
            "{selectivity:?} {length}"
        );
        assert_eq!(pair.b.bytes(0, 5000), [3; 5000]);
        pair.assert_nothing_spurious();
    }
}

/// A file in the system's folder for such, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, length: u64) -> (Self, File) {
        let path = std::env::temp_dir().join(format!("uroce-{name}-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        (Self(path), file)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Memory of B that maps a file, and a queue pair that lets A make it persistent.
fn with_file(pair: &mut Pair, file: &File) -> Remote {
    let buffer = Arc::new(Buffer::map_file(file.as_fd(), 4096, 8192).unwrap());
    let access = Access::LOCAL_WRITE | Access::REMOTE | Access::FLUSH;
    let region = Region::owned(buffer, 0, access, pair.b.pd);
    let rkey = pair.b.endpoint.memory_mut().register(region).unwrap();
    let attributes = Attributes { access: Some(access), ..Attributes::default() };
    pair.b.endpoint.modify_qp(pair.now, pair.b.qpn, &attributes).unwrap();
    Remote { address: 0, rkey }
}

#[test]
fn persistence_is_a_files() {
    let (scratch, file) = Scratch::new("flush", 3 * 4096);
    let mut pair = pair();
    let remote = with_file(&mut pair, &file);
    pair.a.fill(0, &[9; 6000]);
    pair.post_simple(1, Operation::Write(Remote { address: 100, ..remote }), 6000);
    for (id, placement) in [(2, Placement::PERSISTENCE), (3, Placement::PERSISTENCE | GLOBAL)] {
        // The range begins and ends within pages.
        post(&mut pair, id, flush(Remote { address: 100, ..remote }, 6000, placement, Selectivity::Range));
    }
    post(&mut pair, 4, flush(remote, 0, Placement::PERSISTENCE, Selectivity::Region));
    pair.run(SECOND);
    assert!(ended(&mut pair.a.completions).iter().all(|done| done.1 == Status::Success));
    let bytes = fs::read(&scratch.0).unwrap();
    assert_eq!((&bytes[4195..4197], &bytes[10_195..10_197]), (&[0, 9][..], &[9, 0][..]));
    pair.assert_nothing_spurious();
}

#[test]
fn anonymous_memory_cannot_be_made_persistent() {
    let mut pair = pair();
    let region = Region::owned(Buffer::zeroed(64).into(), 0, Access::FLUSH_PERSISTENT, pair.b.pd);
    let error = pair.b.endpoint.memory_mut().register(region).unwrap_err();
    assert_eq!(error.errno(), 22);
    assert!(error.to_string().contains("maps a file"), "{error}");
    // The queue pair allows it, the region does not.
    let access = Access::REMOTE | Access::FLUSH;
    let attributes = Attributes { access: Some(access), ..Attributes::default() };
    pair.b.endpoint.modify_qp(pair.now, pair.b.qpn, &attributes).unwrap();
    let operation = flush(pair.b.remote(0), 8, Placement::PERSISTENCE, Selectivity::Range);
    post(&mut pair, 1, operation);
    pair.run(SECOND);
    assert_ended(&mut pair.a.completions, 1, Status::RemoteAccessError, CompletionKind::Flush);
}

#[test]
fn a_lost_answer_is_given_again() {
    let mut pair = pair();
    let log = watch(&pair, drop_first(2, |seen| seen.opcode == Opcode::RC_READ_RESPONSE_ONLY));
    let operation = flush(pair.b.remote(0), 64, GLOBAL, Selectivity::Range);
    post(&mut pair, 1, operation);
    pair.post_simple(2, Operation::Write(pair.b.remote(0)), 8);
    pair.run(SECOND);
    let done: Vec<_> = ended(&mut pair.a.completions).iter().map(|done| (done.0, done.1)).collect();
    assert_eq!(done, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(log.of(Opcode::RC_READ_RESPONSE_ONLY).len(), 3);
}

#[test]
fn what_is_refused_and_how() {
    const PSN: u32 = 0xff_fff0;
    type Case<'a> = (&'a str, Placement, Selectivity, u64, u32, u32, NakCode);
    let reserved = Placement::from_bits_retain(4);
    let cases: [Case<'_>; 9] = [
        ("no placement", Placement::empty(), Selectivity::Range, 0, 0, 8, NakCode::InvalidRequest),
        ("a reserved placement", GLOBAL | reserved, Selectivity::Range, 0, 0, 8, NakCode::InvalidRequest),
        ("a reserved selectivity", GLOBAL, Selectivity::Reserved(2), 0, 0, 8, NakCode::InvalidRequest),
        ("more than a message", GLOBAL, Selectivity::Range, 0, 0, (1 << 31) + 1, NakCode::InvalidRequest),
        ("not granted by the queue pair", Placement::PERSISTENCE, Selectivity::Range, 0, 0, 8, NakCode::InvalidRequest),
        ("another key", GLOBAL, Selectivity::Range, 0, 1, 8, NakCode::RemoteAccess),
        ("another key, the region", GLOBAL, Selectivity::Region, 0, 1, 8, NakCode::RemoteAccess),
        ("outside", GLOBAL, Selectivity::Range, 1 << 20, 0, 1, NakCode::RemoteAccess),
        ("around the end", GLOBAL, Selectivity::Range, u64::MAX - 3, 0, 8, NakCode::RemoteAccess),
    ];
    for (story, placement, selectivity, offset, key, length, code) in cases {
        let mut victim = Victim::new(pair(), PSN);
        let remote = victim.pair.b.remote(0);
        let address = remote.address.wrapping_add(offset);
        let packet = victim.request(Opcode::RC_FLUSH).reth(address, remote.rkey ^ key, length);
        let answers = victim.ask(&packet.flush(placement, selectivity));
        assert_eq!(answers, [(Opcode::RC_ACKNOWLEDGE, PSN, Some(Syndrome::Nak(code)))], "{story}");
        assert_eq!(victim.pair.b.state(), State::Error, "{story}");
    }
}

#[test]
fn what_makes_no_sense_is_not_posted() {
    let mut pair = pair();
    let remote = pair.b.remote(0);
    for (operation, length) in [
        (flush(remote, 8, Placement::empty(), Selectivity::Range), 0),
        (flush(remote, 8, GLOBAL, Selectivity::Reserved(3)), 0),
        (flush(remote, u32::MAX, GLOBAL, Selectivity::Range), 0),
        (flush(remote, 8, GLOBAL, Selectivity::Range), 8),
    ] {
        let request = SendRequest::new(1, operation, &[pair.a.sge(0, length)]);
        let error = pair.a.endpoint.post_send(pair.now, pair.a.qpn, request).unwrap_err();
        assert_eq!(error.errno(), 22, "{operation:?}");
    }
}

/// The kernel's rxe drops a FLUSH whose ICRC is right, and we cannot know: each repetition tries the other rule. What was
/// answered is kept. How the engine says so to the port is a reserved bit of the BTH.
#[test]
fn a_flush_without_an_answer_is_tried_with_the_kernels_icrc() {
    const IS_MARKED: u8 = 1;
    let mut pair = pair();
    let operation = flush(pair.b.remote(0), 64, GLOBAL, Selectivity::Range);
    post(&mut pair, 1, operation);
    let mut marks = Vec::new();
    let mut last = Vec::new();
    while marks.len() < 4 {
        for datagram in drain(&mut pair.a, pair.now) {
            marks.push(datagram[4] & IS_MARKED);
            last = datagram;
        }
        pair.now = pair.a.endpoint.next_timeout().unwrap();
        pair.a.endpoint.on_timeout(pair.now);
    }
    assert_eq!(marks, [0, 1, 0, 1]);
    let (at_a, at_b) = (pair.a.address, pair.b.address);
    deliver(&mut pair.b, pair.now, at_a, &last);
    for answer in drain(&mut pair.b, pair.now) {
        deliver(&mut pair.a, pair.now, at_b, &answer);
    }
    let operation = flush(pair.b.remote(0), 64, GLOBAL, Selectivity::Range);
    post(&mut pair, 2, operation);
    let next = drain(&mut pair.a, pair.now);
    assert_eq!(next.iter().map(|datagram| datagram[4] & IS_MARKED).collect::<Vec<_>>(), [1]);
}
