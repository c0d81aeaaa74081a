//! The `uroce` command: devices, a demonstration, measurements, a dissector.
//!
//! One module a subcommand. A subcommand prints its result on stdout; what is wrong becomes one line on stderr and the exit
//! status 1 (2 for a command line that cannot be understood).

mod cli;
mod demo;
mod device;
mod net;
mod perf;
mod pingpong;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(arguments) => demo::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Perf(arguments) => perf::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Pingpong(arguments) => pingpong::run(&arguments).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        // The alternate form is one line: what was tried, then why it failed.
        eprintln!("uroce: {error:#}");
        ExitCode::FAILURE
    })
}
