//! Unmodified programs of libibverbs with each other: at one end on the drop-in library, at the other on the kernel's rxe.

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::bench::exclusively;
use crate::built;
use crate::common::guest::{Guest, HOST_V4, Kernel};

/// The TCP port over which they get to know each other, as `/proc/net/tcp` has a listener on it.
const LISTENS: &str = ":4853 00000000:0000 0A|:4853 0+:0000 0A";
const PATIENCE: &str = "90";
const MTUS: [&str; 5] = ["256", "512", "1024", "2048", "4096"];

/// Options of perftest's programs, for both ends.
const PERFTEST: &[(&str, &str)] = &[
    ("ib_send_bw", "-n 40"),
    ("ib_send_bw", "-n 40 -b -q 2 -s 9000"),
    ("ib_send_bw", "-n 40 -e -s 5000"),
    ("ib_send_bw", "-n 40 -q 4 --use-srq -s 3000"),
    ("ib_send_bw", "-n 40 -c UC -s 9000"),
    ("ib_send_bw", "-n 40 -c UD -s 1024"),
    ("ib_send_lat", "-n 100"),
    ("ib_send_lat", "-n 5 -s 1000000"),
    ("ib_send_lat", "-n 40 -c UC"),
    ("ib_send_lat", "-n 40 -c UD -s 512"),
    ("ib_write_bw", "-n 40"),
    ("ib_write_bw", "-n 40 -m 256 -s 5000"),
    ("ib_write_bw", "-n 40 -b -q 8 -s 4000"),
    ("ib_write_bw", "-n 40 -l 10 -s 2000"),
    ("ib_write_bw", "-n 40 -c UC -s 9000"),
    ("ib_write_lat", "-n 100 -s 100 -I 100"),
    ("ib_write_lat", "-n 40 -c UC"),
    ("ib_read_bw", "-n 40"),
    ("ib_read_bw", "-n 40 -q 4 -s 4000"),
    ("ib_read_lat", "-n 100"),
    ("ib_atomic_bw", "-n 100"),
    ("ib_atomic_lat", "-n 100"),
    ("ib_atomic_lat", "-n 40 -A CMP_AND_SWAP"),
];

#[test]
fn kernel_6_1_runs_programs_with_ours() {
    run(Kernel::V6_1);
}

#[test]
fn kernel_6_12_runs_programs_with_ours() {
    run(Kernel::V6_12);
}

fn run(kernel: Kernel) {
    let Some(guest) = Guest::up(kernel) else { return };
    let _link = exclusively();
    guest.enter();
    let mut count = 0;
    for (program, options) in pingpongs() {
        for both in [serve_in_guest(&guest, &program, &options), serve_here(&guest, &program, &options)] {
            check(&format!("{kernel:?}: {program} {options}"), &both, "50 iters in");
            count += 1;
        }
    }
    for (program, options) in PERFTEST {
        let options = format!("-x 1 -F {options}");
        for both in [serve_in_guest(&guest, program, &options), serve_here(&guest, program, &options)] {
            check(&format!("{kernel:?}: {program} {options}"), &both, "#bytes");
            count += 1;
        }
    }
    println!("{kernel:?}: {count} runs of programs, either end the server");
}

/// Each of rdma-core's examples at both GIDs and, where it has the choice, every path MTU; every other one sleeping on events.
fn pingpongs() -> Vec<(String, String)> {
    let mut runs = Vec::new();
    let events = ["", " -e"].iter().cycle();
    let mut add = |service: &str, options: String| runs.push((format!("ibv_{service}_pingpong"), options));
    for gid in [0, 1] {
        for (mtu, events) in MTUS.iter().zip(events.clone().skip(gid)) {
            for service in ["rc", "uc", "srq"] {
                add(service, format!("-n 50 -c -g {gid} -m {mtu}{events}"));
            }
        }
        for events in events.clone().take(2) {
            add("ud", format!("-n 50 -c -g {gid} -s 1000{events}"));
        }
    }
    runs
}

/// How our end and the kernel's ended, and what they said.
type Both = (Output, (i32, String));

/// Both ended well, and said `part`.
fn check(what: &str, (ours, (status, theirs)): &Both, part: &str) {
    let text = String::from_utf8_lossy(&ours.stdout);
    let errors = String::from_utf8_lossy(&ours.stderr);
    let is_fine = ours.status.success() && *status == 0 && text.contains(part) && theirs.contains(part);
    let complaint =
        ["invalid data", "uroce: ", "Problems"].iter().find(|words| text.contains(**words) || errors.contains(**words));
    assert!(is_fine && complaint.is_none(), "{what}:\nours: {text}{errors}\nthe kernel's, {status}: {theirs}");
}

fn serve_in_guest(guest: &Guest, program: &str, options: &str) -> Both {
    let mut agent = guest.agent();
    let command = format!("timeout {PATIENCE} {program} -d rxe0 {options}");
    let server = thread::spawn(move || agent.shell(&command).unwrap());
    let listens = format!(
        "for i in $(seq 200); do grep -qE '{LISTENS}' /proc/net/tcp /proc/net/tcp6 && exit; usleep 50000; done"
    );
    guest.agent().shell(&listens).unwrap();
    let client = ours(program, options).arg(guest.v4.to_string()).output().unwrap();
    (client, server.join().unwrap())
}

fn serve_here(guest: &Guest, program: &str, options: &str) -> Both {
    let mut server = ours(program, options);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let listens = || {
        // Of this thread's namespace.
        let sockets = ["tcp", "tcp6"].map(|of| format!("/proc/thread-self/net/{of}"));
        Command::new("grep").args(["-qE", LISTENS]).args(sockets).status().unwrap().success()
    };
    while server.try_wait().unwrap().is_none() && !listens() {
        thread::sleep(Duration::from_millis(20));
    }
    let command = format!("timeout {PATIENCE} {program} -d rxe0 {options} {HOST_V4}");
    let theirs = guest.agent().shell(&command).unwrap();
    (server.wait_with_output().unwrap(), theirs)
}

fn ours(program: &str, options: &str) -> Command {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE).arg(built::folder().join("uroce")).args([
        "run",
        "-d",
        "uroce_br0",
        "--",
        program,
        "-d",
        "uroce_br0",
    ]);
    command.args(options.split(' ')).stdin(Stdio::null());
    command
}
