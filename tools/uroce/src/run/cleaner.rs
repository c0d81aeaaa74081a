//! Takes a folder away when the program ends that it was made for: however it ends.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The name of the subcommand.
pub(crate) const COMMAND: &str = "clean-after";

/// Remove a folder when a process has ended
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The process
    pid: u32,
    /// The folder
    folder: PathBuf,
    /// Be the process that watches, not the one that starts it
    #[arg(long)]
    watch: bool,
}

/// Starts the cleaner for this process, which is about to become the program.
///
/// It is no child of the program, which may wait for all that it has, but one of a process that ends at once. It has a process group
/// of its own, so that Ctrl-C does not end it, and none of the program's files.
///
/// # Errors
/// When it does not start to watch.
pub(super) fn start(folder: &Path) -> Result<()> {
    let pid = std::process::id();
    if pid == 1 {
        // A container's first process, to which orphans come, and with which all of it ends.
        return Ok(());
    }
    let arguments = Arguments { pid, folder: folder.to_owned(), watch: false };
    let mut starter = command(&arguments)?
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("the process that cleans up")?;
    let mut ready = [0];
    let answer = starter.stdout.take().map(|mut output| output.read(&mut ready));
    let _ = starter.wait();
    match answer {
        Some(Ok(1)) => Ok(()),
        _ => bail!("the process that cleans up does not watch"),
    }
}

/// Watches, and removes the folder in the end; or starts the process that does.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    if !arguments.watch {
        command(arguments)?.arg("--watch").spawn()?;
        return Ok(());
    }
    let pid = i32::try_from(arguments.pid).ok().and_then(Pid::from_raw).context("no process")?;
    let process = pidfd_open(pid, PidfdFlags::empty()).context("the process is gone")?;
    let mut output = std::io::stdout();
    output.write_all(&[1])?;
    output.flush()?;
    // Whoever reads the program's output waits for its end only.
    let null = fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    while poll(&mut [PollFd::new(&process, PollFlags::IN)], None).is_err() {
        // A signal.
    }
    fs::remove_dir_all(&arguments.folder).with_context(|| format!("{}", arguments.folder.display()))
}

fn command(arguments: &Arguments) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(COMMAND).arg(arguments.pid.to_string()).arg(&arguments.folder);
    Ok(command)
}
