//! Completion channels, and the count of events that a program has not acknowledged.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Condvar, Mutex, PoisonError};

use uroce::verbs::{CompletionChannel, CompletionQueue};

use crate::abi;
use crate::context::{self, Context, ContextHandle, Numbered, adopt};
use crate::cq::Cq;
use crate::edge::{Cookie, Failure, Result, errno_of, minus_one, object, quick, store};
use crate::handle::{live, object as declare};
use crate::signals;

declare!(Channel: abi::CompChannel as abi::CompChannel, Connected, "completion channel");

/// Our part of a completion channel.
pub(crate) struct Connected {
    pub(crate) channel: CompletionChannel,
    context: ContextHandle,
}

pub(crate) extern "C" fn ibv_create_comp_channel(context: *mut abi::Context) -> *mut abi::CompChannel {
    object("ibv_create_comp_channel", || {
        // SAFETY: a context of the program's, as the verb requires.
        let handle = unsafe { live::<Context>(context) }?;
        let channel = handle.inner().verbs.create_completion_channel()?;
        let shape = abi::CompChannel { context, fd: channel.as_raw_fd(), refcnt: 0 };
        Ok(adopt::<Channel>(handle, shape, Connected { channel, context: handle }))
    })
}

pub(crate) extern "C" fn ibv_destroy_comp_channel(channel: *mut abi::CompChannel) -> c_int {
    errno_of("ibv_destroy_comp_channel", || {
        // SAFETY: a channel of the program's, as the verb requires.
        let handle = unsafe { live::<Channel>(channel) }?;
        context::release(handle.inner().context, handle).map(drop)
    })
}

/// Waits for the next event, unless the program made the descriptor non-blocking: then EAGAIN says that there is none.
pub(crate) extern "C" fn ibv_get_cq_event(
    channel: *mut abi::CompChannel,
    cq_place: *mut *mut abi::Cq,
    cookie_place: *mut Cookie,
) -> c_int {
    minus_one("ibv_get_cq_event", || {
        // SAFETY: a channel of the program's, as the verb requires.
        let connected = unsafe { live::<Channel>(channel) }?.inner();
        let source = &connected.channel;
        loop {
            let queue: CompletionQueue =
                await_event(source.as_raw_fd(), || source.poll(), || Ok(source.wait_interruptible(None)?))?;
            let cq = connected.context.inner().numbered::<abi::Cq>(Numbered::Cq, queue.number());
            // The queue may be gone since.
            // SAFETY: null, or a queue of ours.
            let Ok(handle) = (unsafe { live::<Cq>(cq) }) else { continue };
            handle.inner().completion_events.deliver();
            // SAFETY: the shape of a live queue; the program may have changed the cookie.
            let cookie = unsafe { (*handle.shape()).cq.cq_context };
            // SAFETY: the program's places for the queue and its word for it.
            return unsafe { store(cq_place, cq).and_then(|()| store(cookie_place, cookie)) };
        }
    })
}

pub(crate) extern "C" fn ibv_ack_cq_events(cq: *mut abi::Cq, count: u32) {
    quick((), || {
        // SAFETY: a queue of the program's, as the verb requires.
        if let Ok(handle) = unsafe { live::<Cq>(cq) } {
            handle.inner().completion_events.acknowledge(count);
        }
    });
}

/// The next event of a descriptor; whether to wait for one is for the program to say, with `O_NONBLOCK`. A
/// signal ends the wait as it would end a `read(2)`.
pub(crate) fn await_event<T>(
    descriptor: RawFd,
    poll: impl Fn() -> Option<T>,
    wait: impl Fn() -> Result<Option<T>>,
) -> Result<T> {
    loop {
        if let Some(event) = poll() {
            return Ok(event);
        }
        // SAFETY: asks for flags, nothing more.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        if flags & libc::O_NONBLOCK != 0 {
            return Err(Failure::new(libc::EAGAIN, "no event, and the descriptor is non-blocking"));
        }
        match wait() {
            Ok(Some(event)) => return Ok(event),
            Ok(None) => {}
            Err(failure) if failure.errno == libc::EINTR && !signals::interrupt() => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Events of an object that were handed out, and not acknowledged yet.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u32>,
    all_done: Condvar,
}

impl Unacknowledged {
    /// One more was handed out.
    pub(crate) fn deliver(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// The program is done with so many.
    pub(crate) fn acknowledge(&self, count: u32) {
        let mut left = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(count);
        if *left == 0 {
            self.all_done.notify_all();
        }
    }

    /// Waits until the program is done with all: it may look at the object until then (`ibv_get_cq_event(3)`).
    pub(crate) fn settle(&self) {
        let left = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.all_done.wait_while(left, |left| *left > 0));
    }
}
