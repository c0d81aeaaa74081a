//! The second process: the same program, started again. It serves until the first one closes its standard input.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::verify;
use crate::output::say;
use crate::perf;

/// How long the second process may take to come up.
const START: Duration = Duration::from_secs(10);
/// How often the first process looks at the second.
const LOOK: Duration = Duration::from_millis(50);

/// What the second process says when it is up: the TCP ports where it waits.
#[derive(Serialize, Deserialize)]
struct Up {
    verify: u16,
    measure: u16,
}

/// The second process, as the first sees it. It ends when this is dropped.
pub(super) struct PeerProcess {
    child: Arc<Mutex<Child>>,
    up: Up,
}

impl PeerProcess {
    /// Starts it; after `limit` it is ended, whatever happens, which ends the demonstration with an error.
    pub(super) fn start(limit: Duration) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program, to start it again")?;
        let mut child = Command::new(program)
            .args(["demo", "--peer"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a second process")?;
        let stdout = child.stdout.take();
        // From here on dropping ends it.
        let mut process = Self { child: Arc::new(Mutex::new(child)), up: Up { verify: 0, measure: 0 } };
        let (sender, line) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
            let _ = sender.send(read.map(|_| line).unwrap_or_default());
        });
        let line = match line.recv_timeout(START) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => bail!("the second process did not come up in {} s", START.as_secs()),
            Err(RecvTimeoutError::Disconnected) => String::new(),
        };
        process.up = serde_json::from_str(&line).map_err(|_| process.explain(anyhow!("the second process ended")))?;
        process.watch(limit);
        Ok(process)
    }

    /// The TCP port where it waits to verify.
    pub(super) fn verify_port(&self) -> u16 {
        self.up.verify
    }

    /// The TCP port where it waits to be measured.
    pub(super) fn measure_port(&self) -> u16 {
        self.up.measure
    }

    /// Adds to `error` what the second process says, if it has ended by itself.
    pub(super) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        // It may be about to end: the connection closes before the process does.
        std::thread::sleep(LOOK);
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(Some(status)) = child.try_wait() else { return error };
        let mut said = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        let said = said.trim().trim_start_matches("uroce: ").replace('\n', "; ");
        match said.as_str() {
            "" => error.context(format!("the second process ended ({status})")),
            said => error.context(format!("the second process ended ({status}): {said}")),
        }
    }

    /// Ends it when the time is over.
    fn watch(&self, limit: Duration) {
        let child = Arc::downgrade(&self.child);
        let deadline = Instant::now() + limit;
        std::thread::spawn(move || {
            while let Some(child) = child.upgrade() {
                if Instant::now() > deadline {
                    let _ = child.lock().unwrap_or_else(PoisonError::into_inner).kill();
                    return;
                }
                drop(child);
                std::thread::sleep(LOOK);
            }
        });
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// What the second process does.
pub(super) fn run() -> Result<()> {
    // The first process holds the other end for as long as it lives.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on the loopback interface");
    let (verify, measure) = (listen()?, listen()?);
    let up = Up { verify: verify.local_addr()?.port(), measure: measure.local_addr()?.port() };
    say!("{}", serde_json::to_string(&up)?)?;
    verify::serve(verify.accept()?.0)?;
    loop {
        perf::serve(measure.accept()?.0)?;
    }
}
