//! Taking super-packets apart.

use std::io;
use std::os::fd::AsFd;

use super::local::Local;
use crate::port::PortCounters;
use crate::port::arrived::Arrived;
use crate::port::message::Incoming;
use crate::port::sys::{RECEIVE_BATCH, ReceiveBatch};
use crate::wire::Arrival;

/// How many messages one call asks for while the kernel joins datagrams into super-packets of up to 64 KiB: enough to
/// spread the cost of the call, little enough to stay in the cache. Single datagrams are taken by [`RECEIVE_BATCH`].
pub(super) const SUPER_PACKETS: usize = 4;

/// Receives a burst at `local`; returns how many datagrams it took off the socket.
pub(super) fn receive(
    local: &mut Local,
    batch: &mut ReceiveBatch,
    counters: &mut PortCounters,
    sink: &mut dyn FnMut(Arrival<'_>),
) -> io::Result<usize> {
    let limit = local.receive_limit;
    let count = batch.receive(local.receiver.as_fd(), limit)?;
    if count == 0 {
        return Ok(0);
    }
    counters.receive_calls += 1;
    let mut datagrams = 0;
    for message in batch.messages(count) {
        if let Some(overflow) = message.overflow {
            counters.receive_overflow += u64::from(overflow.wrapping_sub(local.overflow));
            local.overflow = overflow;
        }
        datagrams += split(&message, local, counters, sink);
    }
    let joined = datagrams > count;
    local.receive_limit = if count == limit && !joined { RECEIVE_BATCH } else { SUPER_PACKETS };
    Ok(datagrams)
}

/// Hands the datagrams of one message to `sink`; returns how many it holds.
fn split(
    message: &Incoming<'_>,
    local: &Local,
    counters: &mut PortCounters,
    sink: &mut dyn FnMut(Arrival<'_>),
) -> usize {
    let Some((source, source_port)) = message.source.filter(|_| !message.truncated) else {
        counters.malformed += 1;
        return 1;
    };
    let arrived = Arrived {
        source,
        destination: local.address,
        source_port,
        traffic_class: message.traffic_class.unwrap_or(0),
        hop_limit: message.hop_limit.unwrap_or(0),
        // A UDP socket is not told.
        identification: None,
        segment: message.segment,
        payload: message.bytes,
    };
    arrived.deliver(counters, sink)
}
