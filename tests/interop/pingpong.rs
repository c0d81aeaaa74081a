//! `uroce pingpong` with the kernel's `ibv_rc_pingpong`, `ibv_uc_pingpong`, `ibv_ud_pingpong` or `ibv_srq_pingpong` at the other
//! end, either one as the server. Their TCP connection is always over IPv4: the kernel's tools listen on nothing else.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::bench::exclusively;
use crate::built;
use crate::common::guest::{Guest, HOST_V4, Kernel};

/// How the two are run.
struct Run {
    /// `rc`, `uc`, `ud` or `srq`.
    service: &'static str,
    /// Index of our GID and the guest's: link-local, IPv4 and IPv6 in this order on either side.
    gid_index: u8,
    options: &'static str,
}

#[test]
fn kernel_6_1_plays_pingpong() {
    play(Kernel::V6_1);
}

#[test]
fn kernel_6_12_plays_pingpong() {
    play(Kernel::V6_12);
}

fn play(kernel: Kernel) {
    let Some(guest) = Guest::up(kernel) else { return };
    let _link = exclusively();
    guest.enter();
    let uroce = built::folder().join("uroce");
    let v4 = |service, options| Run { service, gid_index: 1, options };
    let v6 = |service, options| Run { service, gid_index: 2, options };
    let runs = [
        v4("rc", "-n 200 -c"),
        v4("rc", "-n 200 -e -c"),
        v4("rc", "-n 50 -s 100001 -m 256 -c"),
        v4("rc", "-n 50 -s 1 -m 4096 -c"),
        v6("rc", "-n 100 -c"),
        v4("uc", "-n 200 -c"),
        v4("uc", "-n 50 -e -s 30001 -m 256 -c"),
        v6("uc", "-n 100 -c"),
        v4("ud", "-n 200 -c"),
        v4("ud", "-n 50 -e -s 4096 -c"),
        v6("ud", "-n 100 -s 1 -c"),
        v4("srq", "-n 300"),
        v4("srq", "-n 100 -q 3 -r 4 -s 9000 -m 256"),
        v6("srq", "-n 100 -q 5 -e"),
    ];
    for run in runs {
        check(
            &format!("{kernel:?} as server, {} {}", run.service, run.options),
            &serve_in_guest(&guest, &uroce, &run),
            &run,
        );
        check(
            &format!("{kernel:?} as client, {} {}", run.service, run.options),
            &serve_here(&guest, &uroce, &run),
            &run,
        );
    }
}

/// The output of both ends, of which both ended well.
fn check(what: &str, (ours, theirs): &(Output, (i32, String)), run: &Run) {
    let text = String::from_utf8_lossy(&ours.stdout);
    let errors = String::from_utf8_lossy(&ours.stderr);
    assert!(ours.status.success() && theirs.0 == 0, "{what}:\nours: {text}{errors}\nthe kernel's: {theirs:?}");
    let iterations = run.options.split_whitespace().nth(1).unwrap();
    let line = format!("{iterations} iters in");
    assert!(text.contains(&line) && theirs.1.contains(&line), "{what}:\n{text}\n{}", theirs.1);
    println!("{what}: {}", text.lines().last().unwrap_or_default());
}

fn serve_in_guest(guest: &Guest, uroce: &Path, run: &Run) -> (Output, (i32, String)) {
    let mut agent = guest.agent();
    let command = format!("timeout 120 ibv_{}_pingpong -d rxe0 -g {} {}", run.service, run.gid_index, run.options);
    let server = thread::spawn(move || agent.shell(&command).unwrap());
    // The server takes a moment to listen.
    let ours = (0..50)
        .map(|_| {
            thread::sleep(Duration::from_millis(100));
            client(guest, uroce, run)
        })
        .find(|output| output.status.success() || !String::from_utf8_lossy(&output.stderr).contains("refused"));
    (ours.expect("the guest's server never listened"), server.join().unwrap())
}

fn client(guest: &Guest, uroce: &Path, run: &Run) -> Output {
    pingpong(uroce, run).arg(guest.v4.to_string()).output().unwrap()
}

fn serve_here(guest: &Guest, uroce: &Path, run: &Run) -> (Output, (i32, String)) {
    let mut command = pingpong(uroce, run);
    let server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let command = format!(
        "for i in $(seq 50); do sleep 0.1; timeout 120 ibv_{}_pingpong -d rxe0 -g {} {} {} > /tmp/pp 2>&1; s=$?; \
         grep -q \"Couldn't connect\" /tmp/pp || break; done; cat /tmp/pp; exit $s",
        run.service, run.gid_index, run.options, HOST_V4
    );
    let theirs = guest.agent().shell(&command).unwrap();
    (server.wait_with_output().unwrap(), theirs)
}

fn pingpong(uroce: &Path, run: &Run) -> Command {
    let mut command = Command::new(uroce);
    command
        .args(["pingpong", run.service, "-d", "uroce_br0", "-g", &run.gid_index.to_string()])
        .args(run.options.split_whitespace());
    command
}
