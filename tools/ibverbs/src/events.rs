//! Asynchronous events.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::ptr;

use uroce::verbs::AsyncEvent;

use crate::abi::{self, event_type};
use crate::channel;
use crate::context::{Context, Numbered, Opened};
use crate::cq::Cq;
use crate::edge::{minus_one, quick, store};
use crate::handle::live;
use crate::qp::Qp;
use crate::srq::Srq;

/// Waits for the next event, unless the program made the descriptor non-blocking: then EAGAIN says that there is none.
pub(crate) extern "C" fn ibv_get_async_event(context: *mut abi::Context, place: *mut abi::AsyncEvent) -> c_int {
    minus_one("ibv_get_async_event", || {
        // SAFETY: a context of the program's, as the verb requires.
        let opened = unsafe { live::<Context>(context) }?.inner();
        loop {
            let event = channel::await_event(
                opened.events.as_raw_fd(),
                || opened.events.poll(),
                || Ok(opened.events.wait_interruptible(None)?),
            )?;
            // What it is about may be gone since.
            if let Some(event) = translate(opened, event) {
                // SAFETY: the program's place for the event.
                return unsafe { store(place, event) };
            }
        }
    })
}

/// Whoever destroys a queue waits until its events are acknowledged.
pub(crate) extern "C" fn ibv_ack_async_event(event: *mut abi::AsyncEvent) {
    quick((), || {
        // SAFETY: an event that the program got from `ibv_get_async_event`, or null.
        let Some(event) = (unsafe { event.as_ref() }) else { return };
        let object = event.element;
        match event.event_type {
            event_type::CQ_ERR => {
                // SAFETY: the event names a completion queue.
                let _ = unsafe { live::<Cq>(object.cast()) }.map(|cq| cq.inner().async_events.acknowledge(1));
            }
            event_type::SRQ_ERR | event_type::SRQ_LIMIT_REACHED => {
                // SAFETY: the event names a shared receive queue.
                let _ = unsafe { live::<Srq>(object.cast()) }.map(|srq| srq.inner().events.acknowledge(1));
            }
            event_type::QP_FATAL..=event_type::SQ_DRAINED | event_type::QP_LAST_WQE_REACHED => {
                // SAFETY: the event names a queue pair.
                let _ = unsafe { live::<Qp>(object.cast()) }.map(|qp| qp.inner().events.acknowledge(1));
            }
            _ => {}
        }
    });
}

/// The event as programs know it, and counted where it must be acknowledged.
fn translate(opened: &Opened, event: AsyncEvent) -> Option<abi::AsyncEvent> {
    let (kind, number, event_type) = match event {
        AsyncEvent::CqError(number) => (Numbered::Cq, number, event_type::CQ_ERR),
        AsyncEvent::QpFatal(qpn) => (Numbered::Qp, qpn.value(), event_type::QP_FATAL),
        AsyncEvent::QpRequestError(qpn) => (Numbered::Qp, qpn.value(), event_type::QP_REQ_ERR),
        AsyncEvent::QpAccessError(qpn) => (Numbered::Qp, qpn.value(), event_type::QP_ACCESS_ERR),
        AsyncEvent::CommunicationEstablished(qpn) => (Numbered::Qp, qpn.value(), event_type::COMM_EST),
        AsyncEvent::SendQueueDrained(qpn) => (Numbered::Qp, qpn.value(), event_type::SQ_DRAINED),
        AsyncEvent::QpLastWqeReached(qpn) => (Numbered::Qp, qpn.value(), event_type::QP_LAST_WQE_REACHED),
        AsyncEvent::SrqLimitReached(srq) => (Numbered::Srq, srq.value(), event_type::SRQ_LIMIT_REACHED),
        AsyncEvent::SrqError(srq) => (Numbered::Srq, srq.value(), event_type::SRQ_ERR),
        AsyncEvent::PortActive => return Some(of_port(event_type::PORT_ACTIVE)),
        AsyncEvent::PortError => return Some(of_port(event_type::PORT_ERR)),
        AsyncEvent::GidChange => return Some(of_port(event_type::GID_CHANGE)),
        AsyncEvent::DeviceFatal => return Some(of_port(event_type::DEVICE_FATAL)),
        // What a newer engine may tell and programs have no name for.
        _ => return None,
    };
    match kind {
        Numbered::Cq => {
            let pointer = opened.numbered::<abi::Cq>(kind, number);
            // SAFETY: null, or a queue of ours.
            unsafe { live::<Cq>(pointer) }.ok()?.inner().async_events.deliver();
            Some(abi::AsyncEvent { element: pointer.cast(), event_type })
        }
        Numbered::Qp => {
            let pointer = opened.numbered::<abi::Qp>(kind, number);
            // SAFETY: null, or a queue pair of ours.
            unsafe { live::<Qp>(pointer) }.ok()?.inner().events.deliver();
            Some(abi::AsyncEvent { element: pointer.cast(), event_type })
        }
        Numbered::Srq => {
            let pointer = opened.numbered::<abi::Srq>(kind, number);
            // SAFETY: null, or a queue of ours.
            unsafe { live::<Srq>(pointer) }.ok()?.inner().events.deliver();
            Some(abi::AsyncEvent { element: pointer.cast(), event_type })
        }
    }
}

/// An event of the device's only port.
fn of_port(event_type: u32) -> abi::AsyncEvent {
    abi::AsyncEvent { element: ptr::without_provenance_mut(1), event_type }
}
