//! Processes that are killed or stopped at any time, the first of all among them.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Instant;

use rustix::process::Signal;
use uroce::verbs::{Backend, Context};

use super::worker::{Worker, join};
use super::{PATIENCE, address};

/// Two workers with a queue pair to each other.
fn pair(address: std::net::IpAddr) -> [Worker; 2] {
    let mut pair = [0, 1].map(|_| Worker::start(address, Backend::Udp));
    let [a, b] = &mut pair;
    join((a, &mut 0), (b, &mut 0));
    pair
}

fn exchange(pair: &mut [Worker; 2], rounds: u32) {
    pair.iter_mut().for_each(|worker| worker.tell(&format!("exchange 0..1 {rounds}")));
}

fn exchanged(pair: &mut [Worker; 2]) {
    pair.iter_mut().for_each(|worker| assert_eq!(worker.line(), "exchanged"));
}

/// The one who made the sockets is killed first, then others by turns while newcomers come: who stays goes on exchanging, and gets
/// nothing that is not for it.
#[test]
fn who_is_left_goes_on() {
    let address = address(3);
    let mut first = Worker::start(address, Backend::Udp);
    let mut staying = [pair(address), pair(address)];
    let slots: BTreeSet<u8> =
        staying.iter_mut().flatten().chain([&mut first]).map(|worker| worker.counted().slot).collect();
    assert_eq!(slots.len(), 5);
    staying.iter_mut().for_each(|pair| exchange(pair, 2000));
    first.signal(Signal::KILL);
    let mut passing = Vec::new();
    for turn in 0..8 {
        let mut newcomers = pair(address);
        // Killed in the middle of an exchange, one of them or both.
        exchange(&mut newcomers, 100_000);
        passing.push(newcomers);
        if turn % 2 == 1 {
            let ends: [Worker; 2] = passing.remove(turn % passing.len());
            ends.iter().take(1 + turn / 4).for_each(|worker| worker.signal(Signal::KILL));
        }
    }
    staying.iter_mut().for_each(exchanged);
    drop(passing);
    // A newcomer can talk to who was there before all that, and the other way round.
    let mut newcomer = Worker::start(address, Backend::Udp);
    let [old, _] = &mut staying[0];
    let (at_old, at_new) = join((old, &mut 1), (&mut newcomer, &mut 0));
    old.tell(&format!("exchange {at_old}..{} 50", at_old + 1));
    newcomer.tell(&format!("exchange {at_new}..{} 50", at_new + 1));
    assert_eq!((old.line().as_str(), newcomer.line().as_str()), ("exchanged", "exchanged"));
    for worker in staying.iter_mut().flatten() {
        let counted = worker.counted();
        assert_eq!((counted.strays, counted.handed_over), (0, 0), "{counted:?}");
        assert!(slots.contains(&counted.slot));
    }
}

/// All are killed at once: the address is anybody's, and nothing is left behind.
#[test]
fn nothing_is_left_of_the_killed() {
    let address = address(4);
    let mut workers: Vec<_> = (0..4).map(|_| pair(address)).collect();
    workers.iter_mut().for_each(|pair| exchange(pair, 100_000));
    workers.iter().flatten().for_each(|worker| worker.signal(Signal::KILL));
    drop(workers);
    let deadline = Instant::now() + PATIENCE;
    while UdpSocket::bind((address, 4791)).is_err() {
        assert!(Instant::now() < deadline, "the port is still busy");
    }
    let mut again = pair(address);
    exchange(&mut again, 10);
    exchanged(&mut again);
}

/// Many that come at once find each other, whoever is first.
#[test]
fn who_comes_at_once_shares() {
    let address = address(5);
    let mut workers: Vec<_> = (0..12).map(|_| Worker::spawn(address, Backend::Udp, None)).collect();
    let slots: BTreeSet<u8> = workers
        .iter_mut()
        .map(|worker| {
            assert_eq!(worker.line(), "open");
            worker.counted().slot
        })
        .collect();
    assert_eq!(slots.len(), 12);
}

/// A process that is stopped keeps a newcomer out, who is told its number, only when nobody else has the address.
#[test]
fn the_stopped_are_named() {
    let address = address(6);
    let stopped = Worker::start(address, Backend::Udp);
    stopped.stop();
    let error = Context::options("uroce_lo").addresses([address]).open().unwrap_err();
    assert_eq!(error.errno(), 110, "ETIMEDOUT: {error}");
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", stopped.pid())) && text.lines().count() == 1, "{text}");
    stopped.signal(Signal::CONT);
    let other = Worker::start(address, Backend::Udp);
    stopped.stop();
    let third = Context::options("uroce_lo").addresses([address]).open().unwrap();
    assert!(third.slot() > 0);
    drop((stopped, other, third));
}
