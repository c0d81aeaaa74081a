//! Two processes, and what one leaves behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use uroce::verbs::{Peer, Remote};

use super::*;

/// Runs one of the ignored tests below in a process of its own.
fn spawn(test: &str, rendezvous: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("processes::{test}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env("UROCE_TEST_RENDEZVOUS", rendezvous)
        .stdout(Stdio::piped())
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
    let output = spawn("threads_and_descriptors", "").wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
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
    // Two of each context: one serves peers, one answers who asks for counters.
    assert!(during.0 == before.0 + 4 && during.1 > before.1, "{during:?} over {before:?}");
    drop((a, b));
    assert_eq!(counts(), before);
}
