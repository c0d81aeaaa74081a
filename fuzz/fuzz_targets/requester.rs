//! A peer that answers anything at any time. What is sent stays within the window, answers reach only the memory they
//! may, and each request completes once and in order.
#![no_main]

mod rig;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use uroce::time::Duration;
use uroce::wire::{Aeth, Extensions, Opcode, PayloadRule, Psn, Syndrome};
use uroce::work::{Operation, Remote, SendFlags, SendRequest};

use rig::{GRANTED, Length, MTU, PSN, Rig};

#[derive(Arbitrary, Debug)]
enum Step {
    Post {
        operation: u8,
        offset: u16,
        length: Length,
        fence: bool,
        wrong_key: bool,
    },
    Answer {
        opcode: u8,
        psn: i8,
        syndrome: u8,
        payload: Length,
    },
    /// The answer that is due: so that more than the first packet is reached.
    Right {
        packets: u8,
    },
    Send {
        packets: u8,
    },
    Wait {
        micros: u16,
    },
    Deregister,
}

/// Packets of a window, and one probe.
const MOST_SENT: usize = 64 * 1024 / 512 + 2;

/// The oldest request packet that may not be answered, by opcode and PSN, and what a READ asks for.
#[derive(Clone, Copy)]
struct Due {
    opcode: Opcode,
    psn: Psn,
    length: u32,
}

fuzz_target!(|steps: Vec<Step>| {
    let mut rig = Rig::new();
    let answers: Vec<_> =
        Opcode::known().filter(|info| info.name.starts_with("RC_") && !info.kind.is_request()).collect();
    let mut due: Vec<Due> = Vec::new();
    let (mut posted, mut oldest) = (0, Psn::new(PSN));

    for step in steps {
        match step {
            Step::Post { operation, offset, length, fence, wrong_key } => {
                let request = request(&rig, posted, operation, offset, length, fence, wrong_key);
                if rig.endpoint.post_send(rig.now, rig.qpn, request).is_ok() {
                    posted += 1;
                }
            }
            Step::Answer { opcode, psn, syndrome, payload } => {
                let info = answers[usize::from(opcode) % answers.len()];
                let by = u32::from(psn.unsigned_abs());
                let psn = if psn < 0 { oldest.minus(by) } else { oldest.plus(by) };
                let bytes = match info.payload {
                    PayloadRule::None => 0,
                    _ => payload.bytes().min(2 * MTU as u32) as usize,
                };
                rig.push(info.opcode, psn, false, &extensions(Syndrome::from(syndrome)), bytes);
            }
            Step::Right { packets } => {
                for _ in 0..packets {
                    oldest = answer_next(&mut rig, &mut due).unwrap_or(oldest);
                }
            }
            Step::Send { packets } => {
                let sent = rig.drain(usize::from(packets), |packet| {
                    let length = packet.extensions.reth.map_or(0, |reth| reth.length);
                    due.push(Due { opcode: packet.bth.opcode, psn: packet.bth.psn, length });
                });
                let excess = due.len().saturating_sub(512);
                due.drain(..excess);
                assert!(sent <= usize::from(packets));
            }
            Step::Wait { micros } => {
                rig.now += Duration::from_micros(u64::from(micros));
                rig.endpoint.on_timeout(rig.now);
                assert!(rig.endpoint.next_timeout().is_none_or(|at| at > rig.now), "a timer that is due was run");
            }
            Step::Deregister => drop(rig.endpoint.memory_mut().deregister(rig.key)),
        }
        rig.settle();
    }
    assert!(rig.drain(MOST_SENT + 1, |_| ()) <= MOST_SENT, "more was sent than the window lets through");
    rig.finish(posted);
});

fn request(
    rig: &Rig,
    id: u64,
    operation: u8,
    offset: u16,
    length: Length,
    fence: bool,
    wrong_key: bool,
) -> SendRequest {
    let remote = Remote { address: 0x4000, rkey: 0x77 };
    let operation = match operation % 6 {
        0 => Operation::Send,
        1 => Operation::SendImmediate(7),
        2 => Operation::Write(remote),
        3 => Operation::WriteImmediate(remote, 7),
        4 => Operation::Read(remote),
        _ => Operation::FetchAndAdd { remote, add: 1 },
    };
    let offset = u32::from(offset) % GRANTED as u32;
    let length = if operation.is_atomic() { 8 } else { length.bytes().min(4 * GRANTED as u32) };
    let mut sge = rig.sge(offset, length);
    sge.lkey ^= u32::from(wrong_key);
    let fence = if fence { SendFlags::FENCE } else { SendFlags::empty() };
    SendRequest::new(id, operation, &[sge]).with_flags(fence | SendFlags::SIGNALED)
}

fn extensions(syndrome: Syndrome) -> Extensions {
    Extensions { aeth: Some(Aeth { syndrome, msn: 0 }), atomic_ack: Some(7), ..Extensions::default() }
}

/// Answers one packet of the oldest request that was seen; the PSN after it.
fn answer_next(rig: &mut Rig, due: &mut Vec<Due>) -> Option<Psn> {
    let first = due.first_mut()?;
    let Due { opcode, psn, length } = *first;
    let ack = extensions(Syndrome::Ack { credits: Syndrome::NO_CREDITS });
    let (answer, bytes) = match opcode {
        Opcode::RC_READ_REQUEST => (Opcode::RC_READ_RESPONSE_MIDDLE, (length as usize).min(MTU)),
        Opcode::RC_FETCH_ADD => (Opcode::RC_ATOMIC_ACKNOWLEDGE, 0),
        _ => (Opcode::RC_ACKNOWLEDGE, 0),
    };
    let is_read_going_on = opcode == Opcode::RC_READ_REQUEST && length as usize > MTU;
    if is_read_going_on {
        *first = Due { opcode, psn: psn.plus(1), length: length - MTU as u32 };
    } else {
        due.remove(0);
    }
    rig.push(answer, psn, false, &ack, bytes);
    Some(psn.plus(1))
}
