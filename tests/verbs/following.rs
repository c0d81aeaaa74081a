//! An open device follows its interface: addresses come and go, the link goes down and up, in network namespaces and on
//! VLAN interfaces. All of it on a veth pair between namespaces that the test makes itself, as root.

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use uroce::event::AsyncEvent;
use uroce::verbs::{ConnectOptions, Context, Operation, SendRequest, Status, random_psn};

use super::Side;

const PATIENCE: Duration = Duration::from_secs(10);

/// Two namespaces with a veth pair between them: `f0` with 10.78.0.1 in the first, with 10.78.0.2 in the second.
struct Link([String; 2]);

impl Link {
    /// `None` without root: stderr then says so.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|side| format!("uroce-f{}-{n}{side}", std::process::id()));
        if !ip(&format!("netns add {}", names[0])) {
            assert!(std::env::var_os("UROCE_TEST_NO_SKIP").is_none(), "no network namespace");
            let _ = std::io::stderr().write_all(b"SKIPPED: a test needs root for its network namespaces\n");
            return None;
        }
        let link = Self(names);
        let [a, b] = &link.0;
        assert!(ip(&format!("netns add {b}")));
        assert!(ip(&format!("link add f0 netns {a} mtu 9000 type veth peer name f0 netns {b}")));
        for (side, address) in [(0, "10.78.0.1/24"), (1, "10.78.0.2/24")] {
            assert!(link.ip(side, "link set lo up") && link.ip(side, "link set f0 up"));
            assert!(link.ip(side, &format!("address add {address} dev f0")));
        }
        Some(link)
    }

    /// Runs `ip` in a namespace.
    fn ip(&self, side: usize, arguments: &str) -> bool {
        ip(&format!("-n {} {arguments}", self.0[side]))
    }

    /// Opens a device in a namespace.
    fn open(&self, side: usize, device: &str) -> Context {
        let namespace = File::open(format!("/run/netns/{}", self.0[side])).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        Context::open(device).unwrap()
    }

    /// Two ends, connected over IPv4.
    fn connected(&self, device: &str, options: &ConnectOptions) -> [Side; 2] {
        let sides = [0, 1].map(|side| Side::on(self.open(side, device)));
        let psns = [random_psn(), random_psn()];
        let peers = [0, 1].map(|n| sides[n].qp.local(psns[n]));
        for (n, side) in sides.iter().enumerate() {
            side.qp.connect(psns[n], &peers[1 - n], options).unwrap();
        }
        sides
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split_whitespace()).output().is_ok_and(|output| output.status.success())
}

/// Waits for an event; others may come before it.
fn expect(context: &Context, event: AsyncEvent) {
    let deadline = Instant::now() + PATIENCE;
    let events = context.events();
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        match events.wait(Some(left)).unwrap() {
            Some(came) if came == event => return,
            _ => {}
        }
    }
    panic!("{event:?} did not come");
}

/// Waits until the table of GIDs has `address` at an index, or has it not; the index.
fn index_of(context: &Context, address: &str, there: bool) -> Option<usize> {
    let address: IpAddr = address.parse().unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let index = context.addresses().iter().position(|own| *own == address);
        if index.is_some() == there {
            return index;
        }
        assert!(Instant::now() < deadline, "{address} in {:?}", context.addresses());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes a few bytes from the first end to the second; how that ended.
fn write(sides: &[Side; 2]) -> Status {
    let [near, far] = sides;
    let request = SendRequest::new(1, Operation::Write(far.region.remote(0)), &[near.region.sge(0, 100)]);
    near.qp.post_send([request]).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(completion) = near.cq.poll_one() {
            return completion.status;
        }
        assert!(Instant::now() < deadline, "the WRITE never ended");
    }
}

/// Gives up after two times 2 × 4.096 µs × 2^12.
const IMPATIENT: u8 = 12;

#[test]
fn addresses_come_and_go_and_keep_their_index() {
    let Some(link) = Link::new() else { return };
    let sides = link.connected("uroce_f0", &ConnectOptions::default());
    let context = &sides[0].context;
    assert_eq!(write(&sides), Status::Success);
    let first = index_of(context, "10.78.0.1", true);

    assert!(link.ip(0, "address add 10.78.0.11/24 dev f0"));
    expect(context, AsyncEvent::GidChange);
    let second = index_of(context, "10.78.0.11", true).unwrap();
    assert_eq!(index_of(context, "10.78.0.1", true), first);
    assert_eq!(context.gid(second as u8).unwrap().address(), "10.78.0.11".parse::<IpAddr>().unwrap());
    assert_eq!(write(&sides), Status::Success, "the connection lives on");

    assert!(link.ip(0, "address del 10.78.0.11/24 dev f0"));
    index_of(context, "10.78.0.11", false);
    assert!(context.gid(second as u8).is_err());
    assert!(link.ip(0, "address add 10.78.0.12/24 dev f0"));
    assert_eq!(index_of(context, "10.78.0.12", true), Some(second), "the free index is used again");
    assert_eq!(write(&sides), Status::Success);
}

#[test]
fn a_connection_over_a_new_address_works() {
    let Some(link) = Link::new() else { return };
    let sides = [0, 1].map(|side| Side::on(link.open(side, "uroce_f0")));
    assert!(link.ip(0, "address add 10.78.0.21/24 dev f0"));
    let index = index_of(&sides[0].context, "10.78.0.21", true).unwrap();
    let psns = [random_psn(), random_psn()];
    let new = sides[0].qp.local(psns[0]).at("10.78.0.21".parse().unwrap());
    let other = sides[1].qp.local(psns[1]);
    let from_new = ConnectOptions { source_gid_index: Some(index as u8), ..ConnectOptions::default() };
    sides[0].qp.connect(psns[0], &other, &from_new).unwrap();
    sides[1].qp.connect(psns[1], &new, &ConnectOptions::default()).unwrap();
    assert_eq!(write(&sides), Status::Success);
}

