//! Scripts in which the target is the responder.

use uroce::wire::Opcode as Op;

use super::act::{Act, Grant, MTU, REGION, Script};

/// Every script.
pub(super) fn scripts() -> Vec<Script> {
    let mut all = valid();
    all.extend(sequence());
    all.extend(memory());
    all.extend(sense());
    all.extend(hostile());
    all
}

fn acts<const N: usize>(acts: [Act; N]) -> Vec<Act> {
    acts.into()
}

/// What every responder does.
fn valid() -> Vec<Script> {
    vec![
        Script::new("SEND", |to| acts([Act::Receive(64), to.with(Op::RC_SEND_ONLY, 0, 10).into()])),
        Script::new("SEND of three packets", |to| {
            let middle = to.with(Op::RC_SEND_MIDDLE, 1, MTU);
            let last = to.with(Op::RC_SEND_LAST, 2, 1);
            acts([Act::Receive(4096), to.with(Op::RC_SEND_FIRST, 0, MTU).into(), middle.into(), last.into()])
        }),
        Script::new("SEND of nothing", |to| acts([Act::Receive(0), to.with(Op::RC_SEND_ONLY, 0, 0).into()])),
        Script::new("WRITE", |to| acts([to.reth(Op::RC_WRITE_ONLY, 0, 100, 100).into()])),
        Script::new("WRITE of k × MTU", |to| {
            let first = to.reth(Op::RC_WRITE_FIRST, 0, 2 * MTU as u32, MTU);
            acts([first.into(), to.with(Op::RC_WRITE_LAST, 1, MTU).into()])
        }),
        Script::new("WRITE of nothing, with a stale key", |to| {
            acts([to.with(Op::RC_WRITE_ONLY, 0, 0).reth(0, to.rkey ^ 0x55, 0).into()])
        }),
        Script::new("READ of one packet", |to| acts([to.reth(Op::RC_READ_REQUEST, 0, 100, 0).into()])),
        Script::new("READ of three packets", |to| acts([to.reth(Op::RC_READ_REQUEST, 0, 2500, 0).into()])),
        Script::new("READ of nothing, with a stale key", |to| {
            acts([to.packet(Op::RC_READ_REQUEST, 0).reth(0, to.rkey ^ 0x55, 0).into()])
        }),
        Script::new("fetch-and-add, twice", |to| {
            let add = |ahead| to.packet(Op::RC_FETCH_ADD, ahead).atomic(to.address, to.rkey, 5);
            acts([add(0).into(), add(1).into()])
        }),
        Script::new("WRITE between READs", |to| {
            let read = |ahead| to.reth(Op::RC_READ_REQUEST, ahead, 8, 0);
            acts([read(0).into(), to.reth(Op::RC_WRITE_ONLY, 1, 8, 8).into(), read(2).into()])
        }),
        Script::new("no acknowledge asked for", |to| {
            let mut write = to.reth(Op::RC_WRITE_ONLY, 0, 8, 8);
            write.bth.ack_request = false;
            acts([write.into()])
        }),
    ]
}

