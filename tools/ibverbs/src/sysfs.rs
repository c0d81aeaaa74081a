//! What the C library offers of sysfs, for old programs and for `ibv_devinfo`. Under `uroce run` these paths lead to files that
//! describe our devices.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::abi;
use crate::edge::{Failure, Result, number};

pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads `directory/file` without the newline at its end; returns its length, or -1.
pub(crate) extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    place: *mut c_char,
    room: usize,
) -> c_int {
    number("ibv_read_sysfs_file", || read(path(directory)?, path(file)?, place, room))
}

/// As above, of a device. The name is a `printf` format in the C library; here it is a name without a directive.
pub(crate) extern "C" fn ibv_read_ibdev_sysfs_file(
    place: *mut c_char,
    room: usize,
    device: *mut abi::Device,
    file: *const c_char,
) -> c_int {
    number("ibv_read_ibdev_sysfs_file", || {
        let directory = format!("/sys/class/infiniband/{}", crate::device::name(device)?);
        read(Path::new(&directory), path(file)?, place, room)
    })
}

fn read(directory: &Path, file: &Path, place: *mut c_char, room: usize) -> Result<c_int> {
    if place.is_null() || room == 0 {
        return Err(Failure::invalid("no room for the text"));
    }
    let path = directory.join(file);
    let text = fs::read(&path).map_err(|error| {
        Failure::new(error.raw_os_error().unwrap_or(libc::EIO), format!("{}: {error}", path.display()))
    })?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    let length = text.len().min(room - 1);
    // SAFETY: the program has room for `room` bytes, and the text and its end take no more.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, length);
        place.add(length).write(0);
    }
    Ok(c_int::try_from(length).unwrap_or(c_int::MAX))
}

fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    if text.is_null() {
        return Err(Failure::invalid("a path is a null pointer"));
    }
    // SAFETY: a string of the program's.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes())))
}
