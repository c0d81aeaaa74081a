//! Runs out of UDP sockets.

use std::io;
use std::os::fd::AsFd;

use smallvec::SmallVec;

use super::local::{DEFAULT_HOP_LIMIT, Local, TransmitterIndex};
use crate::port::message::{Address, Outgoing};
use crate::port::queue::{Message, Sender, Way};
use crate::port::sys::{self, SEND_BATCH};
use crate::wire::{Flow, UDP_PORT};

/// Which socket: the index of its address, and which of that address's.
pub(super) type SocketIndex = (usize, TransmitterIndex);

impl Sender<SocketIndex> for Vec<Local> {
    const BATCH: usize = SEND_BATCH;

    fn way(&mut self, flow: &Flow) -> Option<Way<SocketIndex>> {
        let (index, local) = self.iter_mut().enumerate().find(|(_, local)| local.address == flow.source)?;
        let transmitter = local.transmitter(flow.source_port);
        Some(Way {
            name: (index, transmitter),
            source_port: local.source_port(transmitter),
            segmentation: local.segmentation,
        })
    }

    fn send(&mut self, (index, transmitter): SocketIndex, messages: &[Message<'_>]) -> io::Result<usize> {
        let Some(local) = self.get(index) else {
            return Ok(messages.len());
        };
        let outgoing: SmallVec<[Outgoing<'_>; SEND_BATCH]> =
            messages.iter().map(|message| outgoing(message, local.scope)).collect();
        sys::send_batch(local.socket(transmitter).as_fd(), &outgoing)
    }

    fn no_segmentation(&mut self, (index, _): SocketIndex) {
        if let Some(local) = self.get_mut(index) {
            local.segmentation = false;
        }
    }
}

fn outgoing<'a>(message: &Message<'a>, scope: u32) -> Outgoing<'a> {
    let flow = message.flow;
    Outgoing {
        header: &[],
        bytes: message.bytes,
        destination: Some(Address::udp(flow.destination, UDP_PORT, scope)),
        segment: message.segment,
        traffic_class: (flow.traffic_class != 0).then_some(flow.traffic_class),
        // A hop limit of 0 cannot be sent; programs that leave it unset mean the usual one.
        hop_limit: (!matches!(flow.hop_limit, 0 | DEFAULT_HOP_LIMIT)).then_some(flow.hop_limit),
    }
}
