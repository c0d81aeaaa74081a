//! The public API on loopback devices, which need no privilege: two contexts in one process, and in two.
//!
//! Each context has an address of its own, so every packet really goes through the kernel.

use std::any::Any;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use uroce::verbs::{
    Access, Arm, AsyncEvent, Completion, CompletionChannel, CompletionKind, CompletionQueue, ConnectOptions, Context,
    MemoryRegion, Operation, Peer, ProtectionDomain, QpConfig, QueuePair, ReceiveRequest, Remote, SendFlags,
    SendRequest, State, Status, Tag, devices, random_psn,
};

/// One end of a connection and all that it stands on.
struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    region: MemoryRegion,
    pd: ProtectionDomain,
    context: Context,
}

impl Side {
    fn new() -> Self {
        let context = Context::open("uroce_lo").unwrap();
        let pd = context.alloc_pd();
        let channel = context.create_completion_channel().unwrap();
        let cq = context.create_cq(64, Some(&channel)).unwrap();
        let qp = pd.create_qp(&QpConfig::new(&cq, &cq)).unwrap();
        let region = pd.register(64 * 1024, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        Self { qp, cq, channel, region, pd, context }
    }

    /// Two ends, connected.
    fn pair() -> (Self, Self) {
        let (a, b) = (Self::new(), Self::new());
        let (to_a, to_b) = (a.qp.local(random_psn()), b.qp.local(random_psn()));
        a.qp.connect(to_a.psn, &to_b, &ConnectOptions::default()).unwrap();
        b.qp.connect(to_b.psn, &to_a, &ConnectOptions::default()).unwrap();
        (a, b)
    }

    fn post(&self, operation: Operation, length: u32) {
        self.qp.post_send([SendRequest::new(7, operation, &[self.region.sge(0, length)])]).unwrap();
    }

    /// The next completion, polling.
    fn poll(&self) -> Completion {
        loop {
            if let Some(completion) = self.cq.poll_one() {
                return completion;
            }
        }
    }

    /// The next completion, sleeping on the channel.
    fn sleep(&self) -> Completion {
        loop {
            self.cq.arm(Arm::Any);
            if let Some(completion) = self.cq.poll_one() {
                return completion;
            }
            let fired = self.channel.wait(None).unwrap().expect("no time-out");
            assert_eq!(fired.number(), self.cq.number());
        }
    }

    fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.region.read(offset, &mut bytes).unwrap();
        bytes
    }
}

#[track_caller]
fn assert_success(completion: Completion, kind: CompletionKind) {
    assert_eq!((completion.status, completion.kind), (Status::Success, kind), "{completion:?}");
}

#[test]
fn a_send_arrives_with_its_immediate_data() {
    let (a, b) = Side::pair();
    b.qp.post_receive([ReceiveRequest::new(1, &[b.region.sge(100, 50), b.region.sge(300, 50)])]).unwrap();
    let payload: Vec<u8> = (0..70).collect();
    a.region.write(0, &payload).unwrap();
    a.post(Operation::SendImmediate(0xdead_beef), 70);
    let received = b.poll();
    assert_success(received, CompletionKind::Receive);
    assert_eq!((received.id, received.byte_length, received.qpn), (1, 70, b.qp.qpn()));
    assert_eq!(received.tag, Tag::Immediate(0xdead_beef));
    assert_eq!([b.bytes(100, 50), b.bytes(300, 20)].concat(), payload);
    assert_success(a.poll(), CompletionKind::Send);
}

#[test]
fn a_list_of_requests_is_posted_in_order() {
    let (a, b) = Side::pair();
    b.qp.post_receive((0..20).map(|id| ReceiveRequest::new(id, &[b.region.sge(id as usize * 8, 8)]))).unwrap();
    a.qp.post_send((0..20_u64).map(|id| SendRequest::inline(id, Operation::Send, &id.to_be_bytes()))).unwrap();
    for id in 0..20 {
        let received = b.poll();
        assert_success(received, CompletionKind::Receive);
        assert_eq!(received.id, id);
        assert_eq!(b.bytes(id as usize * 8, 8), id.to_be_bytes());
        assert_eq!(a.poll().id, id);
    }
    assert_eq!(b.qp.counters().unwrap(), b.context.counters(), "the only queue pair counts for all");
}

