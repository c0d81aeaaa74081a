//! Frames that other networks make, and frames that lie.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::wire::WireError;

const DATAGRAM: [u8; 16] = [4, 0, 0xff, 0xff, 0, 0, 0, 2, 0x80, 0, 0, 1, b'r', b'o', b'c', b'e'];

fn ethernet(ethertype: u16, vlan: [Option<VlanTag>; 2]) -> Ethernet {
    Ethernet { destination: [2, 0, 0, 0, 0, 1], source: [2, 0, 0, 0, 0, 2], vlan, ethertype }
}

/// A frame over IPv4 with those options, everything in it right.
fn v4<'a>(datagram: &'a [u8], options: &'a [u8], vlan: [Option<VlanTag>; 2]) -> Frame<'a> {
    let length = 8 + datagram.len() as u16 + 4;
    let ip = Ipv4 {
        type_of_service: 0x1a,
        total_length: 20 + options.len() as u16 + length,
        identification: 0xbeef,
        dont_fragment: true,
        time_to_live: 64,
        checksum: 0,
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        options,
    };
    let ip = Ipv4 { checksum: ip.computed_checksum(), ..ip };
    sealed(Frame {
        ethernet: Some(ethernet(Ethernet::IPV4, vlan)),
        ip: Ip::V4(ip),
        udp: Udp { source_port: 0xc123, destination_port: UDP_PORT, length, checksum: 0 },
        datagram,
        icrc: 0,
    })
}

fn v6(datagram: &[u8], vlan: [Option<VlanTag>; 2]) -> Frame<'_> {
    let length = 8 + datagram.len() as u16 + 4;
    let ip = Ipv6 {
        traffic_class: 0xb2,
        flow_label: 0xc_0ffe,
        payload_length: length,
        hop_limit: 9,
        source: [0xfe; 16].into(),
        destination: [0xfd; 16].into(),
    };
    sealed(Frame {
        ethernet: Some(ethernet(Ethernet::IPV6, vlan)),
        ip: Ip::V6(ip),
        udp: Udp { source_port: 0xffff, destination_port: UDP_PORT, length, checksum: 0xabcd },
        datagram,
        icrc: 0,
    })
}

fn sealed(frame: Frame<'_>) -> Frame<'_> {
    Frame { icrc: frame.computed_icrc().unwrap_or(0x1234_5678), ..frame }
}

fn bytes_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut room = vec![0xaa; 2048];
    let length = frame.emit(&mut room).unwrap();
    room.truncate(length);
    room
}

/// An IPv4 packet, right but for what `change` does to it.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Result<(), WireError> {
    let mut bytes = bytes_of(&Frame { ethernet: None, ..v4(&DATAGRAM, &[], [None; 2]) });
    change(&mut bytes);
    Frame::parse_ip(&bytes).map(|_| ())
}

fn any_tags() -> impl Strategy<Value = [Option<VlanTag>; 2]> {
    let tag = (prop_oneof![Just(VlanTag::CUSTOMER), Just(VlanTag::PROVIDER)], any::<u16>())
        .prop_map(|(protocol, control)| VlanTag { protocol, control });
    vec(tag, 0..=2).prop_map(|tags| [tags.first().copied(), tags.get(1).copied()])
}

