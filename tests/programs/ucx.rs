//! UCX, Open MPI over it, and libfabric.
//!
//! Each process has a loopback address of its own, so all of it needs no privilege and no interface.

use std::path::Path;
use std::process::Command;

use super::launch::{Launch, Said, free_port, installed, skip};

const DEVICE: &str = "uroce_lo";

fn ucx(program: &[&str], transports: &str) -> Launch {
    Launch::new(DEVICE, program)
        .env("UCX_TLS", transports)
        .env("UCX_NET_DEVICES", "uroce_lo:1")
        .env("UCX_LOG_LEVEL", "info")
        // TERM as well: one that hangs is ended by it, and says where.
        .env("UCX_ERROR_SIGNALS", "ILL,SEGV,BUS,FPE,TERM")
}

/// One test of `ucx_perftest` between two processes; what the client and the server said.
#[track_caller]
fn perftest(transports: &str, test: &[&str]) -> [Said; 2] {
    let port = free_port();
    let option = port.to_string();
    let common = ["ucx_perftest", "-p", &option];
    let server = ucx(&common, transports).start().listens(port);
    let test = [&common, &["127.0.0.1", "-w", "10"], test].concat();
    let client = ucx(&test, transports).run();
    let server = server.finish();
    client.assert_says("Final:");
    server.assert_fine();
    [client, server]
}

/// The tests of UCX's protocol layer: messages with tags, memory of the peer, atomic operations. UCX says which transport of which
/// device it took: `lane`.
fn protocols(transports: &str, tests: &[&str], sizes: &[&str], lane: &str) {
    if installed(&["ucx_perftest"]) {
        for test in tests {
            for size in sizes {
                let [client, _] = perftest(transports, &["-t", test, "-s", size, "-n", "50"]);
                client.assert_says(lane);
            }
        }
    }
}

#[test]
fn ucx_finds_the_device_and_both_transports() {
    if !installed(&["ucx_info"]) {
        return;
    }
    let said = ucx(&["ucx_info", "-d"], "all").run();
    said.assert_says("Memory domain: uroce_lo");
    let transports: Vec<_> = said.text.split("Transport: ").skip(1).collect();
    for name in ["rc_verbs", "ud_verbs"] {
        let of_ours = |part: &&&str| part.starts_with(name) && part.contains("Device: uroce_lo:1");
        assert!(transports.iter().any(|part| of_ours(&part)), "no {name} in:\n{}", said.text);
    }
    let connected = transports.iter().find(|part| part.starts_with("rc_verbs")).unwrap();
    for capability in ["put_zcopy", "get_zcopy", "atomic_fadd: 64 bit", "atomic_cswap: 64 bit"] {
        assert!(connected.contains(capability), "no {capability} in:\n{connected}");
    }
}

#[test]
fn tags_over_connections() {
    protocols("rc", &["tag_lat", "tag_bw", "tag_sync_lat"], &["8", "4096", "1048576"], "tag(rc_verbs/uroce_lo:1)");
}

#[test]
fn tags_over_datagrams() {
    protocols("ud", &["tag_lat", "tag_bw"], &["8", "4096", "1048576"], "tag(ud_verbs/uroce_lo:1)");
}

#[test]
fn put_and_get() {
    protocols("rc", &["ucp_put_lat", "ucp_put_bw", "ucp_get"], &["8", "4096", "1048576"], "rma(rc_verbs/uroce_lo:1)");
}

#[test]
fn atomics() {
    protocols("rc", &["ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"], &["8"], "(rc_verbs/uroce_lo:1)");
}

#[test]
fn streams_and_active_messages() {
    protocols("rc", &["stream_bw", "ucp_am_bw"], &["8", "65536"], "(rc_verbs/uroce_lo:1)");
}

