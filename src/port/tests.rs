//! What the tests of several ports share.

use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Port;

use crate::wire::{Arrival, Bth, Flow, Opcode, Psn, Qpn};

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(super) fn flow(source: &str, destination: &str, source_port: u16) -> Flow {
    Flow { source: ip(source), destination: ip(destination), source_port, traffic_class: 0, hop_limit: 64 }
}

/// A datagram of `length` bytes with a BTH in front, whose PSN is `seed`, and bytes that differ with it.
pub(super) fn datagram(seed: u32, length: usize) -> Vec<u8> {
    let bth = Bth {
        opcode: Opcode::UC_SEND_ONLY,
        solicited: false,
        migration: false,
        pad: 0,
        version: 0,
        pkey: 0xffff,
        fecn: false,
        becn: false,
        destination: Qpn::new(0x1_0011),
        ack_request: false,
        psn: Psn::new(seed),
    };
    let mut bytes: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(31) ^ seed as u8).collect();
    if let Some(head) = bytes.first_chunk_mut() {
        bth.emit(head);
    }
    bytes
}

/// An arrival that outlives its burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) datagram: Vec<u8>,
}

pub(super) fn commit(port: &mut dyn Port, flow: &Flow, datagram: &[u8]) {
    port.room().expect("room")[..datagram.len()].copy_from_slice(datagram);
    port.commit(flow, datagram.len());
}

/// Receives until `count` datagrams were taken, good or bad.
pub(super) fn receive(port: &mut dyn Port, count: usize) -> Vec<Owned> {
    let mut arrivals = Vec::new();
    let mut taken = 0;
    let deadline = Instant::now() + Duration::from_secs(5);
    while taken < count {
        assert!(Instant::now() < deadline, "{taken} of {count} datagrams came: {:?}", port.counters());
        super::wait(&port.descriptors(), &[], Some(Duration::from_millis(100))).expect("poll");
        let mut sink = |arrival: Arrival<'_>| {
            arrivals.push(Owned {
                source: arrival.source,
                destination: arrival.destination,
                traffic_class: arrival.traffic_class,
                hop_limit: arrival.hop_limit,
                datagram: arrival.datagram.to_vec(),
            });
        };
        taken += port.receive(&mut sink).expect("receive");
    }
    assert_eq!(port.receive(&mut |_| ()).expect("receive"), 0, "more came than {count}");
    arrivals
}

pub(super) fn datagrams(arrivals: &[Owned]) -> Vec<Vec<u8>> {
    arrivals.iter().map(|arrival| arrival.datagram.clone()).collect()
}

/// Flushes until nothing is left behind, which neighbour discovery may take some time for.
pub(super) fn flush(port: &mut dyn Port) {
    let deadline = Instant::now() + Duration::from_secs(5);
    port.flush().expect("flush");
    while port.backlog() {
        assert!(Instant::now() < deadline, "still a backlog: {:?}", port.counters());
        super::wait(&port.descriptors(), &port.backlog_descriptors(), Some(Duration::from_millis(100))).expect("poll");
        port.flush().expect("flush");
    }
}

/// Two network namespaces with a veth pair between them, `veth0` on either side: 10.79.0.1 and fd79::1 in the first,
/// 10.79.0.2 and fd79::2 in the second. They end with this value.
pub(super) struct Namespaces([String; 2]);

impl Namespaces {
    /// `None`, and a word on the terminal, when this process may not make them. Where `UROCE_TEST_NO_SKIP` is set, that fails.
    pub(super) fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let names = ["a", "b"].map(|side| format!("uroce-{unique}{side}"));
        if let Err(why) = ip_command(&format!("netns add {}", names[0])) {
            assert!(std::env::var_os("UROCE_TEST_NO_SKIP").is_none(), "no network namespace: {why}");
            // Not eprintln, which the test harness would keep to itself.
            let skipped = format!("SKIPPED: a test needs root for its network namespaces: {why}\n");
            std::io::stderr().write_all(skipped.as_bytes()).expect("stderr");
            return None;
        }
        let namespaces = Self(names);
        let [a, b] = &namespaces.0;
        let mut commands = vec![
            format!("netns add {b}"),
            format!("link add veth0 netns {a} mtu 9000 type veth peer name veth0 netns {b}"),
        ];
        for (name, number) in [(a, 1), (b, 2)] {
            commands.extend([
                format!("-n {name} link set veth0 mtu 9000"),
                format!("-n {name} addr add 10.79.0.{number}/24 dev veth0"),
                format!("-n {name} addr add fd79::{number}/64 dev veth0 nodad"),
                format!("-n {name} link set lo up"),
                format!("-n {name} link set veth0 up"),
            ]);
        }
        commands.iter().for_each(|command| ip_command(command).expect(command));
        Some(namespaces)
    }

    /// Puts this thread into the first (0) or second (1) namespace: sockets opened from now on belong there.
    pub(super) fn enter(&self, side: usize) {
        let file = File::open(format!("/run/netns/{}", self.0[side])).expect("a namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns");
    }

    /// Runs `ip` in a namespace.
    pub(super) fn ip(&self, side: usize, arguments: &str) {
        ip_command(&format!("-n {} {arguments}", self.0[side])).expect(arguments);
    }

    /// Has the namespace of this thread give up a silent neighbour after a tenth of a second instead of three.
    pub(super) fn hurry_neighbours(&self) {
        fs::write("/proc/sys/net/ipv4/neigh/veth0/retrans_time_ms", "30").expect("sysctl");
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip_command(&format!("netns del {name}"));
        }
    }
}

fn ip_command(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {}", said.trim())) }
}
