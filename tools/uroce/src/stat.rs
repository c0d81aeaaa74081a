//! `uroce stat`: what the devices of running programs counted.

use anyhow::{Result, ensure};
use clap::Args;
use uroce::verbs::stat::{Named, QueuePairSnapshot, Snapshot, running};

use crate::output::say;

/// Show what the open devices of this user's programs counted, under the names that the kernel's rxe uses
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Only this device, or the devices of the process with this number
    #[arg(value_name = "DEVICE|PID")]
    which: Option<String>,
    /// Each queue pair, too
    #[arg(long, short)]
    queue_pairs: bool,
    /// Counters that are zero, too
    #[arg(long, short)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
A program that was started with UROCE_PUBLISH=0 in its environment does not show.

Examples:
  uroce stat
  uroce stat uroce_eth0 --queue-pairs
  uroce stat 4711 --json";

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let which = arguments.which.as_deref();
    let mut snapshots = running();
    snapshots.retain(|open| which.is_none_or(|which| open.device == which || open.pid.to_string() == which));
    if arguments.json {
        return say!("{:#}", serde_json::to_value(&snapshots)?);
    }
    ensure!(
        !snapshots.is_empty(),
        "no program of this user has {} open",
        which.map_or("a device".to_owned(), |which| format!("{which} (a device, or devices of that process)"))
    );
    for (n, open) in snapshots.iter().enumerate() {
        if n > 0 {
            say!("")?;
        }
        show(open, arguments)?;
    }
    Ok(())
}

fn show(open: &Snapshot, arguments: &Arguments) -> Result<()> {
    let addresses: Vec<_> = open.addresses.iter().map(ToString::to_string).collect();
    say!("{}  {} (process {}, slot {}), {}", open.device, open.program, open.pid, open.slot, addresses.join(", "))?;
    list("    ", &open.counters, arguments.all)?;
    say!("    port")?;
    list("        ", &open.port, arguments.all)?;
    let count = open.queue_pairs.len();
    if !arguments.queue_pairs {
        return say!("    {count} queue pair{}", if count == 1 { "" } else { "s" });
    }
    for pair in &open.queue_pairs {
        let QueuePairSnapshot { qpn, qp_type, state, counters, .. } = pair;
        let peer = match (pair.peer, pair.peer_qpn) {
            (Some(address), Some(peer)) => format!(", to {peer:#08x} at {address}"),
            _ => String::new(),
        };
        say!("    queue pair {qpn:#08x}  {qp_type}, {state}{peer}")?;
        list("        ", counters, arguments.all)?;
    }
    Ok(())
}

fn list(indent: &str, counters: &Named, all: bool) -> Result<()> {
    for (name, value) in counters.iter().filter(|(_, value)| all || **value > 0) {
        say!("{indent}{name:<24}{value:>14}")?;
    }
    Ok(())
}
