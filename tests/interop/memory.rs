//! Keys that come and go, ATOMIC WRITE and FLUSH: against the kernel, each case on a connection of its own.

use std::time::Instant;

use uroce::memory::{Access, WindowType};
use uroce::qp::{Mtu, QpType};
use uroce::verbs::Backend;
use uroce::wire::{Placement, Selectivity};
use uroce::work::{Completion, CompletionKind, Flush, Operation, ReceiveRequest, Remote, SendRequest, Status, Tag};

use crate::bench::{Bench, PATIENCE, Setup, exclusively};
use crate::common::agent::WorkCompletion;
use crate::common::guest::{Guest, Kernel};

/// `ibv_wc_status` of the kernel's completions.
const REMOTE_ACCESS_ERROR: u32 = 10;
/// `ibv_wc_opcode` of the kernel's completions.
const BIND_MW: u32 = 5;
const LOCAL_INV: u32 = 6;
const ATOMIC_WRITE: u32 = 9;

type Case = fn(&mut Bench, Kernel) -> Result<(), String>;

const CASES: [(&str, Case); 12] = [
    ("our WRITE and READ through the kernel's type 2 window", ours_through_its_window),
    ("our WRITE through its type 1 window", ours_through_its_type_1_window),
    ("our WRITE outside of its window, and of its region", ours_outside_its_window),
    ("our WRITE after its LOCAL_INV", ours_after_its_local_invalidate),
    ("our SEND_INV of its window, then a WRITE", ours_after_our_invalidation),
    ("its WRITE and READ through our type 2 window, then its SEND_INV", its_through_our_window),
    ("its WRITE through our type 1 window, then outside", its_through_our_type_1_window),
    ("its WRITE to our fast region, its SEND_INV, its WRITE again", its_to_our_fast_region),
    ("its WRITE after our LOCAL_INV", its_after_our_local_invalidate),
    ("our ATOMIC WRITE", our_atomic_write),
    ("its ATOMIC WRITE", its_atomic_write),
    ("our FLUSH, of a range and of the region", our_flush),
];

#[test]
fn kernel_6_1_and_memory() {
    run(Kernel::V6_1);
}

#[test]
fn kernel_6_12_and_memory() {
    run(Kernel::V6_12);
}

fn run(kernel: Kernel) {
    let Some(guest) = Guest::up(kernel) else { return };
    let _link = exclusively();
    guest.enter();
    println!("\n| kernel | case | result | time |\n|---|---|---|---|");
    let mut failures = Vec::new();
    for (name, case) in CASES {
        let begun = Instant::now();
        let mut bench = Bench::connect(
            &guest,
            Setup { backend: Backend::Udp, ipv6: false, mtu: Mtu::Mtu1024, qp_type: QpType::Rc },
        );
        let result = case(&mut bench, kernel);
        println!("| {kernel:?} | {name} | {result:?} | {:.1?} |", begun.elapsed());
        failures.extend(result.err().map(|error| format!("{kernel:?}: {name}: {error}")));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, have: T, want: T) -> Result<(), String> {
    if have == want { Ok(()) } else { Err(format!("{what} is {have:?}, not {want:?}")) }
}

/// Posts a request of ours; its completion, whatever it says.
fn ours(bench: &Bench, operation: Operation, length: u32) -> Result<Completion, String> {
    let list = [bench.mr.sge(0, length)];
    let list = if length == 0 { &[][..] } else { &list };
    bench.qp.post_send([SendRequest::new(1, operation, list)]).map_err(text)?;
    our_completion(bench)
}

fn our_completion(bench: &Bench) -> Result<Completion, String> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(completion) = bench.cq.poll_one() {
            return Ok(completion);
        }
        std::thread::yield_now();
    }
    Err(format!("no completion of ours in {PATIENCE:?}: {:?}", bench.faults()))
}

/// Asserts that a request of ours ends so.
fn ours_ends(bench: &Bench, operation: Operation, length: u32, status: Status) -> Result<(), String> {
    let done = ours(bench, operation, length)?;
    same(&format!("the status of our {operation:?}"), done.status, status)
}

/// Posts a request of the kernel's; its completion, whatever it says.
fn its(bench: &mut Bench, request: &str) -> Result<WorkCompletion, String> {
    bench.agent.send("qp", 5, request).map_err(text)?;
    its_completion(bench)
}

