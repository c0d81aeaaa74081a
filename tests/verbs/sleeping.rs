//! Programs that sleep until something completes.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use uroce::verbs::{Peer, ReceiveRequest, SendFlags, State};

use super::*;

#[test]
fn a_program_that_sleeps_on_a_channel_wakes_up() {
    const ROUNDS: u64 = 200;
    let (a, b) = Side::pair();
    std::thread::scope(|scope| {
        for (side, starts) in [(a, true), (b, false)] {
            scope.spawn(move || {
                let receive = |id| side.qp.post_receive([ReceiveRequest::new(id, &[side.region.sge(0, 8)])]).unwrap();
                let send = |id| {
                    let request = SendRequest::inline(id, Operation::Send, b"a letter");
                    side.qp.post_send([request.with_flags(SendFlags::empty())]).unwrap();
                };
                receive(0);
                if starts {
                    send(0);
                }
                for round in 0..ROUNDS {
                    let completion = side.sleep();
                    assert_success(completion, CompletionKind::Receive);
                    assert_eq!(completion.id, round);
                    receive(round + 1);
                    send(round);
                }
                // The peer may still miss the acknowledge of its last message.
                while side.qp.counters().unwrap().rcvd_pkts < 2 * ROUNDS {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
}

#[test]
fn two_threads_sleep_on_two_channels_of_one_context() {
    const ROUNDS: u64 = 100;
    let (a, b) = Side::pair();
    let second = |side: &Side| {
        let channel = side.context.create_completion_channel().unwrap();
        let cq = side.context.create_cq(64, Some(&channel)).unwrap();
        let qp = side.pd.create_qp(&QpConfig::new(&cq, &cq)).unwrap();
        let region = side.pd.register(8, Access::LOCAL_WRITE).unwrap();
        Side { qp, cq, channel, region, pd: side.pd.clone(), context: side.context.clone() }
    };
    let (c, d) = (second(&a), second(&b));
    connect(&c, &d);
    std::thread::scope(|scope| {
        for (sender, receiver) in [(&a, &b), (&c, &d)] {
            receiver.qp.post_receive((0..ROUNDS).map(|id| ReceiveRequest::new(id, &[]))).unwrap();
            scope.spawn(|| (0..ROUNDS).for_each(|id| assert_eq!(receiver.sleep().id, id)));
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    sender.post(Operation::Send, 0);
                    assert_success(sender.sleep(), CompletionKind::Send);
                }
            });
        }
    });
}

#[test]
fn the_descriptor_of_a_channel_can_be_polled() {
    let (a, b) = Side::pair();
    b.cq.arm(Arm::Solicited);
    b.qp.post_receive((0..2).map(|id| ReceiveRequest::new(id, &[]))).unwrap();
    a.qp.post_send([SendRequest::new(1, Operation::Send, &[])]).unwrap();
    assert_success(b.poll(), CompletionKind::Receive);
    assert!(b.channel.poll().is_none(), "nobody asked for a solicited event");
    let request = SendRequest::new(2, Operation::Send, &[]);
    a.qp.post_send([request.with_flags(SendFlags::SIGNALED | SendFlags::SOLICITED)]).unwrap();
    let ready = uroce::port::wait(&[b.channel.as_raw_fd()], &[], None).unwrap();
    assert!(ready);
    assert_eq!(b.channel.poll().map(|cq| cq.number()), Some(b.cq.number()));
    assert!(b.poll().solicited);
}

#[test]
fn a_peer_that_is_not_there_fails_the_request_while_the_program_sleeps() {
    let side = Side::new();
    let psn = random_psn();
    let nobody = Peer { address: Ipv4Addr::new(127, 255, 255, 254).into(), ..side.qp.local(psn) };
    let options = ConnectOptions { timeout: 8, retry_count: 2, ..ConnectOptions::default() };
    side.qp.connect(psn, &nobody, &options).unwrap();
    side.post(Operation::Send, 8);
    assert_eq!(side.sleep().status, Status::RetryExceededError);
    assert_eq!(side.qp.query().unwrap().state, State::Error);
    assert_eq!(side.context.counters().retry_exceeded_err, 1);
}
