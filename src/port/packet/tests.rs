//! Packet ports over a veth pair, with each other and with UDP ports.

use std::fs;
use std::time::{Duration, Instant};

use super::*;
use crate::port::tests::{Namespaces, Owned, commit, datagram, datagrams, flow, flush, ip, receive};
use crate::port::{UdpPort, seal, sys};

const V4: [&str; 2] = ["10.79.0.1", "10.79.0.2"];
const V6: [&str; 2] = ["fd79::1", "fd79::2"];

fn packet_port(namespaces: &Namespaces, side: usize) -> PacketPort {
    namespaces.enter(side);
    PacketPort::open("veth0", &[ip(V4[side]), ip(V6[side])]).expect("open")
}

/// Sends runs and single datagrams of both families from `sender` (in the first namespace) and checks what `receiver` gets.
fn exchange(namespaces: &Namespaces, sender: &mut dyn Port, receiver: &mut dyn Port) {
    namespaces.enter(0);
    for [source, destination] in [V4, V6] {
        // While the kernel looks for a neighbour, it keeps only so much of what a UDP socket sends there.
        commit(sender, &flow(source, destination, 0xc321), &datagram(0, 16));
        flush(sender);
        receive(receiver, 1);
        let flow = Flow { traffic_class: 0x6a, hop_limit: 17, ..flow(source, destination, 0xc321) };
        let lengths = [4128, 4112, 4112, 4112, 4112, 4112, 20, 16, 16, 16, 1040, 4096 + 76];
        let sent: Vec<_> = (0..120).zip(lengths.iter().cycle()).map(|(i, &length)| datagram(i, length)).collect();
        for datagram in &sent {
            commit(sender, &flow, datagram);
        }
        flush(sender);
        let arrivals = receive(receiver, sent.len());
        assert_eq!(datagrams(&arrivals), sent);
        let head = Owned { datagram: Vec::new(), ..arrivals[0].clone() };
        let (source, destination) = (ip(source), ip(destination));
        let expected = Owned { source, destination, traffic_class: 0x6a, hop_limit: 17, datagram: Vec::new() };
        assert_eq!(head, expected);
    }
    let (sent, received) = (sender.counters(), receiver.counters());
    assert_eq!((sent.sent, sent.send_errors), (242, 0));
    assert!(sent.send_calls < 60, "{sent:?}");
    assert_eq!((received.received, received.icrc_errors, received.malformed), (242, 0, 0));
    assert_eq!(sent.sent_bytes, received.received_bytes);
}

#[test]
fn packet_to_packet() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    let mut sender = packet_port(&namespaces, 0);
    let mut receiver = packet_port(&namespaces, 1);
    exchange(&namespaces, &mut sender, &mut receiver);
    // The kernel of the receiving side, which saw every packet too, found a socket for each and answered none, apart from
    // the two that made the sender's kernel look for its neighbour.
    namespaces.enter(1);
    assert!(unreachable() <= 2, "{}", unreachable());
}

#[test]
fn packet_to_udp() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    let mut sender = packet_port(&namespaces, 0);
    namespaces.enter(1);
    let mut receiver = UdpPort::bind(&[ip(V4[1]), ip(V6[1])]).expect("bind");
    exchange(&namespaces, &mut sender, &mut receiver);
}

#[test]
fn udp_to_packet() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    namespaces.enter(0);
    let mut sender = UdpPort::bind(&[ip(V4[0]), ip(V6[0])]).expect("bind");
    let mut receiver = packet_port(&namespaces, 1);
    exchange(&namespaces, &mut sender, &mut receiver);
}

/// Datagrams that the kernel of the sender cut (IPv4 ID 0, 1, 2, ...) or that a card cut before they were joined: this port
/// sees the real ID, and a datagram whose ICRC asks for another is corrupt.
#[test]
fn the_identification_is_checked() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    let mut receiver = packet_port(&namespaces, 1);
    namespaces.enter(0);
    let peer = std::net::UdpSocket::bind((ip(V4[0]), 0xc111)).expect("bind");
    sys::set_option(peer.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO).expect("DF");
    for identification in [0, 1] {
        let mut frame = datagram(3, 64);
        frame.extend([0; 4]);
        seal::seal(&flow(V4[0], V4[1], 0), 0xc111, identification, &mut frame);
        peer.send_to(&frame, (ip(V4[1]), UDP_PORT)).expect("send");
    }
    peer.send_to(&[0; 15], (ip(V4[1]), UDP_PORT)).expect("send");
    peer.send_to(&[0; 64], (ip(V4[1]), UDP_PORT + 1)).expect("send");
    assert_eq!(datagrams(&receive(&mut receiver, 3)), [datagram(3, 64)]);
    assert_eq!((receiver.counters().icrc_errors, receiver.counters().malformed), (1, 1));
}

