//! What a client asks for, as it tells the server, and what both answer.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// SEND into receive requests
    Send,
    /// RDMA WRITE into the peer's memory
    Write,
    /// RDMA READ out of the peer's memory
    Read,
    /// Atomic operations on the peer's memory
    Atomic,
    /// TCP sockets, to compare with
    Tcp,
    /// UDP sockets, to compare with (latency only)
    Udp,
}

impl Operation {
    /// Its name in titles.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Send => "Send",
            Self::Write => "RDMA_Write",
            Self::Read => "RDMA_Read",
            Self::Atomic => "Atomic",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }

    /// Whether it is done with plain sockets.
    pub(crate) fn uses_sockets(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp)
    }

    /// Whether latency is half of a round trip, both ends sending; otherwise it is the time to the completion.
    pub(crate) fn takes_turns(self) -> bool {
        !matches!(self, Self::Read | Self::Atomic)
    }
}

/// The transport of queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
#[value(rename_all = "UPPER")]
pub(crate) enum Connection {
    /// Reliable connection: every operation
    #[default]
    Rc,
    /// Unreliable connection: SEND and WRITE
    Uc,
    /// Unreliable datagrams: SEND of up to one packet
    Ud,
}

impl Connection {
    /// As perftest and the specification write it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }
}

/// Which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measure {
    /// Bandwidth
    Bw,
    /// Latency
    Lat,
}

impl Measure {
    /// As perftest has it.
    pub(super) fn default_iterations(self) -> u64 {
        match self {
            Self::Bw => 5000,
            Self::Lat => 1000,
        }
    }
}

/// Which atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Atomic {
    /// Adds one
    #[value(name = "FETCH_AND_ADD")]
    FetchAndAdd,
    /// Compares with what is not there
    #[value(name = "CMP_AND_SWAP")]
    CompareAndSwap,
}

/// Which end of the conversation this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends, and says when that was all.
    Client,
    /// Receives, or waits, until the client says that that was all; with a goal, it sends meanwhile.
    Server,
}

/// How much of each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Amount {
    /// So many messages on each queue pair.
    Iterations(u64),
    /// So many messages, fewer when they are large.
    Modest(u64),
    /// As many as go in this time.
    Milliseconds(u64),
}

/// Where a run of one size ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// After so many messages on each queue pair.
    Messages(u64),
    /// After this time.
    Time(Duration),
}

impl Amount {
    /// With [`Modest`](Self::Modest), a size gets no more bytes than this, but always a few messages.
    const MODEST_BYTES: u64 = 256 << 20;
    const MODEST_MESSAGES: u64 = 16;

    /// The goal for messages of `size` bytes.
    pub(super) fn goal(self, size: u32) -> Goal {
        match self {
            Self::Iterations(count) => Goal::Messages(count),
            Self::Modest(count) => {
                let fit = Self::MODEST_BYTES / u64::from(size.max(1));
                Goal::Messages(count.min(fit.max(Self::MODEST_MESSAGES)))
            }
            Self::Milliseconds(count) => Goal::Time(Duration::from_millis(count)),
        }
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) operation: Operation,
    pub(crate) measure: Measure,
    pub(crate) connection: Connection,
    /// Bytes of messages, one run each, growing.
    pub(crate) sizes: Vec<u32>,
    pub(crate) amount: Amount,
    pub(crate) queue_pairs: u32,
    /// Bytes; the largest that both devices have when not given.
    pub(crate) path_mtu: Option<u32>,
    pub(crate) tx_depth: u32,
    pub(crate) rx_depth: u32,
    /// READs and ATOMICs under way on a queue pair.
    pub(crate) outstanding: u8,
    /// Sleep instead of polling.
    pub(crate) events: bool,
    /// Both ends send.
    pub(crate) bidirectional: bool,
    /// Requests posted together.
    pub(crate) list: u32,
    /// Requests with one completion.
    pub(crate) moderation: u32,
    /// Messages of up to so many bytes are posted inline.
    pub(crate) inline: u32,
    pub(crate) atomic: Atomic,
}

impl Plan {
    /// The usual plan for messages of one size.
    pub(crate) fn new(operation: Operation, measure: Measure, size: u32, amount: Amount) -> Self {
        Self {
            operation,
            measure,
            connection: Connection::Rc,
            sizes: vec![size],
            amount,
            queue_pairs: 1,
            path_mtu: None,
            tx_depth: 128,
            rx_depth: 512,
            outstanding: 16,
            events: false,
            bidirectional: false,
            list: 1,
            moderation: 16,
            inline: 0,
            atomic: Atomic::FetchAndAdd,
        }
    }

    /// Bytes of the largest message.
    pub(super) fn largest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Whether all of it makes sense. The server checks as well: what comes from the network is an allegation.
    pub(super) fn check(&self) -> Result<()> {
        const LARGEST: u32 = 1 << 30;
        let range = |name: &str, value: u32, least: u32, most: u32| {
            ensure!((least..=most).contains(&value), "{name} {value}: from {least} to {most} is possible");
            Ok(())
        };
        range("-q", self.queue_pairs, 1, 256)?;
        range("-t", self.tx_depth, 1, 16_384)?;
        range("-r", self.rx_depth, 1, 16_384)?;
        range("-o", u32::from(self.outstanding), 1, 128)?;
        range("-l", self.list, 1, self.tx_depth)?;
        range("-Q", self.moderation, 1, self.tx_depth)?;
        range("-I", self.inline, 0, 512)?;
        ensure!(!self.sizes.is_empty() && self.sizes.is_sorted_by(|a, b| a < b), "sizes must grow");
        for size in &self.sizes {
            range("-s", *size, 1, LARGEST)?;
        }
        if let Amount::Iterations(0) | Amount::Modest(0) | Amount::Milliseconds(0) = self.amount {
            bail!("nothing to measure: -n and -D must be more than 0");
        }
        ensure!(self.operation != Operation::Atomic || self.sizes == [8], "an atomic operation has 8 bytes");
        self.check_connection()?;
        self.check_combination()
    }

