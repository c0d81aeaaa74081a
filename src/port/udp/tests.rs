//! Ports on loopback addresses of their own. Linux answers for all of 127.0.0.0/8, so no privilege is needed.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use super::*;
use crate::port::seal;
use crate::port::tests::{Namespaces, commit, datagram, datagrams, flow, flush, ip, receive};
use crate::wire::{ICRC_LEN, MAX_DATAGRAM, UDP_PORT};

#[test]
fn a_run_is_one_call_each_way() {
    let (a, b) = ("127.79.1.1", "127.79.1.2");
    let mut sender = UdpPort::bind(&[ip(a)]).expect("bind");
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    let sent: Vec<_> = (0..64).map(|i| datagram(i, if i == 63 { 24 } else { 1000 })).collect();
    for datagram in &sent {
        commit(&mut sender, &flow(a, b, 0xc123), datagram);
    }
    sender.flush().expect("flush");
    let arrivals = receive(&mut receiver, 64);
    assert_eq!(datagrams(&arrivals), sent);
    assert!(arrivals.iter().all(|arrival| (arrival.source, arrival.destination) == (ip(a), ip(b))));
    assert!(arrivals.iter().all(|arrival| (arrival.traffic_class, arrival.hop_limit) == (0, 64)));
    let counters = sender.counters();
    assert_eq!((counters.sent, counters.send_calls, counters.send_errors), (64, 1, 0));
    assert_eq!(counters.sent_bytes, 63 * 1004 + 28);
    let counters = receiver.counters();
    assert_eq!((counters.received, counters.receive_calls, counters.icrc_errors), (64, 1, 0));
    assert_eq!(counters.received_bytes, 63 * 1004 + 28);
}

/// A shorter datagram closes a run, a longer one or another flow begins a new one, and order is kept within each flow.
#[test]
fn lengths_and_flows_in_any_order() {
    let (a, b) = ("127.79.2.1", "127.79.2.2");
    let mut sender = UdpPort::bind(&[ip(a)]).expect("bind");
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    let marked = Flow { traffic_class: 0x6a, hop_limit: 9, ..flow(a, b, 0xc001) };
    let plain = flow(a, b, 0xc002);
    let script: Vec<(Flow, Vec<u8>)> = (0..200u32)
        .map(|i| {
            let flow = if i % 7 < 3 { marked } else { plain };
            (flow, datagram(i, [4128, 4112, 4112, 4112, 16, 16, 28, 1040][(i % 8) as usize]))
        })
        .collect();
    for part in script.chunks(40) {
        for (flow, datagram) in part {
            commit(&mut sender, flow, datagram);
        }
        sender.flush().expect("flush");
        let arrivals = receive(&mut receiver, part.len());
        for (flow, class, hops) in [(marked, 0x6a, 9), (plain, 0, 64)] {
            let sent: Vec<_> = part.iter().filter(|sent| sent.0 == flow).map(|sent| sent.1.clone()).collect();
            let of_flow = arrivals.iter().filter(|arrival| arrival.hop_limit == hops).cloned().collect::<Vec<_>>();
            assert!(of_flow.iter().all(|arrival| arrival.traffic_class == class));
            assert_eq!(datagrams(&of_flow), sent);
        }
    }
    assert!(sender.counters().send_calls < 200);
    assert_eq!(receiver.counters().icrc_errors + receiver.counters().malformed, 0);
}

#[test]
fn both_families_and_the_longest_datagram() {
    let here = Ipv6Addr::LOCALHOST.to_string();
    let mut port = UdpPort::bind(&[ip("127.79.3.1"), ip(&here)]).expect("bind");
    let longest = MAX_DATAGRAM - ICRC_LEN;
    for i in 0..20 {
        commit(
            &mut port,
            &Flow { traffic_class: 2, hop_limit: 3, ..flow(&here, &here, 0xd000) },
            &datagram(i, longest),
        );
        commit(&mut port, &flow("127.79.3.1", "127.79.3.1", 0xd000), &datagram(i, longest));
    }
    port.flush().expect("flush");
    let arrivals = receive(&mut port, 40);
    let v6: Vec<_> = arrivals.iter().filter(|arrival| arrival.destination.is_ipv6()).cloned().collect();
    assert!(v6.iter().all(|arrival| (arrival.traffic_class, arrival.hop_limit) == (2, 3)));
    assert_eq!(datagrams(&v6), (0..20).map(|i| datagram(i, longest)).collect::<Vec<_>>());
    assert_eq!(arrivals.len(), 40);
}

