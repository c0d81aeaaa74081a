//! Real traffic of two Linux kernels (`tests/vectors`): every frame must parse, carry the ICRC that we compute, and
//! come out of our emitters byte for byte as it went in.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use pcap_file::pcap::PcapReader;
use uroce::wire::icrc::{self, Ipv4Pseudo};
use uroce::wire::net::{Frame, Ip};
use uroce::wire::{Kind, NakCode, Packet, Syndrome, emit_headers, pad_of};

/// The captures and how often each opcode occurs in them.
const CAPTURES: [(&str, &[(u8, usize)]); 16] = [
    ("atomic_cs", &[(0x12, 10), (0x13, 10)]),
    ("atomic_fa", &[(0x12, 10), (0x14, 10)]),
    ("rc_pingpong", &[(0x00, 10), (0x01, 30), (0x02, 10), (0x11, 10)]),
    ("rc_pingpong_v6ll", &[(0x00, 10), (0x01, 30), (0x02, 10), (0x11, 10)]),
    ("read_bw", &[(0x0c, 5), (0x0d, 5), (0x0e, 15), (0x0f, 5)]),
    ("read_bw_loss", &[(0x0c, 8), (0x0d, 4), (0x0e, 384), (0x0f, 4)]),
    ("rping", &[(0x04, 12), (0x0a, 3), (0x0c, 3), (0x10, 3), (0x11, 15), (0x64, 5)]),
    ("send_bw", &[(0x04, 5), (0x11, 5)]),
    ("send_lat", &[(0x04, 100), (0x11, 100)]),
    ("srq_pingpong", &[(0x04, 12), (0x11, 12)]),
    ("uc_pingpong", &[(0x20, 10), (0x21, 10), (0x22, 10)]),
    ("ucmatose", &[(0x04, 4), (0x11, 4), (0x64, 5)]),
    ("ud_pingpong", &[(0x64, 10)]),
    ("udaddy", &[(0x64, 2), (0x65, 6)]),
    ("write_bw", &[(0x06, 5), (0x07, 15), (0x08, 5), (0x11, 5)]),
    ("write_bw_loss", &[(0x06, 4), (0x07, 389), (0x08, 3), (0x11, 4)]),
];

#[test]
fn captures_hold_the_opcodes_they_are_for() {
    for (name, expected) in CAPTURES {
        let mut counts = BTreeMap::new();
        for_each_frame(name, |bytes| {
            *counts.entry(parse(bytes).1.bth.opcode.value()).or_insert(0) += 1;
        });
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn every_icrc_is_right() {
    for_each_frame_of_all(|bytes| {
        let (frame, _) = parse(bytes);
        assert!(frame.is_intact());
        let mut corrupt = bytes.to_vec();
        *corrupt.last_mut().unwrap() ^= 1;
        assert!(!parse(&corrupt).0.is_intact());
    });
}

#[test]
fn the_ipv4_id_is_found_from_the_icrc() {
    let mut found = 0;
    for_each_frame_of_all(|bytes| {
        let (frame, _) = parse(bytes);
        let Ip::V4(ip) = frame.ip else { return };
        let guess = Ipv4Pseudo { identification: 0, ..ip.pseudo() };
        let id = icrc::check_unknown_id(&guess, frame.udp.source_port, frame.datagram, frame.icrc);
        assert_eq!(id, Some(ip.identification));
        found += 1;
    });
    assert_eq!(found, 1296, "all frames but those of rc_pingpong_v6ll");
}

#[test]
fn every_ipv4_header_checksum_is_right() {
    for_each_frame_of_all(|bytes| {
        if let Ip::V4(ip) = parse(bytes).0.ip {
            assert_eq!(ip.computed_checksum(), ip.checksum);
        }
    });
}

#[test]
fn frames_are_emitted_byte_for_byte() {
    let mut room = [0xaa; 16384];
    for_each_frame_of_all(|bytes| {
        let (frame, _) = parse(bytes);
        let length = frame.emit(&mut room).unwrap();
        assert_eq!(&room[..length], bytes);
        assert_eq!(frame.emit(&mut room[..length - 1]), None, "a byte too little");
    });
}

#[test]
fn packets_are_emitted_byte_for_byte() {
    let mut room = [0xaa; 16384];
    for_each_frame_of_all(|bytes| {
        let (frame, packet) = parse(bytes);
        assert_eq!(packet.bth.pad, pad_of(packet.payload.len()));
        let headers = emit_headers(&packet.bth, &packet.extensions, &mut room).unwrap();
        assert_eq!(headers, packet.info.header_length);
        assert_eq!(emit_headers(&packet.bth, &packet.extensions, &mut [0; 128][..headers - 1]), None);

        let payload_end = headers + packet.payload.len();
        room[headers..payload_end].copy_from_slice(packet.payload);
        let end = payload_end + usize::from(packet.bth.pad);
        room[payload_end..end].fill(0);
        let again = Frame { datagram: &room[..end], ..frame };
        let mut whole = [0xaa; 16384];
        let icrc = again.computed_icrc().unwrap();
        let length = Frame { icrc, ..again }.emit(&mut whole).unwrap();
        assert_eq!(&whole[..length], bytes);
    });
}

#[test]
fn loss_shows_as_sequence_error_naks() {
    let mut naks = 0;
    for_each_frame("write_bw_loss", |bytes| {
        let (_, packet) = parse(bytes);
        if packet.info.kind == Kind::Acknowledge {
            let aeth = packet.extensions.aeth.unwrap();
            assert_eq!(aeth.syndrome, Syndrome::Nak(NakCode::SequenceError));
            naks += 1;
        }
    });
    assert_eq!(naks, 4);
}

#[test]
fn every_cut_is_refused() {
    for_each_frame_of_all(|bytes| {
        let (frame, packet) = parse(bytes);
        for length in 0..bytes.len() {
            assert!(Frame::parse_ethernet(&bytes[..length]).is_err(), "{length} bytes");
        }
        for length in 0..packet.info.header_length {
            assert!(Packet::parse(&frame.datagram[..length]).is_err(), "{length} bytes");
        }
    });
}

fn parse(bytes: &[u8]) -> (Frame<'_>, Packet<'_>) {
    let frame = Frame::parse_ethernet(bytes).unwrap();
    let packet = Packet::parse(frame.datagram).unwrap();
    (frame, packet)
}

fn for_each_frame_of_all(mut check: impl FnMut(&[u8])) {
    for (name, _) in CAPTURES {
        for_each_frame(name, &mut check);
    }
}

/// Calls `check` with each frame of a capture; a failure prints which frame it was.
fn for_each_frame(name: &str, mut check: impl FnMut(&[u8])) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name).with_extension("pcap");
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reader = PcapReader::new(file).unwrap();
    let mut number = 0;
    while let Some(packet) = reader.next_packet() {
        number += 1;
        println!("{name}, frame {number}");
        check(&packet.unwrap().data);
    }
    assert_ne!(number, 0, "{name} is empty");
}
