//! A process on a shared address that does what it is told, and the handle to it.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use uroce::verbs::{
    Access, Backend, CompletionKind, CompletionQueue, ConnectOptions, Context, MemoryRegion, Operation, Peer,
    ProtectionDomain, QpConfig, QueuePair, ReceiveRequest, SendRequest, Status, random_psn,
};

use super::PATIENCE;

/// Bytes for each message in flight.
const SLICE: usize = 2048;
/// Queue pairs that a worker can have.
const MOST: usize = 128;

/// A worker process. It is killed when this is dropped.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// What a worker counted, and where it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) slot: u8,
    /// Packets that came for queue pairs which it has not.
    pub(crate) strays: u64,
    /// Packets that came to it and were for another process.
    pub(crate) handed_over: u64,
}

impl Worker {
    /// A process that opens the loopback device at `address`.
    pub(crate) fn start(address: IpAddr, backend: Backend) -> Self {
        Self::start_as(address, backend, None)
    }

    /// The same as another user.
    pub(crate) fn start_as(address: IpAddr, backend: Backend, user: Option<u32>) -> Self {
        let mut worker = Self::spawn(address, backend, user);
        assert_eq!(worker.line(), "open");
        worker
    }

    /// The same, whether the device opens or not: [`line`](Self::line) tells.
    pub(crate) fn spawn(address: IpAddr, backend: Backend, user: Option<u32>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "worker::worker", "--ignored", "--nocapture", "--test-threads=1"])
            .env("UROCE_TEST_ADDRESS", address.to_string())
            .env("UROCE_TEST_PACKET", if backend == Backend::Packet { "1" } else { "0" })
            .env("UROCE_CONFIG", "/nonexistent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            // The harness says something of its own, too, in front of the first word even.
            let ours = BufReader::new(output).lines().map_while(Result::ok);
            let mut ours = ours.filter_map(|line| line.split_once("> ").map(|(_, ours)| ours.to_owned()));
            ours.all(|line| sender.send(line).is_ok());
        });
        Self { child, input, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it do something; a [`line`](Self::line) comes when it is done.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// The next thing it says.
    pub(crate) fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("worker {}: {error}", self.child.id()))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it. Every thread of it has stopped when this returns: a signal that was only sent lets them answer for a while.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(Pid::from_child(&self.child)), WaitIdOptions::STOPPED).unwrap();
    }

    /// Makes `count` more queue pairs; where they are.
    pub(crate) fn queue_pairs(&mut self, count: usize) -> Vec<String> {
        self.tell(&format!("qps {count}"));
        (0..count).map(|_| self.line()).collect()
    }

    /// Connects its queue pair `own` to `peer`.
    pub(crate) fn connect(&mut self, own: usize, peer: &str) {
        self.tell(&format!("connect {own} {peer}"));
    }

    pub(crate) fn counted(&mut self) -> Counted {
        self.tell("counters");
        let line = self.line();
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let &[slot, strays, handed_over] = &numbers[..] else { panic!("{line}") };
        Counted { slot: u8::try_from(slot).unwrap(), strays, handed_over }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects a new queue pair of `a` with one of `b`; `places` says how many each has, and is counted up.
pub(crate) fn join(a: (&mut Worker, &mut usize), b: (&mut Worker, &mut usize)) -> (usize, usize) {
    let (at_a, at_b) = (a.0.queue_pairs(1).remove(0), b.0.queue_pairs(1).remove(0));
    a.0.connect(*a.1, &at_b);
    b.0.connect(*b.1, &at_a);
    *a.1 += 1;
    *b.1 += 1;
    (*a.1 - 1, *b.1 - 1)
}

/// The worker process itself.
struct Side {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
    pairs: Vec<Pair>,
}

struct Pair {
    qp: QueuePair,
    local: Peer,
    peer: Option<Peer>,
    /// Messages sent and received so far.
    sent: u64,
    received: u64,
}

#[test]
#[ignore = "runs in a process of its own, started by another test"]
fn worker() {
    let address = std::env::var("UROCE_TEST_ADDRESS").unwrap().parse::<IpAddr>().unwrap();
    let backend = if std::env::var("UROCE_TEST_PACKET").unwrap() == "1" { Backend::Packet } else { Backend::Udp };
    let context = match Context::options("uroce_lo").addresses([address]).backend(backend).open() {
        Ok(context) => context,
        Err(error) => return say(&format!("{} {error}", error.errno())),
    };
    say("open");
    let pd = context.alloc_pd();
    let cq = context.create_cq(16 * MOST, None).unwrap();
    let region = pd.register(2 * MOST * SLICE, Access::LOCAL_WRITE).unwrap();
    let mut side = Side { context, pd, cq, region, pairs: Vec::new() };
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words[..] {
            ["qps", count] => (0..count.parse().unwrap()).for_each(|_| side.make()),
            ["connect", own, peer] => side.connect(own.parse().unwrap(), peer),
            ["exchange", own, rounds] => {
                let (from, to) = own.split_once("..").unwrap();
                side.exchange(from.parse().unwrap()..to.parse().unwrap(), rounds.parse().unwrap());
                say("exchanged");
            }
            ["counters"] => {
                let port = side.context.port_counters();
                assert_eq!(port.icrc_errors + port.malformed, 0, "{port:?}");
                let strays = side.context.counters().no_queue_pair;
                let handed_over = port.handed_over + port.handover_errors;
                say(&format!("{} {strays} {handed_over}", side.context.slot()));
            }
            _ => panic!("{line}"),
        }
    }
}