    /// What the transport cannot do.
    fn check_connection(&self) -> Result<()> {
        let (connection, operation) = (self.connection.title(), self.operation);
        if self.connection != Connection::Rc && operation.uses_sockets() {
            bail!("{} has no queue pairs: leave out -c", operation.title());
        }
        let able = match self.connection {
            Connection::Rc => true,
            Connection::Uc => matches!(operation, Operation::Send | Operation::Write),
            Connection::Ud => operation == Operation::Send,
        };
        let all = if self.connection == Connection::Uc { "SEND and WRITE are" } else { "SEND is" };
        ensure!(able, "{connection} cannot do {}: {all} what it has", operation.title());
        // Both ends look again when they know the path between them.
        self.check_datagrams(self.path_mtu.unwrap_or(Self::LARGEST_MTU))
    }

    /// Whether every message fits into a packet of this path MTU, where it must.
    pub(super) fn check_datagrams(&self, path_mtu: u32) -> Result<()> {
        let largest = self.largest();
        if self.connection == Connection::Ud && largest > path_mtu {
            bail!("-s {largest}: a message on UD is one packet, of {path_mtu} bytes at most here");
        }
        Ok(())
    }

    /// Whether messages may be lost, and those that arrive are counted: by receive requests.
    pub(super) fn counts_arrivals(&self) -> bool {
        self.connection != Connection::Rc && self.operation == Operation::Send
    }

    /// The largest path MTU there is.
    const LARGEST_MTU: u32 = 4096;

    fn check_combination(&self) -> Result<()> {
        let latency = self.measure == Measure::Lat;
        if latency && (self.queue_pairs > 1 || self.bidirectional || self.list > 1) {
            bail!("latency is measured with one message at a time: leave out -q, -b and -l");
        }
        if latency && self.operation == Operation::Write && self.events {
            bail!("latency of WRITE is measured by polling memory: leave out -e");
        }
        if self.operation.uses_sockets() && (self.queue_pairs > 1 || self.bidirectional) {
            bail!("sockets are measured one way over one connection: leave out -q and -b");
        }
        if self.operation == Operation::Udp {
            ensure!(latency, "UDP has no flow control, so its bandwidth says nothing: measure lat");
            ensure!(self.largest() <= 65_507, "-s {}: a UDP datagram has 65507 bytes at most", self.largest());
        }
        Ok(())
    }
}

/// What one end moved in a run of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    /// Messages that were completed.
    pub(crate) messages: u64,
    /// From the first post to the last completion.
    pub(crate) seconds: f64,
    /// Messages a second, in the best part of the run.
    pub(crate) peak_rate: f64,
    /// Messages of the peer's that arrived, where receive requests tell.
    pub(crate) received: u64,
}

impl Traffic {
    /// Messages a second.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.messages as f64 / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_message_is_sent_less_often() {
        let count = |size| match Amount::Modest(5000).goal(size) {
            Goal::Messages(count) => count,
            Goal::Time(_) => unreachable!(),
        };
        assert_eq!((count(2), count(1 << 20), count(1 << 30)), (5000, 256, 16));
    }

    #[test]
    fn nonsense_from_the_network_is_refused() {
        let plan = Plan::new(Operation::Send, Measure::Bw, 64, Amount::Iterations(10));
        plan.check().unwrap();
        let wrong = |change: fn(&mut Plan)| {
            let mut plan = plan.clone();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert_eq!(wrong(|plan| plan.queue_pairs = 0), "-q 0: from 1 to 256 is possible");
        assert!(wrong(|plan| plan.sizes = vec![u32::MAX]).starts_with("-s 4294967295"));
        assert!(wrong(|plan| plan.sizes = vec![]).contains("sizes"));
        assert!(wrong(|plan| plan.list = 129).starts_with("-l 129: from 1 to 128"));
        assert!(wrong(|plan| plan.moderation = 0).starts_with("-Q 0"));
        assert!(wrong(|plan| plan.operation = Operation::Udp).contains("lat"));
        assert!(wrong(|plan| plan.operation = Operation::Atomic).contains("8 bytes"));
        assert_eq!(
            wrong(|plan| (plan.connection, plan.operation) = (Connection::Uc, Operation::Read)),
            "UC cannot do RDMA_Read: SEND and WRITE are what it has"
        );
        assert!(
            wrong(|plan| (plan.connection, plan.operation) = (Connection::Ud, Operation::Write)).contains("SEND is")
        );
        assert!(wrong(|plan| (plan.connection, plan.sizes) = (Connection::Ud, vec![4097])).contains("of 4096 bytes"));
        assert!(wrong(|plan| (plan.measure, plan.queue_pairs) = (Measure::Lat, 2)).contains("-q"));
    }
}
