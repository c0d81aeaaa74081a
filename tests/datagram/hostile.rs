//! Packets made by hand that break the rules of UC and UD: dropped, counted, never answered, and the next good one is taken.

use std::net::IpAddr;

use uroce::qp::State;
use uroce::wire::{Arrival, Deth, Grh, Opcode, Qpn};
use uroce::work::{Status, Tag};

use crate::common::craft::{Craft, Victim};
use crate::common::pair::{Options, Pair, QKEY};
use crate::{uc, ud};

const PSN: u32 = 0xff_fffe;
const MTU: usize = 1024;

fn victim(options: Options) -> Victim {
    Victim::new(Pair::clean(Options { psns: [PSN, 0], ..options }), PSN)
}

impl Victim {
    /// Hands it a packet that takes the next PSN; it answers nothing.
    fn feed(&mut self, opcode: Opcode, change: impl FnOnce(Craft) -> Craft) {
        let packet = change(self.request(opcode));
        assert_eq!(self.ask(&packet), [], "nothing is ever answered");
        self.psn = (self.psn + 1) & 0xff_ffff;
    }

    fn received(&mut self) -> Vec<(u64, Status, u32)> {
        self.pair.b.progress(self.pair.now);
        self.pair.b.completions.drain(..).map(|c| (c.id, c.status, c.byte_length)).collect()
    }
}

/// After whatever came, a whole message is taken and the queue pair is as it was.
fn assert_takes_the_next(victim: &mut Victim, story: &str) {
    victim.feed(Opcode::UC_SEND_ONLY, |packet| packet.payload(&[5; 12]));
    assert_eq!(victim.received(), [(1, Status::Success, 12)], "{story}");
    assert_eq!(victim.pair.b.state(), State::ReadyToSend, "{story}");
    assert_eq!(victim.pair.b.events, [], "{story}");
}

#[test]
fn every_broken_order_and_size_loses_the_message_alone() {
    use Opcode as O;
    // A packet of each opcode and payload; with RETH the length that it announces.
    type Step = (O, usize, Option<u32>);
    let cases: &[(&str, &[Step], u64)] = &[
        ("a middle without a first", &[(O::UC_SEND_MIDDLE, MTU, None), (O::UC_SEND_LAST, 4, None)], 1),
        ("a last without a first", &[(O::UC_SEND_LAST, 4, None)], 1),
        ("a first after a first", &[(O::UC_SEND_FIRST, MTU, None), (O::UC_SEND_FIRST, MTU, None)], 2),
        ("a first and no last", &[(O::UC_SEND_FIRST, MTU, None)], 1),
        ("a short first", &[(O::UC_SEND_FIRST, MTU - 4, None), (O::UC_SEND_LAST, 4, None)], 1),
        ("a short middle", &[(O::UC_SEND_FIRST, MTU, None), (O::UC_SEND_MIDDLE, 8, None)], 1),
        ("an empty last", &[(O::UC_SEND_FIRST, MTU, None), (O::UC_SEND_LAST, 0, None)], 1),
        ("an only above the path MTU", &[(O::UC_SEND_ONLY, MTU + 4, None)], 1),
        ("a WRITE inside a SEND", &[(O::UC_SEND_FIRST, MTU, None), (O::UC_WRITE_LAST, 4, None)], 1),
        ("a WRITE longer than it says", &[(O::UC_WRITE_ONLY, 16, Some(8))], 1),
        ("a WRITE shorter than it says", &[(O::UC_WRITE_ONLY, 8, Some(16))], 1),
        ("a WRITE of 2^31 and one", &[(O::UC_WRITE_FIRST, MTU, Some((1 << 31) + 1))], 1),
        ("a WRITE beyond its region", &[(O::UC_WRITE_FIRST, MTU, Some(1 << 30))], 1),
    ];
    for (story, steps, dropped) in cases {
        let mut victim = victim(uc::options());
        victim.pair.receive(1, 0, 8192);
        let (base, key) = (victim.pair.b.buffer.address() + 65_536, victim.pair.b.key);
        for &(opcode, payload, reth) in *steps {
            victim.feed(opcode, |packet| {
                let packet = packet.payload(&vec![9; payload]);
                if let Some(length) = reth { packet.reth(base, key, length) } else { packet }
            });
        }
        assert_takes_the_next(&mut victim, story);
        assert_eq!(victim.pair.b.counters().dropped_messages, *dropped, "{story}");
    }
}

/// A peer that lost count is followed, from its next message on; one that is a little behind is a packet that is late.
#[test]
fn a_peer_that_lost_count_is_followed() {
    for (jump, taken) in [(1, true), (1000, true), (0x40_0000, true), (-1, false), (-0xffff, false), (-0x2_0000, true)]
    {
        let mut victim = victim(uc::options());
        victim.pair.receive(1, 0, 8192);
        victim.psn = (PSN as i32 + jump).cast_unsigned() & 0xff_ffff;
        victim.feed(Opcode::UC_SEND_ONLY, |packet| packet.payload(&[1; 8]));
        assert_eq!(victim.received().len(), usize::from(taken), "{jump}");
        victim.feed(Opcode::UC_SEND_ONLY, |packet| packet.payload(&[1; 8]));
        let late = u64::from(!taken) + u64::from(!taken && jump < -1);
        assert_eq!(victim.pair.b.counters().duplicate_request, late, "{jump}");
    }
}

