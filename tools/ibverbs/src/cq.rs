//! Completion queues.

mod batch;
mod idle;

use std::ffi::c_int;
use std::time::Duration;

use uroce::verbs::{Arm, Completion, CompletionQueue, GrhKind, Status, Tag};

use self::batch::Taken;
use crate::abi::{self, cq_init, wc_flags};
use crate::channel::{Channel, Unacknowledged};
use crate::context::{Context, ContextHandle, Numbered, adopt, release};
use crate::edge::{Cookie, Failure, Result, errno_of, given, object, quick};
use crate::handle::{Handle, Hold, live, live_if_any, object as declare};
use crate::memory::pd::Pd;

declare!(Cq: abi::Cq as abi::CqEx, Queue, "completion queue");

/// Our part of a completion queue.
pub(crate) struct Queue {
    /// What the extended interface has at hand.
    taken: Taken,
    pub(crate) queue: CompletionQueue,
    pub(crate) completion_events: Unacknowledged,
    pub(crate) async_events: Unacknowledged,
    context: ContextHandle,
    _holds: Vec<Hold>,
}

/// What a program asks of a new queue.
struct Wanted {
    capacity: usize,
    cookie: Cookie,
    channel: *mut abi::CompChannel,
    vector: u32,
    parent: *mut abi::Pd,
}

pub(crate) extern "C" fn ibv_create_cq(
    context: *mut abi::Context,
    capacity: c_int,
    cookie: Cookie,
    channel: *mut abi::CompChannel,
    vector: c_int,
) -> *mut abi::Cq {
    object("ibv_create_cq", || {
        let capacity = usize::try_from(capacity).map_err(|_| Failure::invalid(format!("{capacity} completions")))?;
        let vector = u32::try_from(vector).map_err(|_| Failure::invalid(format!("completion vector {vector}")))?;
        create(context, &Wanted { capacity, cookie, channel, vector, parent: std::ptr::null_mut() })
    })
}

pub(crate) extern "C" fn create_cq_ex(
    context: *mut abi::Context,
    attributes: *mut abi::CqInitAttrEx,
) -> *mut abi::CqEx {
    object("ibv_create_cq_ex", || {
        // SAFETY: attributes of the program's.
        let attributes = unsafe { given("the attributes", attributes) }?;
        let mask = attributes.comp_mask;
        if mask & !(cq_init::FLAGS | cq_init::PD) != 0 {
            return Err(Failure::invalid(format!("comp_mask {mask:#x}")));
        }
        if mask & cq_init::FLAGS != 0 && attributes.flags & !cq_init::KNOWN_FLAGS != 0 {
            return Err(Failure::invalid(format!("flags {:#x}", attributes.flags)));
        }
        if attributes.wc_flags & !cq_init::WC_FLAGS != 0 {
            return Err(Failure::unsupported(format!("wc_flags {:#x}", attributes.wc_flags)));
        }
        let parent = if mask & cq_init::PD == 0 { std::ptr::null_mut() } else { attributes.parent_domain };
        let wanted = Wanted {
            capacity: attributes.cqe as usize,
            cookie: attributes.cq_context,
            channel: attributes.channel,
            vector: attributes.comp_vector,
            parent,
        };
        create(context, &wanted).map(<*mut abi::Cq>::cast)
    })
}

fn create(context: *mut abi::Context, wanted: &Wanted) -> Result<*mut abi::Cq> {
    // SAFETY: a context of the program's, as the verb requires.
    let handle = unsafe { live::<Context>(context) }?;
    // SAFETY: a channel of the program's, or null.
    let channel = unsafe { live_if_any::<Channel>(wanted.channel) }?;
    // SAFETY: a domain of the program's, or null.
    let parent = unsafe { live_if_any::<Pd>(wanted.parent) }?;
    let events = channel.map(|channel| &channel.inner().channel);
    let queue = handle.inner().verbs.create_cq_on_vector(wanted.capacity, events, wanted.vector)?;
    let number = queue.number();
    // SAFETY: plain data and optional functions, for which zero means that there is none.
    let mut shape: abi::CqEx = unsafe { std::mem::zeroed() };
    shape.cq.context = context;
    shape.cq.channel = wanted.channel;
    shape.cq.cq_context = wanted.cookie;
    shape.cq.handle = handle.inner().next_handle();
    shape.cq.cqe = c_int::try_from(queue.capacity()).unwrap_or(c_int::MAX);
    batch::fill_in(&mut shape);
    let inner = Queue {
        taken: Taken::default(),
        queue,
        completion_events: Unacknowledged::default(),
        async_events: Unacknowledged::default(),
        context: handle,
        _holds: [channel.map(Handle::hold), parent.map(Handle::hold)].into_iter().flatten().collect(),
    };
    let pointer = adopt::<Cq>(handle, shape, inner);
    handle.inner().name(Numbered::Cq, number, pointer);
    Ok(pointer)
}

pub(crate) extern "C" fn ibv_resize_cq(cq: *mut abi::Cq, capacity: c_int) -> c_int {
    errno_of("ibv_resize_cq", || {
        // SAFETY: a queue of the program's, as the verb requires.
        let handle = unsafe { live::<Cq>(cq) }?;
        let queue = &handle.inner().queue;
        queue.resize(usize::try_from(capacity).map_err(|_| Failure::invalid(format!("{capacity} completions")))?)?;
        // SAFETY: the shape of a live queue.
        unsafe { (*handle.shape()).cq.cqe = c_int::try_from(queue.capacity()).unwrap_or(c_int::MAX) };
        Ok(())
    })
}

