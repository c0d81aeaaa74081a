//! `uroce demo`: shows on a bare machine what uroce is: two processes, a reliable connection between them over loopback, every
//! operation verified, and measured beside TCP.

mod lines;
mod measure;
mod peer;
mod progress;
mod report;
mod verify;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use self::peer::PeerProcess;
use self::progress::Progress;
use self::report::Findings;
use crate::output::say;

/// Show it: two processes of this machine, every operation verified, and measured beside TCP
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Milliseconds that each measurement takes
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    measure_ms: u64,
    /// Be the second process: started by the first
    #[arg(long, hide = true)]
    peer: bool,
}

const EXAMPLES: &str = "\
It needs no RDMA device, no privilege and no set-up, and takes about ten seconds.

Examples:
  uroce demo
  uroce demo --json";

/// No demonstration takes longer.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.peer {
        return peer::run();
    }
    let start = Instant::now();
    let peer = PeerProcess::start(LIMIT)?;
    let progress = Progress::new(verify::STEPS + measure::STEPS);
    let outcome = show(arguments, &peer, &progress, start);
    progress.finish();
    match outcome {
        Ok(findings) if arguments.json => say!("{:#}", findings.json()),
        Ok(findings) => findings.print(),
        // What the other process says of its end explains more than that it ended.
        Err(error) => Err(peer.explain(error)),
    }
}

fn show(arguments: &Arguments, peer: &PeerProcess, progress: &Progress, start: Instant) -> Result<Findings> {
    let verified = verify::run(peer.verify_port(), progress).context("verifying")?;
    let measured = measure::run(peer.measure_port(), arguments.measure_ms, progress).context("measuring")?;
    Ok(Findings { verified, measured, seconds: start.elapsed().as_secs_f64() })
}
