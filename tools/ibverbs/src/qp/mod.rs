//! Queue pairs.

pub(crate) mod attributes;
pub(crate) mod extended;

use std::ffi::c_int;
use std::sync::Mutex;

use uroce::verbs::{Capacity, QpConfig, QpType, QueuePair};

use self::extended::Building;
use crate::abi::{self, qp_init};
use crate::channel::Unacknowledged;
use crate::context::{Context, ContextHandle, Numbered, adopt, release};
use crate::cq::Cq;
use crate::edge::{Cookie, Failure, Result, errno_of, object};
use crate::handle::{Handle, Hold, live, live_if_any, object as declare};
use crate::memory::pd::Pd;
use crate::srq::Srq;
use crate::xrc::Xrcd;

declare!(Qp: abi::Qp as abi::QpEx, Pair, "queue pair");

/// Our part of a queue pair.
pub(crate) struct Pair {
    pub(crate) qp: QueuePair,
    /// Requests that the extended interface has begun.
    building: Mutex<Building>,
    /// Attributes that the engine has no use for, and a query returns.
    kept: Mutex<attributes::Kept>,
    pub(crate) events: Unacknowledged,
    context: ContextHandle,
    /// Whether the program got the extended interface.
    is_extended: bool,
    _holds: Vec<Hold>,
}

pub(crate) extern "C" fn ibv_create_qp(pd: *mut abi::Pd, attributes: *mut abi::QpInitAttr) -> *mut abi::Qp {
    object("ibv_create_qp", || {
        // SAFETY: attributes of the program's, which gets the granted capacity back in them.
        let attributes = unsafe { attributes.as_mut() }.ok_or_else(|| Failure::invalid("no attributes"))?;
        // SAFETY: a domain of the program's, as the verb requires.
        let context = unsafe { live::<Pd>(pd) }?.inner().context;
        let wanted = Wanted {
            cookie: attributes.qp_context,
            send_cq: attributes.send_cq,
            receive_cq: attributes.recv_cq,
            srq: attributes.srq,
            qp_type: attributes.qp_type,
            signal_all: attributes.sq_sig_all != 0,
            pd,
            xrcd: std::ptr::null_mut(),
            send_ops: None,
        };
        create(context, &wanted, &mut attributes.cap)
    })
}

pub(crate) extern "C" fn create_qp_ex(context: *mut abi::Context, attributes: *mut abi::QpInitAttrEx) -> *mut abi::Qp {
    object("ibv_create_qp_ex", || {
        // SAFETY: a context of the program's, as the verb requires.
        let context = unsafe { live::<Context>(context) }?;
        // SAFETY: attributes of the program's, which gets the granted capacity back in them.
        let attributes = unsafe { attributes.as_mut() }.ok_or_else(|| Failure::invalid("no attributes"))?;
        let mask = attributes.comp_mask;
        let known = qp_init::PD | qp_init::XRCD | qp_init::CREATE_FLAGS | qp_init::SEND_OPS_FLAGS;
        if mask & !known != 0 || (mask & qp_init::CREATE_FLAGS != 0 && attributes.create_flags != 0) {
            let flags = attributes.create_flags;
            return Err(Failure::unsupported(format!("comp_mask {mask:#x}, create_flags {flags:#x}")));
        }
        let wanted = Wanted {
            cookie: attributes.qp_context,
            send_cq: attributes.send_cq,
            receive_cq: attributes.recv_cq,
            srq: attributes.srq,
            qp_type: attributes.qp_type,
            signal_all: attributes.sq_sig_all != 0,
            pd: if mask & qp_init::PD == 0 { std::ptr::null_mut() } else { attributes.pd },
            xrcd: if mask & qp_init::XRCD == 0 { std::ptr::null_mut() } else { attributes.xrcd },
            send_ops: (mask & qp_init::SEND_OPS_FLAGS != 0).then_some(attributes.send_ops_flags),
        };
        create(context, &wanted, &mut attributes.cap)
    })
}

/// What a program asks of a new queue pair.
struct Wanted {
    cookie: Cookie,
    send_cq: *mut abi::Cq,
    receive_cq: *mut abi::Cq,
    srq: *mut abi::Srq,
    qp_type: u32,
    signal_all: bool,
    pd: *mut abi::Pd,
    xrcd: *mut abi::Xrcd,
    /// The operations that it wants functions for; `None`: it does not want the extended interface.
    send_ops: Option<u64>,
}

