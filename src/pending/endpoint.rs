//! Temporary: replaced by the engine's own.
#![allow(missing_docs, unused_variables)]
use std::collections::HashMap;
use std::net::IpAddr;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::Table;
use crate::qp::{Attributes, Capacity, Mtu, QpInit, State};
use crate::time::Instant;
use crate::wire::{Arrival, Flow, Qpn};
use crate::work::{ReceiveRequest, SendRequest};

#[derive(Clone, Debug)]
pub struct Config {
    pub slot: u8,
    pub gids: Vec<IpAddr>,
    pub mtu: Mtu,
    pub seed: [u8; 32],
    pub window: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    pub flow: Flow,
    pub length: usize,
}

#[derive(Clone, Debug)]
pub struct QpInfo {
    pub state: State,
    pub attributes: Attributes,
    pub capacity: Capacity,
    pub signal_all: bool,
}

pub struct Endpoint {
    memory: Table,
    qps: HashMap<Qpn, QpInfo>,
    next: u32,
}

impl Endpoint {
    pub fn new(config: Config) -> Self {
        let next = u32::from(config.slot) << 16 | 0x11;
        Self { memory: Table::new(ChaCha12Rng::from_seed(config.seed)), qps: HashMap::new(), next }
    }
    pub fn memory(&self) -> &Table {
        &self.memory
    }
    pub fn memory_mut(&mut self) -> &mut Table {
        &mut self.memory
    }
    pub fn create_qp(&mut self, init: QpInit) -> Result<Qpn> {
        let qpn = Qpn::new(self.next);
        self.next += 1;
        let info = QpInfo {
            state: State::Reset,
            attributes: Attributes::default(),
            capacity: init.capacity,
            signal_all: init.signal_all,
        };
        self.qps.insert(qpn, info);
        Ok(qpn)
    }
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<()> {
        self.qps.remove(&qpn).map(drop).ok_or(Error::Missing { what: "queue pair", name: qpn.to_string() })
    }
    pub fn modify_qp(&mut self, now: Instant, qpn: Qpn, attributes: &Attributes) -> Result<()> {
        let Some(info) = self.qps.get_mut(&qpn) else {
            return Err(Error::Missing { what: "queue pair", name: qpn.to_string() });
        };
        info.state = attributes.check(crate::qp::QpType::Rc, info.state)?;
        Ok(())
    }
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpInfo> {
        self.qps.get(&qpn).cloned().ok_or(Error::Missing { what: "queue pair", name: qpn.to_string() })
    }
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, request: SendRequest) -> Result<()> {
        Err(Error::Unsupported("the engine is not there yet".into()))
    }
    pub fn post_receive(&mut self, now: Instant, qpn: Qpn, request: ReceiveRequest) -> Result<()> {
        Err(Error::Unsupported("the engine is not there yet".into()))
    }
    pub fn on_packet(&mut self, now: Instant, arrival: &Arrival<'_>) {}
    pub fn on_timeout(&mut self, now: Instant) {}
    pub fn next_timeout(&self) -> Option<Instant> {
        None
    }
    pub fn poll_transmit(&mut self, now: Instant, room: &mut [u8]) -> Option<Transmit> {
        None
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    pub fn counters(&self) -> Counters {
        Counters::default()
    }
    pub fn qp_counters(&self, qpn: Qpn) -> Result<Counters> {
        Ok(Counters::default())
    }
}
