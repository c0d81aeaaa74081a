//! Receives that any message may consume: of a queue pair whose messages may be lost, or of a shared receive queue.

use uroce::qp::State;
use uroce::time::Instant;
use uroce::wire::{Qpn, SrqNumber};
use uroce::work::{Completion, ReceiveRequest, SgeList};

use crate::direction::RECEIVES;
use crate::host::{Area, Host};
use crate::plan::Service;

/// Ids of these receives start here; below come the pool, and in the low 16 bits the slot.
const POOLED: u64 = RECEIVES << 1;
/// In front of a datagram.
pub(crate) const GRH: usize = 40;
/// Bytes behind each receive that nobody may write.
const GAP: usize = 16;
/// Waiting receives below which the limit event comes.
const LIMIT: u32 = 2;

/// Where the receives wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Pair(Qpn),
    Shared(SrqNumber),
}

/// A queue of receives, each into a slot of its own that is used once.
pub(crate) struct Pool {
    pub(crate) host: usize,
    pub(crate) life: u32,
    pub(crate) service: Service,
    pub(crate) queue: Queue,
    pub(crate) area: Area,
    /// Receives posted.
    pub(crate) posted: usize,
    /// Receives that the messages posted so far may need.
    pub(crate) wanted: usize,
    /// Which slots a message took.
    taken: Vec<bool>,
    /// Whether the limit event is still to come.
    is_armed: bool,
    /// Datagrams, in the order of their completion; other messages are kept with their connection.
    pub(crate) datagrams: Vec<Completion>,
}

impl Pool {
    pub(crate) fn new(
        host: &mut Host,
        index: usize,
        service: Service,
        queue: impl FnOnce(&mut Host) -> Queue,
        slots: usize,
    ) -> Self {
        let area = host.area(slots.max(1) * Self::stride(service));
        let queue = queue(host);
        let (life, taken, datagrams) = (host.life, vec![false; slots], Vec::new());
        Self { host: index, life, service, queue, area, posted: 0, wanted: 0, taken, is_armed: false, datagrams }
    }

    fn length(service: Service) -> usize {
        GRH + service.longest()
    }

    fn stride(service: Service) -> usize {
        (Self::length(service) + GAP).next_multiple_of(8)
    }

    /// Which pool a completion is of.
    pub(crate) fn of(completion: &Completion) -> Option<usize> {
        completion.id.checked_sub(POOLED).map(|id| (id >> 16) as usize)
    }

    /// Posts up to `count` receives of those that are wanted; `index` is the pool's own.
    pub(crate) fn top_up(&mut self, index: usize, host: &mut Host, now: Instant, count: usize) -> Result<(), String> {
        let is_gone = host.life != self.life
            || matches!(self.queue, Queue::Pair(qpn) if host.state(qpn).is_none_or(|state| state == State::Reset));
        if is_gone {
            self.wanted = self.posted;
        }
        for _ in 0..count.min(self.wanted.min(self.taken.len()).saturating_sub(self.posted)) {
            let (offset, length) = (self.posted * Self::stride(self.service), Self::length(self.service));
            // Elements of every length, so that headers and packets end within them.
            let cut = (self.posted * 37) % 100;
            let sges: SgeList =
                [self.area.sge(offset, cut), self.area.sge(offset + cut, length - cut)].into_iter().collect();
            let request = ReceiveRequest { id: POOLED + ((index as u64) << 16) + self.posted as u64, sges };
            let posted = match self.queue {
                Queue::Pair(qpn) => host.endpoint.post_receive(now, qpn, request),
                Queue::Shared(srq) => host.endpoint.post_srq_receive(srq, request),
            };
            posted.map_err(|error| format!("receive refused: {error}"))?;
            self.posted += 1;
        }
        self.arm(host)
    }

    /// Whether receives are still to be posted.
    pub(crate) fn is_hungry(&self) -> bool {
        self.posted < self.wanted.min(self.taken.len())
    }

    /// Asks for the limit event, once it would not come at once.
    fn arm(&mut self, host: &mut Host) -> Result<(), String> {
        let Queue::Shared(srq) = self.queue else { return Ok(()) };
        if host.life != self.life || self.is_armed {
            return Ok(());
        }
        let waiting = host.endpoint.srq_waiting(srq).map_err(|error| error.to_string())?;
        if waiting >= LIMIT as usize {
            host.endpoint.modify_srq(srq, None, Some(LIMIT)).map_err(|error| error.to_string())?;
            self.is_armed = true;
        }
        Ok(())
    }

    /// The limit event came.
    pub(crate) fn on_limit(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.is_armed) { Ok(()) } else { Err("a limit event that nobody asked for".into()) }
    }

    /// Whether the limit event came when, and only when, it was due.
    pub(crate) fn check_limit(&self, host: &Host) -> Result<(), String> {
        let Queue::Shared(srq) = self.queue else { return Ok(()) };
        let waiting = host.endpoint.srq_waiting(srq).map_err(|error| error.to_string())?;
        let is_missing = self.is_armed && waiting < LIMIT as usize;
        if is_missing { Err(format!("{waiting} receives wait in {srq:?}, and no limit event came")) } else { Ok(()) }
    }

    /// The bytes of the receive that a completion is of; each is taken once.
    pub(crate) fn take(&mut self, completion: &Completion) -> Result<Vec<u8>, String> {
        let slot = (completion.id & 0xffff) as usize;
        match self.taken.get_mut(slot) {
            Some(taken) if slot < self.posted && !*taken => *taken = true,
            _ => return Err(format!("a receive completes twice, or was never posted: {completion:?}")),
        }
        Ok(self.area.read(slot * Self::stride(self.service), Self::length(self.service)))
    }

    /// Whether nothing was written behind a receive, and nothing in those not posted.
    pub(crate) fn check_gaps(&self) -> Result<(), String> {
        let (stride, length) = (Self::stride(self.service), Self::length(self.service));
        for slot in 0..self.posted {
            if self.area.read(slot * stride + length, stride - length).iter().any(|&byte| byte != 0) {
                return Err(format!("bytes behind receive {slot} were written"));
            }
        }
        Ok(())
    }
}
