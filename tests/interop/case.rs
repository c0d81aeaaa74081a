//! One case: one operation of one size, with one side as the requester.

use std::fmt;

use uroce::verbs::{QpType, QueuePair};
use uroce::work::{Completion, CompletionKind, Operation, ReceiveRequest, Remote, SendRequest, Tag};

use crate::bench::{Bench, REGION};
use crate::common::pattern;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    Uroce,
    Kernel,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Send,
    SendImmediate,
    Write,
    WriteImmediate,
    Read,
    CompareAndSwap,
    FetchAndAdd,
}

impl Verb {
    pub(crate) const SIZED: [Self; 5] =
        [Self::Send, Self::SendImmediate, Self::Write, Self::WriteImmediate, Self::Read];
    pub(crate) const ATOMIC: [Self; 2] = [Self::CompareAndSwap, Self::FetchAndAdd];

    /// Whether it consumes a receive request.
    fn is_received(self) -> bool {
        matches!(self, Self::Send | Self::SendImmediate | Self::WriteImmediate)
    }

    /// The name that the guest's agent knows it by.
    fn agent_name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::SendImmediate => "send_imm",
            Self::Write => "write",
            Self::WriteImmediate => "write_imm",
            Self::Read => "read",
            Self::CompareAndSwap => "cas",
            Self::FetchAndAdd => "faa",
        }
    }
}

/// A case of the matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) requester: Requester,
    pub(crate) verb: Verb,
    pub(crate) size: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} as requester, {:?} of {} bytes", self.requester, self.verb, self.size)
    }
}

/// Where data arrives in either region, so that what a case leaves elsewhere shows as an error of the next.
const ARRIVAL: usize = REGION / 2 + 64;
const IMMEDIATE: u32 = 0x1234_5678;

impl Case {
    /// Runs it on a bench; `seed` makes its bytes differ from those of other cases.
    pub(crate) fn run(&self, bench: &mut Bench, seed: u64) -> Result<(), String> {
        match (self.requester, self.verb) {
            (requester, Verb::CompareAndSwap | Verb::FetchAndAdd) => self.atomic(bench, requester, seed),
            (Requester::Uroce, _) => self.ours(bench, seed),
            (Requester::Kernel, _) => self.theirs(bench, seed),
        }
    }

    /// Our side posts.
    fn ours(&self, bench: &mut Bench, seed: u64) -> Result<(), String> {
        let arrival = Remote { address: bench.remote.addr + ARRIVAL as u64, rkey: bench.remote.rkey };
        let operation = match self.verb {
            Verb::Send => Operation::Send,
            Verb::SendImmediate => Operation::SendImmediate(IMMEDIATE),
            Verb::Write => Operation::Write(arrival),
            Verb::WriteImmediate => Operation::WriteImmediate(arrival, IMMEDIATE),
            _ => Operation::Read(Remote { address: bench.remote.addr, ..arrival }),
        };
        let is_read = self.verb == Verb::Read;
        let mut bytes = vec![0; self.size];
        let local = if is_read {
            bench.agent.fill("mr", 0, self.size, seed).map_err(text)?;
            ARRIVAL
        } else {
            pattern::fill(&mut bytes, seed);
            bench.mr.write(0, &bytes).map_err(text)?;
            0
        };
        if self.verb.is_received() {
            let list =
                if self.verb == Verb::WriteImmediate { String::new() } else { format!("mr:{ARRIVAL}:{}", self.size) };
            bench.agent.recv("qp", seed, &list).map_err(text)?;
        }
        let sge = bench.mr.sge(local, self.size as u32);
        post(&bench.qp, SendRequest::new(seed, operation, &[sge]))?;
        let done = bench.completion()?;
        same("our completion's id", done.id, seed)?;
        if self.verb.is_received() {
            let received = bench.kernel_completion()?;
            same("the kernel's completion's id", received.wr_id, seed)?;
            same("its length", u64::from(received.byte_len), self.size as u64)?;
            let immediate = if self.verb == Verb::Send { 0 } else { IMMEDIATE };
            same("its immediate data", u64::from(received.imm), u64::from(immediate))?;
        }
        let wrong = if is_read {
            bench.mr.read(ARRIVAL, &mut bytes).map_err(text)?;
            pattern::mismatch(&bytes, seed)
        } else {
            let agent = &mut bench.agent;
            eventually(bench.qp_type, || agent.mismatch("mr", ARRIVAL, self.size, seed).map_err(text))?
        };
        wrong.map_or(Ok(()), |at| Err(format!("byte {at} is wrong")))
    }

