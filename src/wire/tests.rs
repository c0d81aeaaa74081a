//! Round trips of every header and every opcode, and packets that lie.

use proptest::prelude::*;

use super::*;

prop_compose! {
    fn bth(opcode: Opcode)(
        flags in any::<[bool; 5]>(),
        pad in 0..4_u8,
        pkey: u16,
        destination: u32,
        psn: u32,
    ) -> Bth {
        let [solicited, migration, fecn, becn, ack_request] = flags;
        let destination = Qpn::new(destination);
        Bth { opcode, solicited, migration, pad, version: 0, pkey, fecn, becn, destination, ack_request, psn: Psn::new(psn) }
    }
}

prop_compose! {
    /// A value for every header; a packet takes those that its opcode has.
    fn extensions()(
        words in any::<[u32; 10]>(),
        longs in any::<[u64; 5]>(),
        syndrome: u8,
        placement in 0..16_u8,
        selectivity in 0..4_u8,
    ) -> Extensions {
        Extensions {
            xrceth: Some(Xrceth { srq: SrqNumber::new(words[0]) }),
            deth: Some(Deth { qkey: words[1], source: Qpn::new(words[2]) }),
            flush: Some(Feth {
                placement: Placement::from_bits_retain(placement),
                selectivity: match selectivity {
                    0 => Selectivity::Range,
                    1 => Selectivity::Region,
                    other => Selectivity::Reserved(other),
                },
            }),
            reth: Some(Reth { address: longs[0], rkey: words[3], length: words[4] }),
            atomic: Some(AtomicEth { address: longs[1], rkey: words[5], swap_add: longs[2], compare: longs[3] }),
            aeth: Some(Aeth { syndrome: Syndrome::from(syndrome), msn: words[6] & 0xff_ffff }),
            atomic_ack: Some(longs[4]),
            immediate: Some(words[7]),
            invalidate: Some(words[8]),
        }
    }
}

/// Those of `extensions` that `headers` names.
fn only(headers: Headers, extensions: &Extensions) -> Extensions {
    Extensions {
        xrceth: extensions.xrceth.filter(|_| headers.contains(Headers::XRCETH)),
        deth: extensions.deth.filter(|_| headers.contains(Headers::DETH)),
        flush: extensions.flush.filter(|_| headers.contains(Headers::FETH)),
        reth: extensions.reth.filter(|_| headers.contains(Headers::RETH)),
        atomic: extensions.atomic.filter(|_| headers.contains(Headers::ATOMIC_ETH)),
        aeth: extensions.aeth.filter(|_| headers.contains(Headers::AETH)),
        atomic_ack: extensions.atomic_ack.filter(|_| headers.contains(Headers::ATOMIC_ACK_ETH)),
        immediate: extensions.immediate.filter(|_| headers.contains(Headers::IMM)),
        invalidate: extensions.invalidate.filter(|_| headers.contains(Headers::IETH)),
    }
}

fn any_opcode() -> impl Strategy<Value = &'static Info> {
    proptest::sample::select(Opcode::known().collect::<Vec<_>>())
}

/// A packet of `opcode` with zeros behind its BTH, `length` bytes in all.
fn zeros(opcode: Opcode, pad: u8, length: usize) -> Vec<u8> {
    let mut datagram = vec![0; length];
    datagram[0] = opcode.value();
    datagram[1] = pad << 4;
    datagram
}