pub(crate) extern "C" fn modify_cq(cq: *mut abi::Cq, attributes: *mut abi::ModifyCqAttr) -> c_int {
    errno_of("ibv_modify_cq", || {
        // SAFETY: a queue of the program's, as the verb requires.
        let queue = &unsafe { live::<Cq>(cq) }?.inner().queue;
        // SAFETY: attributes of the program's.
        let attributes = unsafe { given("the attributes", attributes) }?;
        if attributes.attr_mask != abi::CQ_ATTR_MODERATE {
            return Err(Failure::invalid(format!("attr_mask {:#x}", attributes.attr_mask)));
        }
        let period = Duration::from_micros(u64::from(attributes.cq_period));
        Ok(queue.moderate(attributes.cq_count, period)?)
    })
}

/// Waits until the program has acknowledged every event of the queue.
pub(crate) extern "C" fn ibv_destroy_cq(cq: *mut abi::Cq) -> c_int {
    errno_of("ibv_destroy_cq", || {
        // SAFETY: a queue of the program's, as the verb requires.
        let handle = unsafe { live::<Cq>(cq) }?;
        handle.check_unused()?;
        handle.inner().completion_events.settle();
        handle.inner().async_events.settle();
        let context = handle.inner().context;
        let inner = release(context, handle)?;
        context.inner().unname(Numbered::Cq, inner.queue.number());
        Ok(())
    })
}

pub(crate) extern "C" fn req_notify_cq(cq: *mut abi::Cq, solicited_only: c_int) -> c_int {
    quick(libc::EIO, || {
        // SAFETY: a queue of the program's, as the verb requires.
        match unsafe { live::<Cq>(cq) } {
            Ok(handle) => {
                handle.inner().queue.arm(if solicited_only == 0 { Arm::Any } else { Arm::Solicited });
                0
            }
            Err(failure) => failure.errno,
        }
    })
}

/// Takes up to `count` completions. Nothing is locked while there are some.
pub(crate) extern "C" fn poll_cq(cq: *mut abi::Cq, count: c_int, places: *mut abi::Wc) -> c_int {
    quick(-libc::EIO, || {
        // SAFETY: a queue of the program's, as the verb requires.
        let queue = match unsafe { live::<Cq>(cq) } {
            Ok(handle) => &handle.inner().queue,
            Err(failure) => return -failure.errno,
        };
        let wanted = usize::try_from(count).unwrap_or(0);
        if wanted > 0 && places.is_null() {
            return -libc::EINVAL;
        }
        let mut taken = 0;
        for completion in queue.poll_each(wanted) {
            // SAFETY: the program has room for `count` completions, and `taken` is below that.
            unsafe { places.add(taken).write(work_completion(&completion)) };
            taken += 1;
        }
        idle::polled(taken);
        taken as c_int
    })
}

/// A completion as programs know it.
fn work_completion(completion: &Completion) -> abi::Wc {
    abi::Wc {
        wr_id: completion.id,
        status: completion.status as u32,
        opcode: completion.kind as u32,
        vendor_err: completion.vendor_error,
        byte_len: completion.byte_length,
        imm_data: immediate(completion),
        qp_num: completion.qpn.value(),
        src_qp: completion.source_qpn.value(),
        wc_flags: flags(completion),
        pkey_index: 0,
        slid: 0,
        sl: service_level(completion),
        dlid_path_bits: 0,
    }
}

/// Immediate data in network order, or the key that was invalidated.
fn immediate(completion: &Completion) -> u32 {
    match completion.tag {
        Tag::None => 0,
        Tag::Immediate(data) => data.to_be(),
        Tag::Invalidated(key) => key,
    }
}

fn flags(completion: &Completion) -> u32 {
    if completion.status != Status::Success {
        return 0;
    }
    let tag = match completion.tag {
        Tag::None => 0,
        Tag::Immediate(_) => wc_flags::WITH_IMM,
        Tag::Invalidated(_) => wc_flags::WITH_INV,
    };
    tag | if completion.grh.is_some() { wc_flags::GRH } else { 0 }
}

/// UCX reads here, as mlx5 writes it, which header a datagram came with: UDP (8) over IPv6 (1) or IPv4 (2). With another value it
/// takes the destination from the wrong bytes, drops the datagram, and waits for ever for the peer.
fn service_level(completion: &Completion) -> u8 {
    match completion.grh {
        None => 0,
        Some(GrhKind::Ipv6) => 0x9,
        Some(GrhKind::Ipv4) => 0xa,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the IPv4 value for every datagram, UCX over IPv6 hung in its wire-up: it dropped every packet, as its destination,
    /// read where IPv4 has it, was not the device's.
    #[test]
    fn a_completion_tells_ucx_which_header_came() {
        let of = |grh| service_level(&Completion { grh, ..Completion::default() });
        // UCT_IB_CQE_SL_PKTYPE_MASK of UCX takes three bits: 1 is IPv6, 2 is IPv4.
        assert_eq!([of(Some(GrhKind::Ipv6)) & 7, of(Some(GrhKind::Ipv4)) & 7, of(None)], [1, 2, 0]);
    }
}