/// What any program on the host may send to port 4791 is dropped and counted unless it is whole.
#[test]
fn corrupt_and_short_datagrams_are_dropped() {
    let (a, b) = ("127.79.4.1", "127.79.4.2");
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    let stranger = UdpSocket::bind((ip(a), 0)).expect("bind");
    let source_port = stranger.local_addr().expect("address").port();
    let mut good = datagram(1, 64);
    good.extend([0; ICRC_LEN]);
    seal::seal(&flow(a, b, 0), source_port, 0, &mut good);
    let mut frames = vec![good.clone(), good[..15].to_vec(), Vec::new(), vec![0; MAX_DATAGRAM + 1], vec![0xff; 60000]];
    for bit in 0..good.len() * 8 {
        // The ICRC leaves out the byte of the congestion bits: a switch may change it.
        if bit / 8 != 4 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            frames.push(bad);
        }
    }
    for frame in &frames {
        stranger.send_to(frame, (ip(b), UDP_PORT)).expect("send");
    }
    let arrivals = receive(&mut receiver, frames.len());
    assert_eq!(datagrams(&arrivals), [good[..64].to_vec()]);
    let counters = receiver.counters();
    assert_eq!((counters.received, counters.malformed), (1, 4));
    assert_eq!(counters.icrc_errors, frames.len() as u64 - 5);
}

/// A peer whose kernel writes another IPv4 ID than 0 is understood: a connected socket counts from a random start.
#[test]
fn any_identification_is_accepted() {
    let (a, b) = ("127.79.5.1", "127.79.5.2");
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    let peer = UdpSocket::bind((ip(a), 0)).expect("bind");
    let source_port = peer.local_addr().expect("address").port();
    for identification in [0, 1, 63, 64, 0x80b1, 0xffff] {
        let mut frame = datagram(2, 1040);
        frame.extend([0; ICRC_LEN]);
        seal::seal(&flow(a, b, 0), source_port, identification, &mut frame);
        peer.send_to(&frame, (ip(b), UDP_PORT)).expect("send");
    }
    assert_eq!(receive(&mut receiver, 6).len(), 6);
}

/// On a way out that has no segmentation, datagrams go one by one, and later ones are not gathered at all.
#[test]
fn a_run_that_is_refused_goes_in_pieces() {
    let (a, b) = ("127.79.6.1", "127.79.6.2");
    let mut sender = UdpPort::bind(&[ip(a)]).expect("bind");
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    let sent: Vec<_> = (0..50).map(|i| datagram(i, if i == 49 { 32 } else { 512 })).collect();
    for datagram in &sent {
        commit(&mut sender, &flow(a, b, 0xc005), datagram);
    }
    assert!(sender.queue.cut(0), "a run of 50");
    assert!(!sender.queue.cut(0), "twice");
    sender.flush().expect("flush");
    assert_eq!(datagrams(&receive(&mut receiver, 50)), sent);
    assert!(!sender.locals[0].segmentation);
    for datagram in &sent {
        commit(&mut sender, &flow(a, b, 0xc005), datagram);
    }
    sender.flush().expect("flush");
    assert_eq!(datagrams(&receive(&mut receiver, 50)), sent);
    assert_eq!((sender.counters().sent, sender.counters().send_calls), (100, 8));
}

#[test]
fn a_busy_port_is_explained() {
    let address = ip("127.79.7.1");
    let _holder = UdpPort::bind(&[address]).expect("bind");
    let error = UdpPort::bind(&[address]).expect_err("taken").to_string();
    assert!(error.contains("4791") && error.contains("127.79.7.1") && error.contains("rdma_rxe"), "{error}");
    let error = UdpPort::bind(&[ip("192.0.2.77")]).expect_err("not ours").to_string();
    assert!(error.contains("192.0.2.77") && error.contains("no interface"), "{error}");
}

/// The ICRC covers the source port: when another than the one asked for must be taken, it is sealed with that.
#[test]
fn a_busy_source_port_is_replaced() {
    let (a, b) = ("127.79.8.1", "127.79.8.2");
    let _holders = [0xffff, 0xc000].map(|port| UdpSocket::bind((ip(a), port)).expect("bind"));
    let mut sender = UdpPort::bind(&[ip(a)]).expect("bind");
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    commit(&mut sender, &flow(a, b, 0xffff), &datagram(1, 40));
    sender.flush().expect("flush");
    assert_eq!(datagrams(&receive(&mut receiver, 1)), [datagram(1, 40)]);
    let index = sender.locals[0].transmitter(0xffff);
    assert_eq!(sender.locals[0].source_port(index), 0xc001);
}