proptest! {
    #[test]
    fn packets_round_trip(
        (info, bth) in any_opcode().prop_flat_map(|info| (Just(info), bth(info.opcode))),
        extensions in extensions(),
        payload in proptest::collection::vec(any::<u8>(), 0..128),
    ) {
        let payload = match info.payload {
            PayloadRule::None => &[],
            PayloadRule::Any => &payload[..],
            PayloadRule::Exactly(length) => &[0x5a; 64][..length],
        };
        let bth = Bth { pad: pad_of(payload.len()), ..bth };
        let mut room = [0xaa; 256];
        let headers = emit_headers(&bth, &extensions, &mut room).unwrap();
        prop_assert_eq!(headers, info.header_length);
        prop_assert_eq!(emit_headers(&bth, &extensions, &mut [0; 256][..headers]), Some(headers));
        prop_assert_eq!(emit_headers(&bth, &extensions, &mut [0; 256][..headers - 1]), None);

        let end = headers + payload.len();
        room[headers..end].copy_from_slice(payload);
        let parsed = Packet::parse(&room[..end + usize::from(bth.pad)]);
        let expected = Packet { bth, info, extensions: only(info.headers, &extensions), payload };
        prop_assert_eq!(parsed, Ok(expected));
    }

    /// Known opcode and version, and then anything: most of these parse.
    #[test]
    fn any_bytes_are_refused_or_come_back_the_same(
        info in any_opcode(),
        words in proptest::collection::vec(any::<[u8; 4]>(), 3..24),
    ) {
        let mut bytes = words.concat();
        bytes[0] = info.opcode.value();
        bytes[1] &= 0xf0;
        let Ok(packet) = Packet::parse(&bytes) else { return Ok(()) };
        let mut room = [0; 96];
        let headers = emit_headers(&packet.bth, &packet.extensions, &mut room).unwrap();
        let end = headers + packet.payload.len();
        room[headers..end].copy_from_slice(packet.payload);
        let again = Packet::parse(&room[..end + usize::from(packet.bth.pad)]);
        prop_assert_eq!(again, Ok(packet));
    }

    #[test]
    fn psn_distance_undoes_plus_and_minus(start: u32, count in 0..Psn::HALF) {
        let start = Psn::new(start);
        prop_assert_eq!(start.plus(count).distance(start), count.cast_signed());
        prop_assert_eq!(start.minus(count).distance(start), -count.cast_signed());
        prop_assert_eq!(start.plus(count).minus(count), start);
        prop_assert_eq!(start.is_before(start.plus(count)), count != 0);
        prop_assert!(!start.plus(count).is_before(start));
    }
}

#[test]
fn psn_distance_crosses_the_wrap() {
    let last = Psn::new(Psn::SPACE - 1);
    let first = Psn::new(0);
    assert_eq!(last.plus(1), first);
    assert_eq!(first.minus(1), last);
    assert_eq!(first.distance(last), 1);
    assert_eq!(last.distance(first), -1);
    assert!(last.is_before(first));
    assert_eq!(Psn::new(0x7f_ffff).distance(first), 0x7f_ffff);
    assert_eq!(Psn::new(Psn::HALF).distance(first), -(1 << 23));
    assert_eq!(Psn::new(0xff00_0001), Psn::new(1));
}

#[test]
fn syndromes_keep_every_byte() {
    for byte in 0..=u8::MAX {
        assert_eq!(Syndrome::from(byte).value(), byte);
    }
    assert_eq!(Syndrome::from(0x1f), Syndrome::Ack { credits: Syndrome::NO_CREDITS });
    assert_eq!(Syndrome::from(0x20), Syndrome::ReceiverNotReady { timer: 0 });
    assert_eq!(Syndrome::from(0x60), Syndrome::Nak(NakCode::SequenceError));
    assert_eq!(Syndrome::from(0x62), Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(Syndrome::from(0x65), Syndrome::Reserved(0x65));
    assert_eq!(Syndrome::from(0x9f), Syndrome::Reserved(0x9f));
}

#[test]
fn the_table_agrees_with_itself() {
    assert_eq!(Opcode::known().count(), 25 + 12 + 2 + 1 + 23);
    for info in Opcode::known() {
        assert_eq!(info.opcode.info(), Some(info));
        assert_eq!(info.opcode.to_string(), info.name);
        let transport = match info.opcode.value() >> 5 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            3 => Transport::Ud,
            4 => Transport::Cnp,
            5 => Transport::Xrc,
            other => panic!("{}: transport {other}", info.name),
        };
        assert_eq!(info.transport, transport, "{}", info.name);
        assert!(info.header_length.is_multiple_of(4) && info.header_length <= 80, "{}", info.name);
        let named = [(Position::First, "_FIRST"), (Position::Middle, "_MIDDLE"), (Position::Last, "_LAST")];
        for (position, part) in named {
            assert_eq!(info.position == position, info.name.contains(part), "{}", info.name);
        }
        assert_eq!(info.headers.contains(Headers::IMM), info.name.ends_with("_IMM"), "{}", info.name);
        assert_eq!(info.headers.contains(Headers::IETH), info.name.ends_with("_INVALIDATE"), "{}", info.name);
    }
    assert_eq!(Opcode::new(0x15).to_string(), "opcode 0x15", "RESYNC is of reliable datagrams only");
}

