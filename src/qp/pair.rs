//! A queue pair: its state, and the service behind it.

use std::sync::Arc;

use super::common::{Common, Outcome, Surroundings};
use super::rc::{HoldBudget, ReliableConnection};
use super::route;
use super::service::Service;
use super::uc::UnreliableConnection;
use super::ud::UnreliableDatagram;
use super::{Attributes, QpInfo, QpInit, QpType, State};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, Event};
use crate::time::Instant;
use crate::wire::{Arrival, Flow, Packet, Qpn};
use crate::work::{ReceiveRequest, SendRequest};

/// A queue pair of any type.
#[derive(Debug)]
pub(crate) struct QueuePair {
    common: Common,
    service: Box<dyn Service>,
}

/// The service of the queue pair's type, in RESET.
fn service(common: &Common) -> Box<dyn Service> {
    match common.qp_type {
        QpType::Rc | QpType::XrcInitiator | QpType::XrcTarget => Box::new(ReliableConnection::new(common)),
        QpType::Uc => Box::new(UnreliableConnection::new(common)),
        QpType::Ud => Box::new(UnreliableDatagram::new(common)),
    }
}

impl QueuePair {
    pub(crate) fn new(qpn: Qpn, init: QpInit, hold_budget: HoldBudget) -> Self {
        let common = Common::new(qpn, init, hold_budget);
        let service = service(&common);
        Self { common, service }
    }

    pub(crate) fn qpn(&self) -> Qpn {
        self.common.qpn
    }

    pub(crate) fn info(&self) -> QpInfo {
        let mut attributes = self.common.attributes;
        let [send, receive] = self.service.psns();
        // Before RTR and RTS they are not known yet.
        attributes.send_psn = attributes.send_psn.and(send.or(attributes.send_psn));
        attributes.receive_psn = attributes.receive_psn.and(receive.or(attributes.receive_psn));
        QpInfo {
            qp_type: self.common.qp_type,
            state: self.common.state,
            attributes,
            capacity: self.common.capacity,
            signal_all: self.common.signal_all,
            is_draining: self.common.state == State::SendQueueDrained && self.service.is_draining(),
            srq: self.common.srq.filter(|_| self.common.xrcd.is_none()),
        }
    }

    /// Whether it reports to the completion queue of this number.
    pub(crate) fn completes_on(&self, cq: u32) -> bool {
        [&self.common.send_cq, &self.common.receive_cq].iter().any(|queue| queue.number() == cq)
    }

    /// A completion queue of it overran: nothing that it does can be reported any more.
    pub(crate) fn on_cq_error(&mut self, around: &mut Surroundings<'_>) {
        self.common.now = around.now;
        if !matches!(self.common.state, State::Reset | State::Error) {
            around.events.push_back(Event::Async(AsyncEvent::QpFatal(self.common.qpn)));
            self.fail(around, false);
        }
    }

    pub(crate) fn qp_type(&self) -> QpType {
        self.common.qp_type
    }

    pub(crate) fn counters(&self) -> Counters {
        self.common.counters
    }

    /// Where the packet that was made last goes.
    pub(crate) fn way(&self) -> Option<Flow> {
        self.service.way(&self.common)
    }

    /// Where the packets of a connection go, from RTR on.
    pub(crate) fn flow(&self) -> Option<Flow> {
        self.common.flow
    }

    /// The cost of what was sent and is not acknowledged.
    pub(crate) fn in_flight(&self) -> u64 {
        self.service.in_flight()
    }

