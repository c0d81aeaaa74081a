//! Copies that survive memory which is not there: a page that the program unmapped after it registered it, the end of a
//! file that became shorter.
//!
//! A device answers such an access with an error; a processor sends SIGSEGV or SIGBUS. So bytes of registered memory are
//! moved by few instructions of known addresses, and [`watch`] installs a handler that has those end with an error. Every
//! other fault goes to the handler that was there before, under the signal mask and on the stack which that one asked for.
//! Without the handler nothing changes: the program ends, as its promise about the memory has it.
//!
//! What is left to the program: a handler that it installs later takes the place of this one until [`watch`] is called again
//! (whenever memory is registered), unless it hands on what it does not know, as it should; and a thread in which SIGSEGV is
//! blocked cannot be saved.
#![allow(unsafe_code)]

use std::io;

/// The memory of an access is not mapped, or not that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault;

/// Copies `length` bytes; on a fault those before it may have been copied.
///
/// # Safety
/// Both sides must be valid for as many bytes, or not be mapped while [`watch`] has a handler there; they must not overlap.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) -> Result<(), Fault> {
    // SAFETY: the caller makes the same promise.
    check(unsafe { moves::copy(from, to, length) })
}

/// Adds to the eight bytes at `cell` in one step; returns what was there.
///
/// # Safety
/// `cell` must be aligned, and valid as in [`copy`].
pub(super) unsafe fn fetch_and_add(cell: *mut u64, add: u64) -> Result<u64, Fault> {
    let mut before = 0;
    // SAFETY: the caller makes the same promise.
    check(unsafe { moves::fetch_and_add(cell, add, &raw mut before) })?;
    Ok(before)
}

/// Replaces the eight bytes at `cell` by `swap` in one step when they equal `compare`; returns what was there.
///
/// # Safety
/// That of [`fetch_and_add`].
pub(super) unsafe fn compare_and_swap(cell: *mut u64, compare: u64, swap: u64) -> Result<u64, Fault> {
    let mut before = compare;
    // SAFETY: the caller makes the same promise.
    check(unsafe { moves::compare_and_swap(cell, &raw mut before, swap) })?;
    Ok(before)
}

/// Replaces the eight bytes at `cell` in one step.
///
/// # Safety
/// That of [`fetch_and_add`].
pub(super) unsafe fn store(cell: *mut u64, value: u64) -> Result<(), Fault> {
    // SAFETY: the caller makes the same promise.
    check(unsafe { moves::store(cell, value) })
}

#[inline]
fn check(faulted: u32) -> Result<(), Fault> {
    if faulted == 0 { Ok(()) } else { Err(Fault) }
}

/// Has faults of the functions above end as errors, from now on and in all threads of the process; looks whether that is
/// still so when it was asked for before.
///
/// # Errors
/// What `sigaction(2)` says; [`io::ErrorKind::Unsupported`] on processors other than x86_64.
pub(crate) fn watch() -> io::Result<()> {
    moves::watch()
}

#[cfg(all(target_arch = "x86_64", not(miri), not(fuzzing)))]
#[path = "guard/x86_64.rs"]
mod moves;

/// The same without a way back from a fault: for other processors, and for tools that look at each access themselves.
#[cfg(not(all(target_arch = "x86_64", not(miri), not(fuzzing))))]
mod moves {
    use std::io;
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// # Safety
    /// That of [`copy`](super::copy).
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) -> u32 {
        // SAFETY: the caller makes the same promise.
        unsafe { ptr::copy_nonoverlapping(from, to, length) };
        0
    }

    /// # Safety
    /// That of [`fetch_and_add`](super::fetch_and_add); `before` must be writable.
    pub(super) unsafe fn fetch_and_add(cell: *mut u64, add: u64, before: *mut u64) -> u32 {
        // SAFETY: the caller makes the same promise.
        unsafe { *before = AtomicU64::from_ptr(cell).fetch_add(add, Ordering::SeqCst) };
        0
    }

    /// # Safety
    /// That of [`fetch_and_add`](super::fetch_and_add); `before` must be readable and writable.
    pub(super) unsafe fn compare_and_swap(cell: *mut u64, before: *mut u64, swap: u64) -> u32 {
        // SAFETY: the caller makes the same promise.
        let (cell, compare) = unsafe { (AtomicU64::from_ptr(cell), *before) };
        let (Ok(found) | Err(found)) = cell.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { *before = found };
        0
    }

    /// # Safety
    /// That of [`fetch_and_add`](super::fetch_and_add).
    pub(super) unsafe fn store(cell: *mut u64, value: u64) -> u32 {
        // SAFETY: the caller makes the same promise.
        unsafe { AtomicU64::from_ptr(cell) }.store(value, Ordering::SeqCst);
        0
    }

    pub(super) fn watch() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests;
