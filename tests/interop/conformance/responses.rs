//! Scripts in which the target is the requester.

use uroce::wire::{NakCode, Opcode as Op, Syndrome};

use super::act::{Act, Grant, MTU, Posted, Script};
use crate::common::craft::Craft;

pub(super) const ACK: Syndrome = Syndrome::Ack { credits: Syndrome::NO_CREDITS };

fn answer(to: &Grant, ahead: u32, syndrome: Syndrome) -> Craft {
    to.packet(Op::RC_ACKNOWLEDGE, ahead).syndrome(syndrome)
}

fn nak(to: &Grant, ahead: u32, code: NakCode) -> Craft {
    answer(to, ahead, Syndrome::Nak(code))
}

fn read(to: &Grant, opcode: Op, ahead: u32, bytes: usize) -> Craft {
    let packet = to.with(opcode, ahead, bytes);
    if opcode == Op::RC_READ_RESPONSE_MIDDLE { packet } else { packet.syndrome(ACK) }
}

/// Every script.
pub(super) fn scripts() -> Vec<Script> {
    let mut all = acknowledges();
    all.extend(naks());
    all.extend(fetches());
    all
}

fn acknowledges() -> Vec<Script> {
    vec![
        Script::new("acknowledged", |to| vec![Act::Post(Posted::Send, 2500), answer(to, 2, ACK).into()]),
        Script::new("acknowledged in two steps", |to| {
            vec![Act::Post(Posted::Write, 2500), answer(to, 0, ACK).into(), answer(to, 2, ACK).into()]
        }),
        Script::new("three requests, one acknowledge", |to| {
            let send = || Act::Post(Posted::Send, 8);
            vec![send(), send(), send(), answer(to, 2, ACK).into()]
        }),
        Script::new("acknowledged twice", |to| {
            vec![Act::Post(Posted::Send, 8), answer(to, 0, ACK).into(), answer(to, 0, ACK).into()]
        }),
        Script::new("an acknowledge of what was not sent", |to| {
            vec![Act::Post(Posted::Send, 8), answer(to, 5, ACK).into()]
        }),
        Script::new("an acknowledge of long ago", |to| {
            vec![Act::Post(Posted::Send, 8), answer(to, 0xff_fff0, ACK).into()]
        }),
    ]
}

fn naks() -> Vec<Script> {
    vec![
        Script::new("sequence error", |to| {
            vec![Act::Post(Posted::Write, 2500), nak(to, 1, NakCode::SequenceError).into(), answer(to, 2, ACK).into()]
        }),
        Script::new("invalid request", |to| {
            vec![Act::Post(Posted::Write, 8), Act::Post(Posted::Write, 8), nak(to, 0, NakCode::InvalidRequest).into()]
        }),
        Script::new("remote access error of the second", |to| {
            vec![Act::Post(Posted::Write, 8), Act::Post(Posted::Write, 8), nak(to, 1, NakCode::RemoteAccess).into()]
        }),
        Script::new("remote operational error", |to| {
            vec![Act::Post(Posted::Send, 8), nak(to, 0, NakCode::RemoteOperational).into()]
        }),
        Script::new("receiver not ready", |to| {
            let wait = answer(to, 0, Syndrome::ReceiverNotReady { timer: 1 });
            vec![Act::Post(Posted::Send, 8), wait.into(), Act::Wait, answer(to, 0, ACK).into()]
        }),
        Script::new("a syndrome of no meaning", |to| {
            vec![Act::Post(Posted::Send, 8), answer(to, 0, Syndrome::Reserved(0x7f)).into()]
        }),
    ]
}

fn fetches() -> Vec<Script> {
    vec![
        Script::new("READ answered", |to| {
            vec![Act::Post(Posted::Read, 8), read(to, Op::RC_READ_RESPONSE_ONLY, 0, 8).into()]
        }),
        Script::new("READ answered in three packets", |to| {
            vec![
                Act::Post(Posted::Read, 2500),
                read(to, Op::RC_READ_RESPONSE_FIRST, 0, MTU).into(),
                read(to, Op::RC_READ_RESPONSE_MIDDLE, 1, MTU).into(),
                read(to, Op::RC_READ_RESPONSE_LAST, 2, 452).into(),
            ]
        }),
        Script::new("READ answered with too much", |to| {
            vec![Act::Post(Posted::Read, 8), read(to, Op::RC_READ_RESPONSE_ONLY, 0, 12).into()]
        }),
        Script::new("READ answered with too little", |to| {
            vec![Act::Post(Posted::Read, 8), read(to, Op::RC_READ_RESPONSE_ONLY, 0, 4).into()]
        }),
        Script::new("READ refused in its middle", |to| {
            vec![
                Act::Post(Posted::Read, 2500),
                read(to, Op::RC_READ_RESPONSE_FIRST, 0, MTU).into(),
                nak(to, 1, NakCode::RemoteAccess).into(),
            ]
        }),
        Script::new("READ with its middle lost", |to| {
            vec![
                Act::Post(Posted::Read, 2500),
                read(to, Op::RC_READ_RESPONSE_FIRST, 0, MTU).into(),
                read(to, Op::RC_READ_RESPONSE_LAST, 2, 452).into(),
            ]
        }),
        Script::new("SEND behind a READ acknowledged, READ not answered", |to| {
            vec![Act::Post(Posted::Read, 8), Act::Post(Posted::Send, 8), answer(to, 1, ACK).into()]
        }),
        Script::new("fetch-and-add answered", |to| {
            let mut done = to.packet(Op::RC_ATOMIC_ACKNOWLEDGE, 0).syndrome(ACK);
            done.extensions.atomic_ack = Some(7);
            vec![Act::Post(Posted::FetchAdd, 8), done.into()]
        }),
        Script::new("fetch-and-add acknowledged without an answer", |to| {
            vec![Act::Post(Posted::FetchAdd, 8), answer(to, 0, ACK).into()]
        }),
        Script::new("READ answered as an ATOMIC", |to| {
            let mut done = to.packet(Op::RC_ATOMIC_ACKNOWLEDGE, 0).syndrome(ACK);
            done.extensions.atomic_ack = Some(7);
            vec![Act::Post(Posted::Read, 8), done.into()]
        }),
    ]
}