proptest! {
    #[test]
    fn frames_round_trip(
        datagram in vec(any::<u8>(), 12..128),
        options in (0..=10_usize).prop_flat_map(|words| vec(any::<u8>(), words * 4)),
        vlan in any_tags(),
    ) {
        for frame in [v4(&datagram, &options, vlan), v6(&datagram, vlan)] {
            let bytes = bytes_of(&frame);
            prop_assert_eq!(Frame::parse_ethernet(&bytes), Ok(frame));
            let tags = vlan.iter().flatten().count() * VlanTag::LEN;
            let ip = Frame { ethernet: None, ..frame };
            prop_assert_eq!(Frame::parse_ip(&bytes[Ethernet::LEN + tags..]), Ok(ip));
            prop_assert_eq!(frame.is_intact(), !matches!(frame.ip, Ip::V4(ip) if !ip.options.is_empty()));
            for length in 0..bytes.len() {
                prop_assert!(Frame::parse_ethernet(&bytes[..length]).is_err());
                prop_assert_eq!(frame.emit(&mut vec![0; length]), None);
            }
        }
    }

    /// The same bytes, as a parser of its own kind sees them.
    #[test]
    fn etherparse_agrees(
        datagram in vec(any::<u8>(), 12..128),
        options in (0..=10_usize).prop_flat_map(|words| vec(any::<u8>(), words * 4)),
        vlan in any_tags(),
    ) {
        for frame in [v4(&datagram, &options, vlan), v6(&datagram, vlan)] {
            let bytes = bytes_of(&frame);
            let theirs = etherparse::PacketHeaders::from_ethernet_slice(&bytes).unwrap();
            let Some(etherparse::TransportHeader::Udp(udp)) = theirs.transport else { panic!("no UDP") };
            let Udp { source_port, destination_port, length, checksum } = frame.udp;
            prop_assert_eq!(
                (udp.source_port, udp.destination_port, udp.length, udp.checksum),
                (source_port, destination_port, length, checksum)
            );
            prop_assert_eq!(theirs.payload.slice().len(), datagram.len() + ICRC_LEN);
            match (frame.ip, theirs.net.unwrap()) {
                (Ip::V4(ours), etherparse::NetHeaders::Ipv4(theirs, _)) => {
                    prop_assert_eq!(theirs.calc_header_checksum(), ours.checksum);
                    prop_assert_eq!(theirs.header_checksum, ours.checksum);
                    prop_assert_eq!(theirs.identification, ours.identification);
                    prop_assert_eq!(theirs.dont_fragment, ours.dont_fragment);
                    prop_assert_eq!(theirs.time_to_live, ours.time_to_live);
                    prop_assert_eq!(&theirs.options[..], ours.options);
                    prop_assert_eq!((theirs.source, theirs.destination), (ours.source.octets(), ours.destination.octets()));
                }
                (Ip::V6(ours), etherparse::NetHeaders::Ipv6(theirs, _)) => {
                    prop_assert_eq!(theirs.traffic_class, ours.traffic_class);
                    prop_assert_eq!(theirs.flow_label.value(), ours.flow_label);
                    prop_assert_eq!(theirs.hop_limit, ours.hop_limit);
                    prop_assert_eq!((theirs.source, theirs.destination), (ours.source.octets(), ours.destination.octets()));
                }
                (ours, theirs) => panic!("{ours:?} read as {theirs:?}"),
            }
        }
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..128)) {
        if let Ok(frame) = Frame::parse_ip(&bytes) {
            prop_assert_eq!(&bytes_of(&frame), &bytes[..bytes_of(&frame).len()]);
        }
        if let Ok(frame) = Frame::parse_ethernet(&bytes) {
            prop_assert_eq!(&bytes_of(&frame), &bytes[..bytes_of(&frame).len()]);
        }
    }
}

#[test]
fn ethernet_padding_is_cut_off() {
    let frame = v4(&DATAGRAM, &[], [None; 2]);
    let mut bytes = bytes_of(&frame);
    bytes.extend([0; 20]);
    assert_eq!(Frame::parse_ethernet(&bytes), Ok(frame));
}

#[test]
fn what_routers_change_leaves_the_icrc_right() {
    let frame = v4(&DATAGRAM, &[], [None; 2]);
    let mut bytes = bytes_of(&frame);
    let ip = Ethernet::LEN;
    bytes[ip + 1] = 0x03;
    bytes[ip + 8] = 1;
    bytes[ip + 10] ^= 0xff;
    bytes[ip + 26] ^= 0xff;
    assert!(Frame::parse_ethernet(&bytes).unwrap().is_intact());
    bytes[ip + 4] ^= 1;
    assert!(!Frame::parse_ethernet(&bytes).unwrap().is_intact(), "the ID is covered");
}