/// More source ports than sockets: they share, and each keeps the one it has.
#[test]
fn sockets_are_bounded() {
    let (a, b) = ("127.79.9.1", "127.79.9.2");
    let mut sender = UdpPort::bind(&[ip(a)]).expect("bind");
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    let ports = || (0..200).map(|i| 0xc000 + i * 3);
    for port in ports() {
        commit(&mut sender, &flow(a, b, port), &datagram(port.into(), 40));
    }
    sender.flush().expect("flush");
    assert_eq!(receive(&mut receiver, 200).len(), 200);
    let mut taken = || ports().map(|port| sender.locals[0].transmitter(port)).collect::<Vec<_>>();
    let first = taken();
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 64);
    assert_eq!(first, taken());
}

#[test]
fn what_cannot_be_sent_is_counted() {
    let (a, b) = ("127.79.10.1", "127.79.10.2");
    let mut sender = UdpPort::bind(&[ip(a)]).expect("bind");
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    commit(&mut sender, &flow("127.79.10.3", b, 0xc000), &datagram(0, 40));
    commit(&mut sender, &flow(a, "::1", 0xc000), &datagram(0, 40));
    // Linux has no route from a loopback address to 240.0.0.0/4, or to anywhere else.
    commit(&mut sender, &flow(a, "240.0.0.1", 0xc000), &datagram(0, 40));
    commit(&mut sender, &flow(a, b, 0xc000), &datagram(7, 40));
    sender.flush().expect("flush");
    assert!(!sender.backlog() && sender.backlog_descriptors().is_empty());
    assert_eq!(datagrams(&receive(&mut receiver, 1)), [datagram(7, 40)]);
    assert_eq!((sender.counters().send_errors, sender.counters().sent), (3, 1));
}

#[test]
fn room_ends_and_comes_back() {
    let (a, b) = ("127.79.11.1", "127.79.11.2");
    let mut sender = UdpPort::bind(&[ip(a)]).expect("bind");
    for length in [24, 4096] {
        let mut committed = 0u64;
        let before = sender.counters().sent;
        while let Some(room) = sender.room() {
            assert!(room.len() >= MAX_DATAGRAM);
            sender.commit(&flow(a, b, 0xc000 + (committed % 2) as u16), length);
            committed += 1;
        }
        assert!(committed >= 120, "{committed}");
        sender.flush().expect("flush");
        assert!(sender.room().is_some());
        assert_eq!(sender.counters().sent - before, committed);
    }
}

/// What a full receive buffer loses is counted, as soon as something comes through again.
#[test]
fn an_overflow_is_counted() {
    let (a, b) = ("127.79.13.1", "127.79.13.2");
    let mut sender = UdpPort::bind(&[ip(a)]).expect("bind");
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    receiver.locals[0].receiver.socket.set_recv_buffer_size(20_000).expect("setsockopt");
    assert_eq!(receiver.receive_buffer().expect("getsockopt"), 40_000);
    for i in 0..30 {
        // Of two lengths by turns and so of no runs longer than two.
        commit(&mut sender, &flow(a, b, 0xc000), &datagram(i, if i % 2 == 0 { 4000 } else { 4096 }));
    }
    sender.flush().expect("flush");
    let mut kept = 0;
    while receiver.receive(&mut |_| kept += 1).expect("receive") > 0 {}
    assert!((1..30).contains(&kept), "{kept}");
    commit(&mut sender, &flow(a, b, 0xc000), &datagram(30, 64));
    sender.flush().expect("flush");
    assert_eq!(receive(&mut receiver, 1).len(), 1);
    assert!(receiver.counters().receive_overflow > 0, "{:?}", receiver.counters());
}

#[test]
#[should_panic(expected = "room")]
fn a_commit_beyond_the_room_is_a_bug() {
    let mut port = UdpPort::bind(&[ip("127.79.12.1")]).expect("bind");
    let length = port.room().expect("room").len();
    port.commit(&flow("127.79.12.1", "127.79.12.1", 0xc000), length);
}

