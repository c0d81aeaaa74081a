//! What the library says on standard error.

use super::launch::{Launch, installed};

/// A server ignores SIGPIPE, and its standard error is a pipe that nobody reads any more: the library's trace panicked there, which
/// at the edge to C ended the program.
#[test]
fn a_trace_that_nobody_reads_ends_no_program() {
    if !installed(&["ibv_devices"]) {
        return;
    }
    // 3 is the pipe, written to until its reader is gone; 4 is what the test reads.
    let traced =
        "while echo >&3; do :; done 2>/dev/null; UROCE_TRACE=1 ibv_devices 2>&3 >&4; echo \"ended with $?\" >&4";
    let script = format!("{{ {{ trap '' PIPE; {traced}; }} 3>&1 4>&2 | :; }} 2>&1");
    let said = Launch::new("uroce_lo", &["sh", "-c", &script]).run();
    said.assert_says("uroce_lo");
    said.assert_says("ended with 0");
}
