//! Every operation between the two processes, every byte checked at the end where it arrived.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use uroce::verbs::{
    Access, Completion, CompletionQueue, ConnectOptions, Context, MemoryRegion, Operation, Peer, QpConfig, QueuePair,
    ReceiveRequest, Remote, SendRequest, Status, random_psn,
};

use super::lines::{Lines, PATIENCE};
use super::progress::Progress;
use crate::{device, output};

/// Bytes of the messages: below, at and above the path MTU, and many packets.
const SIZES: [u32; 8] = [1, 7, 64, 1000, 4096, 4097, 65_536, 1 << 20];
/// Bytes of the region; what lies behind a message must stay as it was.
const REGION: usize = (1 << 20) + GUARD;
/// So many bytes behind each message are checked not to have changed.
const GUARD: usize = 64;
/// FETCH_AND_ADD operations.
const ADDITIONS: u64 = 1000;
/// Progress steps.
pub(super) const STEPS: u64 = 4;

/// What was verified with one operation.
#[derive(Serialize)]
pub(super) struct Verified {
    pub(super) operation: &'static str,
    pub(super) messages: u64,
    /// Bytes that were compared with what they had to be.
    pub(super) bytes: u64,
}

/// Where the two processes were.
#[derive(Serialize)]
pub(super) struct Verification {
    pub(super) device: String,
    pub(super) own: String,
    pub(super) peer: String,
    pub(super) operations: Vec<Verified>,
}

impl Verification {
    /// Bytes in total.
    pub(super) fn bytes(&self) -> u64 {
        self.operations.iter().map(|verified| verified.bytes).sum()
    }
}

/// What the first process asks of the second.
#[derive(Serialize, Deserialize)]
enum Ask {
    /// Connect.
    Connect { peer: String },
    /// Expect a message by SEND, check it, and send one back.
    Exchange { size: u32, seed: u32 },
    /// Fill the memory.
    Fill { size: u32, seed: u32 },
    /// Check the memory.
    Check { size: u32, seed: u32 },
    /// Tell the first eight bytes.
    Tell,
}

/// What the second answers.
#[derive(Serialize, Deserialize)]
enum Answer {
    Connected { peer: String, address: u64, rkey: u32 },
    Ready,
    Verified(u64),
    Value(u64),
    Failed(String),
}

/// Verifies, as the first process.
pub(super) fn run(port: u16, progress: &Progress) -> Result<Verification> {
    let mut first = First::connect(port)?;
    let mut operations = Vec::new();
    for (operation, verify) in OPERATIONS {
        progress.stage(format!("verifying {operation}"));
        let (messages, bytes) = verify(&mut first).with_context(|| format!("{operation} failed"))?;
        operations.push(Verified { operation, messages, bytes });
        progress.step();
    }
    let device = first.end.context.device().name.clone();
    Ok(Verification { device, own: first.own.to_string(), peer: first.peer.to_string(), operations })
}

/// Does its part, as the second process, until the first has enough.
pub(super) fn serve(stream: TcpStream) -> Result<()> {
    let end = End::new(&stream)?;
    let mut lines = Lines::new(stream)?;
    while let Some(ask) = lines.hear()? {
        let answer = end.answer(ask, &mut lines).unwrap_or_else(|error| Answer::Failed(output::describe(&error)));
        lines.say(&answer)?;
    }
    Ok(())
}

/// One operation's verification: how many messages, how many bytes.
type Verify = fn(&mut First) -> Result<(u64, u64)>;

const OPERATIONS: [(&str, Verify); STEPS as usize] =
    [("SEND", First::send), ("WRITE", First::write), ("READ", First::read), ("ATOMIC", First::atomic)];

/// The first process's side.
struct First {
    end: End,
    lines: Lines,
    own: Peer,
    peer: Peer,
    remote: Remote,
}

