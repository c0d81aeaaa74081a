//! What the sending and the receiving half of a queue pair share.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use super::rc::HoldBudget;
use super::{Attributes, Capacity, Mtu, QpInit, QpType, State};
use crate::counters::Counters;
use crate::event::{AsyncEvent, Event};
use crate::memory::{Holder, PdNumber, Table};
use crate::queue::{CompletionQueue, Pushed, ReceiveQueue, SharedReceiveQueues, Taken, XrcdNumber};
use crate::time::Instant;
use crate::wire::{Bth, Flow, Opcode, Psn, Qpn, SrqNumber};
use crate::work::{Completion, CompletionKind, ReceiveRequest, SendRequest, Status};

/// What a machine reaches beyond itself while it handles one input.
pub(crate) struct Surroundings<'endpoint> {
    pub(crate) now: Instant,
    pub(crate) memory: &'endpoint mut Table,
    pub(crate) events: &'endpoint mut VecDeque<Event>,
    pub(crate) srqs: &'endpoint mut SharedReceiveQueues,
    /// The endpoint's addresses, by GID index.
    pub(crate) gids: &'endpoint [IpAddr],
    /// The largest payload that the link carries in a packet.
    pub(crate) mtu: Mtu,
}

/// What an input did to the queue pair as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Outcome {
    /// It goes on.
    Alive,
    /// Its send queue stops and is flushed, and the receive queue goes on (UC and UD); the failed request has its
    /// completion already.
    SendFailed,
    /// It must go to the error state and flush; the failed request has its completion already.
    Failed,
}

/// Identity, attributes and queues of a queue pair.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) qpn: Qpn,
    pub(crate) qp_type: QpType,
    /// Whose memory it may use. An XRC target has none of its own: this is that of the request at hand, which is the one of
    /// the shared receive queue that it names.
    pub(crate) pd: PdNumber,
    pub(crate) state: State,
    pub(crate) attributes: Attributes,
    pub(crate) capacity: Capacity,
    pub(crate) signal_all: bool,
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) receive_cq: Arc<CompletionQueue>,
    /// Where the next messages go, unless they go to a shared receive queue.
    pub(crate) receives: ReceiveQueue,
    /// The shared receive queue; on an XRC target, that of the request at hand.
    pub(crate) srq: Option<SrqNumber>,
    pub(crate) xrcd: Option<XrcdNumber>,
    /// The time of the input that is being handled: completions carry it.
    pub(crate) now: Instant,
    /// What may be held of packets that arrive before their turn.
    pub(crate) hold_budget: HoldBudget,
    /// Where packets go, known from RTR on.
    pub(crate) flow: Option<Flow>,
    pub(crate) counters: Counters,
}

impl Common {
    pub(crate) fn new(qpn: Qpn, init: QpInit, hold_budget: HoldBudget) -> Self {
        let capacity = init.granted();
        Self {
            qpn,
            qp_type: init.qp_type,
            pd: init.pd,
            state: State::Reset,
            attributes: Attributes::default(),
            capacity,
            signal_all: init.signal_all,
            send_cq: init.send_cq,
            receive_cq: init.receive_cq,
            receives: ReceiveQueue::new(capacity.max_receive_wr as usize, capacity.max_receive_sge as usize),
            srq: init.srq,
            xrcd: init.xrcd,
            now: Instant::ZERO,
            hold_budget,
            flow: None,
            counters: Counters::default(),
        }
    }

    /// Who shows the keys that its peer sends.
    pub(crate) fn holder(&self) -> Holder {
        Holder { pd: self.pd, qpn: self.qpn }
    }

    /// Payload bytes of a full packet.
    pub(crate) fn mtu(&self) -> u32 {
        self.attributes.path_mtu.unwrap_or(Mtu::Mtu256).bytes()
    }

    /// The header of a packet to the peer; what is special is set by the caller. Opcodes are written as those of RC; here they
    /// become those of the queue pair's transport.
    pub(crate) fn header(&self, opcode: Opcode, psn: Psn) -> Bth {
        Bth {
            opcode: opcode.of(self.qp_type.transport()),
            solicited: false,
            migration: false,
            pad: 0,
            version: 0,
            pkey: Self::PKEY,
            fecn: false,
            becn: false,
            destination: self.attributes.destination.unwrap_or_default(),
            ack_request: false,
            psn,
        }
    }

