//! A peer, and whoever else can reach the port, beside a program with a queue pair of every service: RC, UC and UD, with
//! and without a shared receive queue, and both ends of XRC. Every packet is well formed but for what was chosen.
//!
//! Nothing changes but memory that the packet's queue pair was given for this; a packet that is for nobody (a wrong
//! Q_Key, P_Key, number, transport or address) does nothing at all; requests complete once, in order, on their own queue
//! pair; nothing secret is sent; and nothing is left when all is destroyed.
#![no_main]

mod fleet;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use uroce::qp::{QpType, State};
use uroce::time::Duration;
use uroce::wire::Qpn;
use uroce::work::{AddressVector, Destination, Operation, Remote, SendFlags, SendRequest};

use fleet::{AREA, Area, Chosen, Fleet, GROUP, PEER, QKEY};

#[derive(Arbitrary, Debug)]
enum Step {
    Packet(Chosen),
    Message {
        packets: u8,
        lost: u16,
        like: Chosen,
    },
    /// What the peer owes.
    Answer {
        count: u8,
        like: Chosen,
    },
    Garbage {
        pair: u8,
        bytes: Vec<u8>,
    },
    Post {
        pair: u8,
        operation: u8,
        elements: [Element; 2],
        flags: u8,
    },
    /// Beyond the queue pairs there are the shared receive queues.
    Receive {
        queue: u8,
        elements: [Element; 2],
    },
    Send {
        packets: u8,
    },
    Wait {
        micros: u16,
    },
    Connect {
        pair: u8,
    },
    MoveTo {
        pair: u8,
        state: u8,
    },
    Deregister(Area),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Element {
    area: Area,
    offset: u16,
    length: u16,
}

/// What may be owed: the windows, and the READ answers, of all of them.
const MOST_SENT: usize = 1 << 14;

fuzz_target!(|steps: Vec<Step>| {
    let mut fleet = Fleet::new();
    for step in steps {
        take(&mut fleet, step);
    }
    assert!(fleet.drain(MOST_SENT) < MOST_SENT, "there is no end of what is sent");
    fleet.finish();
});

fn take(fleet: &mut Fleet, step: Step) {
    match step {
        Step::Packet(chosen) => fleet.push(&chosen),
        Step::Message { packets, lost, like } => fleet.push_message(&like, usize::from(packets % 8), lost),
        Step::Answer { count, like } => (0..count % 32).for_each(|_| fleet.answer(&like)),
        Step::Garbage { pair, bytes } => fleet.push_garbage(pair, &bytes),
        Step::Post { pair, operation, elements, flags } => post(fleet, pair, operation, &elements, flags),
        Step::Receive { queue, elements } => {
            let elements = elements.iter().filter(|element| element.length > 0);
            let elements = elements.map(|it| fleet.memory.element(it.area, it.offset, u32::from(it.length) % 1024));
            let elements = elements.collect();
            fleet.receive(usize::from(queue) % Fleet::QUEUES, elements);
        }
        Step::Send { packets } => drop(fleet.drain(packets.into())),
        Step::Wait { micros } => fleet.wait(Duration::from_micros(micros.into())),
        Step::Connect { pair } => fleet.connect(Fleet::pick(pair)),
        Step::MoveTo { pair, state } => {
            let states = [State::SendQueueDrained, State::ReadyToSend, State::Error, State::Reset];
            fleet.move_to(Fleet::pick(pair), states[usize::from(state) % states.len()]);
        }
        Step::Deregister(area) => {
            fleet.memory.deregister(&mut fleet.endpoint, area);
            fleet.settle();
        }
    }
}

fn post(fleet: &mut Fleet, pair: u8, operation: u8, elements: &[Element; 2], flags: u8) {
    let pair = Fleet::pick(pair);
    let remote = Remote { address: 0x4000, rkey: 0x77 };
    let operation = match operation % 8 {
        0 => Operation::Send,
        1 => Operation::SendImmediate(7),
        2 => Operation::Write(remote),
        3 => Operation::WriteImmediate(remote, 7),
        4 => Operation::Read(remote),
        5 => Operation::FetchAndAdd { remote, add: 1 },
        6 => Operation::CompareAndSwap { remote, compare: 1, swap: 2 },
        _ => Operation::SendInvalidate(7),
    };
    let fetches = operation.fetches();
    let elements = elements.iter().filter(|element| element.length > 0).map(|element| {
        let length = if operation.is_atomic() { 8 } else { u32::from(element.length) % (AREA as u32 + 8) };
        // What is not received yet stays secret: only answers go there.
        let area = if fetches || element.area == Area::Open { element.area } else { Area::Source };
        fleet.memory.element(area, element.offset, length)
    });
    let (sges, spans): (Vec<_>, Vec<_>) = elements.take(if operation.is_atomic() { 1 } else { 2 }).unzip();
    let fence = if flags & 1 != 0 { SendFlags::FENCE } else { SendFlags::empty() };
    let mut request = SendRequest::new(0, operation, &sges).with_flags(fence | SendFlags::SIGNALED);
    let qp_type = fleet.info(pair).qp_type;
    if qp_type == QpType::Ud {
        let (destination, qpn) = if flags & 2 == 0 { (PEER, Qpn::new(0x99)) } else { (GROUP, Qpn::MULTICAST) };
        request = request.to(Destination { address: AddressVector::to(destination), qpn, qkey: QKEY });
    }
    if qp_type == QpType::XrcInitiator {
        request = request.to_srq(fleet.srqs[usize::from(flags >> 2) % 3]);
    }
    fleet.send(pair, request, spans);
}
