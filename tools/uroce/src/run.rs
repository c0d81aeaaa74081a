//! `uroce run`: programs built on libibverbs, unmodified, on uroce's devices; and `uroce env`, the same for a shell.
//!
//! The launcher writes the folder that describes the devices ([`tree`]), sets the environment ([`environment`]), and then *is*
//! the program: it calls `exec`, so that signals, the terminal, and the exit status are the program's own. A helper process, which
//! sleeps on the program's end, takes the folder away ([`cleaner`]).

mod cleaner;
mod environment;
mod program;
mod tree;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use uroce::verbs;

use self::environment::Variables;
use crate::output::say;

/// Run a program that is built on libibverbs, on uroce's devices
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    /// The program and its arguments, best behind `--`
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// What a program is to see, and how it reaches the network.
#[derive(Args, Debug)]
struct Options {
    /// Show the program this device only; may be given several times
    #[arg(short, long = "device", value_name = "DEVICE")]
    devices: Vec<String>,
    /// How packets leave: UDP sockets, or whole frames (CAP_NET_RAW); what the device is set to, if not given
    #[arg(long, value_name = "PORT")]
    port: Option<Port>,
    /// Record what the program sends and receives; %p in the name becomes the process's number
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Tell on standard error which verbs are called, and why one fails
    #[arg(long)]
    trace: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Port {
    Udp,
    Packet,
    Xdp,
}

/// Print the variables that `uroce run` sets, for a shell or a Dockerfile
#[derive(Args, Debug)]
#[command(after_help = ENV_EXAMPLES)]
pub(crate) struct EnvArguments {
    #[command(flatten)]
    options: Options,
    /// As ENV lines of a Dockerfile
    #[arg(long)]
    docker: bool,
}

const EXAMPLES: &str = "\
Examples:
  uroce run -- ibv_devinfo -v
  uroce run -- ib_write_bw -d uroce_eth0                 # server
  uroce run -- ib_write_bw -d uroce_eth0 192.0.2.1       # client
  uroce run --pcap /tmp/bw.pcap -- ib_send_lat -d uroce_eth0 192.0.2.1
  uroce run -- mpirun -n 4 ./a.out";

const ENV_EXAMPLES: &str = "\
The folder that describes the devices is made anew at each call, in $XDG_RUNTIME_DIR or /tmp.

Examples:
  eval \"$(uroce env)\"; ibv_devices
  uroce env --docker >> Dockerfile";

/// Becomes the program; returns only when that fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let [name, rest @ ..] = &arguments.command[..] else { bail!("no program") };
    let program = program::find(name)?;
    let variables = variables(&arguments.options)?;
    let tree = tempfile::Builder::new().prefix("uroce-").tempdir().context("a folder for the devices' files")?;
    write_tree(tree.path(), &arguments.options)?;
    let environment = variables.with_tree(tree.path())?;
    cleaner::start(tree.path())?;
    // From here on the cleaner takes it away.
    let tree = tree.keep();
    let error = Command::new(&program).arg0(name).args(rest).envs(environment).exec();
    let _ = std::fs::remove_dir_all(tree);
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Prints the variables.
pub(crate) fn env(arguments: &EnvArguments) -> Result<()> {
    let variables = variables(&arguments.options)?;
    let tree = tree::of_user()?;
    write_tree(&tree, &arguments.options)?;
    for (name, value) in variables.with_tree(&tree)? {
        let value = value.to_string_lossy();
        if arguments.docker {
            say!("ENV {name}={}", quoted(&value, '"'))?;
        } else {
            say!("export {name}={}", quoted(&value, '\''))?;
        }
    }
    Ok(())
}

/// The program that cleans up; hidden, as only the launcher calls it.
pub(crate) fn clean(arguments: &cleaner::Arguments) -> Result<()> {
    cleaner::run(arguments)
}

pub(crate) use cleaner::Arguments as CleanArguments;

fn variables(options: &Options) -> Result<Variables> {
    let port = match options.port {
        None => None,
        Some(Port::Udp) => Some("udp"),
        Some(Port::Packet) => Some("packet"),
        Some(Port::Xdp) => bail!("--port xdp: AF_XDP is not there yet; udp and packet are"),
    };
    let pcap = options.pcap.as_ref().map(std::path::absolute).transpose().context("--pcap")?;
    Ok(Variables {
        libraries: environment::libraries()?,
        devices: options.devices.clone(),
        port,
        pcap,
        trace: options.trace,
    })
}

/// Describes what the program is to see.
fn write_tree(folder: &Path, options: &Options) -> Result<()> {
    tree::write(folder, &shown(options)?, !options.devices.is_empty())
}

/// The devices that the program is to see.
fn shown(options: &Options) -> Result<Vec<verbs::Device>> {
    let all = verbs::devices()?;
    for wanted in &options.devices {
        if !all.iter().any(|device| device.name == *wanted) {
            let names: Vec<_> = all.iter().map(|device| device.name.as_str()).collect();
            bail!("no device {wanted}; there are: {}", names.join(", "));
        }
    }
    let is_shown = |device: &verbs::Device| options.devices.is_empty() || options.devices.contains(&device.name);
    Ok(all.into_iter().filter(is_shown).collect())
}

/// `value` in quotes of this kind, for a shell (single) or a Dockerfile (double).
fn quoted(value: &str, quote: char) -> String {
    let inner = if quote == '\'' {
        value.replace('\'', r"'\''")
    } else {
        value.replace('\\', r"\\").replace('"', "\\\"").replace('$', r"\$")
    };
    format!("{quote}{inner}{quote}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_what_is_in_them() {
        assert_eq!(quoted("/a b", '\''), "'/a b'");
        assert_eq!(quoted("it's", '\''), r"'it'\''s'");
        assert_eq!(quoted(r#"a"$b\"#, '"'), r#""a\"\$b\\""#);
    }
}