/// A neighbour that does not answer holds up what is sent to it, and so fills the socket's buffer. What is left behind goes out
/// as soon as there is room, and nothing is sent twice or lost.
#[test]
fn a_full_socket_leaves_a_backlog() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    namespaces.enter(0);
    let (a, b) = ("10.79.0.1", "10.79.0.2");
    let mut sender = UdpPort::bind(&[ip(a)]).expect("bind");
    let slow = sender.locals[0].transmitter(0xc001);
    sender.locals[0].socket(slow).set_send_buffer_size(50_000).expect("setsockopt");
    let sent: Vec<_> = (0..100).map(|i| datagram(i, 4096)).collect();
    for datagram in &sent {
        commit(&mut sender, &flow(a, "10.79.0.3", 0xc001), datagram);
    }
    sender.flush().expect("flush");
    assert!(sender.backlog());
    assert!(sender.counters().sent < 100);
    let blocked = sender.backlog_descriptors();
    assert_eq!(blocked, [sender.locals[0].socket(slow).as_raw_fd()]);
    assert!(!crate::port::wait(&[], &blocked, Some(Duration::from_millis(10))).expect("poll"));
    // Another flow is not held up.
    commit(&mut sender, &flow(a, b, 0xc002), &datagram(7, 40));
    sender.flush().expect("flush");
    namespaces.enter(1);
    let mut receiver = UdpPort::bind(&[ip(b)]).expect("bind");
    namespaces.enter(0);
    commit(&mut sender, &flow(a, b, 0xc002), &datagram(8, 40));
    sender.flush().expect("flush");
    assert!(sender.backlog());
    let arrivals = datagrams(&receive(&mut receiver, 1));
    assert_eq!(arrivals, [datagram(8, 40)]);
    // The neighbour comes to life.
    namespaces.enter(1);
    namespaces.ip(1, "addr add 10.79.0.3/24 dev veth0");
    let mut neighbour = UdpPort::bind(&[ip("10.79.0.3")]).expect("bind");
    namespaces.enter(0);
    flush(&mut sender);
    assert_eq!(datagrams(&receive(&mut neighbour, 100)), sent);
    assert_eq!(sender.counters().send_errors, 0);
}

/// Link-local IPv6 addresses work without telling their interface.
#[test]
fn link_local_addresses() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    let link_local = |side| {
        namespaces.ip(side, &format!("addr add fe80::{}/64 dev veth0 nodad", side + 1));
        namespaces.enter(side);
        UdpPort::bind(&[ip(&format!("fe80::{}", side + 1))]).expect("bind")
    };
    let (mut sender, mut receiver) = (link_local(0), link_local(1));
    namespaces.enter(0);
    for i in 0..20 {
        commit(&mut sender, &flow("fe80::1", "fe80::2", 0xc001), &datagram(i, 1024));
    }
    flush(&mut sender);
    assert_eq!(receive(&mut receiver, 20).len(), 20);
}

/// What is sent to a group comes to a port that joined it, as long as it has not left; the sender hears itself, if it is a
/// member.
#[test]
fn groups_are_joined_and_left() {
    let (a, b) = ("127.79.14.1", "127.79.14.2");
    let mut member = UdpPort::bind(&[ip(a)]).expect("bind");
    let mut sender = UdpPort::bind(&[ip(b)]).expect("bind");
    check_group(&mut member, &mut sender, (a, b), "239.79.14.1");
    sender.join(ip("239.79.14.2")).expect("join");
    commit(&mut sender, &flow(b, "239.79.14.2", 0xc000), &datagram(1, 64));
    sender.flush().expect("flush");
    assert_eq!(datagrams(&receive(&mut sender, 1)), [datagram(1, 64)]);
    let error = member.join(ip("ff0e::1")).expect_err("no IPv6 address").to_string();
    assert!(error.contains("ff0e::1") && error.contains("family"), "{error}");
}

/// The same over IPv6 and between two hosts, with a group of the link, which exists on every interface.
#[test]
fn groups_of_a_link() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    let link_local = |side| {
        namespaces.ip(side, &format!("addr add fe80::{}/64 dev veth0 nodad", side + 1));
        namespaces.enter(side);
        UdpPort::bind(&[ip(&format!("fe80::{}", side + 1))]).expect("bind")
    };
    let (mut sender, mut member) = (link_local(0), link_local(1));
    check_group(&mut member, &mut sender, ("fe80::2", "fe80::1"), "ff02::79:14");
}

fn check_group(member: &mut UdpPort, sender: &mut UdpPort, (a, b): (&str, &str), group: &str) {
    let descriptors = member.descriptors();
    member.join(ip(group)).expect("join");
    member.join(ip(group)).expect("join once more");
    assert_eq!(member.descriptors(), descriptors, "a driver asks for them once");
    let sent: Vec<_> = (0..40).map(|i| datagram(i, 512)).collect();
    for datagram in &sent {
        commit(sender, &flow(b, group, 0xc000), datagram);
    }
    flush(sender);
    assert!(crate::port::wait(&descriptors, &[], Some(Duration::from_secs(5))).expect("poll"), "{a}, {group}");
    let arrivals = receive(member, 40);
    assert!(arrivals.iter().all(|arrival| arrival.destination == ip(group) && arrival.source == ip(b)));
    assert_eq!(datagrams(&arrivals), sent, "{group}");
    member.leave(ip(group));
    commit(sender, &flow(b, group, 0xc000), &sent[0]);
    flush(sender);
    assert!(!crate::port::wait(&descriptors, &[], Some(Duration::from_millis(20))).expect("poll"), "{group}");
}