    /// The only partition key: full member of the default partition.
    pub(crate) const PKEY: u16 = 0xffff;

    /// Whether a packet from `source` to `destination` is one of this connection's; counts why it is not.
    pub(crate) fn is_from_peer(&self, source: IpAddr, destination: IpAddr, dropped: &mut Counters) -> bool {
        let is_peer = self.flow.is_some_and(|flow| flow.source == destination && flow.destination == source);
        dropped.wrong_address += u64::from(!is_peer);
        is_peer
    }

    /// Whether its receives come from a shared receive queue, if any.
    pub(crate) fn shares_receives(&self) -> bool {
        self.srq.is_some() || self.xrcd.is_some()
    }

    /// Takes the receive request for the message that begins.
    pub(crate) fn take_receive(&mut self, around: &mut Surroundings<'_>) -> Option<Taken> {
        match self.srq {
            Some(srq) => around.srqs.take(srq, around.events),
            None => self.receives.pop().map(|request| Taken { request, pd: self.pd, cq: None }),
        }
    }

    /// Reports a send request as flushed.
    pub(crate) fn flush_send(&self, request: &SendRequest, events: &mut VecDeque<Event>) {
        let (id, status, kind) = (request.id, Status::FlushError, CompletionKind::from(&request.operation));
        self.complete_send(Completion { id, status, kind, ..Completion::default() }, events);
    }

    /// Reports a receive request as flushed.
    pub(crate) fn flush_receive(&self, request: &ReceiveRequest, events: &mut VecDeque<Event>) {
        let (id, status, kind) = (request.id, Status::FlushError, CompletionKind::Receive);
        self.complete_receive(Completion { id, status, kind, ..Completion::default() }, events);
    }

    /// Reports a receive request that a message took as flushed.
    pub(crate) fn flush_taken(&self, taken: &Taken, events: &mut VecDeque<Event>) {
        let (status, kind) = (Status::FlushError, CompletionKind::Receive);
        self.complete_taken(taken, Completion { status, kind, ..Completion::default() }, events);
    }

    /// Reports every receive request that waits as flushed, in order. Those in a shared receive queue are for others; that none
    /// of them will be taken from now on is an event (IBTA 11.6.3.2).
    pub(crate) fn flush_receives(&mut self, events: &mut VecDeque<Event>) {
        while let Some(request) = self.receives.pop() {
            self.flush_receive(&request, events);
        }
        if self.shares_receives() {
            events.push_back(Event::Async(AsyncEvent::QpLastWqeReached(self.qpn)));
        }
    }

    /// Reports the end of a send request.
    pub(crate) fn complete_send(&self, completion: Completion, events: &mut VecDeque<Event>) {
        push(&self.send_cq, Completion { qpn: self.qpn, timestamp: self.now, ..completion }, events);
    }

    /// Reports the end of a receive request of the queue pair's own queue.
    pub(crate) fn complete_receive(&self, completion: Completion, events: &mut VecDeque<Event>) {
        self.complete_receive_on(&self.receive_cq, completion, events);
    }

    /// Reports the end of a receive request that a message took.
    pub(crate) fn complete_taken(&self, taken: &Taken, completion: Completion, events: &mut VecDeque<Event>) {
        let cq = taken.cq.as_ref().unwrap_or(&self.receive_cq);
        self.complete_receive_on(cq, Completion { id: taken.request.id, ..completion }, events);
    }

    fn complete_receive_on(&self, cq: &CompletionQueue, completion: Completion, events: &mut VecDeque<Event>) {
        let source_qpn = self.attributes.destination.unwrap_or(completion.source_qpn);
        push(cq, Completion { qpn: self.qpn, source_qpn, timestamp: self.now, ..completion }, events);
    }
}

/// Pushes a completion, and the event that this causes, if any.
fn push(queue: &CompletionQueue, completion: Completion, events: &mut VecDeque<Event>) {
    match queue.push(completion) {
        Pushed::Quiet => {}
        Pushed::Notify => events.push_back(Event::Completion(queue.number())),
        Pushed::Overflow => events.push_back(Event::Async(AsyncEvent::CqError(queue.number()))),
    }
}
