//! `uroce stat`: what the devices of other programs counted, while these run.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::command::{Server, fail, finish, json, run, succeed, text, uroce};

/// A client that measures until it is killed.
struct Client(Option<Child>);

impl Client {
    fn start(server: &Server, publish: &str) -> Self {
        let mut command = uroce(&["perf", "write", "bw", "-s", "512", "-D", "600", "-p", &server.port, "127.0.0.1"]);
        command.env("UROCE_PUBLISH", publish).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().unwrap()))
    }

    fn pid(&self) -> String {
        self.0.as_ref().map_or_else(String::new, |child| child.id().to_string())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().unwrap();
            finish(child);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The one device that the process has open, once it has received something.
fn busy(pid: &str) -> Value {
    for _ in 0..1000 {
        let devices = json(&["stat", pid, "--json"]);
        let devices = devices.as_array().expect("a list");
        assert!(devices.len() <= 1, "{devices:?}");
        if let Some(device) = devices.first().filter(|device| device["counters"]["rcvd_pkts"].as_u64() > Some(10)) {
            return device.clone();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("process {pid} receives nothing");
}

#[test]
fn another_program_tells_what_it_counts_while_it_runs() {
    let server = Server::start(&["perf", "write", "bw"]);
    let mut client = Client::start(&server, "1");
    let pids = [server.pid().to_string(), client.pid()];
    let [there, here] = pids.each_ref().map(|pid| busy(pid));
    for (device, pid) in [(&there, &pids[0]), (&here, &pids[1])] {
        assert_eq!((&device["device"], &device["program"]), (&"uroce_lo".into(), &"uroce".into()), "{device}");
        assert_eq!(device["pid"].to_string(), *pid);
        let pair = &device["queue_pairs"][0];
        assert_eq!((&pair["qp_type"], &pair["state"]), (&"Rc".into(), &"ReadyToSend".into()), "{device}");
    }
    // Each names the other.
    for (one, other) in [(&there, &here), (&here, &there)] {
        let pair = &one["queue_pairs"][0];
        assert_eq!((&pair["peer_qpn"], &pair["peer"]), (&other["queue_pairs"][0]["qpn"], &other["addresses"][0]));
    }
    // `uroce env` opens its folder to everybody. It was this one: from then on no device could be asked.
    if !run(&["env"]).status.success() {
        eprintln!("SKIPPED: `uroce env` beside `uroce stat`: the libraries are not built");
    }
    let later = busy(&pids[0]);
    assert!(later["port"]["received"].as_u64() >= there["port"]["received"].as_u64(), "{later}");

    let said = succeed(&["stat", &pids[0], "--queue-pairs"]);
    assert!(said.starts_with(&format!("uroce_lo  uroce (process {}, slot ", pids[0])), "{said}");
    assert!(said.contains("    rcvd_pkts ") && said.contains("\n    queue pair 0x"), "{said}");
    assert!(!said.lines().any(|line| line.ends_with(" 0")), "counters of zero only with --all: {said}");
    assert!(succeed(&["stat", &pids[0], "--all"]).lines().any(|line| line.ends_with(" 0")));
    let of_device = succeed(&["stat", "uroce_lo"]);
    assert!(pids.iter().all(|pid| of_device.contains(&format!("(process {pid}, "))), "{of_device}");

    client.kill();
    let server = server.finish();
    assert!(text(&server.stderr).contains("closed the connection"), "{server:?}");
    for pid in &pids {
        assert!(fail(&["stat", pid]).contains(&format!("no program of this user has {pid}")));
        assert_eq!(json(&["stat", pid, "--json"]), Value::Array(vec![]));
    }
}

#[test]
fn a_program_that_does_not_want_it_is_not_seen() {
    let server = Server::start(&["perf", "write", "bw"]);
    let mut client = Client::start(&server, "0");
    // The peer is at work, so the client has a device open.
    busy(&server.pid().to_string());
    assert_eq!(json(&["stat", &client.pid(), "--json"]), Value::Array(vec![]));
    client.kill();
    server.finish();
}
