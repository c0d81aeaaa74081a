//! Every packet of a run, as a line.

use std::sync::{Arc, Mutex};

use uroce::port::{Network, Verdict};
use uroce::wire::Packet;

/// Has every packet noted as it is sent.
pub(crate) fn note_packets(network: &Network, trace: Arc<Mutex<Vec<String>>>) {
    let mut count = 0;
    network.set_filter(move |datagram| {
        count += 1;
        let (from, to) = (datagram.flow.source, datagram.flow.destination);
        let line = match Packet::parse(&datagram.bytes) {
            Ok(packet) => {
                let bth = packet.bth;
                let what = packet.extensions.aeth.map(|aeth| format!(" {:?} msn {}", aeth.syndrome, aeth.msn));
                let place = packet.extensions.reth.map(|reth| format!(" {:#x}+{}", reth.address, reth.length));
                let asks = if bth.ack_request { " asks" } else { "" };
                format!(
                    "{count:5} {from} > {to} {:?} qp {} psn {:#08x} {} bytes{asks}{}{}",
                    bth.opcode,
                    bth.destination,
                    bth.psn.value(),
                    packet.payload.len(),
                    what.unwrap_or_default(),
                    place.unwrap_or_default()
                )
            }
            Err(error) => format!("{count:5} {from} > {to} {error}"),
        };
        trace.lock().expect("nobody panicked with it").push(line);
        Verdict::Forward
    });
}
