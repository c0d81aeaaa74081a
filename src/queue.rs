//! Bounded queues between a program and the engine.

mod completion;
mod list;
mod shared;

pub use completion::{Arm, CompletionQueue, Pushed};
pub(crate) use shared::Taken;
pub use shared::{Extended, SharedReceiveQueues, SrqInfo, SrqInit, XrcdNumber};

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::work::ReceiveRequest;

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
            let reason = format!("{} elements; the queue takes at most {}", request.sges.len(), self.max_sge);
            return Err(Error::invalid("sg_list", reason));
        }
        if self.ring.len() >= self.capacity {
            return Err(Error::Full { what: "the receive queue", limit: self.capacity });
        }
        self.ring.push_back(request);
        Ok(())
    }

    /// Changes how many requests fit.
    ///
    /// # Errors
    /// [`Error::Invalid`] below the number of requests that wait.
    pub fn resize(&mut self, capacity: usize) -> Result<()> {
        let waiting = self.ring.len();
        if capacity < waiting {
            return Err(Error::invalid("max_wr", format!("{capacity}; {waiting} requests wait")));
        }
        self.capacity = capacity;
        Ok(())
    }

    /// How many requests fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many elements a request may have.
    #[must_use]
    pub fn max_sge(&self) -> usize {
        self.max_sge
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
