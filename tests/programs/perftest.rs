//! perftest's programs, between two hosts.

use super::hosts::Hosts;
use super::launch::{Said, installed};

const PORT: u16 = 18515;

/// Runs one with these options at both ends; the rows of the client's table.
#[track_caller]
fn perftest(hosts: &Hosts, program: &str, options: &str) -> Vec<Row> {
    // Without it, it warns of the processor's frequency; GID 1 is IPv4's.
    let common = [&[program, "-F", "-x", "1"][..], &options.split(' ').collect::<Vec<_>>()].concat();
    let client = [&common[..], &[Hosts::SERVER]].concat();
    let [server, client] = hosts.run(PORT, &common, &client);
    for said in [&server, &client] {
        said.assert_success();
        for complaint in ["uroce: ", "Problems", "Failed", "error"] {
            assert!(!said.text.contains(complaint), "{program} {options}:\n{}", said.text);
        }
    }
    rows(&client)
}

/// What was measured at one size.
#[derive(Debug)]
struct Row {
    size: u64,
    iterations: u64,
    /// Of bandwidth the average, of latency the typical one.
    result: f64,
}

/// The rows below `#bytes`.
fn rows(said: &Said) -> Vec<Row> {
    let table = said.text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes")).skip(1);
    let numbers = |line: &str| line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>().ok();
    let table = table.map_while(numbers).filter(|row| row.len() >= 4);
    table.map(|row| Row { size: row[0] as u64, iterations: row[1] as u64, result: row[3] }).collect()
}

/// Runs each, one size a time; all iterations must have been made.
fn each(commands: &[(&str, &str)]) {
    let Some(hosts) = hosts() else { return };
    for &(program, options) in commands {
        let rows = perftest(&hosts, program, options);
        assert_eq!(rows.len(), 1, "{program} {options}: {rows:?}");
        assert!(rows[0].iterations > 0 && rows[0].result > 0.0, "{program} {options}: {rows:?}");
    }
}

fn hosts() -> Option<Hosts> {
    let programs = ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "unshare", "nsenter", "ip"];
    if installed(&programs) { Hosts::make() } else { None }
}

#[test]
fn every_operation_in_both_measures() {
    each(&[
        ("ib_send_bw", "-n 200"),
        ("ib_send_lat", "-n 200"),
        ("ib_write_bw", "-n 200"),
        ("ib_write_lat", "-n 200"),
        ("ib_read_bw", "-n 200"),
        ("ib_read_lat", "-n 200"),
        ("ib_atomic_bw", "-n 200"),
        ("ib_atomic_lat", "-n 200"),
        ("ib_atomic_bw", "-n 200 -A CMP_AND_SWAP"),
    ]);
}

#[test]
fn all_sizes() {
    let Some(hosts) = hosts() else { return };
    for (program, options) in [
        ("ib_send_bw", "-a -n 5"),
        ("ib_send_lat", "-a -n 5"),
        ("ib_write_bw", "-a -n 5"),
        ("ib_write_lat", "-a -n 5"),
        ("ib_read_bw", "-a -n 5"),
        ("ib_read_lat", "-a -n 5"),
    ] {
        let rows = perftest(&hosts, program, options);
        let sizes: Vec<_> = rows.iter().map(|row| row.size).collect();
        assert_eq!(sizes, (1..=23).map(|power| 1 << power).collect::<Vec<u64>>(), "{program} {options}: {rows:?}");
    }
}

#[test]
fn every_mtu() {
    let of_mtu = |mtu| format!("-n 100 -m {mtu}");
    let options = [256, 512, 1024, 2048, 4096].map(of_mtu);
    let commands = |program| options.iter().map(move |options| (program, options.as_str()));
    each(&["ib_send_bw", "ib_write_bw"].into_iter().flat_map(commands).collect::<Vec<_>>());
}

#[test]
fn options() {
    each(&[
        ("ib_send_bw", "-n 200 -q 8"),
        ("ib_write_bw", "-n 200 -q 8"),
        ("ib_read_bw", "-n 200 -q 8"),
        ("ib_send_bw", "-n 200 -b"),
        ("ib_write_bw", "-n 200 -b -q 2"),
        ("ib_read_bw", "-n 200 -b"),
        ("ib_send_bw", "-n 200 -e"),
        ("ib_send_lat", "-n 200 -e"),
        ("ib_read_lat", "-n 200 -e"),
        ("ib_send_lat", "-n 200 -s 200 -I 220"),
        ("ib_write_lat", "-n 200 -s 200 -I 220"),
        ("ib_write_bw", "-n 200 -s 64 -I 64"),
        ("ib_send_bw", "-n 256 -l 16"),
        ("ib_write_bw", "-n 256 -l 16 -q 2"),
        ("ib_send_bw", "-n 200 --use-srq -q 4"),
        ("ib_send_lat", "-n 200 --use-srq"),
        ("ib_send_bw", "-n 200 -t 8 -r 16"),
        ("ib_write_bw", "-n 200 -t 1"),
        ("ib_read_bw", "-n 200 -o 1"),
        ("ib_write_bw", "-n 200 --report_gbits"),
        ("ib_send_bw", "-n 200 --use_old_post_send"),
        ("ib_write_bw", "-n 200 --mr_per_qp -q 3"),
        ("ib_write_bw", "-n 200 -Q 20"),
    ]);
}

#[test]
fn by_duration() {
    each(&[("ib_send_bw", "-D 1 -f 0"), ("ib_write_bw", "-D 1 -f 0 -b"), ("ib_read_bw", "-D 1 -f 0 -q 8")]);
}

#[test]
fn unreliable_transports() {
    each(&[
        ("ib_send_bw", "-c UC -n 200"),
        ("ib_send_lat", "-c UC -n 200"),
        ("ib_write_bw", "-c UC -n 200"),
        ("ib_write_lat", "-c UC -n 200"),
        ("ib_write_bw", "-c UC -n 200 -b -q 2"),
        ("ib_send_bw", "-c UD -n 200 -s 1024"),
        ("ib_send_lat", "-c UD -n 200 -s 1024"),
        ("ib_send_bw", "-c UD -n 200 -s 4096 -q 2"),
        ("ib_send_lat", "-c UD -n 200 -s 64 -e"),
    ]);
}
