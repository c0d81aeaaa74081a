//! The measurements: those of `uroce perf`, a short time each.

use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result};

use super::progress::Progress;
use crate::perf::{Amount, Client, Measure, Operation, Outcome, Place, Plan, Summary};

/// Bytes of messages for bandwidth.
pub(super) const SIZES: [u32; 4] = [64, 4096, 65_536, 1 << 20];
/// Bytes of messages for latency; an atomic operation has 8.
pub(super) const LATENCY_SIZE: u32 = 64;
/// What is measured for bandwidth; the last is what the others are compared with.
pub(super) const BANDWIDTH: [Operation; 4] = [Operation::Write, Operation::Send, Operation::Read, Operation::Tcp];
/// What is measured for latency, likewise.
pub(super) const LATENCY: [Operation; 5] =
    [Operation::Send, Operation::Write, Operation::Read, Operation::Atomic, Operation::Tcp];
/// Progress steps.
pub(super) const STEPS: u64 = (SIZES.len() * BANDWIDTH.len() + LATENCY.len()) as u64;
/// Requests are posted in lists of so many, as a program in need of throughput does.
const LIST: u32 = 16;

/// All of it.
pub(super) struct Measured {
    /// For each size, in bits a second, in the order of [`BANDWIDTH`].
    pub(super) bandwidth: Vec<(u32, Vec<f64>)>,
    /// In the order of [`LATENCY`].
    pub(super) latency: Vec<(Operation, Summary)>,
}

/// Measures, with the second process at `port`.
pub(super) fn run(port: u16, milliseconds: u64, progress: &Progress) -> Result<Measured> {
    let amount = Amount::Milliseconds(milliseconds);
    let mut bandwidth: Vec<_> = SIZES.iter().map(|size| (*size, Vec::new())).collect();
    for operation in BANDWIDTH {
        progress.stage(format!("measuring the bandwidth of {}", name(operation)));
        let plan = Plan { sizes: SIZES.into(), list: LIST, ..Plan::new(operation, Measure::Bw, 1, amount) };
        measure(port, plan, progress, |outcome, index| {
            if let (Outcome::Bandwidth { own, .. }, Some((size, rates))) = (outcome, bandwidth.get_mut(index)) {
                rates.push(own.rate() * f64::from(*size) * 8.0);
            }
        })?;
    }
    let mut latency = Vec::new();
    for operation in LATENCY {
        progress.stage(format!("measuring the latency of {}", name(operation)));
        let size = if operation == Operation::Atomic { 8 } else { LATENCY_SIZE };
        measure(port, Plan::new(operation, Measure::Lat, size, amount), progress, |outcome, _| {
            if let Outcome::Latency(histogram) = outcome {
                latency.push((operation, Summary::of(operation, histogram)));
            }
        })?;
    }
    Ok(Measured { bandwidth, latency })
}

/// What people call it.
pub(super) fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "SEND",
        Operation::Write => "WRITE",
        Operation::Read => "READ",
        Operation::Atomic => "ATOMIC",
        Operation::Tcp => "TCP",
        Operation::Udp => "UDP",
    }
}

fn measure(port: u16, plan: Plan, progress: &Progress, mut note: impl FnMut(&Outcome, usize)) -> Result<()> {
    let what = name(plan.operation);
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("the second process does not listen")?;
    stream.set_nodelay(true)?;
    let mut client = Client::open(stream, plan, &Place::default()).context(what)?;
    for (index, size) in client.sizes().into_iter().enumerate() {
        let row = client.measure(size).with_context(|| format!("{what} of {size} bytes"))?;
        note(&row.outcome, index);
        progress.step();
    }
    Ok(())
}
