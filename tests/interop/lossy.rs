//! Loss and reordering on both directions of the link: slower, but every byte right and every completion there.

use uroce::qp::{Mtu, QpType};
use uroce::verbs::Backend;

use crate::bench::{Bench, Setup, exclusively};
use crate::case::{Case, Requester, Verb};
use crate::common::guest::{Guest, Kernel};
use crate::matrix::BACKENDS;

/// What netem does, to the packets that enter the guest and to those that leave it.
const FAULTS: [&str; 3] = ["loss 1%", "loss 5%", "delay 1ms reorder 75% 50%"];
const SIZES: [usize; 3] = [1, 4097, 200_000];

#[test]
fn kernel_6_1_on_a_lossy_link() {
    run(Kernel::V6_1, "lossy-6-1", 13);
}

#[test]
fn kernel_6_12_on_a_lossy_link() {
    run(Kernel::V6_12, "lossy-6-12", 12);
}

fn run(kernel: Kernel, name: &str, octet: u8) {
    let Some(guest) = Guest::up_as(kernel, name, octet) else { return };
    let _link = exclusively();
    guest.enter();
    println!(
        "\n| kernel | port | netem, both ways | cases | passed | packets | sent again | NAKs in, out | ack timeouts |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut failures = Vec::new();
    for backend in BACKENDS {
        for faults in FAULTS {
            guest.netem(faults);
            failures.extend(connect_and_run(kernel, &guest, backend, faults));
            guest.netem("");
        }
    }
    guest.down();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Runs the cases of one connection, prints its line, and gives what failed.
fn connect_and_run(kernel: Kernel, guest: &Guest, backend: Backend, faults: &str) -> Vec<String> {
    let mut bench = Bench::connect(guest, Setup { qp_type: QpType::Rc, backend, ipv6: false, mtu: Mtu::Mtu1024 });
    let mut cases = Vec::new();
    for requester in [Requester::Uroce, Requester::Kernel] {
        for verb in Verb::SIZED {
            cases.extend(SIZES.map(|size| Case { requester, verb, size }));
        }
        cases.extend(Verb::ATOMIC.iter().cycle().take(10).map(|&verb| Case { requester, verb, size: 8 }));
    }
    let mut failures = Vec::new();
    let mut passed = 0;
    for (n, case) in cases.iter().enumerate() {
        match case.run(&mut bench, n as u64 + 1) {
            Ok(()) => passed += 1,
            Err(error) => {
                failures.push(format!("{kernel:?} {backend:?} {faults}: {case}: {error}"));
                break;
            }
        }
    }
    let counters = bench.counters();
    println!(
        "| {kernel:?} | {backend:?} | {faults} | {} | {passed} | {} | {} | {}, {} | {} |",
        cases.len(),
        counters.sent_pkts + counters.rcvd_pkts,
        counters.retransmitted_pkts,
        counters.rcvd_seq_err,
        counters.send_seq_err,
        counters.ack_timeouts,
    );
    failures
}
