//! GIDs: the addresses of the device's interface.

use std::ffi::c_int;

use uroce::verbs;

use crate::abi;
use crate::context::{Context, check_port};
use crate::edge::{Failure, Result, errno_of, filled, number, store_part};
use crate::handle::live;

/// Places in the table of GIDs (`gid_tbl_len`): what an index of eight bits reaches, as in `ibv_ah_attr`. Most are empty. It does not
/// change when addresses come, so programs may look at it once, as they do with the kernel's devices.
pub(crate) const TABLE_LENGTH: u32 = 1 << 8;

pub(crate) extern "C" fn ibv_query_gid(
    context: *mut abi::Context,
    port: u8,
    index: c_int,
    place: *mut abi::Gid,
) -> c_int {
    let errno = filled("ibv_query_gid", place, || {
        // SAFETY: a context of the program's, as the verb requires.
        let verbs = &unsafe { live::<Context>(context) }?.inner().verbs;
        check_port(u32::from(port))?;
        let short = u8::try_from(index).map_err(|_| beyond(index))?;
        // A place without an address reads as zero.
        Ok(verbs.gid(short).map_or([0; 16], |gid| gid.0))
    });
    if errno == 0 { 0 } else { -1 }
}

/// The type as sysfs has it; the header of this function is private.
pub(crate) extern "C" fn ibv_query_gid_type(
    context: *mut abi::Context,
    port: u8,
    index: u32,
    place: *mut u32,
) -> c_int {
    let errno = filled("ibv_query_gid_type", place, || {
        // SAFETY: a context of the program's, as the verb requires.
        let verbs = &unsafe { live::<Context>(context) }?.inner().verbs;
        check_port(u32::from(port))?;
        entry(verbs, index).map(|_| abi::GID_TYPE_SYSFS_ROCE_V2)
    });
    if errno == 0 { 0 } else { -1 }
}

/// `ibv_query_gid_ex(3)`, as its inline function calls it.
pub(crate) extern "C" fn query_gid_ex(
    context: *mut abi::Context,
    port: u32,
    index: u32,
    place: *mut abi::GidEntry,
    flags: u32,
    room: usize,
) -> c_int {
    errno_of("ibv_query_gid_ex", || {
        // SAFETY: a context of the program's, as the verb requires.
        let verbs = &unsafe { live::<Context>(context) }?.inner().verbs;
        check_port(port)?;
        check_flags(flags)?;
        // SAFETY: the program says how much room there is.
        unsafe { store_part(place, room, &entry(verbs, index)?) }
    })
}

/// `ibv_query_gid_table(3)`, as its inline function calls it: returns the number of entries, or a negative errno.
pub(crate) extern "C" fn query_gid_table(
    context: *mut abi::Context,
    places: *mut abi::GidEntry,
    count: usize,
    flags: u32,
    room: usize,
) -> isize {
    let mut failure = 0;
    let written = number("ibv_query_gid_table", || {
        let fill = || {
            // SAFETY: a context of the program's, as the verb requires.
            let verbs = &unsafe { live::<Context>(context) }?.inner().verbs;
            check_flags(flags)?;
            let entries: Vec<_> = (0..TABLE_LENGTH).filter_map(|index| entry(verbs, index).ok()).collect();
            if entries.len() > count {
                return Err(Failure::invalid(format!("room for {count} entries; there are {}", entries.len())));
            }
            for (place, entry) in entries.iter().enumerate() {
                // SAFETY: there is room for `count` elements of `room` bytes.
                unsafe { store_part(places.wrapping_byte_add(place.wrapping_mul(room)), room, entry)? };
            }
            Ok(c_int::try_from(entries.len()).unwrap_or(c_int::MAX))
        };
        fill().inspect_err(|error| failure = error.errno)
    });
    if failure == 0 { written as isize } else { -(failure as isize) }
}

/// The kernel finds the way to a peer, not we.
pub(crate) extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut abi::Context,
    _attributes: *mut abi::AhAttr,
    _mac: *mut u8,
    _vlan: *mut u16,
) -> c_int {
    errno_of("ibv_resolve_eth_l2_from_gid", || Err(Failure::unsupported("the kernel resolves Ethernet addresses")))
}

/// The entry at `index`; ENODATA where the table has none, EINVAL beyond it, as the kernel says (`rdma_get_gid_attr`).
fn entry(verbs: &verbs::Context, index: u32) -> Result<abi::GidEntry> {
    let short = u8::try_from(index).map_err(|_| beyond(index))?;
    let gid = verbs.gid(short).map_err(|error| Failure::new(libc::ENODATA, error.to_string()))?;
    Ok(abi::GidEntry {
        gid: gid.0,
        gid_index: index,
        port_num: 1,
        gid_type: abi::GID_TYPE_ROCE_V2,
        ndev_ifindex: verbs.device().interface_index,
    })
}

fn beyond(index: impl std::fmt::Display) -> Failure {
    Failure::invalid(format!("gid index {index}; the table has {TABLE_LENGTH} places, from 0"))
}

fn check_flags(flags: u32) -> Result<()> {
    if flags == 0 { Ok(()) } else { Err(Failure::invalid(format!("flags {flags:#x}; none is known"))) }
}