/// Duplicates and gaps.
fn sequence() -> Vec<Script> {
    vec![
        Script::new("duplicate SEND", |to| {
            let send = || to.with(Op::RC_SEND_ONLY, 0, 10).into();
            acts([Act::Receive(64), Act::Receive(64), send(), send()])
        }),
        Script::new("duplicate WRITE", |to| {
            let write = |ahead| to.reth(Op::RC_WRITE_ONLY, ahead, 8, 8).into();
            acts([write(0), write(1), write(0)])
        }),
        Script::new("duplicate READ", |to| {
            let read = || to.reth(Op::RC_READ_REQUEST, 0, 2500, 0).into();
            acts([read(), read()])
        }),
        Script::new("duplicate READ of its end", |to| {
            let again = to.packet(Op::RC_READ_REQUEST, 1).reth(to.address + MTU as u64, to.rkey, 1476);
            acts([to.reth(Op::RC_READ_REQUEST, 0, 2500, 0).into(), again.into()])
        }),
        Script::new("duplicate fetch-and-add", |to| {
            let add = |ahead| to.packet(Op::RC_FETCH_ADD, ahead).atomic(to.address, to.rkey, 5).into();
            acts([add(0), add(1), add(0), add(1)])
        }),
        Script::new("a gap, and again a packet ahead", |to| {
            let write = |ahead| to.reth(Op::RC_WRITE_ONLY, ahead, 8, 8).into();
            acts([write(1), write(2), write(0)])
        }),
        Script::new("a gap, closed, and another", |to| {
            let write = |ahead| to.reth(Op::RC_WRITE_ONLY, ahead, 8, 8).into();
            acts([write(1), write(0), write(2)])
        }),
        Script::new("no receive request", |to| acts([to.with(Op::RC_SEND_ONLY, 0, 10).into()])),
        Script::new("no receive request, then one", |to| {
            let send = || to.with(Op::RC_SEND_ONLY, 0, 10).into();
            acts([send(), Act::Receive(64), send()])
        }),
        Script::new("packets behind a SEND without receive request", |to| {
            let send = |ahead| to.with(Op::RC_SEND_ONLY, ahead, 10).into();
            acts([send(0), send(1), send(2)])
        }),
        Script::new("WRITE with immediate without receive request", |to| {
            let mut write = to.reth(Op::RC_WRITE_ONLY_IMM, 0, 8, 8);
            write.extensions.immediate = Some(7);
            acts([write.into()])
        }),
    ]
}

/// Keys, ranges and alignment.
fn memory() -> Vec<Script> {
    vec![
        Script::new("WRITE with a stale key", |to| {
            acts([to.with(Op::RC_WRITE_ONLY, 0, 8).reth(to.address, to.rkey ^ 0x55, 8).into()])
        }),
        Script::new("READ with a stale key", |to| {
            acts([to.packet(Op::RC_READ_REQUEST, 0).reth(to.address, to.rkey ^ 0x55, 8).into()])
        }),
        Script::new("fetch-and-add with a stale key", |to| {
            acts([to.packet(Op::RC_FETCH_ADD, 0).atomic(to.address, to.rkey ^ 0x55, 1).into()])
        }),
        Script::new("WRITE over the end", |to| {
            let end = to.address + REGION as u64;
            acts([to.with(Op::RC_WRITE_ONLY, 0, 8).reth(end - 7, to.rkey, 8).into()])
        }),
        Script::new("READ over the end", |to| {
            let end = to.address + REGION as u64;
            acts([to.packet(Op::RC_READ_REQUEST, 0).reth(end - 7, to.rkey, 8).into()])
        }),
        Script::new("misaligned fetch-and-add", |to| {
            acts([to.packet(Op::RC_FETCH_ADD, 0).atomic(to.address + 4, to.rkey, 1).into()])
        }),
        Script::new("WRITE that wraps the address space", |to| {
            acts([to.with(Op::RC_WRITE_ONLY, 0, 8).reth(u64::MAX - 3, to.rkey, 8).into()])
        }),
        Script::new("SEND longer than its receive", |to| {
            acts([Act::Receive(8), to.with(Op::RC_SEND_ONLY, 0, 9).into()])
        }),
        Script::new("SEND of two packets, the second too long", |to| {
            let last = to.with(Op::RC_SEND_LAST, 1, 1);
            acts([Act::Receive(MTU as u32), to.with(Op::RC_SEND_FIRST, 0, MTU).into(), last.into()])
        }),
    ]
}

