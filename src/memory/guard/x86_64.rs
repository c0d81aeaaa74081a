//! The instructions that may fault, and the handler that knows them.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

// Functions without a frame, which change nothing that their caller relies on: wherever one of them is interrupted, going on at
// `uroce_guard_fail` returns to the caller, with 1 instead of 0.
global_asm!(
    ".pushsection .text.uroce_guard,\"ax\",@progbits",
    ".p2align 6",
    ".hidden uroce_guard_begin",
    ".globl uroce_guard_begin",
    "uroce_guard_begin:",
    // copy(rdi: to, rsi: from, rdx: length)
    ".hidden uroce_guard_copy",
    ".globl uroce_guard_copy",
    ".type uroce_guard_copy,@function",
    "uroce_guard_copy:",
    "xor eax, eax",
    "cmp rdx, 16",
    "jb 20f",
    "cmp rdx, 32",
    "ja 30f",
    // 16 to 32 bytes, in two moves that may overlap; and so on.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "ret",
    "20:",
    "cmp edx, 8",
    "jb 21f",
    "mov r8, [rsi]",
    "mov r9, [rsi + rdx - 8]",
    "mov [rdi], r8",
    "mov [rdi + rdx - 8], r9",
    "ret",
    "21:",
    "cmp edx, 4",
    "jb 22f",
    "mov r8d, [rsi]",
    "mov r9d, [rsi + rdx - 4]",
    "mov [rdi], r8d",
    "mov [rdi + rdx - 4], r9d",
    "ret",
    "22:",
    "test edx, edx",
    "jz 24f",
    "23:",
    "movzx r8d, byte ptr [rsi + rdx - 1]",
    "mov [rdi + rdx - 1], r8b",
    "dec edx",
    "jnz 23b",
    "24:",
    "ret",
    "30:",
    "cmp rdx, 64",
    "jbe 32f",
    "31:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "cmp rdx, 64",
    "ja 31b",
    // The last 1 to 64 of more, or 33 to 64 in all.
    "cmp rdx, 32",
    "jbe 33f",
    "32:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + rdx - 32]",
    "movups xmm3, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "movups [rdi + rdx - 16], xmm3",
    "ret",
    "33:",
    "movups xmm0, [rsi + rdx - 32]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi + rdx - 32], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "ret",
    // The same for 64 bytes and more, on processors with AVX.
    ".p2align 5",
    ".hidden uroce_guard_copy_wide",
    ".globl uroce_guard_copy_wide",
    ".type uroce_guard_copy_wide,@function",
    "uroce_guard_copy_wide:",
    "xor eax, eax",
    "jmp 41f",
    ".p2align 5",
    "40:",
    "vmovups ymm0, [rsi]",
    "vmovups ymm1, [rsi + 32]",
    "vmovups [rdi], ymm0",
    "vmovups [rdi + 32], ymm1",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "41:",
    "cmp rdx, 64",
    "ja 40b",
    "vmovups ymm0, [rsi + rdx - 64]",
    "vmovups ymm1, [rsi + rdx - 32]",
    "vmovups [rdi + rdx - 64], ymm0",
    "vmovups [rdi + rdx - 32], ymm1",
    "vzeroupper",
    "ret",
    // fetch_and_add(rdi: cell, rsi: addend, rdx: before)
    ".hidden uroce_guard_fetch_and_add",
    ".globl uroce_guard_fetch_and_add",
    ".type uroce_guard_fetch_and_add,@function",
    "uroce_guard_fetch_and_add:",
    "xor eax, eax",
    "lock xadd [rdi], rsi",
    "mov [rdx], rsi",
    "ret",
    // compare_and_swap(rdi: cell, rsi: before, rdx: swap)
    ".hidden uroce_guard_compare_and_swap",
    ".globl uroce_guard_compare_and_swap",
    ".type uroce_guard_compare_and_swap,@function",
    "uroce_guard_compare_and_swap:",
    "mov rax, [rsi]",
    "lock cmpxchg [rdi], rdx",
    "mov [rsi], rax",
    "xor eax, eax",
    "ret",
    // store(rdi: cell, rsi: value)
    ".hidden uroce_guard_store",
    ".globl uroce_guard_store",
    ".type uroce_guard_store,@function",
    "uroce_guard_store:",
    "xor eax, eax",
    "xchg [rdi], rsi",
    "ret",
    ".hidden uroce_guard_fail",
    ".globl uroce_guard_fail",
    "uroce_guard_fail:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn uroce_guard_begin();
    fn uroce_guard_fail();
    fn uroce_guard_copy(to: *mut u8, from: *const u8, length: usize) -> u32;
    fn uroce_guard_copy_wide(to: *mut u8, from: *const u8, length: usize) -> u32;
    fn uroce_guard_fetch_and_add(cell: *mut u64, add: u64, before: *mut u64) -> u32;
    fn uroce_guard_compare_and_swap(cell: *mut u64, before: *mut u64, swap: u64) -> u32;
    fn uroce_guard_store(cell: *mut u64, value: u64) -> u32;
}