impl First {
    fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let end = End::new(&stream)?;
        let mut lines = Lines::new(stream)?;
        let own = end.qp.local(random_psn());
        lines.say(&Ask::Connect { peer: own.to_string() })?;
        let Answer::Connected { peer, address, rkey } = answer(&mut lines)? else { bail!("no connection") };
        let peer = peer.parse()?;
        end.qp.connect(own.psn, &peer, &ConnectOptions::default())?;
        Ok(Self { end, lines, own, peer, remote: Remote { address, rkey } })
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answer> {
        self.lines.say(ask)?;
        answer(&mut self.lines)
    }

    fn send(&mut self) -> Result<(u64, u64)> {
        let mut bytes = 0;
        for (size, seed) in SIZES.into_iter().zip(1..) {
            self.end.fill(REGION, 0)?;
            self.ask(&Ask::Exchange { size, seed })?;
            self.end.fill(size as usize, seed)?;
            self.end.complete(Operation::Send, size)?;
            // The answer comes by SEND, too, once the other process has checked.
            self.end.receive(size)?;
            let Answer::Verified(there) = answer(&mut self.lines)? else { bail!("no answer") };
            self.end.await_completion()?;
            bytes += there + self.end.check(size, !seed)?;
        }
        Ok((2 * SIZES.len() as u64, bytes))
    }

    fn write(&mut self) -> Result<(u64, u64)> {
        let mut bytes = 0;
        for (size, seed) in SIZES.into_iter().zip(100..) {
            self.ask(&Ask::Fill { size: REGION as u32, seed: 0 })?;
            self.end.fill(size as usize, seed)?;
            self.end.complete(Operation::Write(self.remote), size)?;
            let Answer::Verified(there) = self.ask(&Ask::Check { size, seed })? else { bail!("no answer") };
            bytes += there;
        }
        Ok((SIZES.len() as u64, bytes))
    }

    fn read(&mut self) -> Result<(u64, u64)> {
        let mut bytes = 0;
        for (size, seed) in SIZES.into_iter().zip(200..) {
            self.ask(&Ask::Fill { size, seed })?;
            self.end.fill(REGION, 0)?;
            self.end.complete(Operation::Read(self.remote), size)?;
            bytes += self.end.check(size, seed)?;
        }
        Ok((SIZES.len() as u64, bytes))
    }

    fn atomic(&mut self) -> Result<(u64, u64)> {
        self.ask(&Ask::Fill { size: REGION as u32, seed: 0 })?;
        let remote = self.remote;
        let mut expected = u64::from_ne_bytes(std::array::from_fn(|index| byte(0, index)));
        for step in 1..=ADDITIONS {
            let before = self.end.fetch(Operation::FetchAndAdd { remote, add: step })?;
            ensure!(before == expected, "FETCH_AND_ADD {step} found {before}, not {expected}");
            expected = expected.wrapping_add(step);
        }
        let swap = 0x0123_4567_89ab_cdef;
        for compare in [!expected, expected] {
            let before = self.end.fetch(Operation::CompareAndSwap { remote, compare, swap })?;
            ensure!(before == expected, "COMPARE_AND_SWAP found {before}, not {expected}");
        }
        let Answer::Value(value) = self.ask(&Ask::Tell)? else { bail!("no answer") };
        ensure!(value == swap, "the memory holds {value:#x}, not {swap:#x}");
        // Each operation's answer, and what the memory held at last.
        Ok((ADDITIONS + 2, (ADDITIONS + 3) * 8))
    }
}

fn answer(lines: &mut Lines) -> Result<Answer> {
    match lines.hear()? {
        Some(Answer::Failed(reason)) => bail!("the other process says: {reason}"),
        Some(answer) => Ok(answer),
        None => bail!("the other process closed the connection"),
    }
}

