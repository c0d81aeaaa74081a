//! What an endpoint tells a program beside completions.

use crate::wire::{Qpn, SrqNumber};

/// Something to hand on; drained with [`Endpoint::poll_event`](crate::endpoint::Endpoint::poll_event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An armed completion queue, by its number, has what it was armed for.
    Completion(u32),
    /// An asynchronous event.
    Async(AsyncEvent),
}

/// An asynchronous event (`ibv_get_async_event(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// When a completion queue, by its number, lost a completion: it overran.
    CqError(u32),
    /// When a queue pair failed for a local reason, and could not report it with a completion.
    QpFatal(Qpn),
    /// When a queue pair failed because its peer broke the rules of the transport.
    QpRequestError(Qpn),
    /// When a queue pair failed because its peer touched memory it may not.
    QpAccessError(Qpn),
    /// When the first packet came in on a queue pair that waits in RTR.
    CommunicationEstablished(Qpn),
    /// When the last request begun before the move to SQD is done.
    SendQueueDrained(Qpn),
    /// When a queue pair with a shared receive queue is in the error state, and takes no further request from it.
    QpLastWqeReached(Qpn),
    /// When fewer requests wait in a shared receive queue than the limit it was armed with.
    SrqLimitReached(SrqNumber),
    /// When a shared receive queue of an XRC domain can no longer report: its completion queue overran.
    SrqError(SrqNumber),
    /// When the device's interface goes up, and its link works.
    PortActive,
    /// When the device's interface goes down, or its link no longer works.
    PortError,
    /// When an address of the device's interface was added or removed: the table of GIDs is another one.
    GidChange,
    /// When the device is broken for good: its port failed.
    DeviceFatal,
}
