//! The results as perftest prints them, or as JSON.

use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use uroce::verbs::{Counters, PortCounters};

use super::client::{Outcome, Row, Setting};
use super::plan::{Measure, Operation, Plan};
use crate::output::say;

const RULE: &str = "---------------------------------------------------------------------------------------";
/// perftest's MB.
const MIB: f64 = 1_048_576.0;

/// Prints what is going to be measured, and the heading of the table.
pub(super) fn print_heading(plan: &Plan, setting: Option<&Setting>, report_gbits: bool) -> Result<()> {
    let what = if plan.measure == Measure::Bw { "BW" } else { "Latency" };
    let both = if plan.bidirectional { "Bidirectional " } else { "" };
    say!("{RULE}\n                    {} {both}{what} Test", plan.operation.title())?;
    if let Some(setting) = setting {
        say!(" Device          : {:<12} Connection type : {}", setting.device, plan.connection.title())?;
        say!(" Number of qps   : {:<12} Mtu             : {}[B]", plan.queue_pairs, setting.path_mtu)?;
        say!(" TX depth        : {:<12} RX depth        : {}", plan.tx_depth, plan.rx_depth)?;
        say!(" Post list       : {:<12} CQ Moderation   : {}", plan.list, plan.moderation)?;
        say!(" Max inline data : {:<12} Outstand reads  : {}", format!("{}[B]", plan.inline), plan.outstanding)?;
        say!(" Use of events   : {:<12}", if plan.events { "ON" } else { "OFF" })?;
        say!("{RULE}\n local queue pair: {}\n server: {}", setting.own, setting.peer)?;
    }
    say!("{RULE}")?;
    match plan.measure {
        Measure::Bw => {
            let unit = if report_gbits { "Gb/sec" } else { "MB/sec" };
            say!(" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]")
        }
        Measure::Lat => say!(
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
        ),
    }
}

/// Prints one line.
pub(super) fn print_row(plan: &Plan, row: &Row, report_gbits: bool) -> Result<()> {
    let size = row.size;
    match &row.outcome {
        Outcome::Bandwidth { own, other } => {
            let unit = if report_gbits { 1e9 / 8.0 } else { MIB };
            let bandwidth = |rate: f64| rate * f64::from(size) / unit;
            let (rate, peak) = (own.rate() + other.rate(), own.peak_rate + other.peak_rate);
            let messages = own.messages + other.messages;
            say!(" {size:<10} {messages:<14} {:<18.2} {:<20.2} {:.6}", bandwidth(peak), bandwidth(rate), rate / 1e6)?;
            let arrived = own.received + other.received;
            if plan.counts_arrivals() && arrived < messages {
                say!(" {:<10} {arrived:<14} arrived; the rate is that of sending", "")?;
            }
            Ok(())
        }
        Outcome::Latency(histogram) => {
            let times = Summary::of(plan.operation, histogram);
            say!(
                " {size:<6} {:<14} {:<14.2} {:<12.2} {:<18.2} {:<14.2} {:<15.2} {:<22.2} {:<.2}",
                times.count,
                times.min,
                times.max,
                times.typical,
                times.mean,
                times.deviation,
                times.p99,
                times.p999
            )
        }
    }
}

/// Prints the line below the table, and the counters that tell of trouble, or all of them.
pub(super) fn print_end(counters: Option<&(Counters, PortCounters)>, all: bool) -> Result<()> {
    say!("{RULE}")?;
    let Some((queue_pairs, port)) = counters else { return Ok(()) };
    let listed: Vec<_> = if all { every(queue_pairs, port) } else { troubles(queue_pairs, port) };
    let listed: Vec<_> = listed.into_iter().filter(|(_, count)| all || *count > 0).collect();
    if listed.is_empty() {
        return Ok(());
    }
    say!(" {}", if all { "Counters of this end:" } else { "Packets were lost or sent again at this end:" })?;
    for (name, count) in listed {
        say!("   {name:<24} {count}")?;
    }
    Ok(())
}