#[test]
fn addresses_and_classes_are_read_from_both_families() {
    let v4 = v4(&DATAGRAM, &[], [None; 2]).ip;
    assert_eq!((v4.traffic_class(), v4.hop_limit(), v4.ethertype()), (0x1a, 64, 0x0800));
    assert_eq!((v4.source().to_string(), v4.destination().to_string()), ("10.0.0.1".into(), "10.0.0.2".into()));
    let v6 = v6(&DATAGRAM, [None; 2]).ip;
    assert_eq!((v6.traffic_class(), v6.hop_limit(), v6.ethertype()), (0xb2, 9, 0x86dd));
    assert!(v6.source().to_string().starts_with("fefe") && v6.destination().to_string().starts_with("fdfd"));
}

#[test]
fn other_protocols_are_refused() {
    assert_eq!(changed(|bytes| bytes[0] = 0x55), Err(WireError::IpVersion(5)));
    assert_eq!(changed(Vec::clear), Err(WireError::IpVersion(0)));
    assert_eq!(changed(|bytes| bytes[0] = 0x44), Err(WireError::IpHeaderLength(16)));
    assert_eq!(changed(|bytes| bytes[9] = 6), Err(WireError::NotUdp(6)));
    assert_eq!(changed(|bytes| bytes[23] = 0xb8), Err(WireError::UdpPort(0x12b8)));
    assert_eq!(changed(|bytes| bytes[6] = 0x60), Err(WireError::Fragment(0x6000)));
    assert_eq!(changed(|bytes| bytes[7] = 1), Err(WireError::Fragment(0x4001)));
    assert_eq!(changed(|bytes| bytes[6] = 0xc0), Err(WireError::Fragment(0xc000)));

    let mut mislabelled = bytes_of(&v4(&DATAGRAM, &[], [None; 2]));
    mislabelled[13] = 0x06;
    assert_eq!(Frame::parse_ethernet(&mislabelled), Err(WireError::EtherType(0x0806)));
    mislabelled[12..14].copy_from_slice(&Ethernet::IPV6.to_be_bytes());
    assert_eq!(Frame::parse_ethernet(&mislabelled), Err(WireError::IpVersion(4)));
    let tag = Some(VlanTag { protocol: VlanTag::CUSTOMER, control: 5 });
    let mut three_tags = bytes_of(&v4(&DATAGRAM, &[], [tag; 2]));
    three_tags.splice(12..12, [0x81, 0, 0, 9]);
    assert_eq!(Frame::parse_ethernet(&three_tags), Err(WireError::EtherType(0x8100)));
}

#[test]
fn lengths_that_lie_are_refused() {
    // 20 bytes of IPv4, 8 of UDP, 16 of datagram, 4 of ICRC.
    assert_eq!(changed(|bytes| bytes[3] = 49), Err(WireError::Length { said: 49, found: 48 }));
    assert_eq!(changed(|bytes| bytes[3] = 47), Err(WireError::Length { said: 28, found: 27 }));
    assert_eq!(changed(|bytes| bytes[3] = 19), Err(WireError::Length { said: 19, found: 48 }));
    assert_eq!(changed(|bytes| bytes[0] = 0x4f), Err(WireError::Length { said: 48, found: 48 }));
    assert_eq!(changed(|bytes| bytes[25] = 29), Err(WireError::Length { said: 29, found: 28 }));
    assert_eq!(changed(|bytes| bytes[25] = 27), Err(WireError::Length { said: 27, found: 28 }));
}

/// Scenario 4: a UDP length that is right for a body too short to hold BTH and ICRC.
#[test]
fn a_body_shorter_than_bth_and_icrc_is_refused() {
    for body in 0..Bth::LEN + ICRC_LEN {
        let result = changed(|bytes| {
            bytes.truncate(28 + body);
            bytes[3] = 28 + body as u8;
            bytes[25] = 8 + body as u8;
        });
        assert_eq!(result, Err(WireError::TooShort { needed: 16, found: body }));
    }
}

#[test]
fn options_that_cannot_be_written_are_refused() {
    assert_eq!(v4(&DATAGRAM, &[0; 44], [None; 2]).emit(&mut [0; 256]), None, "more than 40 bytes");
    assert_eq!(v4(&DATAGRAM, &[0; 3], [None; 2]).emit(&mut [0; 256]), None, "no whole word");
}