fn its_completion(bench: &mut Bench) -> Result<WorkCompletion, String> {
    let list = bench.agent.poll("cq", 1, PATIENCE).map_err(text)?;
    list.first().copied().ok_or_else(|| format!("no completion of the kernel's: {:?}", bench.faults()))
}

/// Has the kernel bind bytes 4096 to 8192 of a region that allows windows; region and key.
fn its_window(bench: &mut Bench, window_type: WindowType) -> Result<Remote, String> {
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = bench.agent.mr("wmr", 16384, access.bits()).map_err(text)?;
    bench.agent.request(&format!("mw win type={}", window_type as u32)).map_err(text)?;
    let answer = bench.agent.send("qp", 4, "op=bind_mw mw=win sge=wmr:4096:4096 access=7").map_err(text)?;
    let bound = its_completion(bench)?;
    same("the bind's status", (bound.status, bound.opcode), (0, BIND_MW))?;
    Ok(Remote { address: region.addr + 4096, rkey: answer.number("rkey").map_err(text)? })
}

fn ours_through_its_window(bench: &mut Bench, _: Kernel) -> Result<(), String> {
    let window = its_window(bench, WindowType::Two)?;
    bench.mr.write(0, &[7; 4096]).map_err(text)?;
    ours_ends(bench, Operation::Write(window), 4096, Status::Success)?;
    same("what arrived", bench.agent.peek("wmr", 8184, 16).map_err(text)?, [[7; 8], [0; 8]].concat())?;
    bench.mr.write(0, &[0; 4096]).map_err(text)?;
    ours_ends(bench, Operation::Read(window), 4096, Status::Success)?;
    let mut bytes = [0; 4096];
    bench.mr.read(0, &mut bytes).map_err(text)?;
    same("what was read", bytes, [7; 4096])
}

fn ours_through_its_type_1_window(bench: &mut Bench, _: Kernel) -> Result<(), String> {
    let window = its_window(bench, WindowType::One)?;
    bench.mr.write(0, &[7; 8]).map_err(text)?;
    ours_ends(bench, Operation::Write(window), 8, Status::Success)?;
    same("what arrived", bench.agent.peek("wmr", 4096, 9).map_err(text)?, [&[7; 8][..], &[0]].concat())
}

/// The kernel holds an access against the bounds of the region, not of the window (`check_rkey` in `rxe_resp.c`): here it
/// lets through what IBTA 10.6.7.2 forbids, and what ours refuses.
fn ours_outside_its_window(bench: &mut Bench, _: Kernel) -> Result<(), String> {
    let window = its_window(bench, WindowType::Two)?;
    let outside = Remote { address: window.address + 4089, ..window };
    ours_ends(bench, Operation::Write(outside), 8, Status::Success)?;
    let outside = Remote { address: window.address + 3 * 4096 - 7, ..window };
    ours_ends(bench, Operation::Write(outside), 8, Status::RemoteAccessError)
}

fn ours_after_its_local_invalidate(bench: &mut Bench, _: Kernel) -> Result<(), String> {
    let window = its_window(bench, WindowType::Two)?;
    let done = its(bench, &format!("op=local_inv inv_rkey={:#x}", window.rkey))?;
    same("its invalidation", (done.status, done.opcode), (0, LOCAL_INV))?;
    ours_ends(bench, Operation::Write(window), 8, Status::RemoteAccessError)
}

fn ours_after_our_invalidation(bench: &mut Bench, _: Kernel) -> Result<(), String> {
    let window = its_window(bench, WindowType::Two)?;
    bench.agent.recv("qp", 9, "mr:0:64").map_err(text)?;
    ours_ends(bench, Operation::SendInvalidate(window.rkey), 4, Status::Success)?;
    let received = its_completion(bench)?;
    // The kernel names the key, but does not set `IBV_WC_WITH_INV` in a completion for user space.
    same("its receive", (received.status, received.imm), (0, window.rkey))?;
    ours_ends(bench, Operation::Write(window), 8, Status::RemoteAccessError)
}

