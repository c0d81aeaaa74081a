//! Slots of the loopback interface, on addresses of their own; each test answers newcomers by itself or by a thread.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::port::tests::{Namespaces, commit, datagram, datagrams, flow, ip, receive};
use crate::port::{Port, UdpPort, seal, sys};
use crate::wire::{ICRC_LEN, UDP_PORT};

fn loopback() -> u32 {
    let all = crate::port::interfaces().expect("netlink");
    all.iter().find(|interface| interface.loopback).expect("a loopback interface").index
}

/// Runs `work` while a thread answers for `slot`.
fn answering<T>(slot: &Slot, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let _ = sys::poll(&[slot.as_raw_fd()], &[], Some(Duration::from_millis(5)));
                slot.answer();
            }
        });
        let result = work();
        stop.store(true, Ordering::SeqCst);
        result
    })
}

/// A datagram for a queue pair of `slot`.
fn datagram_for(slot: u8, seed: u32) -> Vec<u8> {
    let mut bytes = datagram(seed, 64);
    bytes[5] = slot;
    bytes
}

#[test]
fn each_port_gets_what_is_for_its_slot() {
    let address = ip("127.81.1.1");
    let first = Slot::take(loopback(), &[address]).expect("a slot");
    let second = answering(&first, || Slot::take(loopback(), &[address])).expect("another slot");
    assert_ne!(first.number(), second.number());
    let mut ports = [&first, &second].map(|slot| UdpPort::share(&[address], Arc::clone(slot)).expect("a port"));
    let mut sender = UdpPort::bind(&[ip("127.81.1.2")]).expect("bind");
    for seed in 0..20 {
        for slot in [&first, &second] {
            // One flow and one length: only the slot keeps them from being one run.
            commit(&mut sender, &flow("127.81.1.2", "127.81.1.1", 0xc001), &datagram_for(slot.number(), seed));
        }
        // For nobody: it must not come to either.
        commit(&mut sender, &flow("127.81.1.2", "127.81.1.1", 0xc001), &datagram_for(0xfe, seed));
    }
    sender.flush().expect("flush");
    for (port, slot) in ports.iter_mut().zip([&first, &second]) {
        let expected: Vec<_> = (0..20).map(|seed| datagram_for(slot.number(), seed)).collect();
        assert_eq!(datagrams(&receive(port, 20)), expected);
        assert_eq!((port.counters().handed_over, port.counters().icrc_errors), (0, 0));
    }
}

/// The first of all ends; the second has the envelope too, and gives it to a third. Places in the group do not move.
#[test]
fn the_first_may_end() {
    let address = ip("127.81.2.1");
    let first = Slot::take(loopback(), &[address]).expect("a slot");
    let second = answering(&first, || Slot::take(loopback(), &[address])).expect("another slot");
    let mut port = UdpPort::share(&[address], Arc::clone(&second)).expect("a port");
    drop(first);
    let third = answering(&second, || Slot::take(loopback(), &[address])).expect("a third slot");
    let mut other = UdpPort::share(&[address], Arc::clone(&third)).expect("a port");
    let mut sender = UdpPort::bind(&[ip("127.81.2.2")]).expect("bind");
    for slot in [&second, &third] {
        let flow = flow("127.81.2.2", "127.81.2.1", 0xc001);
        commit(&mut sender, &flow, &datagram_for(slot.number(), 1));
    }
    sender.flush().expect("flush");
    assert_eq!(datagrams(&receive(&mut port, 1)), [datagram_for(second.number(), 1)]);
    assert_eq!(datagrams(&receive(&mut other, 1)), [datagram_for(third.number(), 1)]);
    drop((port, other, second, third));
    // Nothing is left: the port can be had by one alone.
    UdpPort::bind(&[address]).expect("free again");
}

/// What came for a process that ended does not come to the next one in its slot.
#[test]
fn a_slot_is_empty_when_it_is_taken() {
    let address = ip("127.81.3.1");
    let slot = Slot::take(loopback(), &[address]).expect("a slot");
    let port = UdpPort::share(&[address], Arc::clone(&slot)).expect("a port");
    let mut sender = UdpPort::bind(&[ip("127.81.3.2")]).expect("bind");
    let mut send = |seed| {
        let flow = flow("127.81.3.2", "127.81.3.1", 0xc001);
        commit(&mut sender, &flow, &datagram_for(slot.number(), seed));
        sender.flush().expect("flush");
    };
    send(1);
    drop(port);
    send(2);
    let mut port = UdpPort::share(&[address], Arc::clone(&slot)).expect("a port");
    send(3);
    assert_eq!(datagrams(&receive(&mut port, 1)), [datagram_for(slot.number(), 3)]);
    assert_eq!(port.counters().receive_overflow, 0);
}

