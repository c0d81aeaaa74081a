//! Completion queues.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use super::list::CompletionList;
use crate::error::{Error, Result};
use crate::wire::Qpn;
use crate::work::{Completion, Status};

/// A completion queue: the engine pushes, the program pops, neither takes a lock.
///
/// The list itself has no bound, and the capacity is a number beside it: so a resize moves nothing, and a program that polls
/// meanwhile sees every completion once and in order. One thread at a time pushes, resizes or removes: who holds the engine.
#[derive(Debug)]
pub struct CompletionQueue {
    list: CompletionList,
    capacity: AtomicUsize,
    armed: AtomicU8,
    overflowed: AtomicBool,
    number: u32,
}

/// Which completions raise an event once the queue is armed (`ibv_req_notify_cq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Arm {
    /// The next one.
    Any = 1,
    /// The next one that failed or whose sender asked for it.
    Solicited = 2,
}

const UNARMED: u8 = 0;

/// What became of a completion that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// It waits to be polled (or is lost like others before it).
    Quiet,
    /// It waits to be polled, and the program asked to be woken.
    Notify,
    /// There was no room: it is lost, the first of this queue, which is in error for good.
    Overflow,
}

impl CompletionQueue {
    /// Entries that a queue can have, as the kernel's rxe reports.
    pub const MAX_CAPACITY: usize = 32_767;

    /// A queue for `capacity` completions, known to the engine's events as `number`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity of zero or above [`MAX_CAPACITY`](Self::MAX_CAPACITY).
    pub fn new(capacity: usize, number: u32) -> Result<Self> {
        check(capacity)?;
        Ok(Self {
            list: CompletionList::default(),
            capacity: AtomicUsize::new(capacity),
            armed: AtomicU8::new(UNARMED),
            overflowed: AtomicBool::new(false),
            number,
        })
    }

    /// The number that the engine's events name it by.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How many completions fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes how many completions fit; what waits stays, in its order (`ibv_resize_cq(3)`).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity out of range, or below the number of completions that wait.
    pub fn resize(&self, capacity: usize) -> Result<()> {
        check(capacity)?;
        let waiting = self.list.len();
        if capacity < waiting {
            return Err(Error::invalid("cqe", format!("{capacity} entries; {waiting} completions wait to be polled")));
        }
        self.capacity.store(capacity, Ordering::Relaxed);
        Ok(())
    }