fn its_through_our_window(bench: &mut Bench, _: Kernel) -> Result<(), String> {
    let region = bench.pd.register(8192, Access::LOCAL_WRITE | Access::MW_BIND).map_err(text)?;
    let window = bench.pd.allocate_window(WindowType::Two).map_err(text)?;
    let bind = window.bind(&region, 4096, 4096, Access::REMOTE_READ | Access::REMOTE_WRITE);
    ours_ends(bench, bind, 0, Status::Success)?;
    let Remote { address, rkey } = window.remote(&region, 4096);
    bench.agent.fill("mr", 0, 4096, 3).map_err(text)?;
    let done = its(bench, &format!("op=write sge=mr:0:4096 raddr={address:#x} rkey={rkey:#x}"))?;
    same("its WRITE", done.status, 0)?;
    let done = its(bench, &format!("op=read sge=mr:8192:4096 raddr={address:#x} rkey={rkey:#x}"))?;
    same("its READ", done.status, 0)?;
    same("what it wrote and read", bench.agent.mismatch("mr", 8192, 4096, 3).map_err(text)?, None)?;
    its_invalidation_of(bench, address, rkey)
}

/// The kernel invalidates our key with a SEND, and then finds it closed.
fn its_invalidation_of(bench: &mut Bench, address: u64, rkey: u32) -> Result<(), String> {
    bench.qp.post_receive([ReceiveRequest::new(9, &[bench.mr.sge(0, 64)])]).map_err(text)?;
    let done = its(bench, &format!("op=send_inv sge=mr:0:4 inv_rkey={rkey:#x}"))?;
    same("its SEND with invalidate", done.status, 0)?;
    let received = our_completion(bench)?;
    same("our receive", (received.id, received.status, received.tag), (9, Status::Success, Tag::Invalidated(rkey)))?;
    let done = its(bench, &format!("op=write sge=mr:0:8 raddr={address:#x} rkey={rkey:#x}"))?;
    same("its WRITE after that", done.status, REMOTE_ACCESS_ERROR)
}

fn its_through_our_type_1_window(bench: &mut Bench, _: Kernel) -> Result<(), String> {
    let region = bench.pd.register(8192, Access::LOCAL_WRITE | Access::MW_BIND).map_err(text)?;
    let window = bench.pd.allocate_window(WindowType::One).map_err(text)?;
    ours_ends(bench, window.bind(&region, 0, 64, Access::REMOTE_WRITE), 0, Status::Success)?;
    let Remote { address, rkey } = window.remote(&region, 0);
    let done = its(bench, &format!("op=write sge=mr:0:64 raddr={address:#x} rkey={rkey:#x}"))?;
    same("its WRITE", done.status, 0)?;
    let done = its(bench, &format!("op=write sge=mr:0:65 raddr={address:#x} rkey={rkey:#x}"))?;
    same("its WRITE outside", done.status, REMOTE_ACCESS_ERROR)
}

