//! Bytes from a hostile network, taken as a datagram, as an IP packet and as an Ethernet frame. What parses must
//! be written again as it was, reserved bits of packet headers apart.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uroce::wire::icrc::{self, Ipv4Pseudo};
use uroce::wire::net::{Frame, Ip};
use uroce::wire::{Packet, emit_headers};

fuzz_target!(|bytes: &[u8]| {
    datagram(bytes);
    for frame in [Frame::parse_ip(bytes), Frame::parse_ethernet(bytes)].into_iter().flatten() {
        whole(&frame, bytes);
    }
});

fn datagram(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    let pad = usize::from(packet.bth.pad);
    assert_eq!(packet.info.header_length + packet.payload.len() + pad, bytes.len());
    let mut again = bytes.to_vec();
    let headers = emit_headers(&packet.bth, &packet.extensions, &mut again);
    assert_eq!(headers, Some(packet.info.header_length));
    assert_eq!(Packet::parse(&again), Ok(packet));
}

fn whole(frame: &Frame<'_>, bytes: &[u8]) {
    let mut again = vec![0; bytes.len()];
    let length = frame.emit(&mut again).expect("what was parsed fits where it came from");
    assert_eq!(again[..length], bytes[..length]);
    if let (Ip::V4(ip), Some(icrc)) = (frame.ip, frame.computed_icrc()) {
        let guess = Ipv4Pseudo { identification: 0, ..ip.pseudo() };
        let found = icrc::check_unknown_id(&guess, frame.udp.source_port, frame.datagram, icrc);
        assert_eq!(found, Some(ip.identification));
    }
    datagram(frame.datagram);
}
