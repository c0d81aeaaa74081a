use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;

use super::*;
use crate::endpoint::Config;
use crate::event::AsyncEvent;
use crate::memory::{Access, PdNumber};
use crate::qp::{AddressVector, Attributes, Mtu, QpInit, State};
use crate::queue::CompletionQueue;
use crate::wire::{Arrival, Flow, MAX_DATAGRAM, Psn};
use crate::work::{Operation, Status};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// A port whose network is what a test makes of it.
#[derive(Default)]
struct TestPort {
    room: Vec<u8>,
    /// What was committed and not flushed.
    committed: usize,
    /// Datagrams that the transmit buffer takes before it must be flushed.
    limit: usize,
    /// What receiving says, in order; then nothing is there.
    receives: VecDeque<io::Error>,
    /// Where the numbers of datagrams of each flush go.
    flushes: Option<mpsc::Sender<usize>>,
}

impl TestPort {
    fn new(limit: usize) -> Self {
        Self { room: vec![0; MAX_DATAGRAM], limit, ..Self::default() }
    }
}

impl Port for TestPort {
    fn addresses(&self) -> &[IpAddr] {
        &[ADDRESS]
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        (self.committed < self.limit).then_some(&mut self.room[..])
    }

    fn commit(&mut self, _flow: &Flow, _length: usize) {
        self.committed += 1;
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(flushes) = &self.flushes {
            let _ = flushes.send(self.committed);
        }
        self.committed = 0;
        Ok(())
    }

    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn leave(&mut self, _group: IpAddr) {}

    fn set_addresses(&mut self, _addresses: &[IpAddr]) {}

    fn backlog(&self) -> bool {
        false
    }