/// # Safety
/// That of [`copy`](super::copy).
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) -> u32 {
    /// From here on the wider moves are worth a look at what the processor can do.
    const WIDE: usize = 128;
    if length >= WIDE && is_x86_feature_detected!("avx") {
        // SAFETY: the caller makes the same promise; there are at least 64 bytes, and the processor has AVX.
        unsafe { uroce_guard_copy_wide(to, from, length) }
    } else {
        // SAFETY: the caller makes the same promise.
        unsafe { uroce_guard_copy(to, from, length) }
    }
}

/// # Safety
/// That of [`fetch_and_add`](super::fetch_and_add); `before` must be writable.
pub(super) unsafe fn fetch_and_add(cell: *mut u64, add: u64, before: *mut u64) -> u32 {
    // SAFETY: the caller makes the same promise.
    unsafe { uroce_guard_fetch_and_add(cell, add, before) }
}

/// # Safety
/// That of [`compare_and_swap`](super::compare_and_swap); `before` must be readable and writable.
pub(super) unsafe fn compare_and_swap(cell: *mut u64, before: *mut u64, swap: u64) -> u32 {
    // SAFETY: the caller makes the same promise.
    unsafe { uroce_guard_compare_and_swap(cell, before, swap) }
}

/// # Safety
/// That of [`store`](super::store).
pub(super) unsafe fn store(cell: *mut u64, value: u64) -> u32 {
    // SAFETY: the caller makes the same promise.
    unsafe { uroce_guard_store(cell, value) }
}

/// The handlers of one signal that were there before this one took their place.
struct Chain {
    /// The newest; never freed, because a handler may be reading it.
    newest: AtomicPtr<Former>,
    /// The one that runs, in which thread and how deep in its stack.
    running: AtomicPtr<Former>,
    thread: AtomicI32,
    depth: AtomicUsize,
}

/// A handler that was there before.
struct Former {
    action: libc::sigaction,
    /// The one that was there when this one came.
    before: *const Former,
}

static SEGMENTATION: Chain = Chain::new();
static BUS: Chain = Chain::new();

impl Chain {
    const fn new() -> Self {
        Self {
            newest: AtomicPtr::new(ptr::null_mut()),
            running: AtomicPtr::new(ptr::null_mut()),
            thread: AtomicI32::new(0),
            depth: AtomicUsize::new(0),
        }
    }

    fn of(signal: c_int) -> &'static Self {
        if signal == libc::SIGBUS { &BUS } else { &SEGMENTATION }
    }

    /// Who is to get a fault that is not ours: the newest handler; but when that one runs and hands on to the handler that it
    /// found, which is this one again, the one before it.
    fn next(&self, thread: i32, depth: usize) -> *const Former {
        /// What a handler may have on its stack. One that left with `longjmp(3)` is found at the same depth again.
        const FRAMES: std::ops::Range<usize> = 1..1 << 20;
        let nested = self.thread.load(Ordering::Relaxed) == thread
            && FRAMES.contains(&self.depth.load(Ordering::Relaxed).wrapping_sub(depth));
        let running = self.running.load(Ordering::Acquire);
        let next = if nested && !running.is_null() {
            // SAFETY: never freed.
            unsafe { (*running).before }
        } else {
            self.newest.load(Ordering::Acquire)
        };
        self.running.store(next.cast_mut(), Ordering::Release);
        self.depth.store(depth, Ordering::Relaxed);
        self.thread.store(thread, Ordering::Relaxed);
        next
    }
}