/// What a connected service does, the others do under the same low bits with the same headers.
#[test]
fn the_services_agree_with_each_other() {
    for info in Opcode::known().filter(|info| matches!(info.transport, Transport::Uc | Transport::Xrc)) {
        let rc = Opcode::new(info.opcode.value() & 0x1f).info().unwrap();
        assert_eq!((info.kind, info.position, info.payload), (rc.kind, rc.position, rc.payload), "{}", info.name);
        let addressed = info.transport == Transport::Xrc && info.kind.is_request();
        let expected = if addressed { rc.headers | Headers::XRCETH } else { rc.headers };
        assert_eq!(info.headers, expected, "{}", info.name);
    }
}

/// Scenario 1: an opcode nobody has, to the multicast queue pair, in 48 bytes.
#[test]
fn unknown_opcode_to_the_multicast_qpn() {
    let mut datagram = [0xff; 48];
    datagram[1] = 0;
    assert_eq!(Packet::parse(&datagram), Err(WireError::UnknownOpcode(Opcode::new(0xff))));
    for value in (0..=u8::MAX).filter(|value| Opcode::new(*value).info().is_none()) {
        datagram[0] = value;
        assert_eq!(Packet::parse(&datagram), Err(WireError::UnknownOpcode(Opcode::new(value))));
        assert_eq!(emit_headers(&zero_bth(Opcode::new(value)), &Extensions::default(), &mut [0; 48]), None);
    }
}

/// Scenario 2: more pad than there is behind the headers, at every opcode.
#[test]
fn forged_pad_count() {
    for info in Opcode::known() {
        for pad in 1..=3 {
            let datagram = zeros(info.opcode, pad, info.header_length);
            assert_eq!(Packet::parse(&datagram), Err(WireError::Pad { pad, body: 0 }), "{}", info.name);
        }
    }
    let datagram = zeros(Opcode::RC_SEND_ONLY, 3, Bth::LEN + 4);
    assert_eq!(Packet::parse(&datagram).unwrap().payload, [0]);
}

/// Scenario 4: headers cut short, at every opcode and length; none may be made up from what is not there.
#[test]
fn runts() {
    for info in Opcode::known() {
        for length in 0..info.header_length {
            let datagram = zeros(info.opcode, 0, length.max(2));
            let datagram = &datagram[..length];
            let error = Packet::parse(datagram).unwrap_err();
            let expected = if length < Bth::LEN {
                WireError::TooShort { needed: Bth::LEN, found: length }
            } else if length % 4 != 0 {
                WireError::Unaligned(length)
            } else {
                WireError::TooShort { needed: info.header_length, found: length }
            };
            assert_eq!(error, expected, "{}", info.name);
        }
    }
}

#[test]
fn payload_where_none_may_be() {
    for info in Opcode::known().filter(|info| info.payload == PayloadRule::None) {
        for pad in 0..=3 {
            let datagram = zeros(info.opcode, pad, info.header_length + 4);
            let error = WireError::Payload { opcode: info.opcode, length: 4 - usize::from(pad) };
            assert_eq!(Packet::parse(&datagram), Err(error), "{}", info.name);
        }
    }
    let opcode = Opcode::CNP;
    assert!(Packet::parse(&zeros(opcode, 0, 28)).is_ok());
    assert_eq!(Packet::parse(&zeros(opcode, 0, 24)), Err(WireError::Payload { opcode, length: 12 }));
    assert_eq!(Packet::parse(&zeros(opcode, 1, 28)), Err(WireError::Payload { opcode, length: 15 }));
}

#[test]
fn other_header_versions() {
    for version in 1..16 {
        let mut datagram = zeros(Opcode::RC_SEND_ONLY, 0, Bth::LEN);
        datagram[1] |= version;
        assert_eq!(Packet::parse(&datagram), Err(WireError::Version(version)));
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let opcode = Opcode::RC_ACKNOWLEDGE;
    assert_eq!(
        WireError::Payload { opcode, length: 4 }.to_string(),
        "RC_ACKNOWLEDGE does not take a payload of 4 bytes"
    );
    assert_eq!(WireError::UnknownOpcode(Opcode::new(0xff)).to_string(), "unknown opcode 0xff");
}

fn zero_bth(opcode: Opcode) -> Bth {
    Bth {
        opcode,
        solicited: false,
        migration: false,
        pad: 0,
        version: 0,
        pkey: 0,
        fecn: false,
        becn: false,
        destination: Qpn::new(0),
        ack_request: false,
        psn: Psn::new(0),
    }
}