/// A gateway's Ethernet address for what lies behind it.
#[test]
fn routes_are_followed() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    namespaces.ip(0, "route add 10.80.0.0/16 via 10.79.0.2");
    namespaces.ip(1, "addr add 10.80.7.7/32 dev lo");
    let mut sender = packet_port(&namespaces, 0);
    namespaces.enter(1);
    let mut receiver = UdpPort::bind(&[ip("10.80.7.7")]).expect("bind");
    namespaces.enter(0);
    commit(&mut sender, &flow(V4[0], "10.80.7.7", 0xc000), &datagram(0, 64));
    flush(&mut sender);
    assert_eq!(receive(&mut receiver, 1).len(), 1);
    // Without the route it is taken to be on the link itself, as kernel rxe does; and Linux answers there for all its addresses.
    namespaces.ip(0, "route del 10.80.0.0/16 via 10.79.0.2");
    sender.receive(&mut |_| ()).expect("receive");
    commit(&mut sender, &flow(V4[0], "10.80.7.7", 0xc000), &datagram(1, 64));
    assert_eq!(sender.link.neighbours.next_hops(), [ip(V4[1]), ip("10.80.7.7")]);
    flush(&mut sender);
    assert_eq!(datagrams(&receive(&mut receiver, 1)), [datagram(1, 64)]);
}

/// What is sent to nobody waits while the kernel looks, then is given up, and is not kept without bound.
#[test]
fn a_silent_neighbour() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    let mut sender = packet_port(&namespaces, 0);
    namespaces.hurry_neighbours();
    let silent = flow(V4[0], "10.79.0.9", 0xc000);
    for i in 0..200 {
        commit(&mut sender, &silent, &datagram(i, 4096));
    }
    sender.flush().expect("flush");
    assert!(sender.backlog() && sender.backlog_descriptors().is_empty());
    assert!(sender.room().is_some(), "it took the whole buffer");
    let begin = Instant::now();
    flush(&mut sender);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!((sender.counters().sent, sender.counters().send_errors), (0, 200));
    // It moves in.
    namespaces.ip(1, "addr add 10.79.0.9/24 dev veth0");
    namespaces.enter(1);
    let mut receiver = UdpPort::bind(&[ip("10.79.0.9")]).expect("bind");
    namespaces.enter(0);
    commit(&mut sender, &silent, &datagram(1, 64));
    flush(&mut sender);
    assert_eq!(datagrams(&receive(&mut receiver, 1)), [datagram(1, 64)]);
}

/// A neighbour that gets another Ethernet address is found again.
#[test]
fn a_neighbour_moves() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    let mut sender = packet_port(&namespaces, 0);
    let mut receiver = packet_port(&namespaces, 1);
    for address in ["02:00:00:00:00:02", "02:00:00:00:00:03"] {
        namespaces.ip(1, "link set veth0 down");
        namespaces.ip(1, &format!("link set veth0 address {address}"));
        namespaces.ip(1, "link set veth0 up");
        namespaces.ip(0, "neigh flush dev veth0");
        namespaces.ip(0, &format!("neigh replace 10.79.0.2 lladdr {address} dev veth0"));
        namespaces.enter(0);
        sender.receive(&mut |_| ()).expect("receive");
        commit(&mut sender, &flow(V4[0], V4[1], 0xc000), &datagram(0, 64));
        flush(&mut sender);
        assert_eq!(receive(&mut receiver, 1).len(), 1, "{address}");
    }
}

#[test]
fn loopback_works_too() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    namespaces.enter(0);
    let mut sender = PacketPort::open("lo", &[ip("127.0.0.1")]).expect("open");
    let mut receiver = PacketPort::open("lo", &[ip("127.0.0.2")]).expect("open");
    for i in 0..30 {
        commit(&mut sender, &flow("127.0.0.1", "127.0.0.2", 0xc000), &datagram(i, 1024));
    }
    flush(&mut sender);
    assert_eq!(receive(&mut receiver, 30).len(), 30);
}

#[test]
fn what_cannot_be_opened_is_explained() {
    let error = PacketPort::open("nonesuch0", &[]).expect_err("no such interface").to_string();
    assert!(error.contains("nonesuch0") && error.contains("lo"), "{error}");
    let error = PacketPort::open("lo", &[ip("192.0.2.9")]).expect_err("foreign address").to_string();
    assert!(error.contains("192.0.2.9") && error.contains("127.0.0.1"), "{error}");
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    namespaces.enter(0);
    let _holder = UdpPort::bind(&[ip(V4[0])]).expect("bind");
    let error = PacketPort::open("veth0", &[ip(V4[0])]).expect_err("taken").to_string();
    assert!(error.contains("10.79.0.1") && error.contains("4791"), "{error}");
}

/// How many UDP datagrams found no socket in this thread's namespace: those that the kernel answers.
fn unreachable() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").expect("snmp");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let column = lines.next().expect("names").split_whitespace().position(|name| name == "NoPorts");
    let value = lines.next().expect("values").split_whitespace().nth(column.expect("NoPorts"));
    value.expect("a value").parse().expect("a number")
}
