//! `ibv_devices`, `ibv_devinfo` and the ping-pongs of rdma-core's examples, between two hosts.

use super::hosts::Hosts;
use super::launch::{Launch, installed};

const PORT: u16 = 18515;
const EXCHANGES: &str = "60";
/// Every path MTU, at both GIDs, polling and sleeping.
const MTUS: [&str; 5] = ["256", "512", "1024", "2048", "4096"];

/// Runs one with these options at both ends; each end must have made all exchanges.
fn pingpong(hosts: &Hosts, program: &str, options: &[&str]) {
    let common = [&[program, "-n", EXCHANGES][..], options].concat();
    let client = [&common[..], &[Hosts::SERVER]].concat();
    for said in hosts.run(PORT, &common, &client) {
        said.assert_says(&format!("{EXCHANGES} iters in"));
        // What `-c` finds.
        assert!(!said.text.contains("invalid data"), "{}", said.text);
    }
}

/// All that has a path MTU to choose, with contents checked.
fn at_every_mtu(program: &str) {
    if !installed(&[program, "unshare", "nsenter", "ip"]) {
        return;
    }
    let Some(hosts) = Hosts::make() else { return };
    for mtu in MTUS {
        for gid in ["0", "1"] {
            for events in [&[][..], &["-e"]] {
                pingpong(&hosts, program, &[&["-c", "-m", mtu, "-g", gid], events].concat());
            }
        }
    }
}

#[test]
fn devices_are_listed_and_described() {
    if !installed(&["ibv_devices", "ibv_devinfo"]) {
        return;
    }
    Launch::new("uroce_lo", &["ibv_devices"]).run().assert_says("uroce_lo");
    let said = Launch::new("uroce_lo", &["ibv_devinfo", "-v"]).run();
    for part in ["hca_id:\turoce_lo", "PORT_ACTIVE (4)", "link_layer:\t\tEthernet", "::ffff:127.", ", RoCE v2"] {
        said.assert_says(part);
    }
}

#[test]
fn connections() {
    at_every_mtu("ibv_rc_pingpong");
}

#[test]
fn connections_with_times_and_the_new_way_to_post() {
    if !installed(&["ibv_rc_pingpong", "unshare", "nsenter", "ip"]) {
        return;
    }
    let Some(hosts) = Hosts::make() else { return };
    // Not `-t` with `-e`: the example takes an event without a completion, which an earlier turn may have taken, for an error.
    for options in [&["-t"][..], &["-N"], &["-t", "-N"], &["-N", "-e"], &["-s", "1048576"], &["-r", "1"]] {
        pingpong(&hosts, "ibv_rc_pingpong", &[&["-c", "-g", "1"], options].concat());
    }
}

#[test]
fn unreliable_connections() {
    at_every_mtu("ibv_uc_pingpong");
}

#[test]
fn shared_receive_queues() {
    at_every_mtu("ibv_srq_pingpong");
}

#[test]
fn datagrams() {
    if !installed(&["ibv_ud_pingpong", "unshare", "nsenter", "ip"]) {
        return;
    }
    let Some(hosts) = Hosts::make() else { return };
    for size in ["1", "1024", "4096"] {
        for gid in ["0", "1"] {
            for events in [&[][..], &["-e"]] {
                pingpong(&hosts, "ibv_ud_pingpong", &[&["-c", "-s", size, "-g", gid], events].concat());
            }
        }
    }
}

/// One server and several clients, which share its receive queues across connections.
#[test]
fn extended_connections() {
    if !installed(&["ibv_xsrq_pingpong", "unshare", "nsenter", "ip"]) {
        return;
    }
    let Some(hosts) = Hosts::make() else { return };
    for options in [&["-g", "1"][..], &["-g", "0", "-e"]] {
        let common = [&["ibv_xsrq_pingpong", "-n", EXCHANGES][..], options].concat();
        let server = hosts.listens(hosts.start(0, &[&common[..], &["-c", "3"]].concat()), PORT);
        let client = [&common[..], &[Hosts::SERVER]].concat();
        let clients: Vec<_> = (0..3).map(|_| hosts.start(1, &client)).collect();
        clients.into_iter().for_each(|client| client.finish().assert_success());
        server.finish().assert_success();
    }
}
