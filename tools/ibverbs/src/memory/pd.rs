//! Protection domains, thread domains, and the parent domains that join the two.

use std::ffi::c_int;

use uroce::verbs::ProtectionDomain;

use crate::abi;
use crate::context::{Context, ContextHandle, adopt, release};
use crate::edge::{Failure, errno_of, given, object};
use crate::handle::{Hold, live, live_if_any, object as declare};

declare!(Pd: abi::Pd as abi::Pd, Domain, "protection domain");
declare!(Td: abi::Td as abi::Td, ContextHandle, "thread domain");

/// Our part of a protection domain.
pub(crate) struct Domain {
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: ContextHandle,
    /// A parent domain stands on the domains that it was made of.
    _parts: Vec<Hold>,
}

pub(crate) extern "C" fn ibv_alloc_pd(context: *mut abi::Context) -> *mut abi::Pd {
    object("ibv_alloc_pd", || {
        // SAFETY: a context of the program's, as the verb requires.
        let handle = unsafe { live::<Context>(context) }?;
        let pd = handle.inner().verbs.alloc_pd();
        let shape = abi::Pd { context, handle: handle.inner().next_handle() };
        Ok(adopt::<Pd>(handle, shape, Domain { pd, context: handle, _parts: Vec::new() }))
    })
}

pub(crate) extern "C" fn ibv_dealloc_pd(pd: *mut abi::Pd) -> c_int {
    errno_of("ibv_dealloc_pd", || {
        // SAFETY: a domain of the program's, as the verb requires.
        let handle = unsafe { live::<Pd>(pd) }?;
        release(handle.inner().context, handle).map(drop)
    })
}

/// A thread domain promises that one thread uses what belongs to it. Nothing here is faster for that.
pub(crate) extern "C" fn alloc_td(context: *mut abi::Context, attributes: *mut abi::TdInitAttr) -> *mut abi::Td {
    object("ibv_alloc_td", || {
        // SAFETY: a context of the program's, as the verb requires.
        let handle = unsafe { live::<Context>(context) }?;
        // SAFETY: attributes of the program's.
        if unsafe { given("the attributes", attributes) }?.comp_mask != 0 {
            return Err(Failure::unsupported("comp_mask of a thread domain: no bit is known"));
        }
        Ok(adopt::<Td>(handle, abi::Td { context }, handle))
    })
}

pub(crate) extern "C" fn dealloc_td(td: *mut abi::Td) -> c_int {
    errno_of("ibv_dealloc_td", || {
        // SAFETY: a domain of the program's, as the verb requires.
        let handle = unsafe { live::<Td>(td) }?;
        release(handle.inner(), handle).map(drop)
    })
}

/// A domain over another one: the same protection, with a thread domain and a program's allocators, which nothing is
/// allocated with.
pub(crate) extern "C" fn alloc_parent_domain(
    context: *mut abi::Context,
    attributes: *mut abi::ParentDomainInitAttr,
) -> *mut abi::Pd {
    object("ibv_alloc_parent_domain", || {
        // SAFETY: a context of the program's, as the verb requires.
        let handle = unsafe { live::<Context>(context) }?;
        // SAFETY: attributes of the program's.
        let attributes = unsafe { given("the attributes", attributes) }?;
        // Allocators (bit 0) and a word of the program's (bit 1).
        if attributes.comp_mask & !3 != 0 {
            return Err(Failure::unsupported(format!("comp_mask {:#x} of a parent domain", attributes.comp_mask)));
        }
        // SAFETY: a domain of the program's, as the verb requires.
        let below = unsafe { live::<Pd>(attributes.pd) }?;
        // SAFETY: as above, or null.
        let td = unsafe { live_if_any::<Td>(attributes.td) }?;
        let parts = [Some(below.hold()), td.map(|td| td.hold())].into_iter().flatten().collect();
        let shape = abi::Pd { context, handle: handle.inner().next_handle() };
        let inner = Domain { pd: below.inner().pd.clone(), context: handle, _parts: parts };
        Ok(adopt::<Pd>(handle, shape, inner))
    })
}

/// Domains cannot be shared: contexts cannot.
pub(crate) extern "C" fn ibv_import_pd(_context: *mut abi::Context, _handle: u32) -> *mut abi::Pd {
    object("ibv_import_pd", || Err(Failure::unsupported("contexts live in the process that opened them")))
}

pub(crate) extern "C" fn ibv_unimport_pd(_pd: *mut abi::Pd) {}
