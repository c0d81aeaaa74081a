//! Shared receive queues.

use std::ffi::c_int;

use uroce::verbs::{SharedReceiveQueue, SrqConfig};

use crate::abi::{self, srq as bits};
use crate::channel::Unacknowledged;
use crate::context::{Context, ContextHandle, Numbered, adopt, release};
use crate::cq::Cq;
use crate::edge::{Cookie, Failure, Result, errno_of, filled, given, object};
use crate::handle::{Handle, Hold, live, object as declare};
use crate::memory::pd::Pd;
use crate::xrc::Xrcd;

declare!(Srq: abi::Srq as abi::Srq, Shared, "shared receive queue");

/// Our part of a shared receive queue.
pub(crate) struct Shared {
    pub(crate) srq: SharedReceiveQueue,
    pub(crate) events: Unacknowledged,
    is_xrc: bool,
    context: ContextHandle,
    _holds: Vec<Hold>,
}

pub(crate) extern "C" fn ibv_create_srq(pd: *mut abi::Pd, attributes: *mut abi::SrqInitAttr) -> *mut abi::Srq {
    object("ibv_create_srq", || {
        // SAFETY: attributes of the program's, which gets the granted size back in them.
        let attributes = unsafe { attributes.as_mut() }.ok_or_else(|| Failure::invalid("no attributes"))?;
        // SAFETY: a domain of the program's, as the verb requires.
        let domain = unsafe { live::<Pd>(pd) }?;
        create_basic(pd, domain, attributes.srq_context, &mut attributes.attr)
    })
}

pub(crate) extern "C" fn create_srq_ex(
    context: *mut abi::Context,
    attributes: *mut abi::SrqInitAttrEx,
) -> *mut abi::Srq {
    object("ibv_create_srq_ex", || {
        // SAFETY: a context of the program's, as the verb requires.
        let context = unsafe { live::<Context>(context) }?;
        // SAFETY: attributes of the program's, which gets the granted size back in them.
        let attributes = unsafe { attributes.as_mut() }.ok_or_else(|| Failure::invalid("no attributes"))?;
        let mask = attributes.comp_mask;
        if mask & bits::INIT_PD == 0 {
            return Err(Failure::invalid("a shared receive queue needs a protection domain"));
        }
        // SAFETY: a domain of the program's, as the verb requires.
        let domain = unsafe { live::<Pd>(attributes.pd) }?;
        let kind = if mask & bits::INIT_TYPE == 0 { bits::BASIC } else { attributes.srq_type };
        match kind {
            bits::BASIC => create_basic(attributes.pd, domain, attributes.srq_context, &mut attributes.attr),
            bits::XRC if mask & (bits::INIT_XRCD | bits::INIT_CQ) == bits::INIT_XRCD | bits::INIT_CQ => {
                // SAFETY: a domain of the program's, as the verb requires.
                let xrcd = unsafe { live::<Xrcd>(attributes.xrcd) }?;
                // SAFETY: a queue of the program's, as the verb requires.
                let cq = unsafe { live::<Cq>(attributes.cq) }?;
                let config = config(&attributes.attr);
                let srq = domain.inner().pd.create_xrc_srq(&config, &xrcd.inner().domain, &cq.inner().queue)?;
                let holds = vec![domain.hold(), xrcd.hold(), cq.hold()];
                let made = Made { srq, is_xrc: true, holds };
                adopt_srq(context, attributes.pd, attributes.srq_context, &mut attributes.attr, made)
            }
            bits::XRC => Err(Failure::invalid("an XRC queue needs an XRC domain and a completion queue")),
            _ => Err(Failure::unsupported(format!("shared receive queues of type {kind}"))),
        }
    })
}

