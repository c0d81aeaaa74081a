//! The C library's functions that take a path.
//!
//! `open(2)` and its kin are variadic: the mode is there only with some flags. Here it is a parameter, which on this
//! architecture is passed the same way; when the caller gave none it is a register's content, which the C library then
//! ignores in turn.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::Redirected;

/// The function of this name that comes after ours: the C library's, or another preloaded library's.
fn next(cache: &AtomicPtr<c_void>, name: &'static [u8]) -> Option<*mut c_void> {
    let mut function = cache.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: `name` ends with a zero.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
        cache.store(function, Ordering::Relaxed);
    }
    (!function.is_null()).then_some(function)
}

/// What a function returns that the C library does not have.
trait Missing {
    const VALUE: Self;
}

impl Missing for c_int {
    const VALUE: Self = -1;
}

impl Missing for isize {
    const VALUE: Self = -1;
}

impl<T> Missing for *mut T {
    const VALUE: Self = std::ptr::null_mut();
}

/// Defines functions that redirect their parameter `path`, and call the next one of their name.
macro_rules! redirect {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*) -> $result:ty;)*) => {
        $(
            /// # Safety
            /// That of the C library's function of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                $($before: $before_type,)*
                path: *const c_char
                $(, $after: $after_type)*
            ) -> $result {
                type Next = unsafe extern "C" fn($($before_type,)* *const c_char $(, $after_type)*) -> $result;
                static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                let Some(next) = next(&CACHE, concat!(stringify!($name), "\0").as_bytes()) else {
                    // SAFETY: the C library's errno of this thread, always there.
                    unsafe { *libc::__errno_location() = libc::ENOSYS };
                    return <$result as Missing>::VALUE;
                };
                // SAFETY: the function of this name has this type.
                let next = unsafe { std::mem::transmute::<*mut c_void, Next>(next) };
                // SAFETY: the caller hands in a path, as the function's contract says.
                let path = unsafe { Redirected::new(path) };
                // SAFETY: the caller keeps the contract of the function; our path is a string as well.
                unsafe { next($($before,)* path.as_ptr() $(, $after)*) }
            }
        )*
    };
}

redirect! {
    fn open(@path, flags: c_int, mode: c_uint) -> c_int;
    fn open64(@path, flags: c_int, mode: c_uint) -> c_int;
    fn openat(directory: c_int, @path, flags: c_int, mode: c_uint) -> c_int;
    fn openat64(directory: c_int, @path, flags: c_int, mode: c_uint) -> c_int;
    fn __open_2(@path, flags: c_int) -> c_int;
    fn __open64_2(@path, flags: c_int) -> c_int;
    fn __openat_2(directory: c_int, @path, flags: c_int) -> c_int;
    fn __openat64_2(directory: c_int, @path, flags: c_int) -> c_int;
    fn fopen(@path, mode: *const c_char) -> *mut c_void;
    fn fopen64(@path, mode: *const c_char) -> *mut c_void;
    fn freopen(@path, mode: *const c_char, stream: *mut c_void) -> *mut c_void;
    fn freopen64(@path, mode: *const c_char, stream: *mut c_void) -> *mut c_void;
    fn access(@path, mode: c_int) -> c_int;
    fn eaccess(@path, mode: c_int) -> c_int;
    fn euidaccess(@path, mode: c_int) -> c_int;
    fn faccessat(directory: c_int, @path, mode: c_int, flags: c_int) -> c_int;
    fn stat(@path, place: *mut c_void) -> c_int;
    fn stat64(@path, place: *mut c_void) -> c_int;
    fn lstat(@path, place: *mut c_void) -> c_int;
    fn lstat64(@path, place: *mut c_void) -> c_int;
    fn fstatat(directory: c_int, @path, place: *mut c_void, flags: c_int) -> c_int;
    fn fstatat64(directory: c_int, @path, place: *mut c_void, flags: c_int) -> c_int;
    fn statx(directory: c_int, @path, flags: c_int, mask: c_uint, place: *mut c_void) -> c_int;
    fn __xstat(version: c_int, @path, place: *mut c_void) -> c_int;
    fn __xstat64(version: c_int, @path, place: *mut c_void) -> c_int;
    fn __lxstat(version: c_int, @path, place: *mut c_void) -> c_int;
    fn __lxstat64(version: c_int, @path, place: *mut c_void) -> c_int;
    fn __fxstatat(version: c_int, directory: c_int, @path, place: *mut c_void, flags: c_int) -> c_int;
    fn __fxstatat64(version: c_int, directory: c_int, @path, place: *mut c_void, flags: c_int) -> c_int;
    fn readlink(@path, place: *mut c_char, room: usize) -> isize;
    fn readlinkat(directory: c_int, @path, place: *mut c_char, room: usize) -> isize;
    fn __readlink_chk(@path, place: *mut c_char, room: usize, known: usize) -> isize;
    fn __readlinkat_chk(directory: c_int, @path, place: *mut c_char, room: usize, known: usize) -> isize;
    fn realpath(@path, place: *mut c_char) -> *mut c_char;
    fn __realpath_chk(@path, place: *mut c_char, known: usize) -> *mut c_char;
    fn canonicalize_file_name(@path) -> *mut c_char;
    fn opendir(@path) -> *mut c_void;
    fn scandir(@path, list: *mut c_void, select: *const c_void, compare: *const c_void) -> c_int;
    fn scandir64(@path, list: *mut c_void, select: *const c_void, compare: *const c_void) -> c_int;
}