#[test]
fn one_sided_operations_need_no_program_at_the_target() {
    let (a, b) = Side::pair();
    let payload: Vec<u8> = (0..60_000_u32).map(|i| (i % 251) as u8).collect();
    a.region.write(0, &payload).unwrap();
    a.post(Operation::Write(b.region.remote(1000)), 60_000);
    assert_success(a.poll(), CompletionKind::Write);
    assert_eq!(b.bytes(1000, 60_000), payload);

    b.region.write(0, &[0x5a; 9000]).unwrap();
    a.post(Operation::Read(b.region.remote(0)), 9000);
    let completion = a.poll();
    assert_success(completion, CompletionKind::Read);
    assert_eq!(completion.byte_length, 9000);
    assert_eq!(a.bytes(0, 9000), [0x5a; 9000]);

    b.region.write(0, &40_u64.to_ne_bytes()).unwrap();
    a.post(Operation::FetchAndAdd { remote: b.region.remote(0), add: 2 }, 8);
    assert_success(a.poll(), CompletionKind::FetchAndAdd);
    assert_eq!(a.bytes(0, 8), 40_u64.to_ne_bytes());
    a.post(Operation::CompareAndSwap { remote: b.region.remote(0), compare: 42, swap: 1 }, 8);
    assert_success(a.poll(), CompletionKind::CompareAndSwap);
    assert_eq!((a.bytes(0, 8), b.bytes(0, 8)), (42_u64.to_ne_bytes().into(), 1_u64.to_ne_bytes().into()));
}

