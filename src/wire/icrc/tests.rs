//! The fast ICRC against the slow one, and the search for the IPv4 ID.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const IP: Ipv4Pseudo = Ipv4Pseudo {
    source: Ipv4Addr::new(10, 0, 0, 1),
    destination: Ipv4Addr::new(10, 0, 0, 2),
    identification: 0,
    dont_fragment: true,
};

/// A SEND ONLY of 64 bytes between two kernels, as captured: IPv4 ID 0x80b1, UDP source port 0xc169.
#[test]
fn agrees_with_the_kernel() {
    let datagram = b"\x04\x00\xff\xff\x00\x00\x00\x13\x80\xb1\x07\xf5\
        \x75\x8b\x2a\x82\x90\xb7\x93\x50\x12\xd0\x64\x65\xe3\x7e\x91\x73\x28\x32\x0d\x48\x3e\x8c\x21\xae\
        \x8f\x2d\x58\xd8\x84\x86\xc9\xf9\x12\xf3\x7b\xa2\xab\x0e\xf2\xbd\xdf\x57\x22\xc2\xd5\xb4\x36\xfe\
        \xe6\x43\x46\x24\xcf\x67\xd3\x5f\x94\x2b\x37\x19\xb1\x01\x12\xc3";
    let ip = Ipv4Pseudo {
        source: Ipv4Addr::new(10, 99, 0, 3),
        destination: Ipv4Addr::new(10, 99, 0, 2),
        identification: 0x80b1,
        dont_fragment: true,
    };
    assert_eq!(compute(&IpPseudo::V4(ip), 0xc169, datagram).to_le_bytes(), [0x68, 0x38, 0xfc, 0x45]);
    assert_eq!(check_unknown_id(&Ipv4Pseudo { identification: 0, ..ip }, 0xc169, datagram, 0x45fc_3868), Some(0x80b1));
}

/// The definition, step by step: ones for the route header, the headers with ones for what may change, the rest.
fn slow(ip: &IpPseudo, source_port: u16, datagram: &[u8]) -> u32 {
    let udp_length = 8 + datagram.len() as u16 + 4;
    let mut covered = vec![0xff; 8];
    match ip {
        IpPseudo::V4(ip) => {
            covered.extend([0x45, 0xff]);
            covered.extend((20 + udp_length).to_be_bytes());
            covered.extend(ip.identification.to_be_bytes());
            covered.extend(if ip.dont_fragment { [0x40, 0] } else { [0, 0] });
            covered.extend([0xff, 17, 0xff, 0xff]);
            covered.extend(ip.source.octets());
            covered.extend(ip.destination.octets());
        }
        IpPseudo::V6(ip) => {
            covered.extend([0x6f, 0xff, 0xff, 0xff]);
            covered.extend(udp_length.to_be_bytes());
            covered.extend([17, 0xff]);
            covered.extend(ip.source.octets());
            covered.extend(ip.destination.octets());
        }
    }
    covered.extend(source_port.to_be_bytes());
    covered.extend(4791_u16.to_be_bytes());
    covered.extend(udp_length.to_be_bytes());
    covered.extend([0xff, 0xff]);
    let congestion = covered.len() + 4;
    covered.extend(datagram);
    covered[congestion] = 0xff;
    crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(&covered)
}

fn any_v4() -> impl Strategy<Value = Ipv4Pseudo> {
    any::<(Ipv4Addr, Ipv4Addr, u16, bool)>().prop_map(|(source, destination, identification, dont_fragment)| {
        Ipv4Pseudo { source, destination, identification, dont_fragment }
    })
}

fn any_ip() -> impl Strategy<Value = IpPseudo> {
    let v6 = any::<(Ipv6Addr, Ipv6Addr)>()
        .prop_map(|(source, destination)| IpPseudo::V6(Ipv6Pseudo { source, destination }));
    prop_oneof![any_v4().prop_map(IpPseudo::V4), v6]
}

proptest! {
    #[test]
    fn fast_is_slow(ip in any_ip(), source_port: u16, datagram in vec(any::<u8>(), 12..300)) {
        prop_assert_eq!(compute(&ip, source_port, &datagram), slow(&ip, source_port, &datagram));
    }

    #[test]
    fn an_id_is_found_whatever_the_guess_and_the_length(
        ip in any_v4(),
        guess: u16,
        length in 12..9000_usize,
        fill: u8,
    ) {
        let datagram = vec![fill; length];
        let received = compute(&IpPseudo::V4(ip), 0xc000, &datagram);
        let guessed = Ipv4Pseudo { identification: guess, ..ip };
        prop_assert_eq!(check_unknown_id(&guessed, 0xc000, &datagram, received), Some(ip.identification));
    }
}

/// Sixteen bits are left to find corruption with, so one change in 65,536 passes for another ID. Of the changes tried
/// here (the same in every run) none may, and the ICRC itself must see all of them.
#[test]
fn corruption_is_rejected() {
    let mut datagram = [0x5a; 1040];
    let received = compute(&IpPseudo::V4(IP), 0xc000, &datagram);
    for at in (0..datagram.len()).filter(|at| *at != 4) {
        for bit in 0..8 {
            datagram[at] ^= 1 << bit;
            assert_ne!(compute(&IpPseudo::V4(IP), 0xc000, &datagram), received, "bit {bit} of byte {at}");
            assert_eq!(check_unknown_id(&IP, 0xc000, &datagram, received), None, "bit {bit} of byte {at}");
            datagram[at] ^= 1 << bit;
        }
    }
    let other_peer = Ipv4Pseudo { source: Ipv4Addr::new(10, 0, 0, 3), ..IP };
    assert_eq!(check_unknown_id(&other_peer, 0xc000, &datagram, received), None);
    assert_eq!(check_unknown_id(&IP, 0xc001, &datagram, received), None);
    assert_eq!(check_unknown_id(&IP, 0xc000, &datagram[..1036], received), None);
}

#[test]
fn congestion_bits_do_not_count() {
    let mut datagram = [0x5a; 32];
    let before = compute(&IpPseudo::V4(IP), 0xc000, &datagram);
    datagram[4] = 0xc0;
    assert_eq!(compute(&IpPseudo::V4(IP), 0xc000, &datagram), before);
}

#[test]
fn a_datagram_longer_than_any_packet_is_rejected() {
    let datagram = vec![0; 1 << 16];
    let received = compute(&IpPseudo::V4(Ipv4Pseudo { identification: 7, ..IP }), 0xc000, &datagram);
    assert_eq!(check_unknown_id(&IP, 0xc000, &datagram, received), None);
}

#[test]
fn what_has_no_bth_is_rejected() {
    let datagram = [0; Bth::LEN];
    for length in 0..Bth::LEN {
        let runt = &datagram[..length];
        let received = compute(&IpPseudo::V4(IP), 0xc000, runt);
        assert_eq!(check_unknown_id(&IP, 0xc000, runt, received), None);
    }
}

#[test]
fn every_id_is_found() {
    let datagram = [0x5a; 76];
    for identification in 0..=u16::MAX {
        let received = compute(&IpPseudo::V4(Ipv4Pseudo { identification, ..IP }), 0xc000, &datagram);
        assert_eq!(check_unknown_id(&IP, 0xc000, &datagram, received), Some(identification));
    }
}