pub(super) fn watch() -> io::Result<()> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    install(libc::SIGSEGV)?;
    install(libc::SIGBUS)
}

fn install(signal: c_int) -> io::Result<()> {
    let found = change(signal, None)?;
    let ours = on_fault as *const () as usize;
    if found.sa_sigaction == ours {
        return Ok(());
    }
    let chain = Chain::of(signal);
    let former = Box::new(Former { action: found, before: chain.newest.load(Ordering::Acquire) });
    let mut action = found;
    action.sa_sigaction = ours;
    // What the former one asked for holds for this one: it may be called from here.
    let kept = libc::SA_NODEFER | libc::SA_RESTART | libc::SA_ONSTACK;
    let is_default = matches!(found.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    action.sa_flags = if is_default { libc::SA_ONSTACK } else { found.sa_flags & kept } | libc::SA_SIGINFO;
    chain.newest.store(Box::into_raw(former), Ordering::Release);
    change(signal, Some(&action)).map(drop)
}

/// `sigaction(2)`: what was there, and what is to be there from now on.
fn change(signal: c_int, action: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut found = MaybeUninit::uninit();
    let action = action.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: null or an action whose handler is a function of that kind, and a place for what was there.
    if unsafe { libc::sigaction(signal, action, found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, and so filled it in.
    Ok(unsafe { found.assume_init() })
}

/// What the kernel calls. Does nothing but what `signal-safety(7)` allows.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let machine = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel hands in both.
    let (at, code) = unsafe { ((*machine).uc_mcontext.gregs[libc::REG_RIP as usize], (*info).si_code) };
    // Sent by a fault, not by `kill(2)`.
    let is_fault = code > 0;
    let ours = uroce_guard_begin as *const () as usize..uroce_guard_fail as *const () as usize;
    if is_fault && ours.contains(&(at as usize)) {
        // SAFETY: as above; there the interrupted function returns.
        unsafe { (*machine).uc_mcontext.gregs[libc::REG_RIP as usize] = ours.end as i64 };
        return;
    }
    // SAFETY: a number of the system's.
    let thread = unsafe { libc::gettid() };
    let depth = ptr::from_ref(&is_fault).addr();
    let chain = Chain::of(signal);
    let former = chain.next(thread, depth);
    // SAFETY: null or never freed; the kernel's arguments are handed on.
    match unsafe { former.as_ref() } {
        // SAFETY: as above.
        Some(former) => unsafe { hand_on(&former.action, signal, info, context, is_fault) },
        None => die(signal, is_fault),
    }
    if chain.depth.load(Ordering::Relaxed) == depth {
        chain.thread.store(0, Ordering::Relaxed);
    }
}

/// Does what would have been done without us.
///
/// # Safety
/// The last arguments are the kernel's for a handler of `signal`.
unsafe fn hand_on(
    former: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    is_fault: bool,
) {
    match former.sa_sigaction {
        libc::SIG_DFL => die(signal, is_fault),
        // The kernel lets nobody ignore a fault.
        libc::SIG_IGN if is_fault => die(signal, is_fault),
        libc::SIG_IGN => {}
        handler => {
            if former.sa_flags & libc::SA_RESETHAND != 0 {
                restore_default(signal);
            }
            if former.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: whoever installed it with SA_SIGINFO says that it is such a function.
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: as above, without.
                let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
                handler(signal);
            }
        }
    }
}

/// Ends the process as the signal does by default: the faulting instruction runs again, and a core shows it.
fn die(signal: c_int, is_fault: bool) {
    restore_default(signal);
    if !is_fault {
        // SAFETY: allowed in a handler; it arrives when this one returns.
        unsafe { libc::raise(signal) };
    }
}

fn restore_default(signal: c_int) {
    // SAFETY: all zeroes are the default action without flags, and an empty mask.
    let action: libc::sigaction = unsafe { std::mem::zeroed() };
    // Nothing can be done about an error here.
    let _ = change(signal, Some(&action));
}
