//! Everything that happens in a run, as data.

use serde::{Deserialize, Serialize};
use uroce::port::SimConfig;
use uroce::time::Duration;

/// A whole run. The same plan gives the same history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What it once found, for plans that are kept.
    #[serde(default)]
    pub story: String,
    /// Where the network's faults and the contents of messages come from.
    pub seed: u64,
    /// Endpoints, 10.0.0.1 and up.
    pub hosts: usize,
    /// Bytes that each may have in flight to one peer.
    pub window: u64,
    /// Bytes of packets ahead of their turn that each host may hold.
    #[serde(default)]
    pub hold_bytes: usize,
    /// The network's faults at the beginning.
    pub weather: Weather,
    /// Pairs of connected queue pairs.
    pub connections: Vec<Connection>,
    /// What the programs and the world do, in order.
    pub steps: Vec<Step>,
}

/// The network's faults. Chances are in 1/10,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Weather {
    /// That a packet is lost.
    pub loss: u16,
    /// That it comes twice.
    pub duplicate: u16,
    /// That later ones overtake it.
    pub reorder: u16,
    /// That one of its bits flips.
    pub corrupt: u16,
    /// Shortest and longest way, in microseconds.
    pub delay_us: [u32; 2],
    /// By how much a reordered one is late at most, in microseconds.
    pub late_us: u32,
    /// Bits per microsecond of each direction; 0: no limit.
    pub rate: u32,
    /// Bytes that wait for that rate before more are lost.
    pub queue: u32,
}

impl Weather {
    /// As the simulated network takes it.
    #[must_use]
    pub fn config(&self) -> SimConfig {
        let chance = |of_10_000: u16| f64::from(of_10_000) / 10_000.0;
        let micros = |micros: u32| Duration::from_micros(micros.into());
        SimConfig {
            loss: chance(self.loss),
            duplicate: chance(self.duplicate),
            reorder: chance(self.reorder),
            corrupt: chance(self.corrupt),
            delay: micros(self.delay_us[0])..=micros(self.delay_us[1].max(self.delay_us[0])),
            reorder_delay: micros(1)..=micros(self.late_us.max(1)),
            rate: (self.rate > 0).then_some(u64::from(self.rate) * 1_000_000),
            queue: self.queue as usize,
            ..SimConfig::default()
        }
    }

    /// Whether a request may exhaust its retries by bad luck alone.
    #[must_use]
    pub fn is_harsh(&self) -> bool {
        self.loss + self.corrupt > 500
    }
}

/// What a connection's queue pairs promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Service {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams; all connections of a host share one queue pair, or two when some receive from a shared queue.
    Ud,
    /// Extended reliable connection, from the first host to the second only.
    Xrc,
}

impl Service {
    /// Whether each request is executed, once, or fails.
    #[must_use]
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc)
    }

    /// Whether requests of this kind can be posted in the direction from `side`.
    #[must_use]
    pub fn carries(self, verb: Verb, side: usize) -> bool {
        match self {
            Self::Rc => true,
            Self::Xrc => side == 0 && !matches!(verb, Verb::AtomicWrite | Verb::Flush) && !verb.is_keyed(),
            Self::Uc => matches!(verb, Verb::Send | Verb::SendImmediate | Verb::Write | Verb::WriteImmediate),
            Self::Ud => matches!(verb, Verb::Send | Verb::SendImmediate),
        }
    }

    /// The longest message that is drawn where a receive may be consumed by any message.
    #[must_use]
    pub fn longest(self) -> usize {
        if self == Self::Ud { 4096 } else { 8192 }
    }
}

/// Two queue pairs, connected. Its directions are 2 × its index, from the first host to the second, and that plus 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Their hosts; both may be the same.
    pub hosts: [usize; 2],
    /// What it promises.
    #[serde(default)]
    pub service: Service,
    /// Whether its messages take their receives from a queue that connections to the host share. XRC always does.
    #[serde(default)]
    pub shared: bool,
    /// Whether all receives are posted at the beginning, where any message may consume any of them.
    #[serde(default)]
    pub eager: bool,
    /// Whether it is made by [`Step::Open`]; at the beginning otherwise.
    #[serde(default)]
    pub late: bool,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// First PSN of either direction.
    pub psns: [u32; 2],
    /// READs and ATOMICs outstanding.
    pub rd_atomic: u8,
    /// Requests that the send queue takes.
    pub depth: u32,
    /// Code of the ack timeout.
    pub timeout: u8,
    /// Retries without an answer.
    pub retry_count: u8,
    /// Retries while there is no receive; 7: for ever.
    pub rnr_retry: u8,
    /// Code of the RNR timer.
    pub min_rnr_timer: u8,
}

