//! Our queue pair as a target: the engine alone, in virtual time.

use uroce::port::SimConfig;
use uroce::qp::State;
use uroce::time::Duration;
use uroce::work::{Operation, ReceiveRequest, Remote, SendRequest};

use super::act::{Act, Grant, MTU, PEER_QPN, PSN, Posted, REGION, Target, completion, describe};
use crate::common::craft::{deliver, drain};
use crate::common::pair::{Options, Pair, connect};

/// Side B of a pair; the test takes the place of side A.
pub(super) struct OurQp {
    pair: Pair,
    posted: u64,
}

impl OurQp {
    pub(super) fn new() -> Self {
        let options = Options { timeout: 20, rd_atomic: 4, memory: REGION, ..Options::default() };
        Self { pair: Pair::new(1, SimConfig::default(), options), posted: 0 }
    }

    fn push(&mut self, datagram: &[u8]) {
        let source = self.pair.a.address;
        deliver(&mut self.pair.b, self.pair.now, source, datagram);
    }
}

impl Target for OurQp {
    fn begin(&mut self) -> Grant {
        assert_eq!(MTU, Options::default().mtu.bytes() as usize);
        let (a, side) = (self.pair.a.address, &mut self.pair.b);
        let options = Options { timeout: 20, rd_atomic: 4, ..Options::default() };
        side.qpn = side.create_qp();
        let qpn = side.qpn;
        connect(side, qpn, &options, [PSN, PSN], (PEER_QPN, a));
        Grant { qpn, address: side.buffer.address(), rkey: side.key }
    }

    fn act(&mut self, act: &Act) {
        let id = self.posted;
        self.posted += u64::from(matches!(act, Act::Receive(_) | Act::Post(..)));
        match act {
            Act::Receive(length) => {
                let request = ReceiveRequest::new(id, &[self.pair.b.sge(0, *length)]);
                self.pair.b.endpoint.post_receive(self.pair.now, self.pair.b.qpn, request).unwrap();
            }
            Act::Post(what, length) => {
                let remote = Remote { address: 0x1000, rkey: 0x11 };
                let operation = match what {
                    Posted::Send => Operation::Send,
                    Posted::Write => Operation::Write(remote),
                    Posted::Read => Operation::Read(remote),
                    Posted::FetchAdd => Operation::FetchAndAdd { remote, add: 1 },
                };
                let request = SendRequest::new(id, operation, &[self.pair.b.sge(0, *length)]);
                self.pair.b.endpoint.post_send(self.pair.now, self.pair.b.qpn, request).unwrap();
            }
            Act::Packet(craft) => self.push(&craft.bytes()),
            Act::Bytes(bytes) => self.push(bytes),
            Act::Wait => {
                self.pair.now += Duration::from_millis(1);
                self.pair.b.endpoint.on_timeout(self.pair.now);
            }
        }
    }

    fn sent(&mut self) -> Vec<String> {
        drain(&mut self.pair.b, self.pair.now).iter().map(|datagram| describe(datagram)).collect()
    }

    fn end(&mut self) -> Vec<String> {
        let mut seen = self.sent();
        while let Some(done) = self.pair.b.cq.pop() {
            seen.push(completion(done.id, done.status as u32));
        }
        seen.push(match self.pair.b.state() {
            State::ReadyToSend => "rts".to_owned(),
            State::Error => "err".to_owned(),
            other => format!("{other:?}"),
        });
        seen
    }
}
