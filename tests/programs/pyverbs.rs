//! rdma-core's own tests in Python, as Debian ships them, on the drop-in library: what the kernel's rxe passes passes here.
//!
//! `pyverbs-rxe.tsv` says what rxe passes; `tools/guest/pyverbs` makes it. Tests of RDMA CM want `librdmacm` and are skipped, on rxe too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::launch::skip;
use super::program::library;

/// Where Debian's package has them; `UROCE_RDMA_CORE_TESTS` names another place.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";
/// The interpreter that Debian's python3-pyverbs is for.
const PYTHON: &str = "/usr/bin/python3";

/// An interface of a namespace's own, with a link-local address (GID 0) and an IPv4 address (GID 1) that are there at once.
const INTERFACE: &str = "ip link set lo up && ip link add u0 type veth peer name u1 && \
    ip link set u0 addrgenmode none mtu 4200 up && ip link set u1 addrgenmode none mtu 4200 up && \
    ip address add fe80::77/64 dev u0 nodad && ip address add 10.77.0.1/24 dev u0 && exec \"$@\"";

/// Why tests are skipped here: the beginning of what they say, and what that means. Those that rxe passes never are.
const SKIPS: &[(&str, &str)] = &[
    ("Can not run the test over non MLX5 device", "of another vendor's device"),
    ("Could not open mlx5 context", "of another vendor's device"),
    ("Converting timestamp to nanoseconds is not supported", "of another vendor's device: a verb of libmlx5"),
    ("PCI device must be passed by the user", "of another vendor's device, given to user space"),
    ("Can not run the test over non EFA device", "of another vendor's device"),
    ("ODP is not supported", "no on-demand paging is announced: every region is looked up when it is touched"),
    ("Device memory is not supported", "there is no device that has memory"),
    ("Device uroce_u0 doesn't have net interface", "RDMA CM, which has a library of its own"),
    ("Allocating dmabuf is not supported", "no graphics device to share memory with"),
    ("cuda-python 12.0+ must be installed", "no graphics device to share memory with"),
    ("Create QP type 8 is not supported", "raw Ethernet packets, and what steers them"),
    ("Create Raw Packet QP", "raw Ethernet packets"),
    ("Extended CQ is not supported", "matching of tags, which one vendor's device does"),
    ("There are no huge pages", "the machine has reserved none"),
    ("Importing a device is not supported", "a context lives in the process that opened it"),
];

/// Name, result and reason of each test.
type Results = BTreeMap<String, (String, String)>;

#[test]
fn what_rxe_passes_passes_here() {
    if !possible() {
        return;
    }
    let passed_by_rxe = passed_by_rxe();
    assert!(passed_by_rxe.len() > 80, "{}", passed_by_rxe.len());
    // Over IPv6, then over IPv4.
    for gid in ["0", "1"] {
        let results = run(gid);
        let missed: Vec<_> = passed_by_rxe
            .iter()
            .map(|name| (name, results.get(name)))
            .filter(|(_, result)| result.is_none_or(|(result, _)| result != "passed"))
            .collect();
        assert!(missed.is_empty(), "GID {gid}; rxe passes {}, not so we: {missed:#?}", passed_by_rxe.len());
        let strange: Vec<_> = results.iter().filter(|result| !is_explained(result)).collect();
        assert!(strange.is_empty(), "GID {gid}: neither passed nor explained: {strange:#?}");
        println!("GID {gid}: {}", tally(&results));
    }
}

fn is_explained((_, (result, reason)): &(&String, &(String, String))) -> bool {
    match result.as_str() {
        "passed" => true,
        "skipped" => SKIPS.iter().any(|(said, _)| reason.starts_with(said)),
        _ => false,
    }
}

/// How many passed, and how many were skipped for which reason: the table of the library's README.
fn tally(results: &Results) -> String {
    let mut counts = BTreeMap::new();
    for (result, said) in results.values() {
        let reason = SKIPS.iter().find(|(begins, _)| result == "skipped" && said.starts_with(begins));
        *counts.entry((result.as_str(), reason.map_or("", |(_, reason)| reason))).or_insert(0) += 1;
    }
    counts.iter().map(|((result, reason), count)| format!("\n{count:4} {result} {reason}")).collect()
}

/// The tests that the kernel's rxe passes, 6.1's or 6.12's.
fn passed_by_rxe() -> Vec<String> {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/pyverbs-rxe.tsv");
    let table = fs::read_to_string(table).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(|row| row[1..3].contains(&"passed")).map(|row| row[0].to_owned()).collect()
}

/// Runs all tests on a device of a namespace of their own, with the GID of this index.
fn run(gid: &str) -> Results {
    let runner = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/pyverbs.py");
    let mut command = namespace(INTERFACE);
    // One that hangs is given up by the runner; the other bound is for the runner itself.
    command
        .args(["timeout", "-k", "5", "900", PYTHON, runner])
        .arg(tests())
        .args(["--", "--dev", "uroce_u0", "--gid", gid]);
    command.env("LD_LIBRARY_PATH", library()).env_remove("UROCE_TRACE").env_remove("UROCE_DEVICE");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [said, complained] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{}: {complained}", output.status);
    let row = |line: &str| {
        let mut fields = line.splitn(3, '\t').map(str::to_owned);
        Some((fields.next()?, (fields.next()?, fields.next().unwrap_or_default())))
    };
    said.lines().filter_map(row).collect()
}

/// `sh` in a network namespace of an ordinary user's own; what the script executes comes as its arguments.
fn namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", script, "sh"]);
    command
}

fn tests() -> PathBuf {
    std::env::var_os("UROCE_RDMA_CORE_TESTS").map_or_else(|| TESTS.into(), PathBuf::from)
}

/// Whether the tests can run here; says so when they cannot.
fn possible() -> bool {
    let pyverbs = Command::new(PYTHON).args(["-c", "import pyverbs.device"]).stderr(Stdio::null()).status();
    if !tests().exists() || !pyverbs.is_ok_and(|status| status.success()) {
        return skip("rdma-core's tests need its Python (apt-get install rdma-core python3-pyverbs)");
    }
    let interface = namespace(INTERFACE).arg("true").stderr(Stdio::null()).status();
    interface.is_ok_and(|status| status.success()) || skip("no network namespaces for ordinary users, or no ip(8)")
}
