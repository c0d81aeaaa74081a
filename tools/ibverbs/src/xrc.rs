//! XRC domains.

use std::ffi::c_int;

use uroce::verbs::XrcDomain;

use crate::abi;
use crate::context::{Context, ContextHandle, adopt, release};
use crate::edge::{Failure, errno_of, given, object};
use crate::handle::{live, object as declare};

declare!(Xrcd: abi::Xrcd as abi::Xrcd, Domain, "XRC domain");

/// Our part of an XRC domain.
pub(crate) struct Domain {
    pub(crate) domain: XrcDomain,
    context: ContextHandle,
}

/// Opens a domain. It belongs to its context: a file, by which processes find each other's, is taken and makes no difference.
pub(crate) extern "C" fn open_xrcd(context: *mut abi::Context, attributes: *mut abi::XrcdInitAttr) -> *mut abi::Xrcd {
    object("ibv_open_xrcd", || {
        // SAFETY: a context of the program's, as the verb requires.
        let handle = unsafe { live::<Context>(context) }?;
        // SAFETY: attributes of the program's.
        let attributes = unsafe { given("the attributes", attributes) }?;
        // A file (bit 0) and how to open it (bit 1), both always.
        if attributes.comp_mask != 3 {
            return Err(Failure::invalid(format!("comp_mask {:#x} of an XRC domain", attributes.comp_mask)));
        }
        let domain = handle.inner().verbs.open_xrc_domain()?;
        Ok(adopt::<Xrcd>(handle, abi::Xrcd { context }, Domain { domain, context: handle }))
    })
}

pub(crate) extern "C" fn close_xrcd(xrcd: *mut abi::Xrcd) -> c_int {
    errno_of("ibv_close_xrcd", || {
        // SAFETY: a domain of the program's, as the verb requires.
        let handle = unsafe { live::<Xrcd>(xrcd) }?;
        release(handle.inner().context, handle).map(drop)
    })
}
