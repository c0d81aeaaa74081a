//! The command line as a whole.

use clap::{Parser, Subcommand};

use crate::{demo, perf, pingpong};

/// RDMA over Converged Ethernet v2 in user space: no RDMA device, no kernel module, no root.
#[derive(Debug, Parser)]
#[command(name = "uroce", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Arguments),
    Pingpong(pingpong::Arguments),
    Perf(perf::Arguments),
}

const EXAMPLES: &str = "\
Examples:
  uroce demo                               two processes here, every operation, beside TCP
  uroce pingpong 192.0.2.1                 exchange messages with ibv_rc_pingpong on 192.0.2.1";
