//! A port that records what goes through another as a pcap file, for Wireshark and `uroce`'s own dissector.
//!
//! Each datagram is written as an IP packet (link type RAW) with the headers that it has on the wire, as far as the port in front
//! of the network is told. What it is not told is the IPv4 ID, which the kernel writes: that is 0, and the ICRC of the record is right for it.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use super::{Port, PortCounters, ip};
use crate::wire::net::{Frame, Ipv6, Udp};
use crate::wire::{Arrival, Flow, ICRC_LEN, MAX_DATAGRAM, UDP_PORT};

/// Bytes of the longest record.
const MAX_RECORD: usize = Ipv6::LEN + Udp::LEN + MAX_DATAGRAM;

/// A [`Port`] that records what it sends and receives. See the [module](self).
pub struct Capture<P, W: Write = BufWriter<File>> {
    port: P,
    recorder: Recorder<W>,
}

struct Recorder<W: Write> {
    writer: PcapWriter<W>,
    /// The time since 1970.
    clock: Box<dyn FnMut() -> Duration + Send>,
    record: Box<[u8; MAX_RECORD]>,
    /// The first error, kept for the next call that can return one.
    error: Option<io::Error>,
}

impl<P: Port> Capture<P> {
    /// Records into a new file, with the system's time.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn create(port: P, path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = File::create(path).map_err(named)?;
        let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self::new(port, BufWriter::new(file), clock).map_err(named)
    }
}

impl<P: Port, W: Write> Capture<P, W> {
    /// Records into `writer`, with time stamps from `clock`: the time since the start of 1970, UTC, or of a simulation.
    ///
    /// # Errors
    /// The file's header cannot be written.
    pub fn new(port: P, writer: W, clock: impl FnMut() -> Duration + Send + 'static) -> io::Result<Self> {
        let header = PcapHeader {
            snaplen: MAX_RECORD as u32,
            datalink: DataLink::RAW,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::native(),
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(writer, header).map_err(plain)?;
        let recorder = Recorder { writer, clock: Box::new(clock), record: Box::new([0; MAX_RECORD]), error: None };
        Ok(Self { port, recorder })
    }

    /// The port and the writer behind, which may have yet to be flushed.
    pub fn into_inner(self) -> (P, W) {
        (self.port, self.recorder.writer.into_writer())
    }
}

impl<P: Port, W: Write + Send> Port for Capture<P, W> {
    fn addresses(&self) -> &[IpAddr] {
        self.port.addresses()
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.port.room()
    }

    fn commit(&mut self, flow: &Flow, length: usize) {
        if let Some(datagram) = self.port.room().and_then(|room| room.get(..length)) {
            self.recorder.note(flow, datagram);
        }
        self.port.commit(flow, length);
    }

    /// Sends what was committed.
    ///
    /// # Errors
    /// Those of the port behind, and of the writer: the record has a gap from then on.
    fn flush(&mut self) -> io::Result<()> {
        self.port.flush()?;
        self.recorder.check()
    }

    fn backlog(&self) -> bool {
        self.port.backlog()
    }

    fn receive(&mut self, sink: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        let recorder = &mut self.recorder;
        let taken = self.port.receive(&mut |arrival| {
            let flow = Flow {
                source: arrival.source,
                destination: arrival.destination,
                source_port: arrival.source_port,
                traffic_class: arrival.traffic_class,
                hop_limit: arrival.hop_limit,
            };
            recorder.note(&flow, arrival.datagram);
            sink(arrival);
        })?;
        recorder.check()?;
        Ok(taken)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.port.descriptors()
    }

    fn backlog_descriptors(&self) -> Vec<RawFd> {
        self.port.backlog_descriptors()
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.port.join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.port.leave(group);
    }

    fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.port.set_addresses(addresses);
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }
}

impl<P: fmt::Debug, W: Write> fmt::Debug for Capture<P, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("port", &self.port).finish_non_exhaustive()
    }
}

impl<W: Write> Recorder<W> {
    fn note(&mut self, flow: &Flow, datagram: &[u8]) {
        let Some(length) = packet(flow, datagram, self.record.as_mut_slice()) else { return };
        let Ok(original) = u32::try_from(length) else { return };
        let bytes = self.record.get(..length).unwrap_or_default();
        let written = self.writer.write_packet(&PcapPacket::new((self.clock)(), original, bytes));
        if let Err(error) = written {
            self.error.get_or_insert(plain(error));
        }
    }

