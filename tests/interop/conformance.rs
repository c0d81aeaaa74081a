//! The same packets to a queue pair of the kernel's and to one of ours, valid and hostile, and what either answers.
//!
//! Packets are made by hand and leave from a bare port, so that the peer of both queue pairs is this test. Where the two
//! differ, `differences.rs` says which of them obeys the specification, and what each is expected to answer; everywhere else
//! they must answer alike. Both kernels are asked after each script whether they are still alive.

#[path = "conformance/act.rs"]
mod act;
#[path = "conformance/differences.rs"]
mod differences;
#[path = "conformance/kernel.rs"]
mod kernel;
#[path = "conformance/ours.rs"]
mod ours;
#[path = "conformance/requests.rs"]
mod requests;
#[path = "conformance/responses.rs"]
mod responses;

use act::{Script, Target};
use differences::{Difference, WARNS};
use kernel::KernelQp;
use ours::OurQp;

use crate::bench::exclusively;
use crate::common::guest::{Guest, Kernel};

#[test]
fn kernel_6_1_answers_as_we_do() {
    compare(Kernel::V6_1, "conform-6-1", 23);
}

#[test]
fn kernel_6_12_answers_as_we_do() {
    compare(Kernel::V6_12, "conform-6-12", 22);
}

fn compare(kernel: Kernel, name: &str, octet: u8) {
    let Some(guest) = Guest::up_as(kernel, name, octet) else { return };
    let _link = exclusively();
    guest.enter();
    let mut theirs = KernelQp::new(&guest);
    println!("\n| script | uroce | {kernel:?} | who obeys |\n|---|---|---|---|");
    let mut wrong = Vec::new();
    for script in requests::scripts().into_iter().chain(responses::scripts()) {
        let found = [run(&script, &mut OurQp::new()), run(&script, &mut theirs)].map(|answers| answers.join(", "));
        let difference = Difference::of(script.name);
        let verdict = difference.map_or("both", |difference| difference.verdict);
        let theirs_alike = if found[0] == found[1] { "the same" } else { &found[1] };
        println!("| {} | {} | {theirs_alike} | {verdict} |", script.name, found[0]);
        let expected = match difference {
            Some(difference) => [difference.uroce, difference.kernel(kernel)].map(str::to_owned),
            None => [found[0].clone(), found[0].clone()],
        };
        if found != expected {
            wrong.push(format!("{}: {found:?}, expected {expected:?}", script.name));
        }
        let warned =
            theirs.warnings().unwrap_or_else(|error| panic!("{kernel:?} is dead after {}: {error}", script.name));
        if !warned.is_empty() && !WARNS.contains(&(kernel, script.name)) {
            wrong.push(format!("{}: {kernel:?} reported {warned}", script.name));
        }
    }
    guest.down();
    assert!(wrong.is_empty(), "{kernel:?}:\n{}", wrong.join("\n"));
}

/// Everything that a target sends and reports during a script, then the state that it ends in.
fn run(script: &Script, target: &mut dyn Target) -> Vec<String> {
    let grant = target.begin();
    let mut seen = Vec::new();
    for act in (script.acts)(&grant) {
        target.act(&act);
        seen.extend(target.sent());
    }
    seen.extend(target.end());
    seen
}
