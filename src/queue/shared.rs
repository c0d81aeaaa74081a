//! Shared receive queues.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{CompletionQueue, ReceiveQueue};
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, Event};
use crate::memory::PdNumber;
use crate::wire::SrqNumber;
use crate::work::ReceiveRequest;

/// An XRC domain: its targets reach its shared receive queues and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XrcdNumber(pub u32);

/// What a shared receive queue is made of (`ibv_srq_init_attr`).
#[derive(Clone, Debug)]
pub struct SrqInit {
    /// Whose memory its requests name.
    pub pd: PdNumber,
    /// Requests that may wait.
    pub max_wr: u32,
    /// Scatter/gather elements of a request.
    pub max_sge: u32,
    /// Set when peers address it over extended reliable connections.
    pub extended: Option<Extended>,
}

/// What a shared receive queue of an XRC domain has beside (`ibv_create_srq_ex(3)`).
#[derive(Clone, Debug)]
pub struct Extended {
    /// The domain.
    pub domain: XrcdNumber,
    /// Where its requests complete, whichever queue pair took them.
    pub cq: Arc<CompletionQueue>,
}

/// What a shared receive queue answers when asked (`ibv_query_srq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInfo {
    /// Requests that may wait.
    pub max_wr: u32,
    /// Scatter/gather elements of a request.
    pub max_sge: u32,
    /// The event comes when fewer than this many requests wait; 0: it is not armed.
    pub limit: u32,
}

/// The shared receive queues of an endpoint, by number.
#[derive(Debug, Default)]
pub struct SharedReceiveQueues {
    /// The one of number `n` is at `n - 1`.
    queues: Vec<Option<SharedReceiveQueue>>,
    /// Places that were used, the one free the longest in front.
    free: VecDeque<usize>,
    domains: u32,
}

/// One of them.
#[derive(Debug)]
struct SharedReceiveQueue {
    pd: PdNumber,
    requests: ReceiveQueue,
    limit: usize,
    /// Queue pairs that were made with it.
    users: usize,
    extended: Option<Extended>,
    /// The completion queue of an extended one overran: nothing that it takes could be reported.
    failed: bool,
}

/// A request that a message took.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) request: ReceiveRequest,
    /// Whose memory it names.
    pub(crate) pd: PdNumber,
    /// Where it completes, when that is not where the queue pair's receives do.
    pub(crate) cq: Option<Arc<CompletionQueue>>,
}

impl SharedReceiveQueues {
    /// Queues that an endpoint can have.
    pub const MAX_QUEUES: usize = 1 << 16;
    /// Requests that can wait in one, as in a queue pair's own receive queue.
    pub const MAX_WR: u32 = 1 << 20;
    /// Elements of a request, as the kernel's rxe reports.
    pub const MAX_SGE: u32 = 27;

    /// A new XRC domain.
    pub fn allocate_domain(&mut self) -> XrcdNumber {
        self.domains += 1;
        XrcdNumber(self.domains)
    }

    /// Makes a queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the limit that is exceeded, [`Error::Full`] when there are too many queues.
    pub fn create(&mut self, init: SrqInit) -> Result<SrqNumber> {
        check_max_wr(init.max_wr)?;
        if init.max_sge > Self::MAX_SGE {
            let reason = format!("{}; at most {} is possible", init.max_sge, Self::MAX_SGE);
            return Err(Error::invalid("max_sge", reason));
        }
        let index = if self.queues.len() < Self::MAX_QUEUES {
            self.queues.push(None);
            self.queues.len() - 1
        } else {
            let limit = Self::MAX_QUEUES;
            self.free.pop_front().ok_or(Error::Full { what: "the table of shared receive queues", limit })?
        };
        let requests = ReceiveQueue::new(init.max_wr as usize, init.max_sge as usize);
        self.queues[index] = Some(SharedReceiveQueue {
            pd: init.pd,
            requests,
            limit: 0,
            users: 0,
            extended: init.extended,
            failed: false,
        });
        // At most 2^16.
        Ok(SrqNumber::new(index as u32 + 1))
    }

    /// Destroys a queue; what waits in it vanishes without a completion.
    ///
    /// # Errors
    /// [`Error::Missing`], or [`Error::Busy`] while a queue pair uses it.
    pub fn destroy(&mut self, number: SrqNumber) -> Result<()> {
        let users = self.find(number)?.users;
        if users > 0 {
            return Err(Error::Busy { what: "the shared receive queue", by: format!("{users} queue pairs") });
        }
        let index = number.value() as usize - 1;
        self.queues[index] = None;
        self.free.push_back(index);
        Ok(())
    }