    /// The cost of what was acknowledged so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.service.acknowledged()
    }

    /// Whether a loss was seen since the last call.
    pub(crate) fn take_loss(&mut self) -> bool {
        self.service.take_loss()
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.service.next_timeout()
    }

    /// Whether a packet waits to be sent, when `window` may still be sent to the peer.
    pub(crate) fn wants_transmit(&self, window: u64) -> bool {
        self.service.wants_transmit(&self.common, window)
    }

    /// Whether all that waits to be sent is an acknowledge.
    pub(crate) fn owes_only_acknowledge(&self, window: u64) -> bool {
        self.service.owes_only_acknowledge(&self.common, window)
    }

    /// Whether only a window of this size holds the next packet back.
    pub(crate) fn is_held_by_window(&self, window: u64) -> bool {
        self.service.is_held_by_window(&self.common, window)
    }

    /// Changes state and attributes, all or nothing.
    pub(crate) fn modify(&mut self, around: &mut Surroundings<'_>, attributes: &Attributes) -> Result<()> {
        self.common.now = around.now;
        let from = self.common.state;
        let to = attributes.check(self.common.qp_type, from)?;
        if let Some(address) = attributes.address {
            let peer = attributes.destination.or(self.common.attributes.destination).unwrap_or_default();
            self.common.flow = Some(route::connection(self.common.qpn, peer, &address, around.gids)?);
        }
        merge(&mut self.common.attributes, attributes);
        self.common.state = to;
        match (from, to) {
            (_, State::Reset) => self.reset(around),
            (State::Error, State::Error) => {}
            (_, State::Error) => self.fail(around, false),
            (State::Init, State::ReadyToReceive) => self.service.start_receiving(&self.common),
            (State::ReadyToReceive, State::ReadyToSend) => self.service.start_sending(&self.common),
            (State::ReadyToSend, State::SendQueueDrained) => self.service.drain(),
            (_, State::ReadyToSend | State::SendQueueDrained) => self.service.configure(&self.common),
            _ => {}
        }
        self.conclude(around, Outcome::Alive);
        Ok(())
    }

    /// Takes its completions out of its completion queues, as network cards do when a queue pair is reset or destroyed
    /// (rdma-core's `mlx5_cq_clean`): their ids name what belongs to a life that is over, and often memory that the program has
    /// freed. The kernel's rxe leaves them, but a program that counts on that waits for ever on a card. What the shared receive
    /// queue of an XRC domain completes elsewhere stays, as it does there.
    pub(crate) fn remove_completions(&self) {
        self.common.send_cq.remove(self.common.qpn);
        if !Arc::ptr_eq(&self.common.send_cq, &self.common.receive_cq) {
            self.common.receive_cq.remove(self.common.qpn);
        }
    }

    /// Forgets everything: requests vanish without a completion (IBTA 10.3.1.1).
    fn reset(&mut self, around: &mut Surroundings<'_>) {
        self.remove_completions();
        around.memory.release_pair(self.common.qpn);
        self.common.attributes = Attributes::default();
        self.common.flow = None;
        self.common.receives.clear();
        if self.common.xrcd.is_some() {
            self.common.srq = None;
        }
        self.service = service(&self.common);
    }

    /// Goes to the error state and flushes everything posted. Answers that are owed still go out when
    /// `keep_replies`: the NAK that ends the connection is one of them.
    fn fail(&mut self, around: &mut Surroundings<'_>, keep_replies: bool) {
        self.common.state = State::Error;
        self.service.flush(&self.common, around, keep_replies);
        self.common.flush_receives(around.events);
    }

    pub(crate) fn post_send(&mut self, around: &mut Surroundings<'_>, request: SendRequest) -> Result<()> {
        self.common.now = around.now;
        if self.common.qp_type == QpType::XrcTarget {
            return Err(Error::invalid("qp", "an XRC target only receives"));
        }
        match self.common.state {
            State::ReadyToSend | State::SendQueueDrained => self.service.post(&self.common, around, request),
            State::Error | State::SendQueueError => {
                self.common.flush_send(&request, around.events);
                Ok(())
            }
            state => Err(Error::invalid("qp", format!("in state {state:?}; requests can be sent from RTS on"))),
        }
    }

    pub(crate) fn post_receive(&mut self, around: &mut Surroundings<'_>, request: ReceiveRequest) -> Result<()> {
        self.common.now = around.now;
        if self.common.shares_receives() {
            return Err(Error::invalid("qp", "its receives are posted to a shared receive queue"));
        }
        if self.common.qp_type == QpType::XrcInitiator {
            return Err(Error::invalid("qp", "an XRC initiator only sends"));
        }
        match self.common.state {
            State::Reset => Err(Error::invalid("qp", "in state Reset; receives can be posted from INIT on")),
            State::Error => {
                self.common.flush_receive(&request, around.events);
                Ok(())
            }
            _ => self.common.receives.push(request),
        }
    }

    /// Whether the queue pair takes a packet that carries its number; counts why it does not.
    fn accepts(&self, arrival: &Arrival<'_>, packet: &Packet<'_>, dropped: &mut Counters) -> bool {
        if packet.info.transport != self.service.transport() {
            dropped.wrong_transport += 1;
        } else if !self.common.state.receives() {
            dropped.no_queue_pair += 1;
        } else if packet.bth.pkey & 0x7fff != Common::PKEY & 0x7fff {
            dropped.bad_pkey += 1;
        } else {
            return self.service.accepts(&self.common, arrival, packet, dropped);
        }
        false
    }

    /// Takes a packet that carries this queue pair's number. What is not for it is counted in `dropped`.
    pub(crate) fn on_packet(
        &mut self,
        around: &mut Surroundings<'_>,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        dropped: &mut Counters,
    ) {
        self.common.now = around.now;
        if self.accepts(arrival, packet, dropped) {
            self.common.counters.rcvd_pkts += 1;
            let outcome = self.service.on_packet(&mut self.common, around, arrival, packet);
            self.conclude(around, outcome);
        }
    }

    pub(crate) fn on_timeout(&mut self, around: &mut Surroundings<'_>) {
        self.common.now = around.now;
        let outcome = self.service.on_timeout(&mut self.common, around);
        self.conclude(around, outcome);
    }

    /// The next packet, written to `room`; its length without the ICRC.
    pub(crate) fn poll_transmit(
        &mut self,
        around: &mut Surroundings<'_>,
        window: u64,
        room: &mut [u8],
    ) -> Option<usize> {
        self.common.now = around.now;
        let (length, outcome) = self.service.poll_transmit(&mut self.common, around, window, room);
        if length.is_none() || outcome != Outcome::Alive {
            self.conclude(around, outcome);
        }
        length
    }

    /// Follows up on an input.
    fn conclude(&mut self, around: &mut Surroundings<'_>, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Alive => self.service.settle(&mut self.common, around),
            failed => failed,
        };
        match outcome {
            Outcome::Alive => {}
            Outcome::SendFailed => {
                self.common.state = State::SendQueueError;
                self.service.flush_sends(&self.common, around);
            }
            Outcome::Failed => self.fail(around, true),
        }
    }
}

/// Overwrites those attributes that are given.
fn merge(known: &mut Attributes, given: &Attributes) {
    let old = *known;
    *known = Attributes {
        state: None,
        access: given.access.or(old.access),
        pkey_index: given.pkey_index.or(old.pkey_index),
        port: given.port.or(old.port),
        qkey: given.qkey.or(old.qkey),
        address: given.address.or(old.address),
        path_mtu: given.path_mtu.or(old.path_mtu),
        destination: given.destination.or(old.destination),
        receive_psn: given.receive_psn.or(old.receive_psn),
        send_psn: given.send_psn.or(old.send_psn),
        timeout: given.timeout.or(old.timeout),
        retry_count: given.retry_count.or(old.retry_count),
        rnr_retry: given.rnr_retry.or(old.rnr_retry),
        min_rnr_timer: given.min_rnr_timer.or(old.min_rnr_timer),
        max_rd_atomic: given.max_rd_atomic.or(old.max_rd_atomic),
        max_dest_rd_atomic: given.max_dest_rd_atomic.or(old.max_dest_rd_atomic),
    };
}
