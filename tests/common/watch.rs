//! What two endpoints send each other, seen and decided packet by packet.

use std::sync::{Arc, Mutex};

use uroce::port::Verdict;
use uroce::wire::{Opcode, Packet, Reth, Syndrome};

use super::pair::Pair;

/// One packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub from_a: bool,
    pub opcode: Opcode,
    pub psn: u32,
    pub ack_request: bool,
    pub reth: Option<Reth>,
    pub syndrome: Option<Syndrome>,
}

/// Every packet so far, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    pub fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }

    /// Those with this opcode.
    pub fn of(&self, opcode: Opcode) -> Vec<Seen> {
        self.all().into_iter().filter(|seen| seen.opcode == opcode).collect()
    }
}

/// Has `decide` see each packet; returns the log of all.
pub fn watch(pair: &Pair, mut decide: impl FnMut(&Seen) -> Verdict + Send + 'static) -> Log {
    let log = Log::default();
    let (written, a) = (log.clone(), pair.a.address);
    pair.network.set_filter(move |datagram| {
        let packet = Packet::parse(&datagram.bytes).unwrap();
        let seen = Seen {
            from_a: datagram.flow.source == a,
            opcode: packet.bth.opcode,
            psn: packet.bth.psn.value(),
            ack_request: packet.bth.ack_request,
            reth: packet.extensions.reth,
            syndrome: packet.extensions.aeth.map(|aeth| aeth.syndrome),
        };
        written.0.lock().unwrap().push(seen);
        decide(&seen)
    });
    log
}

/// Drops the first `count` packets that `which` picks.
pub fn drop_first(mut count: usize, which: impl Fn(&Seen) -> bool + Send) -> impl FnMut(&Seen) -> Verdict + Send {
    move |seen| {
        if count > 0 && which(seen) {
            count -= 1;
            Verdict::Drop
        } else {
            Verdict::Forward
        }
    }
}
