//! The matrix on a clean link: kernel × requester × operation × path MTU × size × IP version × port.

use std::time::Instant;

use uroce::qp::{Mtu, QpType};
use uroce::verbs::Backend;

use crate::bench::{Bench, Setup, exclusively};
use crate::case::{Case, Requester, Verb};
use crate::common::guest::{Guest, Kernel};

pub(crate) const MTUS: [Mtu; 3] = [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096];
pub(crate) const BACKENDS: [Backend; 2] = [Backend::Udp, Backend::Packet];

/// The message sizes for a path MTU.
fn sizes(mtu: Mtu) -> [usize; 7] {
    let mtu = mtu.bytes() as usize;
    [0, 1, mtu - 1, mtu, mtu + 1, 65_537, 1 << 20]
}

/// Every case of one connection.
fn cases(mtu: Mtu) -> Vec<Case> {
    let mut cases = Vec::new();
    for requester in [Requester::Uroce, Requester::Kernel] {
        for verb in Verb::SIZED {
            cases.extend(sizes(mtu).map(|size| Case { requester, verb, size }));
        }
        cases.extend(Verb::ATOMIC.map(|verb| Case { requester, verb, size: 8 }));
    }
    cases
}

#[test]
fn kernel_6_1_on_a_clean_link() {
    run(Kernel::V6_1);
}

#[test]
fn kernel_6_12_on_a_clean_link() {
    run(Kernel::V6_12);
}

fn run(kernel: Kernel) {
    let Some(guest) = Guest::up(kernel) else { return };
    let _link = exclusively();
    guest.enter();
    println!(
        "\n| kernel | port | IP | path MTU | cases | passed | packets | our faults | tail probes | kernel's faults |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut failures = Vec::new();
    for backend in BACKENDS {
        for ipv6 in [false, true] {
            for mtu in MTUS {
                let setup = Setup { qp_type: QpType::Rc, backend, ipv6, mtu };
                failures.extend(connect_and_run(kernel, &guest, setup));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Runs the cases of one connection, prints its line, and gives what failed.
fn connect_and_run(kernel: Kernel, guest: &Guest, setup: Setup) -> Vec<String> {
    let begun = Instant::now();
    let mut bench = Bench::connect(guest, setup);
    let cases = cases(setup.mtu);
    let mut failures = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        if let Err(error) = case.run(&mut bench, n as u64 + 1) {
            failures.push(format!("{kernel:?} {setup:?}: {case}: {error}"));
            // The connection is no longer what the next case expects.
            break;
        }
    }
    let passed = cases.len() - failures.len();
    let (counters, faults) = (bench.counters(), bench.faults());
    // A probe is no retry: it asks a peer that has been silent for two round trips. On an emulated guest that
    // happens without a loss.
    let retries: Vec<_> = faults
        .iter()
        .filter(|(name, _)| !["tail_probes", "retransmitted_pkts", "stale_responses"].contains(name))
        .collect();
    println!(
        "| {kernel:?} | {:?} | {} | {} | {} | {passed} | {} | {faults:?} | {} | {:?} | {:.1?}",
        setup.backend,
        if setup.ipv6 { "v6" } else { "v4" },
        setup.mtu.bytes(),
        cases.len(),
        counters.sent_pkts + counters.rcvd_pkts,
        counters.tail_probes,
        bench.kernel_faults(),
        begun.elapsed(),
    );
    if !retries.is_empty() {
        failures.push(format!("{kernel:?} {setup:?}: a clean link caused {retries:?}"));
    }
    failures
}