/// Opcodes of another transport, of none, and from another address.
#[test]
fn strangers_are_dropped() {
    let mut victim = victim(uc::options());
    victim.pair.receive(1, 0, 8192);
    for opcode in [Opcode::RC_SEND_ONLY, Opcode::UD_SEND_ONLY, Opcode::RC_ACKNOWLEDGE, Opcode::XRC_SEND_ONLY] {
        victim.feed(opcode, |packet| packet);
        victim.psn = PSN;
    }
    assert_eq!(victim.pair.b.counters().wrong_transport, 4);
    let packet = victim.request(Opcode::UC_SEND_ONLY).bytes();
    victim.push_from(IpAddr::from([10, 0, 0, 9]), &packet);
    assert_eq!(victim.pair.b.counters().wrong_address, 1);
    let mut packet = victim.request(Opcode::UC_SEND_ONLY);
    packet.bth.pkey = 0x1234;
    victim.push(&packet);
    assert_eq!(victim.pair.b.counters().bad_pkey, 1);
    assert_takes_the_next(&mut victim, "strangers");
}

/// Scenario 13: a request for an acknowledge means nothing where there is none. (`Craft` asks in every packet.)
#[test]
fn a_request_for_an_acknowledge_is_ignored() {
    let mut victim = victim(uc::options());
    victim.pair.receive(1, 0, 8192);
    assert!(victim.request(Opcode::UC_SEND_ONLY).bth.ack_request);
    assert_takes_the_next(&mut victim, "UC");
    let mut victim = datagrams();
    assert_eq!(victim.ask(&datagram(&victim, &[1; 4])), []);
    assert_eq!(victim.received(), [(1, Status::Success, 44)]);
}

fn datagrams() -> Victim {
    let mut victim = victim(ud::options());
    victim.pair.receive(1, 0, 8192);
    victim
}

fn datagram(victim: &Victim, payload: &[u8]) -> Craft {
    let mut packet = victim.request(Opcode::UD_SEND_ONLY).payload(payload);
    packet.extensions.deth = Some(Deth { qkey: QKEY, source: Qpn::new(0x99) });
    packet
}

/// Larger than the link carries: it cannot have come in one piece, so it is not what it says.
#[test]
fn a_datagram_above_the_link_is_dropped() {
    let mut victim = datagrams();
    victim.push(&datagram(&victim, &[1; 4100]));
    assert_eq!(victim.received(), []);
    assert_eq!((victim.pair.b.counters().dropped_messages, victim.pair.b.state()), (1, State::ReadyToSend));
    victim.push(&datagram(&victim, &[1; 4096]));
    assert_eq!(victim.received(), [(1, Status::Success, 4136)]);
}

/// The number of groups to an address of this host, and the number of a queue pair to a group (scenario 1's address).
#[test]
fn groups_and_queue_pairs_are_not_mixed_up() {
    let mut victim = datagrams();
    let group = IpAddr::from([239, 1, 2, 3]);
    victim.pair.b.endpoint.attach_multicast(victim.pair.b.qpn, group).unwrap();
    let deliver = |victim: &mut Victim, destination, qpn| {
        let mut packet = datagram(victim, &[1; 8]);
        packet.bth.destination = qpn;
        let (source, datagram) = (victim.pair.a.address, packet.bytes());
        let arrival =
            Arrival { source, destination, source_port: 0, traffic_class: 0, hop_limit: 1, datagram: &datagram };
        victim.pair.b.endpoint.on_packet(victim.pair.now, &arrival);
        victim.received().len()
    };
    let (own, qpn) = (victim.pair.b.address, victim.pair.b.qpn);
    assert_eq!(deliver(&mut victim, own, Qpn::MULTICAST), 0);
    assert_eq!(victim.pair.b.counters().no_queue_pair, 1);
    assert_eq!(deliver(&mut victim, group, qpn), 0);
    assert_eq!(victim.pair.b.counters().wrong_address, 1);
    assert_eq!(deliver(&mut victim, IpAddr::from([239, 1, 2, 4]), Qpn::MULTICAST), 0);
    assert_eq!(victim.pair.b.counters().no_queue_pair, 2);
    victim.push_from(victim.pair.a.address, &[0xff; 48]);
    assert_eq!(victim.pair.b.counters().malformed, 1);
    assert_eq!(deliver(&mut victim, group, Qpn::MULTICAST), 1);
}

#[test]
fn over_ipv6_the_header_is_whole() {
    let mut victim = datagrams();
    let mut packet = datagram(&victim, b"six!");
    packet.bth.opcode = Opcode::UD_SEND_ONLY_IMM;
    packet.extensions.immediate = Some(6);
    let datagram = packet.bytes();
    let (source, destination) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let arrival = Arrival { source, destination, source_port: 0, traffic_class: 3, hop_limit: 60, datagram: &datagram };
    victim.pair.b.endpoint.on_packet(victim.pair.now, &arrival);
    victim.pair.b.progress(victim.pair.now);
    let [received] = victim.pair.b.completions[..] else { panic!("{:?}", victim.pair.b.completions) };
    assert_eq!((received.byte_length, received.tag, received.source_qpn), (44, Tag::Immediate(6), Qpn::new(0x99)));
    let grh = Grh::parse(&victim.pair.b.bytes(0, 40).try_into().unwrap());
    assert_eq!(grh, Some(Grh { source, destination, traffic_class: 3, hop_limit: 60 }));
}
