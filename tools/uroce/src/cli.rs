//! The command line as a whole.

use clap::{Parser, Subcommand};

use crate::{demo, devices, devinfo, dump, link, perf, pingpong, run, soak, stat};

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
    Devices(devices::Arguments),
    Devinfo(devinfo::Arguments),
    Link(link::Arguments),
    Perf(perf::Arguments),
    Pingpong(pingpong::Arguments),
    Stat(stat::Arguments),
    Soak(soak::Arguments),
    Dump(dump::Arguments),
    Run(run::Arguments),
    Env(run::EnvArguments),
    #[command(hide = true)]
    CleanAfter(run::CleanArguments),
}

const EXAMPLES: &str = "\
Examples:
  uroce demo                        two processes here, every operation, beside TCP
  uroce devices                     the devices: uroce_eth0, ..., uroce_lo
  uroce perf write bw               be a server for measurements
  uroce perf write bw 192.0.2.1     measure RDMA WRITE bandwidth to it
  uroce pingpong 192.0.2.1          exchange messages with ibv_rc_pingpong there
  uroce stat                        what the devices of running programs counted
  uroce soak --hours 1              look for bugs in the protocol engine
  uroce run -- ib_write_bw          run any program that is built on libibverbs
  uroce dump capture.pcap           show RoCE v2 packets, and whether their ICRC is right";