/// Below UCX's protocols: each way that its transports post, inline, from a buffer of theirs, and without a copy.
#[test]
fn transports_alone() {
    if !installed(&["ucx_perftest"]) {
        return;
    }
    for (transport, test, layout, size) in [
        ("rc_verbs", "am_lat", "short", "8"),
        ("rc_verbs", "am_bw", "bcopy", "4000"),
        ("rc_verbs", "am_bw", "zcopy", "8000"),
        ("rc_verbs", "put_lat", "short", "8"),
        ("rc_verbs", "put_bw", "bcopy", "4000"),
        ("rc_verbs", "put_bw", "zcopy", "1000000"),
        ("rc_verbs", "get", "bcopy", "4000"),
        ("rc_verbs", "get", "zcopy", "1000000"),
        ("rc_verbs", "fadd", "short", "8"),
        ("rc_verbs", "cswap", "short", "8"),
        ("ud_verbs", "am_lat", "short", "8"),
        ("ud_verbs", "am_bw", "bcopy", "4000"),
        ("ud_verbs", "am_bw", "zcopy", "4000"),
    ] {
        let what = ["-d", "uroce_lo:1", "-x", transport, "-t", test, "-D", layout, "-s", size, "-n", "100"];
        let [_, server] = perftest("all", &what);
        server.assert_says("transport layer");
    }
}

/// UCX reads from a completion which IP header a datagram came with. When every one was said to be IPv4, it waited for ever here:
/// connections are made over datagrams too.
#[test]
fn over_ipv6() {
    if !installed(&["ucx_perftest", "unshare", "ip"]) {
        return;
    }
    // The address stands first in the table: the link-local one is not there until its duplicates have been looked for.
    const INTERFACE: &str = "ip link set lo up && ip link add u0 type veth peer name u1 && ip link set u1 up \
        && ip link set u0 mtu 9000 up && ip address add fd77::1/64 dev u0 nodad && exec \"$@\"";
    let starter = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", INTERFACE, "sh"];
    let try_out = Command::new("unshare").args(["--user", "--map-root-user", "--net", "true"]).status();
    if !try_out.is_ok_and(|status| status.success()) {
        skip("no network namespaces for ordinary users");
        return;
    }
    for transports in ["rc", "ud"] {
        let test = ["ucx_perftest", "-l", "-t", "tag_lat", "-s", "8", "-n", "100", "-w", "10"];
        let said = Launch::behind(&starter, "uroce_u0", &test)
            .env("UCX_TLS", transports)
            .env("UCX_NET_DEVICES", "uroce_u0:1")
            .env("UCX_IB_GID_INDEX", "0")
            .env("UCX_LOG_LEVEL", "info")
            // TERM as well: one that hangs is ended by it, and says where.
            .env("UCX_ERROR_SIGNALS", "ILL,SEGV,BUS,FPE,TERM")
            .run();
        said.assert_says("Final:");
        said.assert_says(&format!("{transports}_verbs/uroce_u0:1"));
    }
}

/// Four ranks of `mpi.c`, with UCX for messages and for one-sided operations, and nothing else to fall back to.
fn mpi(transports: &str) {
    if !installed(&["mpicc", "mpirun"]) {
        return;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/mpi.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi-{transports}"));
    let mut compiler = Command::new("mpicc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().unwrap().success());
    let program = program.to_str().unwrap();
    let run =
        ["mpirun", "-n", "4", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "self"];
    let said = ucx(&[&run[..], &[program]].concat(), &format!("self,{transports}"))
        // Where the test stays root, as Open MPI asks to be told twice.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .run();
    said.assert_says("4 ranks: 340595328 bytes checked, none wrong");
    said.assert_says(&format!("tag({transports}_verbs/uroce_lo:1)"));
}

#[test]
fn four_ranks_of_mpi_over_connections() {
    mpi("rc");
}

#[test]
fn four_ranks_of_mpi_over_datagrams() {
    mpi("ud");
}

#[test]
fn libfabric_lists_the_device() {
    if installed(&["fi_info"]) {
        Launch::new(DEVICE, &["fi_info", "-p", "verbs"]).run().assert_says("domain: uroce_lo");
    }
}

/// Reliable datagrams, which libfabric makes of the device's datagrams.
#[test]
fn libfabric_over_datagrams() {
    if !installed(&["fi_pingpong"]) {
        return;
    }
    let port = free_port();
    let option = port.to_string();
    let common = ["fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-c", "-I", "20"];
    let server = Launch::new(DEVICE, &[&common[..], &["-B", &option]].concat()).start().listens(port);
    let client = Launch::new(DEVICE, &[&common[..], &["-P", &option, "127.0.0.1"]].concat()).run();
    let server = server.finish();
    for said in [&client, &server] {
        said.assert_says("1m");
    }
}