    /// Changes the size, when `max_wr` is given, and arms the limit event, when `limit` is: all or nothing
    /// (`ibv_modify_srq(3)`). A limit of 0 disarms. One above the number of requests that wait fires at once: a program that
    /// arms late must not wait for ever.
    ///
    /// # Errors
    /// [`Error::Missing`], or [`Error::Invalid`] for a size out of range, below the number of requests that wait, or below the
    /// limit.
    pub fn modify(
        &mut self,
        number: SrqNumber,
        max_wr: Option<u32>,
        limit: Option<u32>,
        events: &mut VecDeque<Event>,
    ) -> Result<()> {
        max_wr.map_or(Ok(()), check_max_wr)?;
        let queue = self.find_mut(number)?;
        let capacity = max_wr.map_or(queue.requests.capacity(), |max_wr| max_wr as usize);
        let wanted = limit.map_or(queue.limit, |limit| limit as usize);
        if wanted > capacity {
            return Err(Error::invalid("srq_limit", format!("{wanted}; max_wr is {capacity}")));
        }
        queue.requests.resize(capacity)?;
        queue.limit = wanted;
        queue.check_limit(number, events);
        Ok(())
    }

    /// Sizes and limit.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn info(&self, number: SrqNumber) -> Result<SrqInfo> {
        let queue = self.find(number)?;
        // All of them were given as 32 bits.
        let [max_wr, max_sge, limit] =
            [queue.requests.capacity(), queue.requests.max_sge(), queue.limit].map(|size| size as u32);
        Ok(SrqInfo { max_wr, max_sge, limit })
    }

    /// How many requests wait.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn waiting(&self, number: SrqNumber) -> Result<usize> {
        Ok(self.find(number)?.requests.len())
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Full`], or [`Error::Invalid`] when it has too many elements.
    pub fn post(&mut self, number: SrqNumber, request: ReceiveRequest) -> Result<()> {
        self.find_mut(number)?.requests.push(request)
    }

    /// A queue pair is made with the queue.
    pub(crate) fn join(&mut self, number: SrqNumber) -> Result<()> {
        let queue = self.find_mut(number)?;
        if queue.extended.is_some() {
            return Err(Error::invalid("srq", "it belongs to an XRC domain, whose targets alone reach it"));
        }
        queue.users += 1;
        Ok(())
    }

    /// A queue pair that was made with the queue is gone.
    pub(crate) fn leave(&mut self, number: SrqNumber) {
        if let Ok(queue) = self.find_mut(number) {
            queue.users -= 1;
        }
    }

    /// Takes the oldest request for a message.
    pub(crate) fn take(&mut self, number: SrqNumber, events: &mut VecDeque<Event>) -> Option<Taken> {
        let queue = self.find_mut(number).ok()?;
        let request = queue.requests.pop()?;
        queue.check_limit(number, events);
        let cq = queue.extended.as_ref().map(|extended| Arc::clone(&extended.cq));
        Some(Taken { request, pd: queue.pd, cq })
    }

    /// Whose memory requests to the queue may use, when it is one of the XRC domain and works.
    pub(crate) fn pd_in(&self, domain: XrcdNumber, number: SrqNumber) -> Option<PdNumber> {
        let queue = self.find(number).ok()?;
        let is_in_domain = queue.extended.as_ref().is_some_and(|extended| extended.domain == domain);
        (is_in_domain && !queue.failed).then_some(queue.pd)
    }

    /// The completion queue `cq` overran: those that complete there take no message any more.
    pub(crate) fn fail_on(&mut self, cq: u32) -> Vec<SrqNumber> {
        let mut failed = Vec::new();
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let Some(queue) = queue else { continue };
            if queue.extended.as_ref().is_some_and(|extended| extended.cq.number() == cq) && !queue.failed {
                queue.failed = true;
                // At most 2^16.
                failed.push(SrqNumber::new(index as u32 + 1));
            }
        }
        failed
    }

    fn find(&self, number: SrqNumber) -> Result<&SharedReceiveQueue> {
        let index = (number.value() as usize).checked_sub(1);
        index.and_then(|index| self.queues.get(index)?.as_ref()).ok_or_else(|| missing(number))
    }

    fn find_mut(&mut self, number: SrqNumber) -> Result<&mut SharedReceiveQueue> {
        let index = (number.value() as usize).checked_sub(1);
        index.and_then(|index| self.queues.get_mut(index)?.as_mut()).ok_or_else(|| missing(number))
    }
}

impl SharedReceiveQueue {
    /// Reports that the queue runs low, once for each time that is asked for.
    fn check_limit(&mut self, number: SrqNumber, events: &mut VecDeque<Event>) {
        if self.requests.len() < self.limit {
            self.limit = 0;
            events.push_back(Event::Async(AsyncEvent::SrqLimitReached(number)));
        }
    }
}

fn missing(number: SrqNumber) -> Error {
    Error::Missing { what: "shared receive queue", name: number.to_string() }
}

fn check_max_wr(max_wr: u32) -> Result<()> {
    if (1..=SharedReceiveQueues::MAX_WR).contains(&max_wr) {
        return Ok(());
    }
    let reason = format!("{max_wr}; 1 to {} are possible", SharedReceiveQueues::MAX_WR);
    Err(Error::invalid("max_wr", reason))
}
