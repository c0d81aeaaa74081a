//! What a signal does to a wait for events.
//!
//! With the kernel's verbs a wait is a `read(2)`, which a signal ends with EINTR when its handler was installed without `SA_RESTART`,
//! and which goes on otherwise. Here it is a `ppoll(2)`, because the engine runs meanwhile, and that ends in either case. So the
//! handlers are looked at then: which of them ran is not told, but programs that count on being interrupted rarely have others.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

/// Whether a wait that a signal interrupted is to end: one of the program's handlers asks for that.
pub(crate) fn interrupt() -> bool {
    (1..=libc::SIGRTMAX()).any(interrupts)
}

/// Whether the signal has a handler that interrupts. Those of faults do not count: libraries install them, and nobody waits for
/// a fault.
fn interrupts(signal: c_int) -> bool {
    if [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP].contains(&signal) {
        return false;
    }
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: changes nothing; there is a place for the answer.
    if unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } != 0 {
        // One that the C library keeps to itself.
        return false;
    }
    // SAFETY: the call succeeded, and so filled it in.
    let action = unsafe { action.assume_init() };
    !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) && action.sa_flags & libc::SA_RESTART == 0
}
