//! Runs the command as a user does: programs, their output, their exit status.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::Value;

/// No program of these tests takes longer, on however slow a machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The command with these arguments.
pub(crate) fn uroce(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uroce"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    finish(uroce(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Runs it to its end, which must be a success, and returns what it printed.
pub(crate) fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs it to its end, which must be a failure with one line on stderr, and returns that line.
pub(crate) fn fail(arguments: &[&str]) -> String {
    failure(run(arguments))
}

/// The one line of a failed program.
pub(crate) fn failure(output: Output) -> String {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("uroce: "), "{stderr}");
    stderr
}

/// The JSON value that it prints.
pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeed(arguments)).unwrap()
}

/// Waits for a program's end; kills it when it hangs.
pub(crate) fn finish(child: Child) -> Output {
    let pid = child.id();
    let (sender, output) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    output.recv_timeout(LIMIT).map(Result::unwrap).unwrap_or_else(|_| {
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        panic!("a program hangs")
    })
}

/// A server that is waiting for a client, and the TCP port where it does.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: String,
}

impl Server {
    /// Starts `uroce ARGUMENTS -p PORT` at a port that is free, and waits until a client can come.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        // A port that was free a moment ago may have been taken by another test.
        (0..5).find_map(|_| Self::try_start(arguments)).expect("a server that listens")
    }

    fn try_start(arguments: &[&str]) -> Option<Self> {
        let port = free_port();
        let mut child =
            uroce(arguments).args(["-p", &port]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        if listens(&mut child, &port) {
            return Some(Self { child, port });
        }
        let _ = child.kill();
        eprintln!("port {port}: {}", text(&finish(child).stderr));
        None
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> Output {
        finish(self.child)
    }
}

/// A TCP port that nobody listens on.
pub(crate) fn free_port() -> String {
    std::net::TcpListener::bind("[::]:0").unwrap().local_addr().unwrap().port().to_string()
}

/// Waits until a server listens on a TCP port, without connecting to it; `false`: it has ended instead, or takes too long.
fn listens(server: &mut Child, port: &str) -> bool {
    let wanted = format!(":{:04X}", port.parse::<u16>().unwrap());
    for _ in 0..1000 {
        let listens = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().any(|table| {
            let Ok(file) = std::fs::File::open(table) else { return false };
            BufReader::new(file).lines().map_while(Result::ok).any(|line| {
                let mut words = line.split_whitespace();
                // Local address, and state LISTEN.
                words.nth(1).is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some("0A")
            })
        });
        if server.try_wait().unwrap().is_some() {
            return false;
        }
        if listens {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Bytes that a program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