/// Says something to the test, not to the harness.
fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    output.write_all(format!("> {text}\n").as_bytes()).unwrap();
    output.flush().unwrap();
}

impl Side {
    fn make(&mut self) {
        let qp = self.pd.create_qp(&QpConfig::new(&self.cq, &self.cq)).unwrap();
        let local = qp.local(random_psn());
        say(&local.to_string());
        self.pairs.push(Pair { qp, local, peer: None, sent: 0, received: 0 });
    }

    fn connect(&mut self, own: usize, peer: &str) {
        let peer: Peer = peer.parse().unwrap();
        let pair = &mut self.pairs[own];
        // A second: with many more processes than processors, each must wait for its turn to answer.
        let patient = ConnectOptions { timeout: 18, ..ConnectOptions::default() };
        pair.qp.connect(pair.local.psn, &peer, &patient).unwrap();
        pair.peer = Some(peer);
        self.receive(own);
    }

    /// Posts the one receive request that a queue pair has.
    fn receive(&self, own: usize) {
        let sge = self.region.sge(SLICE * own, SLICE as u32);
        self.pairs[own].qp.post_receive([ReceiveRequest::new(own as u64, &[sge])]).unwrap();
    }

    fn send(&mut self, own: usize) {
        let pair = &mut self.pairs[own];
        let bytes = message(pair.local.qpn.value(), pair.peer.as_ref().unwrap().qpn.value(), pair.sent);
        pair.sent += 1;
        let at = SLICE * (MOST + own);
        self.region.write(at, &bytes).unwrap();
        let request = SendRequest::new(own as u64, Operation::Send, &[self.region.sge(at, bytes.len() as u32)]);
        pair.qp.post_send([request]).unwrap();
    }

    /// Sends and receives `rounds` messages on each of these queue pairs and checks every byte of them.
    fn exchange(&mut self, pairs: std::ops::Range<usize>, rounds: u64) {
        let goals: Vec<u64> = self.pairs.iter().map(|pair| pair.sent + rounds).collect();
        pairs.clone().for_each(|own| self.send(own));
        let mut left = 2 * rounds * pairs.len() as u64;
        let started = Instant::now();
        while left > 0 {
            let Some(completion) = self.cq.poll_one() else {
                assert!(started.elapsed() < PATIENCE, "{left} messages did not come");
                thread::yield_now();
                continue;
            };
            assert_eq!(completion.status, Status::Success, "{completion:?}");
            let own = completion.id as usize;
            left -= 1;
            if completion.kind == CompletionKind::Receive {
                let pair = &mut self.pairs[own];
                let expected = message(pair.peer.as_ref().unwrap().qpn.value(), pair.local.qpn.value(), pair.received);
                pair.received += 1;
                let mut bytes = vec![0; expected.len()];
                self.region.read(SLICE * own, &mut bytes).unwrap();
                assert!(completion.byte_length as usize == bytes.len() && bytes == expected, "{completion:?}");
                self.receive(own);
            } else if self.pairs[own].sent < goals[own] {
                self.send(own);
            }
        }
    }
}

/// The bytes of one message, which no other has: 16 to 2047.
fn message(from: u32, to: u32, number: u64) -> Vec<u8> {
    let mix = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let seed = mix(u64::from(from) << 32 | u64::from(to)) ^ mix(number);
    let length = 16 + seed as usize % (SLICE - 16);
    (0..length as u64).map(|at| (mix(seed ^ at) >> 32) as u8).collect()
}