    fn check(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}

/// Writes a datagram as an IP packet; returns its length, or `None` when the addresses are of two families.
fn packet(flow: &Flow, datagram: &[u8], room: &mut [u8]) -> Option<usize> {
    let udp_length = u16::try_from(Udp::LEN + datagram.len() + ICRC_LEN).ok()?;
    let ip = ip::header(flow, udp_length)?;
    let udp = Udp { source_port: flow.source_port, destination_port: UDP_PORT, length: udp_length, checksum: 0 };
    let mut frame = Frame { ethernet: None, ip, udp, datagram, icrc: 0 };
    frame.icrc = frame.computed_icrc()?;
    frame.emit(room)
}

fn plain(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use pcap_file::pcap::PcapReader;

    use super::*;
    use crate::port::tests::{commit, datagram, flow, ip};
    use crate::port::{Network, SimConfig};
    use crate::time::Instant;
    use crate::wire::net::Ip;

    /// What two ports of a network send each other, recorded at the first and read back.
    #[test]
    fn a_record_is_what_was_on_the_wire() {
        let network = Network::new(0, SimConfig::default());
        let addresses = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]];
        for [a, b] in addresses {
            let mut seconds = 0;
            let clock = move || {
                seconds += 1;
                Duration::new(seconds, 123_456_789)
            };
            let mut near = Capture::new(network.port(ip(a)), Vec::new(), clock).expect("a header");
            let mut far = network.port(ip(b));
            let out = Flow { traffic_class: 0x6a, hop_limit: 3, ..flow(a, b, 0xc123) };
            let back = flow(b, a, 0xd456);
            for i in 0..3 {
                commit(&mut near, &out, &datagram(i, 64));
                commit(&mut far, &back, &datagram(100 + i, 4096));
            }
            near.flush().expect("flush");
            far.flush().expect("flush");
            network.advance(Instant::ZERO);
            assert_eq!(near.receive(&mut |_| ()).expect("receive"), 3);
            assert_eq!((near.counters().sent, near.counters().received), (3, 3));

            let (_, file) = near.into_inner();
            let mut reader = PcapReader::new(file.as_slice()).expect("a pcap file");
            assert_eq!(reader.header().datalink, DataLink::RAW);
            for i in 0..6u32 {
                let record = reader.next_packet().expect("a record").expect("a record");
                assert_eq!(record.timestamp, Duration::new(u64::from(i) + 1, 123_456_789));
                let frame = Frame::parse_ip(&record.data).expect("an IP packet");
                assert!(frame.is_intact());
                let (flow, bytes) = if i < 3 { (out, datagram(i, 64)) } else { (back, datagram(97 + i, 4096)) };
                assert_eq!(frame.datagram, bytes);
                assert_eq!((frame.ip.source(), frame.ip.destination()), (flow.source, flow.destination));
                assert_eq!((frame.ip.traffic_class(), frame.ip.hop_limit()), (flow.traffic_class, flow.hop_limit));
                assert_eq!((frame.udp.source_port, frame.udp.destination_port), (flow.source_port, UDP_PORT));
                if let Ip::V4(ip) = frame.ip {
                    assert_eq!(ip.checksum, ip.computed_checksum());
                }
            }
            assert!(reader.next_packet().is_none());
        }
    }

    /// A writer that is full says so at the next flush, once, and the datagrams go all the same.
    #[test]
    fn a_failing_writer_is_told() {
        let network = Network::new(0, SimConfig::default());
        let room = &mut [0u8; 40][..];
        let mut port = Capture::new(network.port(ip("10.0.0.1")), room, || Duration::ZERO).expect("a header");
        commit(&mut port, &flow("10.0.0.1", "10.0.0.2", 0xc000), &datagram(0, 64));
        assert!(port.flush().is_err());
        assert!(port.flush().is_ok());
        assert_eq!(port.counters().sent, 1);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named() {
        let port = Network::new(0, SimConfig::default()).port(ip("10.0.0.1"));
        let error = Capture::create(port, Path::new("/nonesuch/x.pcap")).expect_err("no such directory");
        assert!(error.to_string().contains("/nonesuch/x.pcap"), "{error}");
    }
}
