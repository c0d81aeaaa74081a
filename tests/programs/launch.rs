//! Starts programs under `uroce run`, and tells what they said.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::built;

/// The user that has no privilege.
pub(crate) const NOBODY: u32 = 65534;
/// A program that runs for so long hangs, on any machine: it is ended, which fails the test.
const PATIENCE: &str = "180";

/// Whether all of these programs are installed; says so when one is not.
pub(crate) fn installed(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    let missing: Vec<_> = programs.iter().filter(|program| !is_there(program)).collect();
    if missing.is_empty() {
        return true;
    }
    skip(&format!("not installed: {missing:?}"))
}

/// Says that a test is skipped, and why; returns false.
pub(crate) fn skip(why: &str) -> bool {
    assert!(std::env::var_os("UROCE_TEST_NO_SKIP").is_none(), "{why}");
    // Past the test's captured output.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
    false
}

/// Whether programs are to run as [`NOBODY`].
pub(crate) fn gives_up_root() -> bool {
    static GIVES_UP: OnceLock<bool> = OnceLock::new();
    *GIVES_UP.get_or_init(|| {
        let mut version = Command::new(built::folder().join("uroce"));
        version.arg("--version").uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    })
}

/// What a program said, on both outputs, and how it ended.
pub(crate) struct Said {
    what: String,
    pub(crate) text: String,
    success: bool,
}

impl Said {
    /// It ended well.
    #[track_caller]
    pub(crate) fn assert_success(&self) {
        assert!(self.success, "{}:\n{}", self.what, self.text);
    }

    /// It ended well, and complained of nothing.
    #[track_caller]
    pub(crate) fn assert_fine(&self) {
        let complaints: Vec<_> = self.text.lines().filter(|line| is_complaint(line)).collect();
        assert!(
            self.success && complaints.is_empty(),
            "{}: {complaints:#?}\nall that it said:\n{}",
            self.what,
            self.text
        );
    }

    /// And said this.
    #[track_caller]
    pub(crate) fn assert_says(&self, part: &str) {
        self.assert_fine();
        assert!(self.text.contains(part), "{}: does not say {part:?}, but:\n{}", self.what, self.text);
    }
}

/// Errors and warnings of the programs' own, and whatever the drop-in library has to say.
fn is_complaint(line: &str) -> bool {
    ["UCX  ERROR", "UCX  WARN", "uroce: ", "WARNING"].iter().any(|mark| line.contains(mark))
}

/// A program under `uroce run`.
pub(crate) struct Launch(Command);

impl Launch {
    /// The program and its arguments, on this device.
    pub(crate) fn new(device: &str, program: &[&str]) -> Self {
        Self::behind(&[], device, program)
    }

    /// As above, started by another program.
    pub(crate) fn behind(starter: &[&str], device: &str, program: &[&str]) -> Self {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", PATIENCE])
            .args(starter)
            .arg(built::folder().join("uroce"))
            .args(["run", "-d", device, "--"]);
        command.args(program).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if gives_up_root() {
            command.uid(NOBODY).gid(NOBODY).env("HOME", "/nonexistent");
        }
        Self(command)
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Said {
        self.start().finish()
    }

    pub(crate) fn start(mut self) -> Running {
        let arguments: Vec<_> = self.0.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let what = arguments.join(" ");
        Running { child: self.0.spawn().unwrap(), what }
    }
}

/// A program that has been started.
pub(crate) struct Running {
    child: Child,
    what: String,
}

impl Running {
    /// Waits until it listens on this TCP port, or has ended.
    pub(crate) fn listens(self, port: u16) -> Self {
        self.listens_in("self", port)
    }

    /// The same in the network namespace of this process.
    pub(crate) fn listens_in(mut self, pid: &str, port: u16) -> Self {
        let listens = || {
            let sockets =
                ["tcp", "tcp6"].map(|of| fs::read_to_string(format!("/proc/{pid}/net/{of}")).unwrap_or_default());
            // State 0A is LISTEN.
            let (address, state) = (format!(":{port:04X}"), "0A");
            let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            sockets.concat().lines().map(fields).any(|f| f[1].ends_with(&address) && f[3] == state)
        };
        while self.child.try_wait().unwrap().is_none() && !listens() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> Said {
        let output = self.child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        Said { what: self.what, text, success: output.status.success() }
    }
}

/// A TCP port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
