//! Opening devices: what goes wrong, and the options.

use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use pcap_file::pcap::PcapReader;
use uroce::verbs::{Backend, Faults, OpenOptions, ReceiveRequest, devices};

use super::*;

#[test]
fn a_busy_port_is_told_in_one_line() {
    let address = Ipv4Addr::new(127, 77, 7, 7);
    let _holder = UdpSocket::bind((address, 4791)).unwrap();
    let error = Context::options("uroce_lo").addresses([address.into()]).open().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("127.77.7.7") && text.contains("4791") && text.lines().count() == 1, "{text}");
    assert_eq!(error.errno(), 98, "EADDRINUSE: {text}");
}

#[test]
fn an_unknown_device_is_told_with_those_there_are() {
    let error = Context::open("mlx5_0").unwrap_err();
    assert_eq!(error.errno(), 2);
    for device in devices().unwrap() {
        assert!(error.to_string().contains(&device.name), "{error}");
    }
}

/// Sends 200 messages from one to the other; returns both, to look at what they counted.
fn exchange(options: impl Fn(OpenOptions) -> OpenOptions) -> (Side, Side) {
    const COUNT: u64 = 200;
    let side = || Side::on(options(Context::options("uroce_lo")).open().unwrap());
    let (a, b) = (side(), side());
    connect(&a, &b);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..COUNT {
                b.qp.post_receive([ReceiveRequest::new(id, &[b.region.sge(0, 5000)])]).unwrap();
                let received = b.poll();
                assert_success(received, CompletionKind::Receive);
                assert_eq!((received.id, b.bytes(4992, 8)), (id, id.to_be_bytes().into()));
            }
        });
        for id in 0..COUNT {
            a.region.write(4992, &id.to_be_bytes()).unwrap();
            a.post(Operation::Send, 5000);
            assert_success(a.poll(), CompletionKind::Send);
        }
    });
    (a, b)
}

#[test]
fn faults_are_done_and_made_good() {
    let faults = Faults { loss: 0.02, duplicate: 0.02, reorder: 0.02, seed: 5 };
    let (a, _b) = exchange(|options| options.faults(faults));
    assert!(a.context.counters().retransmitted_pkts > 0, "{:?}", a.context.counters());
}

#[test]
fn a_capture_holds_what_was_sent_and_received() {
    let path = |n: u32| std::env::temp_dir().join(format!("uroce-verbs-{}-{n}.pcap", std::process::id()));
    let next = AtomicU32::new(0);
    let (a, b) = exchange(|options| options.pcap(path(next.fetch_add(1, Ordering::Relaxed))));
    let counters = [a.context.port_counters(), b.context.port_counters()];
    drop((a, b));
    for (n, counters) in (0..).zip(counters) {
        let mut reader = PcapReader::new(File::open(path(n)).unwrap()).unwrap();
        let mut packets = 0;
        while let Some(packet) = reader.next_packet() {
            packet.unwrap();
            packets += 1;
        }
        // The last acknowledges may come in after the counters were read.
        assert!(packets >= counters.sent + counters.received, "{packets} packets, {counters:?}");
        std::fs::remove_file(path(n)).unwrap();
    }
}

#[test]
fn a_capture_that_cannot_be_written_is_named() {
    let error = Context::options("uroce_lo").pcap("/nonexistent/uroce.pcap").open().unwrap_err();
    assert_eq!(error.errno(), 2);
    assert!(error.to_string().contains("/nonexistent/uroce.pcap"), "{error}");
}

#[test]
fn packet_sockets_carry_the_same() {
    let packet = |options: OpenOptions| options.backend(Backend::Packet);
    match packet(Context::options("uroce_lo")).open() {
        Err(error) if [1, 13].contains(&error.errno()) => eprintln!("SKIPPED, needs CAP_NET_RAW: {error}"),
        Err(error) => panic!("{error}"),
        Ok(_) => {
            let (a, b) = exchange(packet);
            assert!(a.context.port_counters().sent > 0 && b.context.port_counters().icrc_errors == 0);
        }
    }
}
