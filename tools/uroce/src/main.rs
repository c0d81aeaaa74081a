//! The `uroce` command: devices, a demonstration, measurements, a dissector.
//!
//! One module a subcommand. A subcommand prints its result on stdout; what is wrong becomes one line on stderr and the exit
//! status 1 (2 for a command line that cannot be understood).

mod cli;
mod demo;
mod device;
mod devices;
mod devinfo;
mod dump;
mod link;
mod net;
mod output;
mod perf;
mod pingpong;
mod run;
mod soak;
mod stat;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::output::ReaderGone;

fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let outcome = match Cli::parse().command {
        Command::Demo(arguments) => demo::run(&arguments).map(done),
        Command::Devices(arguments) => devices::run(&arguments).map(done),
        Command::Devinfo(arguments) => devinfo::run(&arguments).map(done),
        Command::Link(arguments) => link::run(&arguments).map(done),
        Command::Perf(arguments) => perf::run(&arguments).map(done),
        Command::Pingpong(arguments) => pingpong::run(&arguments).map(done),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments).map(done),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Run(arguments) => run::run(&arguments).map(done),
        Command::Env(arguments) => run::env(&arguments).map(done),
        Command::CleanAfter(arguments) => run::clean(&arguments).map(done),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if error.is::<ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "uroce: {}", output::describe(&error));
            ExitCode::FAILURE
        }
    }
}
