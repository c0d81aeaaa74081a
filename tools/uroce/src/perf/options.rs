//! The command line of `uroce perf`: letters and defaults of perftest where it has the option.

use anyhow::{Result, bail};
use clap::Args;
use uroce::verbs::Mtu;

use super::plan::{Amount, Atomic, Connection, Measure, Operation, Plan};
use crate::device::{self, Backend};

/// Measure bandwidth or latency between two hosts, or two programs of one
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What to measure: an RDMA operation, or TCP or UDP sockets to compare with
    operation: Operation,
    /// Bandwidth or latency
    measure: Measure,
    /// The host of the server; without it, be the server
    pub(super) server: Option<String>,
    /// TCP port over which both ends get to know each other
    #[arg(short, long, default_value_t = 18515)]
    pub(super) port: u16,
    /// Device; by default the one whose address the TCP connection uses
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    pub(super) device: Option<String>,
    /// Index of the GID to use; by default that of the TCP connection's address
    #[arg(short = 'x', long = "gid-index", value_name = "INDEX")]
    pub(super) gid_index: Option<u8>,
    /// How to reach the network
    #[arg(long, value_name = "BACKEND")]
    pub(super) backend: Option<Backend>,
    /// Transport; UC and UD do not make up for what is lost
    #[arg(short, long, value_name = "TYPE", default_value = "RC", ignore_case = true)]
    connection: Connection,
    /// Bytes of a message; 65536 (on UD 1024) for bandwidth, 2 for latency and 8 for atomics by default
    #[arg(short, long, conflicts_with = "all")]
    size: Option<u32>,
    /// All sizes from 2 bytes to 8 MiB; on UD to the path MTU (-m, or 1024)
    #[arg(short, long)]
    all: bool,
    /// Messages of each size; 5000 for bandwidth and 1000 for latency by default
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration")]
    iters: Option<u64>,
    /// Run for so many seconds at each size
    #[arg(short = 'D', long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Queue pairs
    #[arg(short = 'q', long = "qp", value_name = "N", default_value_t = 1)]
    queue_pairs: u32,
    /// Path MTU in bytes; the largest that both devices have by default
    #[arg(short, long, value_parser = device::parse_mtu)]
    mtu: Option<Mtu>,
    /// Send requests of a queue pair that may be outstanding
    #[arg(short, long, value_name = "N", default_value_t = 128)]
    tx_depth: u32,
    /// Receive requests of a queue pair to have posted
    #[arg(short, long, value_name = "N", default_value_t = 512)]
    rx_depth: u32,
    /// READs or ATOMICs of a queue pair that may be under way
    #[arg(short, long = "outs", value_name = "N", default_value_t = 16)]
    outstanding: u8,
    /// Sleep until a completion comes, instead of polling
    #[arg(short, long)]
    events: bool,
    /// Both ends send
    #[arg(short, long)]
    bidirectional: bool,
    /// Post requests in lists of so many
    #[arg(short = 'l', long = "post_list", value_name = "N", default_value_t = 1)]
    list: u32,
    /// Ask for a completion of every so many requests only
    #[arg(short = 'Q', long = "cq-mod", value_name = "N")]
    moderation: Option<u32>,
    /// Post messages of up to so many bytes inline: copied when posting
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES", default_value_t = 0)]
    inline: u32,
    /// Which atomic operation
    #[arg(short = 'A', long = "atomic_type", value_name = "TYPE", default_value = "FETCH_AND_ADD", ignore_case = true)]
    atomic: Atomic,
    /// Print Gb/s instead of MiB/s
    #[arg(long = "report_gbits", alias = "report-gbits")]
    pub(super) report_gbits: bool,
    /// Print what the queue pairs and the port counted
    #[arg(short = 'v', long)]
    pub(super) counters: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// What perftest asks for when the processor's frequency varies: accepted and ignored
    #[arg(short = 'F', long = "CPU-freq", hide = true)]
    _force: bool,
}

const EXAMPLES: &str = "\
The client's options count; the server needs none but -p, -d and -x.

Examples:
  uroce perf write bw                       be the server, for whatever a client asks
  uroce perf write bw 192.0.2.1             RDMA WRITE bandwidth to the server on 192.0.2.1
  uroce perf send lat -a 192.0.2.1          latency of SEND for every size
  uroce perf read bw -q 4 -s 4096 -D 10 --report_gbits 192.0.2.1
  uroce perf send bw -c UD 192.0.2.1        datagrams: tells how many arrived
  uroce perf tcp bw 192.0.2.1               the same host by TCP, to compare";

impl Arguments {
    /// What every link of Ethernet's usual 1500 bytes carries.
    const USUAL_MTU: Mtu = Mtu::Mtu1024;

    /// What the client wants to be done.
    pub(super) fn plan(&self) -> Result<Plan> {
        let (operation, measure) = (self.operation, self.measure);
        let amount = match (self.iters, self.duration) {
            (_, Some(seconds)) if !(0.001..=86_400.0).contains(&seconds) => {
                bail!("a duration of {seconds} s: from 0.001 to 86400 is possible")
            }
            (_, Some(seconds)) => Amount::Milliseconds((seconds * 1e3) as u64),
            (Some(iterations), None) => Amount::Iterations(iterations),
            (None, None) if self.all => Amount::Modest(measure.default_iterations()),
            (None, None) => Amount::Iterations(measure.default_iterations()),
        };
        let plan = Plan {
            operation,
            measure,
            connection: self.connection,
            sizes: self.sizes()?,
            amount,
            queue_pairs: self.queue_pairs,
            path_mtu: self.mtu.map(Mtu::bytes),
            tx_depth: self.tx_depth,
            rx_depth: self.rx_depth,
            outstanding: self.outstanding,
            events: self.events,
            bidirectional: self.bidirectional,
            list: self.list,
            moderation: self.moderation.unwrap_or((self.tx_depth / 4).clamp(1, 16)),
            inline: self.inline,
            atomic: self.atomic,
        };
        plan.check()?;
        Ok(plan)
    }

    fn sizes(&self) -> Result<Vec<u32>> {
        match (self.operation, self.measure, self.size) {
            (Operation::Atomic, _, None | Some(8)) if !self.all => Ok(vec![8]),
            (Operation::Atomic, ..) => bail!("an atomic operation has 8 bytes: leave out -s and -a"),
            (Operation::Udp, ..) if self.all => Ok((1..=15).map(|power| 1 << power).collect()),
            _ if self.all && self.connection == Connection::Ud => {
                let mtu = self.mtu.unwrap_or(Self::USUAL_MTU).bytes();
                Ok((1..=mtu.ilog2()).map(|power| 1 << power).collect())
            }
            _ if self.all => Ok((1..=23).map(|power| 1 << power).collect()),
            (_, _, Some(size)) => Ok(vec![size]),
            (_, Measure::Bw, None) if self.connection == Connection::Ud => {
                Ok(vec![self.mtu.unwrap_or(Self::USUAL_MTU).bytes()])
            }
            (_, Measure::Bw, None) => Ok(vec![65536]),
            (_, Measure::Lat, None) => Ok(vec![2]),
        }
    }
}