fn its_to_our_fast_region(bench: &mut Bench, _: Kernel) -> Result<(), String> {
    let fast = bench.pd.allocate_fast_region(1).map_err(text)?;
    let register = fast.register(&bench.mr, 4096, 4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    ours_ends(bench, register, 0, Status::Success)?;
    let Remote { address, rkey } = fast.remote(bench.mr.remote(4096).address);
    bench.agent.poke("mr", 0, &[5; 8]).map_err(text)?;
    let done = its(bench, &format!("op=write sge=mr:0:8 raddr={address:#x} rkey={rkey:#x}"))?;
    same("its WRITE", done.status, 0)?;
    let mut bytes = [0; 9];
    bench.mr.read(4096, &mut bytes).map_err(text)?;
    same("what arrived", bytes, [5, 5, 5, 5, 5, 5, 5, 5, 0])?;
    its_invalidation_of(bench, address, rkey)
}

fn its_after_our_local_invalidate(bench: &mut Bench, _: Kernel) -> Result<(), String> {
    let region = bench.pd.register(8192, Access::LOCAL_WRITE | Access::MW_BIND).map_err(text)?;
    let window = bench.pd.allocate_window(WindowType::Two).map_err(text)?;
    let bind = SendRequest::new(1, window.bind(&region, 0, 64, Access::REMOTE_WRITE), &[]);
    bench.qp.post_send([bind, SendRequest::new(2, window.invalidate(), &[])]).map_err(text)?;
    for kind in [CompletionKind::BindWindow, CompletionKind::LocalInvalidate] {
        let done = our_completion(bench)?;
        same("our completion", (done.status, done.kind), (Status::Success, kind))?;
    }
    let Remote { address, rkey } = window.remote(&region, 0);
    let done = its(bench, &format!("op=write sge=mr:0:8 raddr={address:#x} rkey={rkey:#x}"))?;
    same("its WRITE", done.status, REMOTE_ACCESS_ERROR)
}

fn our_atomic_write(bench: &mut Bench, kernel: Kernel) -> Result<(), String> {
    let remote = Remote { address: bench.remote.addr + 64, rkey: bench.remote.rkey };
    bench.mr.write(0, b"8 bytes!").map_err(text)?;
    let done = ours(bench, Operation::AtomicWrite(remote), 8)?;
    if kernel == Kernel::V6_1 {
        return refused_by_6_1(bench, &done);
    }
    same("its end", (done.status, done.kind), (Status::Success, CompletionKind::AtomicWrite))?;
    same("what arrived", bench.agent.peek("mr", 64, 9).map_err(text)?, b"8 bytes!\0".to_vec())?;
    let done = ours(bench, Operation::AtomicWrite(Remote { address: remote.address + 4, ..remote }), 8)?;
    same("one that is not aligned", done.status, Status::RemoteInvalidRequestError)
}

fn its_atomic_write(bench: &mut Bench, kernel: Kernel) -> Result<(), String> {
    let Remote { address, rkey } = bench.mr.remote(64);
    let request = format!("op=atomic_write raddr={address:#x} rkey={rkey:#x} value=0x1122334455667788");
    let done = match its(bench, &request) {
        Err(_) if kernel == Kernel::V6_1 => return Ok(()),
        done => done?,
    };
    if kernel == Kernel::V6_1 {
        return if done.is_success() { Err("6.1 has no ATOMIC WRITE".into()) } else { Ok(()) };
    }
    same("its end", (done.status, done.opcode), (0, ATOMIC_WRITE))?;
    let mut bytes = [0; 8];
    bench.mr.read(64, &mut bytes).map_err(text)?;
    same("what arrived", u64::from_ne_bytes(bytes), 0x1122_3344_5566_7788)
}

fn our_flush(bench: &mut Bench, kernel: Kernel) -> Result<(), String> {
    let access = Access::LOCAL_WRITE | Access::REMOTE | Access::FLUSH_GLOBAL;
    let (remote, length) = if kernel == Kernel::V6_1 {
        (Remote { address: bench.remote.addr, rkey: bench.remote.rkey }, 8)
    } else {
        let region = bench.agent.mr("fmr", 8192, access.bits()).map_err(text)?;
        bench.agent.modify("qp", &format!("access={:#x}", access.bits())).map_err(text)?;
        (Remote { address: region.addr, rkey: region.rkey }, 8192)
    };
    let flush = |selectivity, placement| Operation::Flush(Flush { remote, length, placement, selectivity });
    let global = Placement::GLOBAL_VISIBILITY;
    if kernel == Kernel::V6_1 {
        let done = ours(bench, flush(Selectivity::Range, global), 0)?;
        return refused_by_6_1(bench, &done);
    }
    bench.mr.write(0, &[6; 8192]).map_err(text)?;
    ours_ends(bench, Operation::Write(remote), 8192, Status::Success)?;
    for selectivity in [Selectivity::Range, Selectivity::Region] {
        let done = ours(bench, flush(selectivity, global), 0)?;
        same("its end", (done.status, done.kind), (Status::Success, CompletionKind::Flush))?;
    }
    same("what arrived", bench.agent.peek("fmr", 8184, 8).map_err(text)?, vec![6; 8])?;
    // No memory of the guest can be made persistent, so neither region nor queue pair allows it.
    ours_ends(bench, flush(Selectivity::Range, Placement::PERSISTENCE), 0, Status::RemoteInvalidRequestError)
}

/// Kernel 6.1 knows neither operation.
fn refused_by_6_1(bench: &Bench, done: &Completion) -> Result<(), String> {
    println!("|  | 6.1 ends our {:?} with: {} | {:?} |", done.kind, done.status.as_str(), bench.faults());
    let is_known = [Status::RemoteInvalidRequestError, Status::RetryExceededError].contains(&done.status);
    if is_known { Ok(()) } else { Err(format!("it ended with {:?}", done.status)) }
}
