//! How fast the ports are: throughput in bulk and of small messages, and the time of a round trip, between two threads.
//!
//! `cargo bench --bench port` measures UDP ports over loopback and, for root, UDP and packet ports over a veth pair (MTU 9000)
//! between two network namespaces. The bytes in flight are bounded as the protocol bounds them, so what is lost is a fault.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use uroce::port::{PacketPort, Port, UdpPort};
use uroce::wire::Flow;

/// How long each throughput is measured.
const SPAN: Duration = Duration::from_secs(1);
/// Round trips measured.
const ROUND_TRIPS: u32 = 50_000;

fn main() {
    println!("| ports | datagrams | throughput | rate | a call sends | a call receives | lost |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let loopback = Place { namespaces: None, addresses: ["127.82.0.1", "127.82.0.2"], interface: "lo" };
    measure("udp, loopback", &loopback, udp);
    match Namespaces::new() {
        Ok(namespaces) => {
            let addresses = ["10.82.0.1", "10.82.0.2"];
            let veth = Place { namespaces: Some(namespaces), addresses, interface: "veth0" };
            measure("udp, veth", &veth, udp);
            measure("packet, veth", &veth, packet);
        }
        Err(why) => println!("\nSKIPPED: veth, for which it takes root: {why}"),
    }
}

/// Opens a port for an address on an interface.
type Open = fn(&str, IpAddr) -> io::Result<Box<dyn Port>>;

fn udp(_: &str, address: IpAddr) -> io::Result<Box<dyn Port>> {
    Ok(Box::new(UdpPort::bind(&[address])?))
}

fn packet(interface: &str, address: IpAddr) -> io::Result<Box<dyn Port>> {
    Ok(Box::new(PacketPort::open(interface, &[address])?))
}

/// Where the two ports are.
struct Place {
    namespaces: Option<Namespaces>,
    addresses: [&'static str; 2],
    interface: &'static str,
}

impl Place {
    /// Opens a side's port, in its namespace, which the calling thread enters.
    fn port(&self, side: usize, open: Open) -> Box<dyn Port> {
        if let Some(namespaces) = &self.namespaces {
            namespaces.enter(side);
        }
        open(self.interface, self.address(side)).expect("a port")
    }

    fn address(&self, side: usize) -> IpAddr {
        self.addresses[side].parse().expect("an address")
    }

    fn flow(&self, from: usize) -> Flow {
        let (source, destination) = (self.address(from), self.address(1 - from));
        Flow { source, destination, source_port: 0xc123, traffic_class: 0, hop_limit: 64 }
    }
}

fn measure(name: &str, place: &Place, open: Open) {
    // With its ICRC: a MIDDLE packet of a WRITE at a path MTU of 4096, and an 8-byte WRITE.
    for (length, window) in [(4112, 44), (4112, 400), (36, 512), (36, 4096)] {
        throughput(name, place, open, length, window);
    }
    round_trip(name, place, open);
}

/// Sends datagrams of `length` bytes with at most `window` of them in flight.
fn throughput(name: &str, place: &Place, open: Open, length: usize, window: u64) {
    let (received, done, ready) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let payload = vec![0x5a; length];
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut port = place.port(1, open);
            ready.store(true, Ordering::Release);
            let mut count = 0;
            while !done.load(Ordering::Relaxed) {
                if port.receive(&mut |_| count += 1).expect("receive") == 0 {
                    thread::yield_now();
                }
                received.store(count, Ordering::Release);
            }
            port.counters()
        });
        let sender = scope.spawn(|| {
            let mut port = place.port(0, open);
            while !ready.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let (mut sent, mut lost) = (0, 0);
            let begin = Instant::now();
            let mut progress = (0, begin);
            while begin.elapsed() < SPAN {
                let acknowledged = received.load(Ordering::Acquire);
                if acknowledged != progress.0 {
                    progress = (acknowledged, Instant::now());
                } else if progress.1.elapsed() > Duration::from_millis(20) {
                    lost = sent - acknowledged;
                    progress.1 = Instant::now();
                }
                let free = (window + acknowledged + lost).saturating_sub(sent);
                // Half a window at a time, as acknowledges come.
                if free >= window / 2 {
                    for _ in 0..free {
                        let Some(room) = port.room() else { break };
                        room[..length].copy_from_slice(&payload);
                        port.commit(&place.flow(0), length);
                        sent += 1;
                    }
                    port.flush().expect("flush");
                } else {
                    thread::yield_now();
                }
            }
            let elapsed = begin.elapsed();
            thread::sleep(Duration::from_millis(20));
            done.store(true, Ordering::Relaxed);
            (port.counters(), sent, elapsed)
        });
        let (out, sent, elapsed) = sender.join().expect("the sender");
        let back = receiver.join().expect("the receiver");
        let rate = back.received as f64 / elapsed.as_secs_f64();
        println!(
            "| {name} | {} B, {window} in flight | {:.1} Gb/s | {:.2} M/s | {:.1} | {:.1} | {} |",
            length + 4,
            rate * (length + 4) as f64 * 8.0 / 1e9,
            rate / 1e6,
            out.sent as f64 / out.send_calls.max(1) as f64,
            back.received as f64 / back.receive_calls.max(1) as f64,
            sent - back.received,
        );
    });
}

/// The time from one program to the other: half of a round trip of 36 bytes, both sides polling.
fn round_trip(name: &str, place: &Place, open: Open) {
    let (done, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let bounce = |port: &mut dyn Port, flow: &Flow| {
        port.room().expect("room")[..36].fill(1);
        port.commit(flow, 36);
        port.flush().expect("flush");
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut port = place.port(1, open);
            ready.store(true, Ordering::Release);
            while !done.load(Ordering::Relaxed) {
                if port.receive(&mut |_| ()).expect("receive") > 0 {
                    bounce(port.as_mut(), &place.flow(1));
                }
            }
        });
        scope.spawn(|| {
            let mut port = place.port(0, open);
            while !ready.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let mut times: Vec<Duration> = (0..ROUND_TRIPS)
                .map(|_| {
                    let begin = Instant::now();
                    bounce(port.as_mut(), &place.flow(0));
                    while port.receive(&mut |_| ()).expect("receive") == 0 && begin.elapsed() < Duration::from_secs(1) {
                        // A packet port flushes what waited for its neighbour.
                        if port.backlog() {
                            port.flush().expect("flush");
                        }
                    }
                    begin.elapsed() / 2
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            times.sort_unstable();
            let at = |share: f64| times[(times.len() as f64 * share) as usize];
            println!("| {name} | 40 B, there and back | half: {:?} median, {:?} 99 % | | | | |", at(0.5), at(0.99));
        });
    });
}

/// Two network namespaces joined by a veth pair.
struct Namespaces([String; 2]);

impl Namespaces {
    fn new() -> Result<Self, String> {
        let [a, b] = ["a", "b"].map(|side| format!("uroce-bench-{}{side}", std::process::id()));
        ip(&format!("netns add {a}"))?;
        let namespaces = Self([a.clone(), b.clone()]);
        ip(&format!("netns add {b}"))?;
        ip(&format!("link add veth0 netns {a} mtu 9000 type veth peer name veth0 netns {b}"))?;
        for (name, number) in [(&a, 1), (&b, 2)] {
            ip(&format!("-n {name} addr add 10.82.0.{number}/24 dev veth0"))?;
            ip(&format!("-n {name} link set veth0 mtu 9000 up"))?;
        }
        Ok(namespaces)
    }

    fn enter(&self, side: usize) {
        let file = File::open(format!("/run/netns/{}", self.0[side])).expect("a namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns");
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {}", said.trim())) }
}
