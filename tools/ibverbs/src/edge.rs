//! The edge to C: results become errnos, and no panic leaves.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::environment;

/// Why a verb failed: a number of `<errno.h>`, and for `UROCE_TRACE` the reason in words.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    reason: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, reason: impl Into<String>) -> Self {
        Self { errno, reason: reason.into() }
    }

    /// An argument that makes no sense.
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, reason)
    }

    /// Something that uroce does not have.
    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        Self::new(libc::EOPNOTSUPP, reason)
    }
}

impl From<uroce::verbs::Error> for Failure {
    fn from(error: uroce::verbs::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, std::io::Error::from_raw_os_error(self.errno))
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A verb that returns 0 or an errno, as most do.
pub(crate) fn errno_of(verb: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    match run(verb, body) {
        Ok(()) => 0,
        Err(errno) => set_errno(errno),
    }
}

/// A verb that returns 0, or -1 with errno set.
pub(crate) fn minus_one(verb: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    number(verb, || body().map(|()| 0))
}

/// A verb that returns a number, or -1 with errno set.
pub(crate) fn number(verb: &str, body: impl FnOnce() -> Result<c_int>) -> c_int {
    run(verb, body).unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

/// A verb that returns an object, or a null pointer with errno set.
pub(crate) fn object<T>(verb: &str, body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    run(verb, body).unwrap_or_else(|errno| {
        set_errno(errno);
        ptr::null_mut()
    })
}

/// A verb that fills `place` in.
pub(crate) fn filled<T>(verb: &str, place: *mut T, body: impl FnOnce() -> Result<T>) -> c_int {
    errno_of(verb, || {
        let value = body()?;
        // SAFETY: that it is a place for a `T` is the verb's contract.
        unsafe { store(place, value) }
    })
}

/// A verb of the data path: not traced, and `fallback` when it panics, which is a bug of ours.
pub(crate) fn quick<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

fn run<T>(verb: &str, body: impl FnOnce() -> Result<T>) -> std::result::Result<T, c_int> {
    // What is behind the edge keeps its own locks usable after a panic.
    let result = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Failure::new(libc::EIO, "a bug of uroce: it panicked")));
    if environment::traces() {
        match &result {
            Ok(_) => say(format_args!("{verb}")),
            Err(failure) => say(format_args!("{verb}: {failure}")),
        }
    }
    result.map_err(|failure| failure.errno)
}

/// Writes a line to standard error, in one piece, as processes may share it. Where nobody reads any more, the line is lost:
/// `eprintln` would panic, and a panic at the edge ends the program.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("uroce: {line}\n").as_bytes());
}

/// Sets errno, and returns it.
pub(crate) fn set_errno(errno: c_int) -> c_int {
    // SAFETY: the C library's errno of this thread, always there.
    unsafe { *libc::__errno_location() = errno };
    errno
}

/// A structure that a program hands in.
///
/// # Safety
/// `pointer` must be null or point to a `T` that nobody changes meanwhile.
pub(crate) unsafe fn given<'a, T>(what: &str, pointer: *const T) -> Result<&'a T> {
    // SAFETY: the caller makes the same promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("{what} is a null pointer")))
}

/// Writes a structure that a program has room for.
///
/// # Safety
/// `place` must be null or a place for a `T`.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(Failure::invalid("no place for the result: a null pointer"));
    }
    // SAFETY: the caller promises that a `T` fits there.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes as much of a structure that has grown over the years as the program has room for.
///
/// # Safety
/// `place` must be null or have room for `room` bytes.
pub(crate) unsafe fn store_part<T: Copy>(place: *mut T, room: usize, value: &T) -> Result<()> {
    /// No structure grows so far.
    const LARGEST: usize = 64 * 1024;
    if place.is_null() || room > LARGEST {
        return Err(Failure::invalid(format!("{room} bytes at {place:p} for the result: no structure is there")));
    }
    let known = room.min(size_of::<T>());
    // SAFETY: `known` bytes fit on both sides; `value` is plain data.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), place.cast::<u8>(), known) };
    // SAFETY: what is left of the room, for what a newer program knows and we do not.
    unsafe { ptr::write_bytes(place.cast::<u8>().add(known), 0, room - known) };
    Ok(())
}

/// A list that a program hands in as pointer and count.
///
/// # Safety
/// `pointer` must be null or point to `count` elements that nobody changes meanwhile.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, count: usize, limit: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || count > limit {
        return Err(Failure::invalid(format!(
            "a list of {count} at {pointer:p}; at most {limit} elements are possible"
        )));
    }
    // SAFETY: the caller makes the same promise; the length is bounded.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// The program's word for a pointer of its own, which is only handed back.
pub(crate) type Cookie = *mut c_void;