#[test]
fn a_program_that_sleeps_on_a_channel_wakes_up() {
    const ROUNDS: u64 = 200;
    let (a, b) = Side::pair();
    std::thread::scope(|scope| {
        for (side, starts) in [(a, true), (b, false)] {
            scope.spawn(move || {
                let receive = |id| side.qp.post_receive([ReceiveRequest::new(id, &[side.region.sge(0, 8)])]).unwrap();
                let send = |id| {
                    let request = SendRequest::inline(id, Operation::Send, b"a letter");
                    side.qp.post_send([request.with_flags(SendFlags::empty())]).unwrap();
                };
                receive(0);
                if starts {
                    send(0);
                }
                for round in 0..ROUNDS {
                    let completion = side.sleep();
                    assert_success(completion, CompletionKind::Receive);
                    assert_eq!(completion.id, round);
                    receive(round + 1);
                    send(round);
                }
                // The peer may still miss the acknowledge of its last message.
                while side.qp.counters().unwrap().rcvd_pkts < 2 * ROUNDS {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
}

#[test]
fn the_descriptor_of_a_channel_can_be_polled() {
    let (a, b) = Side::pair();
    b.cq.arm(Arm::Solicited);
    b.qp.post_receive((0..2).map(|id| ReceiveRequest::new(id, &[]))).unwrap();
    a.qp.post_send([SendRequest::new(1, Operation::Send, &[])]).unwrap();
    assert_success(b.poll(), CompletionKind::Receive);
    assert!(b.channel.poll().is_none(), "nobody asked for a solicited event");
    let request = SendRequest::new(2, Operation::Send, &[]);
    a.qp.post_send([request.with_flags(SendFlags::SIGNALED | SendFlags::SOLICITED)]).unwrap();
    let ready = uroce::port::wait(&[b.channel.as_raw_fd()], &[], None).unwrap();
    assert!(ready);
    assert_eq!(b.channel.poll().map(|cq| cq.number()), Some(b.cq.number()));
    assert!(b.poll().solicited);
}

#[test]
fn a_peer_that_is_not_there_fails_the_request_while_the_program_sleeps() {
    let side = Side::new();
    let psn = random_psn();
    let nobody = Peer { address: Ipv4Addr::new(127, 255, 255, 254).into(), ..side.qp.local(psn) };
    let options = ConnectOptions { timeout: 8, retry_count: 2, ..ConnectOptions::default() };
    side.qp.connect(psn, &nobody, &options).unwrap();
    side.post(Operation::Send, 8);
    assert_eq!(side.sleep().status, Status::RetryExceededError);
    assert_eq!(side.qp.query().unwrap().state, State::Error);
    assert_eq!(side.context.counters().retry_exceeded_err, 1);
}

#[test]
fn a_forged_key_is_refused_at_both_ends() {
    let (a, b) = Side::pair();
    let forged = Remote { rkey: b.region.rkey() ^ 1, ..b.region.remote(0) };
    a.post(Operation::Write(forged), 8);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
    let events = b.context.events();
    let mut seen = Vec::new();
    while !seen.contains(&AsyncEvent::QpAccessError(b.qp.qpn())) {
        seen.push(events.wait(None).unwrap().expect("no time-out"));
    }
    assert_eq!(b.qp.query().unwrap().state, State::Error);
}

#[test]
fn a_region_that_was_dropped_is_out_of_reach() {
    let (a, b) = Side::pair();
    let region = b.pd.register(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let remote = region.remote(0);
    a.post(Operation::Write(remote), 8);
    assert_success(a.poll(), CompletionKind::Write);
    drop(region);
    a.post(Operation::Write(remote), 8);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
}

#[test]
fn what_was_posted_before_the_one_at_fault_stays_posted() {
    let (a, _b) = Side::pair();
    let fresh = a.pd.create_qp(&QpConfig::new(&a.cq, &a.cq)).unwrap();
    let sends = |lengths: [usize; 3]| lengths.map(|length| SendRequest::inline(0, Operation::Send, &vec![1; length]));
    let error = fresh.post_send(sends([1, 1, 1])).unwrap_err();
    assert_eq!((error.posted, error.error.errno()), (0, 22), "{error}");
    let error = a.qp.post_send(sends([1, 1, 5000])).unwrap_err();
    assert_eq!((error.posted, error.error.errno()), (2, 22), "{error}");
}

#[test]
fn objects_of_two_contexts_do_not_mix() {
    let (a, b) = Side::pair();
    for config in [QpConfig::new(&b.cq, &a.cq), QpConfig::new(&a.cq, &b.cq)] {
        assert_eq!(a.pd.create_qp(&config).unwrap_err().errno(), 22);
    }
    assert_eq!(a.context.create_cq(1, Some(&b.channel)).unwrap_err().errno(), 22);
}

#[test]
fn objects_can_be_dropped_in_any_order() {
    const COUNT: usize = 6;
    for turn in 0..COUNT {
        for backwards in [false, true] {
            let Side { qp, cq, channel, region, pd, context } = Side::new();
            let mut objects: [Box<dyn Any>; COUNT] = [
                Box::new(qp),
                Box::new(cq),
                Box::new(channel),
                Box::new(region),
                Box::new(pd),
                Box::new(context),
            ];
            objects.rotate_left(turn);
            if backwards {
                objects.reverse();
            }
            objects.into_iter().for_each(drop);
        }
    }
}

#[test]
fn a_queue_pair_works_on_when_the_handles_below_it_are_gone() {
    let (a, b) = Side::pair();
    let (Side { qp, cq, region, .. }, target) = (a, b.region.remote(0));
    region.write(0, b"still here").unwrap();
    qp.post_send([SendRequest::new(1, Operation::Write(target), &[region.sge(0, 10)])]).unwrap();
    while cq.poll_one().is_none() {}
    assert_eq!(b.bytes(0, 10), b"still here");
}

#[test]
fn a_busy_port_is_told_in_one_line() {
    let address = Ipv4Addr::new(127, 77, 7, 7);
    let _holder = UdpSocket::bind((address, 4791)).unwrap();
    let error = Context::options("uroce_lo").addresses([address.into()]).open().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("127.77.7.7") && text.contains("4791") && text.lines().count() == 1, "{text}");
    assert_eq!(error.errno(), 98, "EADDRINUSE: {text}");
}

#[test]
fn an_unknown_device_is_told_with_those_there_are() {
    let error = Context::open("mlx5_0").unwrap_err();
    assert_eq!(error.errno(), 2);
    for device in devices().unwrap() {
        assert!(error.to_string().contains(&device.name), "{error}");
    }
}

/// Runs one of the ignored tests below in a process of its own.
fn spawn(test: &str, rendezvous: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env("UROCE_TEST_RENDEZVOUS", rendezvous)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_reach_each_other() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut child = spawn("passive_target", &listener.local_addr().unwrap().to_string());
    let mut stream = listener.accept().unwrap().0;
    let side = Side::new();
    let local = side.qp.local(random_psn());
    writeln!(stream, "{local}").unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    let peer: Peer = lines.next().unwrap().parse().unwrap();
    let place = lines.next().unwrap();
    let (address, rkey) = place.split_once(' ').unwrap();
    let remote = Remote { address: address.parse().unwrap(), rkey: rkey.parse().unwrap() };
    side.qp.connect(local.psn, &peer, &ConnectOptions::default()).unwrap();
    assert_eq!(lines.next().as_deref(), Some("connected"));

    // The target sleeps in a read from the stream: its progress thread alone serves this.
    side.region.write(0, b"from another process").unwrap();
    side.post(Operation::Write(remote), 20);
    assert_success(side.poll(), CompletionKind::Write);
    side.region.write(0, &[0; 20]).unwrap();
    side.post(Operation::Read(remote), 20);
    assert_success(side.sleep(), CompletionKind::Read);
    assert_eq!(side.bytes(0, 20), b"from another process");
    drop(stream.shutdown(std::net::Shutdown::Write));
    assert_eq!(lines.next().as_deref(), Some("from another process"));
    assert!(child.wait().unwrap().success());
}

/// The other process of [`two_processes_reach_each_other`]: says where its memory is, and sleeps.
#[test]
#[ignore = "runs in a process of its own, started by another test"]
fn passive_target() {
    let rendezvous = std::env::var("UROCE_TEST_RENDEZVOUS").unwrap();
    let mut stream = TcpStream::connect(rendezvous).unwrap();
    let side = Side::new();
    let local = side.qp.local(random_psn());
    let Remote { address, rkey } = side.region.remote(64);
    writeln!(stream, "{local}\n{address} {rkey}").unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    reader.read_line(&mut line).unwrap();
    side.qp.connect(local.psn, &line.trim().parse().unwrap(), &ConnectOptions::default()).unwrap();
    writeln!(stream, "connected").unwrap();
    assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0, "until the peer has finished");
    writeln!(stream, "{}", String::from_utf8(side.bytes(64, 20)).unwrap()).unwrap();
}

#[test]
fn nothing_is_left_of_a_context() {
    assert!(spawn("threads_and_descriptors", "").wait().unwrap().success());
}

/// The other process of [`nothing_is_left_of_a_context`], in which no other test runs.
#[test]
#[ignore = "runs in a process of its own, started by another test"]
fn threads_and_descriptors() {
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let counts = || (count("/proc/self/task"), count("/proc/self/fd"));
    let before = counts();
    let (a, b) = Side::pair();
    a.post(Operation::Write(b.region.remote(0)), 8);
    assert_success(a.sleep(), CompletionKind::Write);
    let during = counts();
    assert!(during.0 == before.0 + 2 && during.1 > before.1, "{during:?} over {before:?}");
    drop((a, b));
    assert_eq!(counts(), before);
}
