//! What queue pairs share: receive queues, and completion queues that overran.

use super::Endpoint;
use crate::error::Result;
use crate::event::{AsyncEvent, Event};
use crate::queue::{SrqInfo, SrqInit, XrcdNumber};
use crate::time::Instant;
use crate::wire::SrqNumber;
use crate::work::ReceiveRequest;

impl Endpoint {
    /// A new XRC domain.
    pub fn allocate_xrcd(&mut self) -> XrcdNumber {
        self.srqs.allocate_domain()
    }

    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) names the limit that is exceeded,
    /// [`Error::Full`](crate::error::Error::Full) when there are too many.
    pub fn create_srq(&mut self, init: SrqInit) -> Result<SrqNumber> {
        self.srqs.create(init)
    }

    /// Destroys a shared receive queue; what waits in it vanishes without a completion.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::error::Error::Missing), or [`Error::Busy`](crate::error::Error::Busy) while a queue pair was
    /// made with it and exists.
    pub fn destroy_srq(&mut self, srq: SrqNumber) -> Result<()> {
        self.srqs.destroy(srq)
    }

    /// Changes the size of a shared receive queue, when `max_wr` is given, and arms its limit event, when `limit` is: the event
    /// comes once, when fewer than `limit` requests wait; at once, when that is so already. A limit of 0 disarms.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::error::Error::Missing), or [`Error::Invalid`](crate::error::Error::Invalid) for a size out of
    /// range, below the number of requests that wait, or below the limit.
    pub fn modify_srq(&mut self, srq: SrqNumber, max_wr: Option<u32>, limit: Option<u32>) -> Result<()> {
        self.srqs.modify(srq, max_wr, limit, &mut self.events)
    }

    /// Sizes and limit of a shared receive queue.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::error::Error::Missing).
    pub fn query_srq(&self, srq: SrqNumber) -> Result<SrqInfo> {
        self.srqs.info(srq)
    }

    /// How many requests wait in a shared receive queue.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::error::Error::Missing).
    pub fn srq_waiting(&self, srq: SrqNumber) -> Result<usize> {
        self.srqs.waiting(srq)
    }

    /// Adds a request to a shared receive queue.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::error::Error::Missing), [`Error::Full`](crate::error::Error::Full), or
    /// [`Error::Invalid`](crate::error::Error::Invalid) when it has too many elements.
    pub fn post_srq_receive(&mut self, srq: SrqNumber, request: ReceiveRequest) -> Result<()> {
        self.srqs.post(srq, request)
    }

    /// Of the events from index `from` on, acts on those that tell of a completion queue that overran: what reports there
    /// can work no more (IBTA 11.6.3.1). What fails then may make others overrun.
    pub(super) fn follow_cq_errors(&mut self, now: Instant, from: usize) {
        let mut at = from;
        while let Some(event) = self.events.get(at) {
            at += 1;
            let &Event::Async(AsyncEvent::CqError(cq)) = event else { continue };
            let srqs = self.srqs.fail_on(cq).into_iter();
            self.events.extend(srqs.map(|srq| Event::Async(AsyncEvent::SrqError(srq))));
            for index in self.pairs.completing_on(cq) {
                // The events that this causes come behind those that are here, and their turn with them.
                self.handle(now, index, |pair, around| pair.on_cq_error(around));
            }
        }
    }
}