#[test]
fn a_connection_whose_address_is_gone_fails_by_its_retries() {
    let Some(link) = Link::new() else { return };
    let options = ConnectOptions { timeout: IMPATIENT, retry_count: 1, ..ConnectOptions::default() };
    let sides = link.connected("uroce_f0", &options);
    assert_eq!(write(&sides), Status::Success);
    assert!(link.ip(0, "address del 10.78.0.1/24 dev f0"));
    index_of(&sides[0].context, "10.78.0.1", false);
    assert_eq!(write(&sides), Status::RetryExceededError);
}

#[test]
fn a_link_that_goes_down_and_up_is_told() {
    let Some(link) = Link::new() else { return };
    let options = ConnectOptions { timeout: IMPATIENT, retry_count: 1, ..ConnectOptions::default() };
    let sides = link.connected("uroce_f0", &options);
    assert_eq!(write(&sides), Status::Success);
    assert!(link.ip(0, "link set f0 down"));
    expect(&sides[0].context, AsyncEvent::PortError);
    expect(&sides[1].context, AsyncEvent::PortError);
    assert_eq!(write(&sides), Status::RetryExceededError);
    assert!(link.ip(0, "link set f0 up"));
    expect(&sides[0].context, AsyncEvent::PortActive);
    let again = link.connected_again(&sides);
    assert_eq!(write(&again), Status::Success);
}

impl Link {
    /// New queue pairs on the contexts of `sides`, connected.
    fn connected_again(&self, sides: &[Side; 2]) -> [Side; 2] {
        let new = [0, 1].map(|n| Side::on(sides[n].context.clone()));
        let psns = [random_psn(), random_psn()];
        let peers = [0, 1].map(|n| new[n].qp.local(psns[n]));
        for (n, side) in new.iter().enumerate() {
            side.qp.connect(psns[n], &peers[1 - n], &ConnectOptions::default()).unwrap();
        }
        new
    }
}

#[test]
fn a_vlan_interface_is_a_device() {
    let Some(link) = Link::new() else { return };
    if !link.ip(0, "link add link f0 name f0.7 type vlan id 7") {
        let _ = std::io::stderr().write_all(b"SKIPPED: this kernel has no VLAN interfaces (8021q)\n");
        return;
    }
    assert!(link.ip(1, "link add link f0 name f0.7 type vlan id 7"));
    for (side, address) in [(0, "10.78.7.1/24"), (1, "10.78.7.2/24")] {
        assert!(link.ip(side, &format!("address add {address} dev f0.7")) && link.ip(side, "link set f0.7 up"));
    }
    assert_eq!(write(&link.connected("uroce_f0.7", &ConnectOptions::default())), Status::Success);
}

#[test]
fn several_devices_share_an_interface_by_its_addresses() {
    let Some(link) = Link::new() else { return };
    assert!(link.ip(0, "address add 10.78.0.31/24 dev f0"));
    let far = link.open(1, "uroce_f0");
    drop(link.open(0, "uroce_f0"));
    let near = ["10.78.0.1", "10.78.0.31"]
        .map(|own| Context::options("uroce_f0").addresses([own.parse().unwrap()]).open().unwrap());
    for context in near {
        assert_eq!(write(&link.connected_again(&[Side::on(context), Side::on(far.clone())])), Status::Success);
    }
}

/// Two open devices share the addresses of an interface, and both follow it: an address that comes is shared as the first are.
#[test]
fn devices_that_share_an_interface_follow_it_together() {
    let Some(link) = Link::new() else { return };
    let near = [0, 1].map(|_| link.open(0, "uroce_f0"));
    assert_ne!(near[0].slot(), near[1].slot());
    let far = link.open(1, "uroce_f0");
    let reach_far = |own: &Context| write(&link.connected_again(&[Side::on(own.clone()), Side::on(far.clone())]));
    assert_eq!([reach_far(&near[0]), reach_far(&near[1])], [Status::Success; 2]);
    assert!(link.ip(0, "address add 10.78.0.41/24 dev f0"));
    for context in &near {
        let index = index_of(context, "10.78.0.41", true).unwrap();
        let (own, other) = (Side::on(context.clone()), Side::on(far.clone()));
        let psns = [random_psn(), random_psn()];
        let at_new = own.qp.local(psns[0]).at("10.78.0.41".parse().unwrap());
        let from_new = ConnectOptions { source_gid_index: Some(index as u8), ..ConnectOptions::default() };
        own.qp.connect(psns[0], &other.qp.local(psns[1]), &from_new).unwrap();
        other.qp.connect(psns[1], &at_new, &ConnectOptions::default()).unwrap();
        assert_eq!(write(&[own, other]), Status::Success);
    }
    // The address goes and comes back, in a moment in which one still has it, perhaps.
    assert!(link.ip(0, "address del 10.78.0.41/24 dev f0") && link.ip(0, "address add 10.78.0.41/24 dev f0"));
    assert!(link.ip(0, "address add 10.78.0.42/24 dev f0"));
    for context in &near {
        assert!(index_of(context, "10.78.0.42", true).is_some() && index_of(context, "10.78.0.41", true).is_some());
    }
    assert_eq!([reach_far(&near[0]), reach_far(&near[1])], [Status::Success; 2]);
    assert_eq!(near.map(|context| context.port_counters().handed_over), [0; 2]);
}
