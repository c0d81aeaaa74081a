//! A uroce endpoint in the place of the kernel: what `ibv_uc_pingpong` and `ibv_ud_pingpong` sent to one side is played to
//! it, and what it answers must be what that side sent, byte for byte.

use std::fs::File;
use std::net::IpAddr;
use std::path::Path;

use pcap_file::pcap::PcapReader;
use uroce::port::{Network, SimConfig};
use uroce::qp::{AddressVector, QpInit, QpType};
use uroce::time::Instant;
use uroce::wire::net::Frame;
use uroce::wire::{Arrival, Grh, MAX_DATAGRAM, Opcode, Packet, Qpn};
use uroce::work::{Completion, Destination, Operation, ReceiveRequest, SendRequest, Status};

use crate::common::pair::{Options, QKEY, Side, connect, init};
use crate::ud::GRH;

/// A packet of a capture.
struct Seen {
    source: IpAddr,
    destination: IpAddr,
    hop_limit: u8,
    datagram: Vec<u8>,
}

impl Seen {
    fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.datagram).unwrap()
    }
}

fn capture(name: &str) -> Vec<Seen> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name).with_extension("pcap");
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut seen = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        let frame = Frame::parse_ethernet(&packet.data).unwrap();
        seen.push(Seen {
            source: frame.ip.source(),
            destination: frame.ip.destination(),
            hop_limit: frame.ip.hop_limit(),
            datagram: frame.datagram.to_vec(),
        });
    }
    seen
}

/// The kernel's side that answers, played by ours.
struct Stage {
    side: Side,
    peer: IpAddr,
    qpn: Qpn,
    answers_to: Destination,
}

impl Stage {
    fn new(qp_type: QpType, seen: &[Seen]) -> Self {
        let first = &seen[0];
        let answer = seen.iter().find(|seen| seen.source == first.destination).expect("an answer");
        let (own, peer) = (first.destination, first.source);
        let options = Options { qp_type, psns: [0, 0], ..Options::default() };
        let mut side = Side::at(&Network::new(0, SimConfig::default()), own, 0, [7; 32], &options);
        let qpn = first.packet().bth.destination;
        // A slot of 0 gives the kernel's own numbers, from 17 on.
        let made = loop {
            let init = QpInit { qp_type, ..init(side.pd, &side.cq) };
            let made = side.endpoint.create_qp(init).unwrap();
            if made.value() >= qpn.value() {
                break made;
            }
        };
        assert_eq!(made, qpn);
        let psns = [answer.packet().bth.psn.value(), first.packet().bth.psn.value()];
        let their_qpn = answer.packet().bth.destination;
        connect(&mut side, qpn, &options, psns, (their_qpn, peer));
        let answers_to = Destination { address: AddressVector::to(peer), qpn: their_qpn, qkey: QKEY };
        Self { side, peer, qpn, answers_to }
    }

    fn post_receive(&mut self) {
        let request = ReceiveRequest::new(1, &[self.side.sge(0, 8192)]);
        self.side.endpoint.post_receive(Instant::ZERO, self.qpn, request).unwrap();
    }

    fn take(&mut self, seen: &Seen) {
        let &Seen { source, destination, hop_limit, ref datagram } = seen;
        let arrival = Arrival { source, destination, source_port: 0, traffic_class: 0, hop_limit, datagram };
        self.side.endpoint.on_packet(Instant::ZERO, &arrival);
    }

    /// Sends a message of these bytes; the datagrams that it becomes.
    fn answer(&mut self, message: &[u8], is_datagram: bool) -> Vec<Vec<u8>> {
        self.side.fill(16_384, message);
        let request = SendRequest::new(2, Operation::Send, &[self.side.sge(16_384, message.len() as u32)]);
        let request = if is_datagram { request.to(self.answers_to) } else { request };
        self.side.endpoint.post_send(Instant::ZERO, self.qpn, request).unwrap();
        let mut room = vec![0; MAX_DATAGRAM];
        std::iter::from_fn(|| {
            let transmit = self.side.endpoint.poll_transmit(Instant::ZERO, &mut room)?;
            assert_eq!((transmit.flow.source, transmit.flow.destination), (self.side.address, self.peer));
            Some(room[..transmit.length].to_vec())
        })
        .collect()
    }

    fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.side.cq.pop()).collect()
    }
}

/// Plays a capture whose messages have `message` bytes in `packets` packets; how many went each way.
fn play(name: &str, qp_type: QpType, message: usize, packets: usize) -> [usize; 2] {
    let seen = capture(name);
    let mut stage = Stage::new(qp_type, &seen);
    let header = if qp_type == QpType::Ud { GRH } else { 0 };
    let mut counts = [0; 2];
    for turn in seen.chunk_by(|a, b| a.source == b.source).flat_map(|turn| turn.chunks(packets)) {
        let bytes: Vec<u8> = turn.iter().flat_map(|seen| seen.packet().payload.to_vec()).collect();
        assert_eq!(bytes.len(), message);
        if turn[0].source == stage.side.address {
            let sent: Vec<_> = turn.iter().map(|seen| seen.datagram.clone()).collect();
            assert_eq!(stage.answer(&bytes, header > 0), sent, "{name}");
            let done: Vec<_> = stage.completions().iter().map(|c| (c.id, c.status)).collect();
            assert_eq!(done, [(2, Status::Success)]);
            counts[1] += 1;
            continue;
        }
        stage.post_receive();
        turn.iter().for_each(|seen| stage.take(seen));
        let [received] = stage.completions()[..] else { panic!("{name}: one completion for one message") };
        assert_eq!((received.status, received.byte_length as usize), (Status::Success, header + message));
        assert_eq!(received.source_qpn, stage.answers_to.qpn);
        assert_eq!(stage.side.bytes(header, message), bytes);
        if header > 0 {
            let grh = Grh::parse(&stage.side.bytes(0, GRH).try_into().unwrap()).unwrap();
            assert_eq!((grh.source, grh.destination), (stage.peer, stage.side.address));
        }
        counts[0] += 1;
    }
    counts
}

#[test]
fn an_unreliable_connection_plays_the_kernels_part() {
    let first = &capture("uc_pingpong")[0];
    assert_eq!(first.packet().bth.opcode, Opcode::UC_SEND_FIRST);
    assert_eq!(play("uc_pingpong", QpType::Uc, 3000, 3), [5, 5]);
}

#[test]
fn datagrams_play_the_kernels_part() {
    assert_eq!(play("ud_pingpong", QpType::Ud, 1000, 1), [5, 5]);
}
