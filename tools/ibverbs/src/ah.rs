//! Address handles: where datagrams go.

use std::ffi::c_int;

use uroce::verbs::{AddressHandle, Completion, Grh, Qpn};

use crate::abi::{self, wc_flags};
use crate::context::{Context, ContextHandle, adopt, check_port, release};
use crate::edge::{Failure, Result, errno_of, filled, given, object};
use crate::handle::{Handle, Hold, live, object as declare};
use crate::memory::pd::Pd;
use crate::qp::attributes::{address_attributes, address_vector};

declare!(Ah: abi::Ah as abi::Ah, Address, "address handle");

/// What a device says that it can have: each is a value, so memory is the limit.
pub(crate) const MAX_AH: c_int = 1 << 20;

/// Our part of an address handle.
pub(crate) struct Address {
    pub(crate) handle: AddressHandle,
    context: ContextHandle,
    _pd: Hold,
}

pub(crate) extern "C" fn ibv_create_ah(pd: *mut abi::Pd, attributes: *mut abi::AhAttr) -> *mut abi::Ah {
    object("ibv_create_ah", || {
        // SAFETY: a domain of the program's, as the verb requires.
        let domain = unsafe { live::<Pd>(pd) }?;
        // SAFETY: attributes of the program's.
        let attributes = unsafe { given("the attributes", attributes) }?;
        let handle = domain.inner().pd.create_ah(&address_vector(attributes)?)?;
        Ok(adopt_ah(pd, domain, handle))
    })
}

fn adopt_ah(pd: *mut abi::Pd, domain: &'static Handle<Pd>, handle: AddressHandle) -> *mut abi::Ah {
    let context = domain.inner().context;
    let shape = abi::Ah { context: context.seen(), pd, handle: context.inner().next_handle() };
    adopt::<Ah>(context, shape, Address { handle, context, _pd: domain.hold() })
}

pub(crate) extern "C" fn ibv_destroy_ah(ah: *mut abi::Ah) -> c_int {
    errno_of("ibv_destroy_ah", || {
        // SAFETY: an address handle of the program's, as the verb requires.
        let handle = unsafe { live::<Ah>(ah) }?;
        release(handle.inner().context, handle).map(drop)
    })
}

/// The way back to the sender of a datagram, as attributes.
pub(crate) extern "C" fn ibv_init_ah_from_wc(
    context: *mut abi::Context,
    port: u8,
    completion: *mut abi::Wc,
    grh: *mut abi::Grh,
    place: *mut abi::AhAttr,
) -> c_int {
    let errno = filled("ibv_init_ah_from_wc", place, || {
        // SAFETY: a context of the program's, as the verb requires.
        let verbs = &unsafe { live::<Context>(context) }?.inner().verbs;
        let handle = way_back(&verbs.alloc_pd(), port, completion, grh)?;
        Ok(address_attributes(&handle.vector()))
    });
    if errno == 0 { 0 } else { -1 }
}

/// The way back to the sender of a datagram.
pub(crate) extern "C" fn ibv_create_ah_from_wc(
    pd: *mut abi::Pd,
    completion: *mut abi::Wc,
    grh: *mut abi::Grh,
    port: u8,
) -> *mut abi::Ah {
    object("ibv_create_ah_from_wc", || {
        // SAFETY: a domain of the program's, as the verb requires.
        let domain = unsafe { live::<Pd>(pd) }?;
        let handle = way_back(&domain.inner().pd, port, completion, grh)?;
        Ok(adopt_ah(pd, domain, handle))
    })
}

fn way_back(
    pd: &uroce::verbs::ProtectionDomain,
    port: u8,
    completion: *const abi::Wc,
    grh: *const abi::Grh,
) -> Result<AddressHandle> {
    check_port(u32::from(port))?;
    // SAFETY: a completion of the program's.
    let completion = unsafe { given("the completion", completion) }?;
    if completion.wc_flags & wc_flags::GRH == 0 {
        return Err(Failure::invalid("the completion is not one of a datagram"));
    }
    // SAFETY: 40 bytes of the program's; any bytes will do.
    let header = unsafe { given("the GRH", grh.cast::<[u8; 40]>()) }?;
    let grh = Grh::parse(header).map(|grh| grh.kind());
    let completion = Completion { grh, source_qpn: Qpn::new(completion.src_qp), ..Completion::default() };
    Ok(pd.create_ah_from_completion(&completion, header)?)
}
