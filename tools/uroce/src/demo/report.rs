//! What the demonstration found, in words and tables, or as JSON.

use anyhow::Result;
use serde_json::{Value, json};

use super::measure::{BANDWIDTH, LATENCY_SIZE, Measured, name};
use super::verify::Verification;
use crate::output::say;
use crate::perf::Operation;

/// All of it.
pub(super) struct Findings {
    pub(super) verified: Verification,
    pub(super) measured: Measured,
    /// How long the demonstration took.
    pub(super) seconds: f64,
}

impl Findings {
    /// Prints it for people.
    pub(super) fn print(&self) -> Result<()> {
        let Verification { device, own, peer, .. } = &self.verified;
        say!("Two processes of this machine, joined by a reliable connection (RC) on the device {device}:")?;
        say!("RoCE v2 packets in UDP, without an RDMA device, a kernel module or a privilege.")?;
        say!("  this process   {own}   (address, queue pair, first packet number)")?;
        say!("  the other one  {peer}\n")?;
        self.print_verified()?;
        self.print_bandwidth()?;
        self.print_latency()?;
        say!(
            "Shown in {:.1} s: SEND, WRITE, READ and ATOMIC between two processes, {} bytes verified, none wrong.",
            self.seconds,
            thousands(self.verified.bytes())
        )
    }

    fn print_verified(&self) -> Result<()> {
        say!("Every byte compared at the end where it arrived, in messages of 1 byte to 1 MiB")?;
        for verified in &self.verified.operations {
            let bytes = thousands(verified.bytes);
            say!("  {:<8} {:>5} operations {bytes:>12} bytes", verified.operation, verified.messages)?;
        }
        say!("")
    }

    fn print_bandwidth(&self) -> Result<()> {
        say!("Bandwidth in Gbit/s, and how many times that of TCP between the same processes")?;
        let heads: Vec<_> = BANDWIDTH.iter().map(|operation| format!("{:<16}", name(*operation))).collect();
        say!("  {:>9}   {}", "message", heads.concat().trim_end())?;
        for (size, rates) in &self.measured.bandwidth {
            let tcp = rates.last().copied().unwrap_or_default();
            let cells: Vec<_> =
                BANDWIDTH.iter().zip(rates).map(|(operation, rate)| cell(*operation, *rate, tcp)).collect();
            say!("  {:>9}   {}", bytes(*size), cells.concat().trim_end())?;
        }
        say!("")
    }

    fn print_latency(&self) -> Result<()> {
        say!("Latency of {LATENCY_SIZE} bytes in microseconds (ATOMIC: 8 bytes), both processes polling")?;
        say!("  {:<8} {:>8} {:>8} {:>8}   {:<12}", "", "typical", "99 %", "least", "times TCP")?;
        let tcp = self.tcp_latency();
        for (operation, times) in &self.measured.latency {
            let span = if operation.takes_turns() { "one way (half a round trip)" } else { "there and back" };
            let ratio = times.typical / if operation.takes_turns() { tcp } else { 2.0 * tcp };
            say!(
                "  {:<8} {:>8.1} {:>8.1} {:>8.1}   {:<12} {span}",
                name(*operation),
                times.typical,
                times.p99,
                times.min,
                if *operation == Operation::Tcp { String::new() } else { format!("{ratio:.1}x") },
            )?;
        }
        say!("")
    }

    /// TCP's typical latency, one way.
    fn tcp_latency(&self) -> f64 {
        self.measured.latency.last().map_or(f64::NAN, |(_, times)| times.typical)
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        let bandwidth: Vec<_> = self
            .measured
            .bandwidth
            .iter()
            .flat_map(|(size, rates)| {
                BANDWIDTH.iter().zip(rates).map(move |(operation, rate)| {
                    json!({"operation": name(*operation), "bytes": size, "bits_per_second": rate})
                })
            })
            .collect();
        let latency = self.measured.latency.iter().map(|(operation, times)| {
            json!({
                "operation": name(*operation),
                "half_round_trip": operation.takes_turns(),
                "messages": times.count,
                "typical_us": times.typical,
                "percentile_99_us": times.p99,
                "min_us": times.min,
            })
        });
        json!({
            "verified": self.verified.bytes(),
            "verification": self.verified,
            "bandwidth": bandwidth,
            "latency": latency.collect::<Vec<_>>(),
            "seconds": self.seconds,
        })
    }
}

fn cell(operation: Operation, rate: f64, tcp: f64) -> String {
    let gigabits = rate / 1e9;
    let decimals = if gigabits < 1.0 { 2 } else { 1 };
    let text = match operation {
        Operation::Tcp => format!("{gigabits:>5.decimals$}"),
        _ => format!("{gigabits:>5.decimals$} ({:.1}x)", rate / tcp),
    };
    format!("{text:<16}")
}

/// A size in words.
fn bytes(size: u32) -> String {
    match size {
        size if size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        size if size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        size => format!("{size} B"),
    }
}

/// A number with its thousands apart.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([64, 4096, 1 << 20, 1500].map(bytes), ["64 B", "4 KiB", "1 MiB", "1500 B"]);
    }
}