/// A latency in microseconds: half of what was noted where turns are taken.
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The median.
    pub(crate) typical: f64,
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

impl Summary {
    /// What `histogram`, in nanoseconds, says.
    pub(crate) fn of(operation: Operation, histogram: &Histogram<u64>) -> Self {
        let share = if operation.takes_turns() { 2000.0 } else { 1000.0 };
        let time = |nanoseconds: u64| nanoseconds as f64 / share;
        Self {
            count: histogram.len(),
            min: time(histogram.min()),
            max: time(histogram.max()),
            typical: time(histogram.value_at_quantile(0.5)),
            mean: histogram.mean() / share,
            deviation: histogram.stdev() / share,
            p99: time(histogram.value_at_quantile(0.99)),
            p999: time(histogram.value_at_quantile(0.999)),
        }
    }
}

/// The whole result as one JSON value.
pub(super) fn json(
    plan: &Plan,
    setting: Option<&Setting>,
    rows: &[Row],
    counters: Option<&(Counters, PortCounters)>,
) -> Value {
    let counters = counters.map(|(queue_pairs, port)| {
        every(queue_pairs, port)
            .into_iter()
            .map(|(name, count)| (name.to_string(), json!(count)))
            .collect::<serde_json::Map<_, _>>()
    });
    json!({
        "plan": plan,
        "device": setting.map(|setting| &setting.device),
        "path_mtu": setting.map(|setting| setting.path_mtu),
        "results": rows.iter().map(|row| json_row(plan, row)).collect::<Vec<_>>(),
        "counters": counters,
    })
}

fn json_row(plan: &Plan, row: &Row) -> Value {
    let size = row.size;
    match &row.outcome {
        Outcome::Bandwidth { own, other } => {
            let bits = |rate: f64| rate * f64::from(size) * 8.0;
            json!({
                "bytes": size,
                "messages": own.messages + other.messages,
                "received": plan.counts_arrivals().then_some(own.received + other.received),
                "seconds": own.seconds.max(other.seconds),
                "messages_per_second": own.rate() + other.rate(),
                "average_bits_per_second": bits(own.rate() + other.rate()),
                "peak_bits_per_second": bits(own.peak_rate + other.peak_rate),
            })
        }
        Outcome::Latency(histogram) => {
            let times = Summary::of(plan.operation, histogram);
            json!({
                "bytes": size,
                "messages": times.count,
                "min_us": times.min,
                "max_us": times.max,
                "typical_us": times.typical,
                "average_us": times.mean,
                "deviation_us": times.deviation,
                "percentile_99_us": times.p99,
                "percentile_99_9_us": times.p999,
            })
        }
    }
}

/// Counters that stay zero on a clean network.
fn troubles(queue_pairs: &Counters, port: &PortCounters) -> Vec<(&'static str, u64)> {
    const TROUBLES: [&str; 15] = [
        "duplicate_request",
        "out_of_seq_request",
        "rcvd_rnr_err",
        "send_rnr_err",
        "rcvd_seq_err",
        "send_seq_err",
        "completer_retry_err",
        "ack_timeouts",
        "tail_probes",
        "retransmitted_pkts",
        "implied_nak",
        "port_send_errors",
        "port_icrc_errors",
        "port_malformed",
        "port_receive_overflow",
    ];
    let all = every(queue_pairs, port);
    all.into_iter().filter(|(name, _)| TROUBLES.contains(name)).collect()
}

fn every(queue_pairs: &Counters, port: &PortCounters) -> Vec<(&'static str, u64)> {
    let port = [
        ("port_sent", port.sent),
        ("port_sent_bytes", port.sent_bytes),
        ("port_received", port.received),
        ("port_received_bytes", port.received_bytes),
        ("port_send_calls", port.send_calls),
        ("port_receive_calls", port.receive_calls),
        ("port_send_errors", port.send_errors),
        ("port_icrc_errors", port.icrc_errors),
        ("port_malformed", port.malformed),
        ("port_receive_overflow", port.receive_overflow),
    ];
    queue_pairs.iter().chain(port).collect()
}