/// A peer of another make may put datagrams for two processes into one run: the first of them decides who gets it.
#[test]
fn what_is_for_another_slot_is_handed_over() {
    let (address, peer) = (ip("127.81.4.1"), ip("127.81.4.2"));
    let first = Slot::take(loopback(), &[address]).expect("a slot");
    let second = answering(&first, || Slot::take(loopback(), &[address])).expect("another slot");
    let mut ports = [&first, &second].map(|slot| UdpPort::share(&[address], Arc::clone(slot)).expect("a port"));
    let gone = (1..Slot::COUNT).find(|slot| ![first.number(), second.number()].contains(slot)).expect("a free slot");
    let socket = UdpSocket::bind((peer, 0)).expect("bind");
    let source_port = socket.local_addr().expect("address").port();
    let sent: Vec<Vec<u8>> = [first.number(), second.number(), gone, second.number(), first.number()]
        .iter()
        .zip(1..)
        .map(|(slot, seed)| datagram_for(*slot, seed))
        .collect();
    let mut run = Vec::new();
    for (identification, datagram) in (0..).zip(&sent) {
        let mut frame = datagram.clone();
        frame.extend([0; ICRC_LEN]);
        seal::seal(&flow("127.81.4.2", "127.81.4.1", 0), source_port, identification, &mut frame);
        run.extend(frame);
    }
    let segment = libc::c_int::try_from(sent[0].len() + ICRC_LEN).expect("a length");
    sys::set_option(std::os::fd::AsFd::as_fd(&socket), libc::SOL_UDP, libc::UDP_SEGMENT, segment).expect("UDP_SEGMENT");
    socket.send_to(&run, (address, UDP_PORT)).expect("send");
    let of = |indices: &[usize]| indices.iter().map(|index| sent[*index].clone()).collect::<Vec<_>>();
    assert_eq!(datagrams(&receive(&mut ports[0], 5)), of(&[0, 4]));
    let counters = ports[0].counters();
    assert_eq!((counters.handed_over, counters.handover_errors, counters.received), (2, 1, 2));
    let arrivals = receive(&mut ports[1], 2);
    assert_eq!(datagrams(&arrivals), of(&[1, 3]));
    assert!(
        arrivals.iter().all(|arrival| (arrival.source, arrival.destination, arrival.hop_limit) == (peer, address, 64))
    );
    // What nobody meant for this port is dropped, whoever hands it over.
    let stranger = name::socket(rustix::net::SocketType::DGRAM).expect("a socket");
    let to = name::handover(loopback(), second.number()).expect("a name");
    for junk in [&[][..], &[0; 35], &[0; 36], &[0xff; 200]] {
        rustix::net::sendto(&stranger, junk, rustix::net::SendFlags::empty(), &to).expect("send");
    }
    assert_eq!(ports[1].receive(&mut |_| panic!("junk")).expect("receive"), 0);
}

/// Addresses that come later are shared as the first ones are.
#[test]
fn addresses_are_added_and_given_up() {
    let [a, b] = ["127.81.5.1", "127.81.5.2"].map(ip);
    let first = Slot::take(loopback(), &[a]).expect("a slot");
    let second = answering(&first, || Slot::take(loopback(), &[a])).expect("another slot");
    answering(&first, || second.prepare(&[a, b])).expect("prepared");
    answering(&second, || first.prepare(&[b])).expect("prepared");
    assert!(first.socket(a).is_err() && first.socket(b).is_ok());
    let mut port = UdpPort::share(&[a], Arc::clone(&second)).expect("a port");
    port.set_addresses(&[b, ip("127.81.5.3")]);
    assert_eq!(port.addresses(), [b], "the third was not prepared");
}

#[test]
fn a_port_that_is_held_alone_is_explained() {
    let address = ip("127.81.6.1");
    let _alone = UdpPort::bind(&[address]).expect("bind");
    let error = Slot::take(loopback(), &[address]).expect_err("taken").to_string();
    assert!(error.contains("127.81.6.1") && error.contains("rdma_rxe"), "{error}");
}

/// Who holds an address and does not answer is named, after a bounded time.
#[test]
fn who_does_not_answer_is_named() {
    let address = ip("127.81.7.1");
    let _silent = Slot::take(loopback(), &[address]).expect("a slot");
    let error = Slot::take(loopback(), &[address]).expect_err("nobody answers");
    let SlotError::Silent { pids, .. } = &error else { panic!("{error}") };
    assert!(pids.contains(&std::process::id()), "{error}");
    assert!(error.to_string().contains("127.81.7.1"), "{error}");
}

/// An ordinary user's login has 1024 descriptors, which count those in flight as well: more groups than fit are made all the
/// same, and the limit is what it was.
#[test]
fn more_groups_than_the_limit_of_descriptors() {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    if limit.maximum.is_some_and(|most| most < 4096) {
        return eprintln!("SKIPPED: the hard limit of descriptors is too low: {limit:?}");
    }
    let addresses: Vec<IpAddr> = (1..=12).map(|n| ip(&format!("127.81.8.{n}"))).collect();
    let slot = Slot::take(loopback(), &addresses).expect("a slot");
    for address in addresses {
        slot.socket(address).expect("a socket");
    }
    assert_eq!(getrlimit(Resource::Nofile).current, before);
}

/// Every slot of an interface is taken once, and who comes then is told so.
#[test]
fn there_are_only_so_many_slots() {
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    namespaces.enter(0);
    let interface = crate::port::interfaces().expect("netlink").pop().expect("veth0").index;
    let first = Slot::take(interface, &[ip("10.79.0.1")]).expect("a slot");
    let mut numbers = vec![first.number()];
    let others: Vec<_> = answering(&first, || {
        let others = (2..Slot::COUNT).map(|_| Slot::take(interface, &[ip("10.79.0.1")]).expect("a slot")).collect();
        let error = Slot::take(interface, &[ip("10.79.0.1")]).expect_err("no slot is left");
        assert!(matches!(error, SlotError::Full) && error.to_string().contains("127"), "{error}");
        others
    });
    numbers.extend(others.iter().map(|slot| slot.number()));
    numbers.sort_unstable();
    assert_eq!(numbers, (1..Slot::COUNT).collect::<Vec<_>>());
}
