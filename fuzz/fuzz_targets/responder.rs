//! A peer that sends any requests in any order to a connected queue pair. Memory outside of the region stays as it is,
//! each ATOMIC is executed once, what is owed stays bounded, and each receive completes once and in order.
#![no_main]

mod rig;

use std::collections::HashSet;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use uroce::memory::{Access, Buffer, Region};
use uroce::wire::{AtomicEth, Extensions, Opcode, Psn, Reth};
use uroce::work::ReceiveRequest;

use rig::{GRANTED, IOVA, Length, MTU, PSN, Rig};

#[derive(Arbitrary, Debug)]
enum Step {
    Request(Request),
    Receive { offset: u16, length: Length },
    Send { packets: u8 },
    Deregister,
}

#[derive(Arbitrary, Debug)]
struct Request {
    /// Which of the opcodes that an RC responder may see.
    opcode: u8,
    psn: i8,
    ack_request: bool,
    place: Place,
    length: Length,
    payload: Length,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Place {
    /// The cell that counts.
    Counter,
    In {
        offset: u16,
    },
    NearEnd {
        off: i8,
    },
    WrongKey,
    Any {
        address: u64,
    },
}

/// READs of the whole region and their repetition, and the acknowledges between them.
const MOST_OWED: usize = 8 * (GRANTED / MTU) + 10;

fuzz_target!(|steps: Vec<Step>| {
    let mut rig = Rig::new();
    // The counter is a region of its own that allows ATOMICs only.
    let counter = std::sync::Arc::new(Buffer::zeroed(8));
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let pd = uroce::memory::PdNumber(1);
    let counter_key =
        rig.endpoint.memory_mut().register(Region::owned(std::sync::Arc::clone(&counter), 0, access, pd)).unwrap();
    let opcodes: Vec<_> = Opcode::known().filter(|info| info.name.starts_with("RC_")).collect();
    let mut adds = HashSet::new();
    let (mut posted, mut expected) = (0, Psn::new(PSN));

    for step in steps {
        match step {
            Step::Request(request) => {
                let info = opcodes[usize::from(request.opcode) % opcodes.len()];
                let psn = offset(expected, request.psn);
                let (address, key) = match request.place {
                    Place::Counter => (0, counter_key),
                    Place::In { offset } => (IOVA + u64::from(offset) % GRANTED as u64, rig.key),
                    Place::NearEnd { off } => ((IOVA + GRANTED as u64).wrapping_add_signed(i64::from(off)), rig.key),
                    Place::WrongKey => (IOVA, rig.key ^ 1),
                    Place::Any { address } => (address, rig.key),
                };
                if info.opcode == Opcode::RC_FETCH_ADD && key == counter_key {
                    adds.insert(psn.value());
                }
                let extensions = Extensions {
                    reth: Some(Reth { address, rkey: key, length: request.length.bytes() }),
                    // A compare-and-swap never finds what it compares with.
                    atomic: Some(AtomicEth { address, rkey: key, swap_add: 1, compare: u64::MAX }),
                    ..Extensions::default()
                };
                let payload = match info.payload {
                    uroce::wire::PayloadRule::None => 0,
                    _ => request.payload.bytes().min(2 * MTU as u32) as usize,
                };
                rig.push(info.opcode, psn, request.ack_request, &extensions, payload);
            }
            Step::Receive { offset, length } => {
                let offset = u32::from(offset) % GRANTED as u32;
                let sge = rig.sge(offset, length.bytes().min(GRANTED as u32 - offset));
                if rig.endpoint.post_receive(rig.now, rig.qpn, ReceiveRequest::new(posted, &[sge])).is_ok() {
                    posted += 1;
                }
            }
            Step::Send { packets } => {
                rig.drain(usize::from(packets), |packet| expected = expected_after(expected, packet.bth.psn));
            }
            Step::Deregister => drop(rig.endpoint.memory_mut().deregister(rig.key)),
        }
        rig.settle();
    }
    let mut count = [0; 8];
    counter.span(0, 8).unwrap().copy_out(&mut count).unwrap();
    assert!(u64::from_ne_bytes(count) <= adds.len() as u64, "an ATOMIC was executed twice");
    assert!(rig.drain(MOST_OWED + 1, |_| ()) <= MOST_OWED, "more is owed than was asked for");
    rig.finish(posted);
});

fn offset(psn: Psn, by: i8) -> Psn {
    if by < 0 { psn.minus(u32::from(by.unsigned_abs())) } else { psn.plus(u32::from(by.unsigned_abs())) }
}

/// A guess at the PSN that the queue pair expects: one past the newest that it answered.
fn expected_after(known: Psn, answered: Psn) -> Psn {
    if known.is_before(answered.plus(1)) { answered.plus(1) } else { known }
}
