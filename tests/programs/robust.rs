//! Programs that treat the library badly, or have bad luck: what they are told, and that they live on. Each is written in C
//! against the installed headers, as any program is, and checks itself; see the file that the test names.

use std::os::unix::process::ExitStatusExt;

use super::program::{Program, built};

/// Runs a program that ends well and says so.
fn passes(name: &str, arguments: &[&str]) {
    let Some(program) = built(name) else { return };
    let output = program.run(arguments);
    assert!(output.status.success(), "{name} {arguments:?}: {}\n{}", output.status, Program::text(&output));
    assert!(output.stdout.ends_with(b": ok\n"), "{name} {arguments:?}: {}", Program::text(&output));
}

/// Memory that the program unmapped, a file that became shorter: errors for who comes there. Faults of the program's own end it as
/// they would without the library, which is the end of this one.
#[test]
fn memory_that_is_gone_is_an_error_and_no_fault() {
    let Some(program) = built("unmapped") else { return };
    let output = program.run(&[]);
    assert_eq!(output.stdout, b"unmapped: ok\n", "{}: {}", output.status, Program::text(&output));
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", output.status);
}

#[test]
fn nonsense_is_refused() {
    passes("nonsense", &[]);
}

#[test]
fn a_child_has_nothing_of_its_parent() {
    passes("process", &["fork"]);
}

#[test]
fn a_program_that_is_replaced_leaves_nothing_behind() {
    passes("process", &["exec"]);
}

#[test]
fn a_signal_ends_a_wait_as_it_ends_a_read() {
    passes("process", &["signal"]);
}

/// The acknowledge of a program's last message waited for company, and the program ended: its peer tried again in vain.
#[test]
fn a_program_that_ends_owes_nothing() {
    passes("process", &["exit"]);
}

#[test]
fn a_peer_that_is_killed_is_missed() {
    passes("process", &["kill"]);
}

#[test]
fn contexts_of_one_device_are_apart() {
    passes("process", &["contexts"]);
}

#[test]
fn a_library_that_is_closed_does_no_harm() {
    passes("dlopen", &[]);
}

#[test]
fn threads_may_post_poll_and_change_objects_at_once() {
    passes("threads", &[]);
}

/// The library took a window's new key for its key although the bind was refused, and the next bind failed.
#[test]
fn a_bind_that_is_refused_may_be_posted_again() {
    passes("windows", &[]);
}

/// A second domain of the same file was another domain, silently, and no message went from one to the other.
#[test]
fn an_xrc_domain_is_shared_by_its_file() {
    passes("xrcd", &[]);
}
