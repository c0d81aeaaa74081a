//! Bounded queues between a program and the engine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::error::{Error, Result};
use crate::work::{Completion, ReceiveRequest};

/// A completion queue: the engine pushes, the program pops, neither takes a lock.
#[derive(Debug)]
pub struct CompletionQueue {
    ring: ArrayQueue<Completion>,
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
        if !(1..=Self::MAX_CAPACITY).contains(&capacity) {
            let reason = format!("{capacity} entries; 1 to {} are possible", Self::MAX_CAPACITY);
            return Err(Error::invalid("cqe", reason));
        }
        Ok(Self {
            ring: ArrayQueue::new(capacity),
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
        self.ring.capacity()
    }

    /// How many completions wait to be polled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whether a completion was lost for want of room.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// The oldest completion.
    #[must_use]
    pub fn pop(&self) -> Option<Completion> {
        self.ring.pop()
    }

    /// Asks for one event. A second call before it fires can only widen what fires it (IBTA 11.4.2.2).
    pub fn arm(&self, arm: Arm) {
        if arm == Arm::Any {
            self.armed.store(Arm::Any as u8, Ordering::SeqCst);
        } else {
            let _ = self.armed.compare_exchange(UNARMED, arm as u8, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Adds a completion.
    pub fn push(&self, completion: Completion) -> Pushed {
        if self.ring.push(completion).is_err() {
            let again = self.overflowed.swap(true, Ordering::Relaxed);
            return if again { Pushed::Quiet } else { Pushed::Overflow };
        }
        let armed = self.armed.load(Ordering::SeqCst);
        let wakes = armed == Arm::Any as u8
            || (armed == Arm::Solicited as u8
                && (completion.solicited || completion.status != crate::work::Status::Success));
        if wakes && self.armed.compare_exchange(armed, UNARMED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return Pushed::Notify;
        }
        Pushed::Quiet
    }
}

/// Receive requests in the order they are filled.
#[derive(Debug)]
pub struct ReceiveQueue {
    ring: VecDeque<ReceiveRequest>,
    capacity: usize,
    max_sge: usize,
}

impl ReceiveQueue {
    /// A queue for `capacity` requests of up to `max_sge` elements each.
    #[must_use]
    pub fn new(capacity: usize, max_sge: usize) -> Self {
        Self { ring: VecDeque::new(), capacity, max_sge }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Invalid`] when it has too many elements.
    pub fn push(&mut self, request: ReceiveRequest) -> Result<()> {
        if request.sges.len() > self.max_sge {
            let reason = format!("{} elements; max_recv_sge is {}", request.sges.len(), self.max_sge);
            return Err(Error::invalid("sg_list", reason));
        }
        if self.ring.len() >= self.capacity {
            return Err(Error::Full { what: "the receive queue", limit: self.capacity });
        }
        self.ring.push_back(request);
        Ok(())
    }

    /// Takes the oldest request.
    pub fn pop(&mut self) -> Option<ReceiveRequest> {
        self.ring.pop_front()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.ring.clear();
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
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

    #[test]
    fn a_full_queue_says_so_and_keeps_what_it_has() {
        let queue = CompletionQueue::new(1, 1).unwrap();
        assert_eq!(queue.push(completion(1)), Pushed::Quiet);
        assert_eq!(queue.push(completion(2)), Pushed::Overflow);
        assert!(queue.overflowed());
        assert_eq!(queue.pop().map(|c| c.id), Some(1));
    }
}