fn create(context: ContextHandle, wanted: &Wanted, capacity: &mut abi::QpCap) -> Result<*mut abi::Qp> {
    let qp_type = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcInitiator, QpType::XrcTarget];
    let qp_type = qp_type.into_iter().find(|known| *known as u32 == wanted.qp_type);
    let qp_type = qp_type.ok_or_else(|| Failure::unsupported(format!("queue pairs of type {}", wanted.qp_type)))?;
    if let Some(operations) = wanted.send_ops {
        extended::check(qp_type, operations)?;
    }
    let (qp, holds) = match qp_type {
        QpType::XrcTarget => target(wanted)?,
        _ => sender(qp_type, wanted, capacity)?,
    };
    let granted = qp.query()?.capacity;
    *capacity = shown(&granted);
    let qpn = qp.qpn().value();
    let shape = shape(context, wanted, qpn);
    let inner = Pair {
        qp,
        building: Mutex::default(),
        kept: Mutex::default(),
        events: Unacknowledged::default(),
        context,
        is_extended: wanted.send_ops.is_some(),
        _holds: holds,
    };
    let pointer = adopt::<Qp>(context, shape, inner);
    context.inner().name(Numbered::Qp, qpn, pointer);
    Ok(pointer)
}

/// The receiving end of extended reliable connections: everything else is the shared receive queue's.
fn target(wanted: &Wanted) -> Result<(QueuePair, Vec<Hold>)> {
    // SAFETY: a domain of the program's, as the verb requires.
    let domain = unsafe { live::<Xrcd>(wanted.xrcd) }?;
    Ok((domain.inner().domain.create_target()?, vec![domain.hold()]))
}

fn sender(qp_type: QpType, wanted: &Wanted, capacity: &abi::QpCap) -> Result<(QueuePair, Vec<Hold>)> {
    // SAFETY: a domain of the program's, as the verb requires.
    let pd = unsafe { live::<Pd>(wanted.pd) }?;
    // SAFETY: a queue of the program's, as the verb requires.
    let send_cq = unsafe { live::<Cq>(wanted.send_cq) }?;
    let receives = qp_type != QpType::XrcInitiator;
    // SAFETY: as above; an initiator receives nothing, so it needs none.
    let receive_cq = if receives { unsafe { live::<Cq>(wanted.receive_cq) }? } else { send_cq };
    // SAFETY: a queue of the program's, or null.
    let srq = unsafe { live_if_any::<Srq>(if receives { wanted.srq } else { std::ptr::null_mut() }) }?;
    let config = QpConfig {
        qp_type,
        capacity: Capacity {
            max_send_wr: capacity.max_send_wr,
            max_receive_wr: if srq.is_some() || !receives { 0 } else { capacity.max_recv_wr },
            max_send_sge: capacity.max_send_sge,
            max_receive_sge: if srq.is_some() || !receives { 0 } else { capacity.max_recv_sge },
            max_inline: capacity.max_inline_data,
        },
        signal_all: wanted.signal_all,
        srq: srq.map(|srq| srq.inner().srq.clone()),
        ..QpConfig::new(&send_cq.inner().queue, &receive_cq.inner().queue)
    };
    let qp = pd.inner().pd.create_qp(&config)?;
    let holds = [Some(pd.hold()), Some(send_cq.hold()), Some(receive_cq.hold()), srq.map(Handle::hold)];
    Ok((qp, holds.into_iter().flatten().collect()))
}

fn shape(context: ContextHandle, wanted: &Wanted, qpn: u32) -> abi::QpEx {
    // SAFETY: plain data and optional functions, for which zero means that there is none.
    let mut shape: abi::QpEx = unsafe { std::mem::zeroed() };
    shape.qp_base.context = context.seen();
    shape.qp_base.qp_context = wanted.cookie;
    shape.qp_base.pd = wanted.pd;
    shape.qp_base.send_cq = wanted.send_cq;
    shape.qp_base.recv_cq = wanted.receive_cq;
    shape.qp_base.srq = wanted.srq;
    shape.qp_base.handle = context.inner().next_handle();
    shape.qp_base.qp_num = qpn;
    shape.qp_base.qp_type = wanted.qp_type;
    if wanted.send_ops.is_some() {
        extended::fill_in(&mut shape);
    }
    shape
}

fn shown(capacity: &Capacity) -> abi::QpCap {
    abi::QpCap {
        max_send_wr: capacity.max_send_wr,
        max_recv_wr: capacity.max_receive_wr,
        max_send_sge: capacity.max_send_sge,
        max_recv_sge: capacity.max_receive_sge,
        max_inline_data: capacity.max_inline,
    }
}

/// Waits until the program has acknowledged every event of the queue pair.
pub(crate) extern "C" fn ibv_destroy_qp(qp: *mut abi::Qp) -> c_int {
    errno_of("ibv_destroy_qp", || {
        // SAFETY: a queue pair of the program's, as the verb requires.
        let handle = unsafe { live::<Qp>(qp) }?;
        handle.check_unused()?;
        handle.inner().events.settle();
        let context = handle.inner().context;
        let inner = release(context, handle)?;
        context.inner().unname(Numbered::Qp, inner.qp.qpn().value());
        Ok(())
    })
}