/// Order of opcodes, and lengths.
fn sense() -> Vec<Script> {
    vec![
        Script::new("SEND_MIDDLE without a FIRST", |to| {
            acts([Act::Receive(4096), to.with(Op::RC_SEND_MIDDLE, 0, MTU).into()])
        }),
        Script::new("WRITE_LAST without a FIRST", |to| acts([to.with(Op::RC_WRITE_LAST, 0, 8).into()])),
        Script::new("SEND_ONLY within a SEND", |to| {
            let only = to.with(Op::RC_SEND_ONLY, 1, 8);
            acts([Act::Receive(4096), to.with(Op::RC_SEND_FIRST, 0, MTU).into(), only.into()])
        }),
        Script::new("WRITE_MIDDLE within a SEND", |to| {
            let middle = to.with(Op::RC_WRITE_MIDDLE, 1, MTU);
            acts([Act::Receive(4096), to.with(Op::RC_SEND_FIRST, 0, MTU).into(), middle.into()])
        }),
        Script::new("READ within a WRITE", |to| {
            let first = to.reth(Op::RC_WRITE_FIRST, 0, 4096, MTU);
            acts([first.into(), to.reth(Op::RC_READ_REQUEST, 1, 8, 0).into()])
        }),
        Script::new("SEND_FIRST shorter than the MTU", |to| {
            acts([Act::Receive(4096), to.with(Op::RC_SEND_FIRST, 0, MTU - 4).into()])
        }),
        Script::new("SEND_ONLY longer than the MTU", |to| {
            acts([Act::Receive(4096), to.with(Op::RC_SEND_ONLY, 0, MTU + 4).into()])
        }),
        Script::new("SEND_LAST without payload", |to| {
            let last = to.with(Op::RC_SEND_LAST, 1, 0);
            acts([Act::Receive(4096), to.with(Op::RC_SEND_FIRST, 0, MTU).into(), last.into()])
        }),
        Script::new("WRITE_FIRST shorter than the MTU", |to| {
            acts([to.reth(Op::RC_WRITE_FIRST, 0, 4096, MTU - 4).into()])
        }),
        Script::new("WRITE_ONLY of less than its RETH says", |to| {
            acts([to.reth(Op::RC_WRITE_ONLY, 0, 100, 96).into()])
        }),
        Script::new("WRITE_ONLY of more than its RETH says", |to| {
            acts([to.reth(Op::RC_WRITE_ONLY, 0, 96, 100).into()])
        }),
        Script::new("WRITE_LAST of less than is left", |to| {
            let first = to.reth(Op::RC_WRITE_FIRST, 0, MTU as u32 + 100, MTU);
            acts([first.into(), to.with(Op::RC_WRITE_LAST, 1, 96).into()])
        }),
        Script::new("READ longer than 2^31", |to| acts([to.reth(Op::RC_READ_REQUEST, 0, 0x8000_0001, 0).into()])),
        Script::new("WRITE longer than 2^31", |to| acts([to.reth(Op::RC_WRITE_FIRST, 0, 0x8000_0001, MTU).into()])),
    ]
}

/// What no requester sends.
fn hostile() -> Vec<Script> {
    vec![
        Script::new("shorter than a BTH", |to| acts([Act::Bytes(to.packet(Op::RC_SEND_ONLY, 0).bytes()[..8].into())])),
        Script::new("WRITE cut within its RETH", |to| {
            acts([Act::Bytes(to.reth(Op::RC_WRITE_ONLY, 0, 0, 0).bytes()[..20].into())])
        }),
        Script::new("an atomic acknowledge that nobody waits for", |to| {
            let mut answer = to.packet(Op::RC_ATOMIC_ACKNOWLEDGE, 0).syndrome(super::responses::ACK);
            answer.extensions.atomic_ack = Some(1);
            acts([answer.into()])
        }),
        Script::new("a partition that is not ours", |to| {
            let mut write = to.reth(Op::RC_WRITE_ONLY, 0, 8, 8);
            write.bth.pkey = 0x1234;
            acts([write.into()])
        }),
        Script::new("a UC packet", |to| acts([Act::Receive(64), to.with(Op::UC_SEND_ONLY, 0, 8).into()])),
        Script::new("a transport version of the future", |to: &Grant| {
            let mut write = to.reth(Op::RC_WRITE_ONLY, 0, 8, 8);
            write.bth.version = 1;
            acts([write.into()])
        }),
    ]
}