/// What both processes have: a queue pair and a region.
struct End {
    context: Context,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

impl End {
    fn new(stream: &TcpStream) -> Result<Self> {
        let context = Context::open(&device::choose(None, stream.local_addr()?)?)?;
        let cq = context.create_cq(16, None)?;
        let pd = context.alloc_pd();
        let region = pd.register(REGION, Access::LOCAL_WRITE | Access::REMOTE)?;
        let qp = pd.create_qp(&QpConfig::new(&cq, &cq))?;
        qp.to_init(&ConnectOptions::default())?;
        Ok(Self { context, cq, qp, region })
    }

    fn answer(&self, ask: Ask, lines: &mut Lines) -> Result<Answer> {
        Ok(match ask {
            Ask::Connect { peer } => {
                let own = self.qp.local(random_psn());
                self.qp.connect(own.psn, &peer.parse()?, &ConnectOptions::default())?;
                Answer::Connected { peer: own.to_string(), address: self.region.address(), rkey: self.region.rkey() }
            }
            Ask::Exchange { size, seed } => {
                self.fill(REGION, 0)?;
                self.receive(size)?;
                lines.say(&Answer::Ready)?;
                self.await_completion()?;
                let bytes = self.check(size, seed)?;
                self.fill(size as usize, !seed)?;
                self.complete(Operation::Send, size)?;
                Answer::Verified(bytes)
            }
            Ask::Fill { size, seed } => {
                self.fill(size as usize, seed)?;
                Answer::Ready
            }
            Ask::Check { size, seed } => Answer::Verified(self.check(size, seed)?),
            Ask::Tell => {
                let mut value = [0; 8];
                self.region.read(0, &mut value)?;
                Answer::Value(u64::from_ne_bytes(value))
            }
        })
    }

    /// Fills the start of the region with the pattern of `seed`.
    fn fill(&self, size: usize, seed: u32) -> Result<()> {
        let bytes: Vec<u8> = (0..size).map(|index| byte(seed, index)).collect();
        Ok(self.region.write(0, &bytes)?)
    }

    /// Checks that the region starts with `size` bytes of the pattern of `seed`, and goes on with the pattern of 0.
    fn check(&self, size: u32, seed: u32) -> Result<u64> {
        let size = size as usize;
        let mut bytes = vec![0; size + GUARD];
        self.region.read(0, &mut bytes)?;
        for (index, found) in bytes.iter().enumerate() {
            let expected = byte(if index < size { seed } else { 0 }, index);
            ensure!(*found == expected, "byte {index} of {size} is {found:#04x}, not {expected:#04x}");
        }
        Ok(size as u64)
    }

    fn receive(&self, size: u32) -> Result<()> {
        Ok(self.qp.post_receive([ReceiveRequest::new(0, &[self.region.sge(0, size)])])?)
    }

    /// Does an operation with `size` bytes at the start of the region, up to its completion.
    fn complete(&self, operation: Operation, size: u32) -> Result<()> {
        self.qp.post_send([SendRequest::new(0, operation, &[self.region.sge(0, size)])])?;
        self.await_completion()
    }

    /// Does an atomic operation, and returns what was there before.
    fn fetch(&self, operation: Operation) -> Result<u64> {
        self.complete(operation, 8)?;
        let mut value = [0; 8];
        self.region.read(0, &mut value)?;
        Ok(u64::from_ne_bytes(value))
    }

    fn await_completion(&self) -> Result<()> {
        let start = Instant::now();
        let mut polls = 0_u32;
        loop {
            if let Some(Completion { status, .. }) = self.cq.poll_one() {
                ensure!(status == Status::Success, "{}", status.as_str());
                return Ok(());
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(64) {
                std::thread::yield_now();
                ensure!(start.elapsed() < PATIENCE, "nothing came in {} s", PATIENCE.as_secs());
            }
        }
    }
}

/// A pattern in which bytes that are shifted, swapped or left over stand out.
fn byte(seed: u32, index: usize) -> u8 {
    let mixed = (index as u32).wrapping_mul(0x9e37_79b1) ^ seed.wrapping_mul(0x85eb_ca6b);
    (mixed ^ (mixed >> 15)).wrapping_mul(0x2c1b_3c6d).to_be_bytes()[0]
}