    /// The kernel's side posts.
    fn theirs(&self, bench: &mut Bench, seed: u64) -> Result<(), String> {
        let is_read = self.verb == Verb::Read;
        let mut bytes = vec![0; self.size];
        if is_read {
            pattern::fill(&mut bytes, seed);
            bench.mr.write(0, &bytes).map_err(text)?;
        } else {
            bench.agent.fill("mr", 0, self.size, seed).map_err(text)?;
        }
        if self.verb.is_received() {
            let list = [bench.mr.sge(ARRIVAL, self.size as u32)];
            let list = if self.verb == Verb::WriteImmediate { &[][..] } else { &list };
            bench.qp.post_receive([ReceiveRequest::new(seed, list)]).map_err(text)?;
        }
        let (local, remote) = if is_read { (ARRIVAL, 0) } else { (0, ARRIVAL) };
        let target = bench.mr.remote(remote);
        let request = format!(
            "op={} sge=mr:{local}:{} raddr={:#x} rkey={:#x} imm={IMMEDIATE:#x}",
            self.verb.agent_name(),
            self.size,
            target.address,
            target.rkey
        );
        bench.agent.send("qp", seed, &request).map_err(text)?;
        if self.verb.is_received() {
            let received = bench.completion()?;
            self.check_received(&received, seed)?;
        }
        let done = bench.kernel_completion()?;
        same("the kernel's completion's id", done.wr_id, seed)?;
        let wrong = if is_read {
            bench.agent.mismatch("mr", ARRIVAL, self.size, seed).map_err(text)?
        } else {
            eventually(bench.qp_type, || {
                bench.mr.read(ARRIVAL, &mut bytes).map_err(text)?;
                Ok(pattern::mismatch(&bytes, seed))
            })?
        };
        wrong.map_or(Ok(()), |at| Err(format!("byte {at} is wrong")))
    }

    /// What our receive completion must say.
    fn check_received(&self, received: &Completion, seed: u64) -> Result<(), String> {
        let (kind, tag) = match self.verb {
            Verb::Send => (CompletionKind::Receive, Tag::None),
            Verb::SendImmediate => (CompletionKind::Receive, Tag::Immediate(IMMEDIATE)),
            _ => (CompletionKind::ReceiveWriteImmediate, Tag::Immediate(IMMEDIATE)),
        };
        let is_right = received.id == seed
            && received.kind == kind
            && received.tag == tag
            && received.byte_length as usize == self.size;
        if is_right { Ok(()) } else { Err(format!("received {received:?}")) }
    }

    /// An atomic that hits, by either side.
    fn atomic(&self, bench: &mut Bench, requester: Requester, seed: u64) -> Result<(), String> {
        let before = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (compare, swap, add) = (before, !before, 0x1_0000_0001_u64);
        let after = if self.verb == Verb::FetchAndAdd { before.wrapping_add(add) } else { swap };
        let found = match requester {
            Requester::Uroce => {
                bench.agent.poke("mr", ARRIVAL, &before.to_le_bytes()).map_err(text)?;
                let remote = Remote { address: bench.remote.addr + ARRIVAL as u64, rkey: bench.remote.rkey };
                let operation = match self.verb {
                    Verb::FetchAndAdd => Operation::FetchAndAdd { remote, add },
                    _ => Operation::CompareAndSwap { remote, compare, swap },
                };
                post(&bench.qp, SendRequest::new(seed, operation, &[bench.mr.sge(0, 8)]))?;
                bench.completion()?;
                let mut fetched = [0; 8];
                bench.mr.read(0, &mut fetched).map_err(text)?;
                same("what was fetched", u64::from_ne_bytes(fetched), before)?;
                little_endian(&bench.agent.peek("mr", ARRIVAL, 8).map_err(text)?)?
            }
            Requester::Kernel => {
                bench.mr.write(ARRIVAL, &before.to_ne_bytes()).map_err(text)?;
                let target = bench.mr.remote(ARRIVAL);
                let operands = match self.verb {
                    Verb::FetchAndAdd => format!("op=faa add={add:#x}"),
                    _ => format!("op=cas compare={compare:#x} swap={swap:#x}"),
                };
                let request = format!("{operands} sge=mr:0:8 raddr={:#x} rkey={:#x}", target.address, target.rkey);
                bench.agent.send("qp", seed, &request).map_err(text)?;
                bench.kernel_completion()?;
                let fetched = little_endian(&bench.agent.peek("mr", 0, 8).map_err(text)?)?;
                same("what was fetched", fetched, before)?;
                let mut changed = [0; 8];
                bench.mr.read(ARRIVAL, &mut changed).map_err(text)?;
                u64::from_ne_bytes(changed)
            }
        };
        same("what is there now", found, after)
    }
}

fn post(qp: &QueuePair, request: SendRequest) -> Result<(), String> {
    qp.post_send([request]).map_err(text)
}

/// Looks for what is wrong. On UC a request is done before its bytes are there: look until they are.
fn eventually(
    qp_type: QpType,
    mut look: impl FnMut() -> Result<Option<usize>, String>,
) -> Result<Option<usize>, String> {
    for _ in 0..if qp_type == QpType::Uc { 100 } else { 0 } {
        if look()?.is_none() {
            return Ok(None);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    look()
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

fn same(what: &str, is: u64, expected: u64) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("{what} is {is:#x}, expected {expected:#x}")) }
}

/// The guest is an x86.
fn little_endian(bytes: &[u8]) -> Result<u64, String> {
    Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| format!("{} bytes", bytes.len()))?))
}