fn create_basic(
    pd: *mut abi::Pd,
    domain: &'static Handle<Pd>,
    cookie: Cookie,
    attributes: &mut abi::SrqAttr,
) -> Result<*mut abi::Srq> {
    let srq = domain.inner().pd.create_srq(&config(attributes))?;
    let made = Made { srq, is_xrc: false, holds: vec![domain.hold()] };
    adopt_srq(domain.inner().context, pd, cookie, attributes, made)
}

/// A new queue and what it stands on.
struct Made {
    srq: SharedReceiveQueue,
    is_xrc: bool,
    holds: Vec<Hold>,
}

fn adopt_srq(
    context: ContextHandle,
    pd: *mut abi::Pd,
    cookie: Cookie,
    attributes: &mut abi::SrqAttr,
    made: Made,
) -> Result<*mut abi::Srq> {
    let info = made.srq.query()?;
    (attributes.max_wr, attributes.max_sge) = (info.max_wr, info.max_sge);
    let number = made.srq.number().value();
    let shape = abi::Srq {
        context: context.seen(),
        srq_context: cookie,
        pd,
        handle: context.inner().next_handle(),
        mutex: [0; 5],
        cond: [0; 6],
        events_completed: 0,
    };
    let Made { srq, is_xrc, holds } = made;
    let inner = Shared { srq, events: Unacknowledged::default(), is_xrc, context, _holds: holds };
    let pointer = adopt::<Srq>(context, shape, inner);
    context.inner().name(Numbered::Srq, number, pointer);
    Ok(pointer)
}

fn config(attributes: &abi::SrqAttr) -> SrqConfig {
    SrqConfig { max_wr: attributes.max_wr, max_sge: attributes.max_sge }
}

pub(crate) extern "C" fn ibv_modify_srq(srq: *mut abi::Srq, attributes: *mut abi::SrqAttr, mask: c_int) -> c_int {
    errno_of("ibv_modify_srq", || {
        // SAFETY: a queue of the program's, as the verb requires.
        let srq = &unsafe { live::<Srq>(srq) }?.inner().srq;
        // SAFETY: attributes of the program's.
        let attributes = unsafe { given("the attributes", attributes) }?;
        if mask & !(bits::MAX_WR | bits::LIMIT) != 0 {
            return Err(Failure::invalid(format!("attr_mask {mask:#x}")));
        }
        if mask & bits::MAX_WR != 0 {
            srq.resize(attributes.max_wr)?;
        }
        if mask & bits::LIMIT != 0 {
            srq.arm_limit(attributes.srq_limit)?;
        }
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_query_srq(srq: *mut abi::Srq, place: *mut abi::SrqAttr) -> c_int {
    filled("ibv_query_srq", place, || {
        // SAFETY: a queue of the program's, as the verb requires.
        let info = unsafe { live::<Srq>(srq) }?.inner().srq.query()?;
        Ok(abi::SrqAttr { max_wr: info.max_wr, max_sge: info.max_sge, srq_limit: info.limit })
    })
}

/// The number that peers of an XRC domain send to; other queues have none.
pub(crate) extern "C" fn get_srq_num(srq: *mut abi::Srq, place: *mut u32) -> c_int {
    filled("ibv_get_srq_num", place, || {
        // SAFETY: a queue of the program's, as the verb requires.
        let shared = unsafe { live::<Srq>(srq) }?.inner();
        if !shared.is_xrc {
            return Err(Failure::unsupported("the number of a queue that is not of an XRC domain"));
        }
        Ok(shared.srq.number().value())
    })
}

/// Waits until the program has acknowledged every event of the queue.
pub(crate) extern "C" fn ibv_destroy_srq(srq: *mut abi::Srq) -> c_int {
    errno_of("ibv_destroy_srq", || {
        // SAFETY: a queue of the program's, as the verb requires.
        let handle = unsafe { live::<Srq>(srq) }?;
        handle.check_unused()?;
        handle.inner().events.settle();
        let context = handle.inner().context;
        let inner = release(context, handle)?;
        context.inner().unname(Numbered::Srq, inner.srq.number().value());
        Ok(())
    })
}
