//! Memory regions: memory of the program's own, which its peers come for.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use uroce::verbs::{Access, MemoryRegion};

use super::access;
use super::pd::Pd;
use crate::abi::{self, advise, mr_init, rereg};
use crate::context::{ContextHandle, adopt};
use crate::edge::{Failure, Result, errno_of, given, number, object};
use crate::handle::{Handle, Hold, live, object as declare};
use crate::post::scatter_list;

declare!(Mr: abi::Mr as abi::Mr, Registered, "memory region");

/// Our part of a memory region.
pub(crate) struct Registered {
    /// `None` when it was deregistered, and while it is.
    region: Mutex<Option<MemoryRegion>>,
    context: ContextHandle,
    /// The protection domain, another one after re-registering.
    pd: Mutex<Hold>,
}

pub(crate) extern "C" fn ibv_reg_mr(pd: *mut abi::Pd, start: *mut c_void, length: usize, bits: c_int) -> *mut abi::Mr {
    object("ibv_reg_mr", || {
        // As the exported function always did: a zero-based region counts from 0.
        let iova = if bits & Access::ZERO_BASED.bits() as c_int != 0 { 0 } else { start as u64 };
        register(pd, start, length, iova, bits as u32)
    })
}

pub(crate) extern "C" fn ibv_reg_mr_iova(
    pd: *mut abi::Pd,
    start: *mut c_void,
    length: usize,
    iova: u64,
    bits: c_int,
) -> *mut abi::Mr {
    object("ibv_reg_mr_iova", || register(pd, start, length, iova, bits as u32))
}

pub(crate) extern "C" fn ibv_reg_mr_iova2(
    pd: *mut abi::Pd,
    start: *mut c_void,
    length: usize,
    iova: u64,
    bits: u32,
) -> *mut abi::Mr {
    object("ibv_reg_mr_iova2", || {
        let iova = if bits & Access::ZERO_BASED.bits() != 0 && iova == start as u64 { 0 } else { iova };
        register(pd, start, length, iova, bits)
    })
}

pub(crate) extern "C" fn ibv_reg_mr_ex(pd: *mut abi::Pd, attributes: *mut abi::MrInitAttr) -> *mut abi::Mr {
    object("ibv_reg_mr_ex", || {
        // SAFETY: attributes of the program's.
        let attributes = unsafe { given("the attributes", attributes) }?;
        if attributes.comp_mask & !(mr_init::IOVA | mr_init::ADDR) != 0 || attributes.comp_mask & mr_init::ADDR == 0 {
            let mask = attributes.comp_mask;
            return Err(Failure::unsupported(format!("comp_mask {mask:#x}: memory at an address can be registered")));
        }
        let has_iova = attributes.comp_mask & mr_init::IOVA != 0;
        let iova = if has_iova { attributes.iova } else { attributes.addr as u64 };
        register(pd, attributes.addr, attributes.length, iova, attributes.access as u32)
    })
}

/// Memory of another device, which only that device can reach.
pub(crate) extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut abi::Pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _descriptor: c_int,
    _bits: c_int,
) -> *mut abi::Mr {
    object("ibv_reg_dmabuf_mr", || Err(Failure::unsupported("a dma-buf is memory of another device")))
}

fn register(pd: *mut abi::Pd, start: *mut c_void, length: usize, iova: u64, bits: u32) -> Result<*mut abi::Mr> {
    // SAFETY: a domain of the program's, as the verb requires.
    let handle = unsafe { live::<Pd>(pd) }?;
    let access = access(bits)?;
    let domain = &handle.inner().pd;
    let region = if access.contains(Access::ON_DEMAND) && start.is_null() && length == usize::MAX {
        // SAFETY: the program answers for its address space.
        unsafe { domain.register_implicit(access) }?
    } else {
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or_else(|| Failure::invalid("the memory is at a null pointer"))?;
        populate(start, length, access)?;
        // SAFETY: the program answers for its memory until it deregisters the region, as with any device.
        unsafe { domain.register_raw(start, length, iova, access) }?
    };
    adopt_region(pd, handle, start, length, region)
}

