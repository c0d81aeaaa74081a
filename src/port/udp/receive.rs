//! Taking super-packets apart.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use socket2::Socket;

use crate::port::PortCounters;
use crate::port::arrived::Arrived;
use crate::port::message::Incoming;
use crate::port::slots::Handover;
use crate::port::sys::{self, RECEIVE_BATCH, ReceiveBatch};
use crate::wire::Arrival;

/// How many messages one call asks for while the kernel joins datagrams into super-packets of up to 64 KiB: enough to
/// spread the cost of the call, little enough to stay in the cache. Single datagrams are taken by [`RECEIVE_BATCH`].
const SUPER_PACKETS: usize = 4;

/// A socket that receives what is sent to port 4791 of one address: of this host, or a multicast group.
pub(super) struct Receiver {
    pub(super) address: IpAddr,
    pub(super) socket: Socket,
    /// The socket's last `SO_RXQ_OVFL`.
    overflow: u32,
    /// How many messages to ask it for in the next call.
    limit: usize,
}

impl Receiver {
    pub(super) fn new(address: IpAddr, socket: Socket) -> Self {
        // A socket that had another owner before may have lost datagrams then (`SK_MEMINFO_DROPS`).
        let memory = sys::option_words::<9>(&socket, libc::SOL_SOCKET, libc::SO_MEMINFO);
        let overflow = memory.map_or(0, |words| words[8]);
        Self { address, socket, overflow, limit: SUPER_PACKETS }
    }

    /// Receives a burst; returns how many datagrams it took off the socket.
    pub(super) fn receive(
        &mut self,
        batch: &mut ReceiveBatch,
        handover: Option<&Handover>,
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        let count = batch.receive(self.socket.as_fd(), self.limit)?;
        if count == 0 {
            return Ok(0);
        }
        counters.receive_calls += 1;
        let mut datagrams = 0;
        for message in batch.messages(count) {
            if let Some(overflow) = message.overflow {
                counters.receive_overflow += u64::from(overflow.wrapping_sub(self.overflow));
                self.overflow = overflow;
            }
            datagrams += split(&message, self.address, handover, counters, sink);
        }
        let joined = datagrams > count;
        self.limit = if count == self.limit && !joined { RECEIVE_BATCH } else { SUPER_PACKETS };
        Ok(datagrams)
    }
}

/// Hands the datagrams of one message to `sink`; returns how many it holds.
fn split(
    message: &Incoming<'_>,
    destination: IpAddr,
    handover: Option<&Handover>,
    counters: &mut PortCounters,
    sink: &mut dyn FnMut(Arrival<'_>),
) -> usize {
    let Some((source, source_port)) = message.source.filter(|_| !message.truncated) else {
        counters.malformed += 1;
        return 1;
    };
    let arrived = Arrived {
        source,
        destination,
        source_port,
        traffic_class: message.traffic_class.unwrap_or(0),
        hop_limit: message.hop_limit.unwrap_or(0),
        // A UDP socket is not told.
        identification: None,
        segment: message.segment,
        payload: message.bytes,
    };
    arrived.deliver(handover, counters, sink)
}
