//! Multicast groups.

use std::ffi::c_int;

use uroce::verbs::Gid;

use crate::abi;
use crate::edge::{errno_of, given};
use crate::handle::live;
use crate::qp::Qp;

pub(crate) extern "C" fn ibv_attach_mcast(qp: *mut abi::Qp, group: *const abi::Gid, _lid: u16) -> c_int {
    errno_of("ibv_attach_mcast", || {
        // SAFETY: a queue pair of the program's, as the verb requires.
        let pair = unsafe { live::<Qp>(qp) }?.inner();
        // SAFETY: a GID of the program's.
        Ok(pair.qp.attach_multicast(Gid(*unsafe { given("the group", group) }?))?)
    })
}

pub(crate) extern "C" fn ibv_detach_mcast(qp: *mut abi::Qp, group: *const abi::Gid, _lid: u16) -> c_int {
    errno_of("ibv_detach_mcast", || {
        // SAFETY: a queue pair of the program's, as the verb requires.
        let pair = unsafe { live::<Qp>(qp) }?.inner();
        // SAFETY: a GID of the program's.
        Ok(pair.qp.detach_multicast(Gid(*unsafe { given("the group", group) }?))?)
    })
}