fn adopt_region(
    pd: *mut abi::Pd,
    domain: &'static Handle<Pd>,
    start: *mut c_void,
    length: usize,
    region: MemoryRegion,
) -> Result<*mut abi::Mr> {
    let context = domain.inner().context;
    let shape = abi::Mr {
        context: context.seen(),
        pd,
        addr: start,
        length,
        handle: context.inner().next_handle(),
        lkey: region.lkey(),
        rkey: region.rkey(),
    };
    let inner = Registered { region: Mutex::new(Some(region)), context, pd: Mutex::new(domain.hold()) };
    Ok(adopt::<Mr>(context, shape, inner))
}

/// Has the pages there, as a device that pins them would: what is not mapped, or not writable, is refused now and not when
/// a peer comes for it.
fn populate(start: NonNull<u8>, length: usize, access: Access) -> Result<()> {
    if length == 0 || access.contains(Access::ON_DEMAND) {
        return Ok(());
    }
    // SAFETY: asks for a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let address = start.as_ptr() as usize;
    let first = address & !(page - 1);
    let end = address.checked_add(length).ok_or_else(|| Failure::invalid("memory beyond the address space"))?;
    let advice = if access.intersects(Access::CHANGES) { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let ask = |start: usize, length: usize| {
        // SAFETY: it touches pages as the program itself could, and changes no byte.
        let result = unsafe { libc::madvise(start as *mut c_void, length, advice) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    match ask(first, end - first).map_err(|error| error.raw_os_error()) {
        Ok(()) => Ok(()),
        // Kernels before 5.14 do not know the advice, whatever it is about.
        Err(Some(libc::EINVAL)) if ask(0, 0).is_err() => Ok(()),
        // Not mapped; not readable or writable (EINVAL); of a device.
        Err(Some(libc::ENOMEM | libc::EFAULT | libc::EPERM | libc::EACCES | libc::EINVAL)) => {
            Err(Failure::new(libc::EFAULT, format!("{length} bytes at {address:#x} are not all mapped that way")))
        }
        Err(_) => Ok(()),
    }
}

pub(crate) extern "C" fn ibv_dereg_mr(mr: *mut abi::Mr) -> c_int {
    errno_of("ibv_dereg_mr", || {
        // SAFETY: a region of the program's, as the verb requires.
        let handle = unsafe { live::<Mr>(mr) }?;
        let registered = handle.inner();
        let mut place = registered.region.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = place.take()
            && let Err((region, error)) = region.deregister()
        {
            *place = Some(region);
            return Err(error.into());
        }
        drop(place);
        crate::context::release(registered.context, handle).map(drop)
    })
}

/// Returns 0, or one of the negative codes of `enum ibv_rereg_mr_err_code`; the region is as it was then.
pub(crate) extern "C" fn ibv_rereg_mr(
    mr: *mut abi::Mr,
    flags: c_int,
    pd: *mut abi::Pd,
    start: *mut c_void,
    length: usize,
    bits: c_int,
) -> c_int {
    let result = number("ibv_rereg_mr", || {
        // SAFETY: a region of the program's, as the verb requires.
        let handle = unsafe { live::<Mr>(mr) }?;
        reregister(handle, flags, pd, start, length, bits as u32).map(|()| 0)
    });
    if result == 0 { 0 } else { rereg::ERR_INPUT }
}

fn reregister(
    handle: &'static Handle<Mr>,
    flags: c_int,
    pd: *mut abi::Pd,
    start: *mut c_void,
    length: usize,
    bits: u32,
) -> Result<()> {
    if flags == 0 || flags & !(rereg::CHANGE_TRANSLATION | rereg::CHANGE_PD | rereg::CHANGE_ACCESS) != 0 {
        return Err(Failure::invalid(format!("flags {flags:#x}")));
    }
    let domain = if flags & rereg::CHANGE_PD == 0 {
        None
    } else {
        // SAFETY: a domain of the program's, as the verb requires.
        Some(unsafe { live::<Pd>(pd) }?)
    };
    let shape = handle.shape();
    let mut place = handle.inner().region.lock().unwrap_or_else(PoisonError::into_inner);
    let region = place.as_mut().ok_or_else(|| Failure::invalid("the region is being deregistered"))?;
    let access = if flags & rereg::CHANGE_ACCESS == 0 { region.access() } else { access(bits)? };
    // SAFETY: the shape of a live region.
    let (mut place_start, mut place_length) = unsafe { ((*shape).addr, (*shape).length) };
    if flags & rereg::CHANGE_TRANSLATION != 0 {
        (place_start, place_length) = (start, length);
    }
    let memory = NonNull::new(place_start.cast::<u8>());
    let memory = memory.ok_or_else(|| Failure::invalid("the memory is at a null pointer"))?;
    populate(memory, place_length, access)?;
    let iova = match (access.contains(Access::ZERO_BASED), flags & rereg::CHANGE_TRANSLATION) {
        (true, _) => 0,
        (false, 0) => region.address(),
        (false, _) => place_start as u64,
    };
    let verbs_domain = domain.map(|domain| &domain.inner().pd);
    // SAFETY: the program answers for its memory, as when it registered it.
    unsafe { region.reregister_raw(memory, place_length, iova, access, verbs_domain) }?;
    // SAFETY: as above; the program reads these after the verb returns.
    unsafe { ((*shape).addr, (*shape).length) = (place_start, place_length) };
    if let Some(domain) = domain {
        // SAFETY: as above.
        unsafe { (*shape).pd = pd };
        *handle.inner().pd.lock().unwrap_or_else(PoisonError::into_inner) = domain.hold();
    }
    Ok(())
}

/// Prefetching brings in the pages, in any region: all of them are looked up when they are touched. It is done when this
/// returns, so the flag that asks for that makes no difference.
pub(crate) extern "C" fn advise_mr(
    pd: *mut abi::Pd,
    advice: u32,
    flags: u32,
    elements: *mut abi::Sge,
    count: u32,
) -> c_int {
    errno_of("ibv_advise_mr", || {
        // SAFETY: a domain of the program's, as the verb requires.
        let domain = unsafe { live::<Pd>(pd) }?;
        if flags & !advise::FLAG_FLUSH != 0 {
            return Err(Failure::invalid(format!("flags {flags:#x}")));
        }
        let changes = match advice {
            advise::PREFETCH | advise::PREFETCH_NO_FAULT => false,
            advise::PREFETCH_WRITE => true,
            _ => return Err(Failure::unsupported(format!("advice {advice}"))),
        };
        let list = scatter_list(elements, c_int::try_from(count).unwrap_or(-1))?;
        let result = domain.inner().pd.prefetch(&list, changes);
        // That one asks only for what is there already.
        if advice == advise::PREFETCH_NO_FAULT { Ok(()) } else { Ok(result?) }
    })
}

/// A region that swallows what is written and gives zeroes, by its local key.
pub(crate) extern "C" fn alloc_null_mr(pd: *mut abi::Pd) -> *mut abi::Mr {
    object("ibv_alloc_null_mr", || {
        // SAFETY: a domain of the program's, as the verb requires.
        let handle = unsafe { live::<Pd>(pd) }?;
        let region = handle.inner().pd.register_null()?;
        adopt_region(pd, handle, ptr::null_mut(), usize::MAX, region)
    })
}

pub(crate) extern "C" fn ibv_import_mr(_pd: *mut abi::Pd, _handle: u32) -> *mut abi::Mr {
    object("ibv_import_mr", || Err(Failure::unsupported("contexts live in the process that opened them")))
}

pub(crate) extern "C" fn ibv_unimport_mr(_mr: *mut abi::Mr) {}

/// The local key and the address of a region that a window is to be bound to.
pub(crate) fn key_of(mr: *mut abi::Mr) -> Result<u32> {
    if ptr::eq(mr, ptr::null()) {
        return Ok(0);
    }
    // SAFETY: a region of the program's, as the verbs require that come here.
    let handle = unsafe { live::<Mr>(mr) }?;
    // SAFETY: the shape of a live region.
    Ok(unsafe { (*handle.shape()).lkey })
}