impl Connection {
    /// Whether any message may consume any receive; otherwise each has a receive of its own.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.shared || self.service != Service::Rc
    }

    /// Whether its requests may give up after losses that others survive.
    #[must_use]
    pub fn is_impatient(&self) -> bool {
        self.timeout < 12 || self.retry_count < 5
    }
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// SEND into a receive request of its own.
    Send,
    /// The same, with immediate data.
    SendImmediate,
    /// WRITE to a place of its own.
    Write,
    /// The same, with immediate data.
    WriteImmediate,
    /// WRITE of at most 64 bytes to a place that all such WRITEs of the direction share: the last one wins.
    WriteHot,
    /// READ from a place of its own.
    Read,
    /// Compare-and-swap of a cell of the direction.
    CompareAndSwap,
    /// Fetch-and-add to a cell of the direction.
    FetchAndAdd,
    /// Fetch-and-add of 1 to a cell that every connection to the host shares.
    Count,
    /// ATOMIC WRITE of a cell of the direction.
    AtomicWrite,
    /// FLUSH of what was written, to where others see it.
    Flush,
    /// Binds a type 2B window for the peer; no packet is sent.
    OpenWindow,
    /// Registers a fast region for the peer; no packet is sent.
    OpenFast,
    /// WRITE through such a key that the peer has opened; skipped when there is none.
    WriteThroughKey,
    /// SEND that closes such a key; skipped when there is none.
    SendInvalidate,
    /// WRITE through a key that was closed: the peer refuses. Skipped when there is none.
    WriteStaleKey,
    /// WRITE with a key that nobody gave out: the peer refuses.
    WriteUnknownKey,
    /// READ beyond the end of the region: the peer refuses.
    ReadOutOfRange,
    /// Fetch-and-add to an odd address: the peer refuses.
    AtomicMisaligned,
    /// SEND from memory without a key: refused before it is sent.
    SendUnknownKey,
}

impl Verb {
    /// Those that succeed.
    pub const GOOD: [Self; 15] = [
        Self::Send,
        Self::SendImmediate,
        Self::Write,
        Self::WriteImmediate,
        Self::WriteHot,
        Self::Read,
        Self::CompareAndSwap,
        Self::FetchAndAdd,
        Self::Count,
        Self::AtomicWrite,
        Self::Flush,
        Self::OpenWindow,
        Self::OpenFast,
        Self::WriteThroughKey,
        Self::SendInvalidate,
    ];
    /// Those that fail, and their connection with them.
    pub const BAD: [Self; 5] = [
        Self::WriteUnknownKey,
        Self::ReadOutOfRange,
        Self::AtomicMisaligned,
        Self::SendUnknownKey,
        Self::WriteStaleKey,
    ];

    /// Whether it opens or needs a key that a work request opened.
    #[must_use]
    pub fn is_keyed(self) -> bool {
        self.opens() || matches!(self, Self::WriteThroughKey | Self::SendInvalidate | Self::WriteStaleKey)
    }

    /// Whether it opens such a key.
    #[must_use]
    pub fn opens(self) -> bool {
        matches!(self, Self::OpenWindow | Self::OpenFast)
    }

    /// Whether it fails.
    #[must_use]
    pub fn is_bad(self) -> bool {
        Self::BAD.contains(&self)
    }
}

/// One step. Time passes in [`Run`](Self::Run) only. A step that makes no sense any more is skipped, so that any part of a
/// plan is a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Posts a send request.
    Post {
        /// The direction.
        direction: usize,
        /// What to do.
        verb: Verb,
        /// With how many bytes; atomics have 8.
        length: u32,
        /// Where contents, elements and flags come from.
        shape: u64,
    },
    /// Posts up to `count` of the receive requests that the messages posted so far need.
    Receive {
        /// The direction.
        direction: usize,
        /// How many.
        count: usize,
    },
    /// Lets time pass.
    Run {
        /// Microseconds.
        micros: u32,
    },
    /// Changes the network's faults.
    Weather(Weather),
    /// Cuts or mends the way from one host to another.
    Cut {
        /// From which host.
        from: usize,
        /// To which.
        to: usize,
        /// Whether it is cut.
        cut: bool,
    },
    /// The host does nothing for a while.
    Stall {
        /// Which host.
        host: usize,
        /// Microseconds.
        micros: u32,
    },
    /// Moves the sender of the direction to SQD.
    Drain {
        /// The direction.
        direction: usize,
    },
    /// Moves it back to RTS.
    Resume {
        /// The direction.
        direction: usize,
    },
    /// Moves the sender of the direction to ERR.
    Fail {
        /// The direction.
        direction: usize,
    },
    /// Destroys the sender of the direction.
    Destroy {
        /// The direction.
        direction: usize,
    },
    /// The host dies and comes back with the same address and nothing else.
    Restart {
        /// Which host.
        host: usize,
    },
    /// Makes a late connection.
    Open {
        /// Which connection.
        connection: usize,
    },
}