    fn receive(&mut self, _sink: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        self.receives.pop_front().map_or(Ok(0), Err)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn backlog_descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// A driver on `port`, and what it tells.
fn start(port: TestPort) -> (Driver, mpsc::Receiver<Event>) {
    let endpoint = Endpoint::new(Config {
        slot: 1,
        gids: vec![ADDRESS],
        mtu: Mtu::Mtu1024,
        seed: [7; 32],
        window: Config::DEFAULT_WINDOW,
        hold_bytes: Config::DEFAULT_HOLD_BYTES,
    });
    let (sender, receiver) = mpsc::channel();
    let driver = Driver::start(endpoint, Box::new(port), move |event| {
        let _ = sender.send(event);
    });
    (driver.unwrap(), receiver)
}

/// A queue pair in RTS, with a peer that never answers; its ack timeout is 4.096 µs × 2^`timeout`.
fn ready_to_send(driver: &Driver, cq: &Arc<CompletionQueue>, timeout: u8) -> Qpn {
    let init = QpInit { signal_all: true, ..QpInit::new(PdNumber(1), Arc::clone(cq), Arc::clone(cq)) };
    let qpn = driver.command(|endpoint, _| endpoint.create_qp(init)).unwrap();
    let none = Attributes::default();
    let steps = [
        Attributes {
            state: Some(State::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::empty()),
            ..none
        },
        Attributes {
            state: Some(State::ReadyToReceive),
            address: Some(AddressVector {
                destination: Ipv4Addr::new(192, 0, 2, 2).into(),
                source_gid_index: 0,
                hop_limit: 64,
                traffic_class: 0,
            }),
            path_mtu: Some(Mtu::Mtu1024),
            destination: Some(Qpn::new(17)),
            receive_psn: Some(Psn::new(0)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..none
        },
        Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(Psn::new(0)),
            timeout: Some(timeout),
            retry_count: Some(1),
            rnr_retry: Some(7),
            max_rd_atomic: Some(1),
            ..none
        },
    ];
    for attributes in steps {
        driver.command(|endpoint, now| endpoint.modify_qp(now, qpn, &attributes)).unwrap();
    }
    qpn
}

fn sends(count: u64) -> impl Iterator<Item = SendRequest> {
    (0..count).map(|id| SendRequest::inline(id, Operation::Send, b"12345678"))
}

/// Waits until `condition` holds, however long that takes.
fn eventually(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

#[test]
fn a_broken_port_is_told_once_and_stops_posting() {
    let mut port = TestPort::new(64);
    port.receives = [io::Error::from_raw_os_error(9), io::Error::from_raw_os_error(9)].into();
    let (driver, events) = start(port);
    assert_eq!(events.recv().unwrap(), Event::Async(AsyncEvent::DeviceFatal));
    let error = driver.post_send(Qpn::new(0x1_0011), sends(1)).unwrap_err();
    assert_eq!((error.posted, error.error.errno()), (0, 9), "{error}");
    assert!(error.to_string().contains("the device is broken"), "{error}");
    driver.poll();
    let never = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    assert_eq!(driver.sleep(&never, None, || false).unwrap_err().errno(), 9, "no sleep without an end");
    drop(driver);
    assert_eq!(events.iter().count(), 0, "told once");
}

#[test]
fn a_list_of_requests_is_one_doorbell() {
    let (sender, flushes) = mpsc::channel();
    let (driver, _events) = start(TestPort { flushes: Some(sender), ..TestPort::new(64) });
    let cq = Arc::new(CompletionQueue::new(64, 1).unwrap());
    // Timeout 0 is never; the first tail probe comes later than the first flush.
    let qpn = ready_to_send(&driver, &cq, 0);
    driver.post_send(qpn, sends(10)).unwrap();
    assert_eq!(flushes.recv().unwrap(), 10);
}

#[test]
fn a_full_transmit_buffer_is_flushed_and_filled_again() {
    let (sender, flushes) = mpsc::channel();
    let (driver, _events) = start(TestPort { flushes: Some(sender), ..TestPort::new(4) });
    let cq = Arc::new(CompletionQueue::new(64, 1).unwrap());
    let qpn = ready_to_send(&driver, &cq, 0);
    driver.post_send(qpn, sends(10)).unwrap();
    assert_eq!([flushes.recv().unwrap(), flushes.recv().unwrap(), flushes.recv().unwrap()], [4, 4, 2]);
}

#[test]
fn timers_run_while_the_program_sleeps() {
    let (driver, events) = start(TestPort::new(64));
    let cq = Arc::new(CompletionQueue::new(64, 7).unwrap());
    cq.arm(crate::queue::Arm::Any);
    let qpn = ready_to_send(&driver, &cq, 8);
    driver.post_send(qpn, sends(2)).unwrap();
    // The thread slept without a timer: posting has to wake it, and then it runs alone.
    assert_eq!(events.iter().find(|event| matches!(event, Event::Completion(_))), Some(Event::Completion(7)));
    eventually(|| cq.len() == 2);
    let statuses = [cq.pop(), cq.pop()].map(|completion| completion.map(|completion| completion.status));
    assert_eq!(statuses, [Some(Status::RetryExceededError), Some(Status::FlushError)]);
}

#[test]
fn the_thread_stands_back_while_the_program_polls() {
    let (driver, _events) = start(TestPort::new(64));
    let shared = &driver.shared;
    // Datagrams would wake the thread; with none, kicks make it look.
    eventually(|| {
        driver.poll();
        driver.shared.wake.kick();
        shared.resting.load(Ordering::SeqCst)
    });
    // Arming calls it back to the port.
    driver.attend();
    eventually(|| !shared.resting.load(Ordering::SeqCst));
}

#[test]
fn events_come_out_in_order_from_many_threads() {
    let (driver, events) = start(TestPort::new(64));
    let next = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let engine = driver.shared.lock();
                    driver.shared.outbox.push(Event::Completion(next.fetch_add(1, Ordering::Relaxed)));
                    driver.shared.settle(engine);
                }
            });
        }
    });
    drop(driver);
    let numbers: Vec<_> = events.iter().collect();
    assert_eq!(numbers, (0..2000).map(Event::Completion).collect::<Vec<_>>());
}

#[test]
fn a_program_that_sleeps_gets_what_it_sleeps_for() {
    let (driver, events) = start(TestPort::new(64));
    let cq = Arc::new(CompletionQueue::new(64, 7).unwrap());
    cq.arm(crate::queue::Arm::Any);
    let qpn = ready_to_send(&driver, &cq, 8);
    let never = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One of them runs the engine, the other depends on it.
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let soon = std::time::Instant::now() + std::time::Duration::from_millis(1);
                    driver.sleep(&never, Some(soon), || done.load(Ordering::SeqCst)).unwrap();
                }
            });
        }
        driver.post_send(qpn, sends(1)).unwrap();
        assert_eq!(events.iter().find(|event| matches!(event, Event::Completion(_))), Some(Event::Completion(7)));
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(cq.pop().map(|completion| completion.status), Some(Status::RetryExceededError));
    let shared = &driver.shared;
    assert!(!shared.relieved.load(Ordering::SeqCst));
    assert_eq!(shared.dependents.load(Ordering::SeqCst), 0);
    eventually(|| !shared.dozing.load(Ordering::SeqCst));
}