    /// How many completions wait to be polled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.len() == 0
    }

    /// Whether a completion was lost for want of room.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// The oldest completion.
    #[must_use]
    pub fn pop(&self) -> Option<Completion> {
        self.list.pop()
    }

    /// Removes what waits of a queue pair, which starts anew or ends. Whoever polls at the same moment may still take one.
    pub fn remove(&self, qpn: Qpn) {
        self.list.remove(qpn);
    }

    /// Asks for one event. A second call before it fires can only widen what fires it (IBTA 11.4.2.2).
    pub fn arm(&self, arm: Arm) {
        if arm == Arm::Any {
            self.armed.store(Arm::Any as u8, Ordering::SeqCst);
        } else {
            let _ = self.armed.compare_exchange(UNARMED, arm as u8, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Adds a completion. Once one was lost no other is added, so that what is polled has no gap but at its end.
    pub fn push(&self, completion: Completion) -> Pushed {
        if self.overflowed() {
            return Pushed::Quiet;
        }
        if self.list.len() >= self.capacity() {
            self.overflowed.store(true, Ordering::Relaxed);
            return Pushed::Overflow;
        }
        self.list.push(completion);
        let is_solicited = completion.solicited || completion.status != Status::Success;
        let wakes = |armed| armed == Arm::Any as u8 || (armed == Arm::Solicited as u8 && is_solicited);
        // Whoever arms for more at this moment did not disarm: who waits must still be woken.
        match self.armed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |armed| wakes(armed).then_some(UNARMED)) {
            Ok(_) => Pushed::Notify,
            Err(_) => Pushed::Quiet,
        }
    }
}

fn check(capacity: usize) -> Result<()> {
    if (1..=CompletionQueue::MAX_CAPACITY).contains(&capacity) {
        return Ok(());
    }
    Err(Error::invalid("cqe", format!("{capacity} entries; 1 to {} are possible", CompletionQueue::MAX_CAPACITY)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Status;

    fn completion(id: u64) -> Completion {
        Completion { id, ..Completion::default() }
    }

    #[test]
    fn an_armed_queue_notifies_once() {
        let queue = CompletionQueue::new(8, 1).unwrap();
        assert_eq!(queue.push(completion(1)), Pushed::Quiet);
        queue.arm(Arm::Any);
        assert_eq!(queue.push(completion(2)), Pushed::Notify);
        assert_eq!(queue.push(completion(3)), Pushed::Quiet);
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop(), queue.pop()].map(|c| c.map(|c| c.id)),
            [Some(1), Some(2), Some(3), None]
        );
    }

    #[test]
    fn solicited_events_wait_for_a_solicited_message_or_an_error() {
        let queue = CompletionQueue::new(8, 1).unwrap();
        queue.arm(Arm::Solicited);
        assert_eq!(queue.push(completion(1)), Pushed::Quiet);
        assert_eq!(queue.push(Completion { solicited: true, ..completion(2) }), Pushed::Notify);
        queue.arm(Arm::Solicited);
        assert_eq!(queue.push(Completion { status: Status::FlushError, ..completion(3) }), Pushed::Notify);
        queue.arm(Arm::Any);
        queue.arm(Arm::Solicited);
        assert_eq!(queue.push(completion(4)), Pushed::Notify, "arming for less does not narrow");
    }

    /// Interleavings by chance; Miri (`tools/check`) tries many, with every order of memory that the language allows.
    const ROUNDS: usize = if cfg!(miri) { 2 } else { 2000 };

    #[test]
    fn a_push_beside_an_arm_is_found_or_wakes() {
        for _ in 0..ROUNDS {
            let queue = CompletionQueue::new(8, 1).unwrap();
            let (pushed, found) = std::thread::scope(|scope| {
                let pusher = scope.spawn(|| queue.push(completion(1)));
                queue.arm(Arm::Any);
                let found = queue.pop();
                (pusher.join().unwrap(), found)
            });
            assert!(found.is_some() || pushed == Pushed::Notify, "the program sleeps beside a completion");
        }
    }

    #[test]
    fn one_that_arms_for_more_takes_no_wake_up_from_another() {
        for _ in 0..ROUNDS {
            let queue = CompletionQueue::new(8, 1).unwrap();
            queue.arm(Arm::Solicited);
            let pushed = std::thread::scope(|scope| {
                let pusher = scope.spawn(|| queue.push(Completion { solicited: true, ..completion(1) }));
                queue.arm(Arm::Any);
                pusher.join().unwrap()
            });
            assert_eq!(pushed, Pushed::Notify);
        }
    }

    #[test]
    fn a_full_queue_says_so_and_keeps_what_it_has() {
        let queue = CompletionQueue::new(1, 1).unwrap();
        assert_eq!(queue.push(completion(1)), Pushed::Quiet);
        assert_eq!(queue.push(completion(2)), Pushed::Overflow);
        assert!(queue.overflowed());
        assert_eq!(queue.pop().map(|c| c.id), Some(1));
    }

    #[test]
    fn a_resize_keeps_what_waits_in_order() {
        let queue = CompletionQueue::new(3, 1).unwrap();
        (0..3).for_each(|id| assert_eq!(queue.push(completion(id)), Pushed::Quiet));
        assert_eq!(queue.resize(2).unwrap_err().to_string(), "cqe: 2 entries; 3 completions wait to be polled");
        for capacity in [0, CompletionQueue::MAX_CAPACITY + 1] {
            assert_eq!(queue.resize(capacity).unwrap_err().errno(), 22);
        }
        queue.resize(5).unwrap();
        (3..5).for_each(|id| assert_eq!(queue.push(completion(id)), Pushed::Quiet));
        assert!((0..3).all(|id| queue.pop().is_some_and(|c| c.id == id)));
        queue.resize(2).unwrap();
        assert_eq!((queue.capacity(), queue.push(completion(5))), (2, Pushed::Overflow));
        assert_eq!([queue.pop(), queue.pop(), queue.pop()].map(|c| c.map(|c| c.id)), [Some(3), Some(4), None]);
        assert_eq!(queue.push(completion(6)), Pushed::Quiet);
        assert!(queue.is_empty(), "what follows a lost completion is lost");
    }
}
