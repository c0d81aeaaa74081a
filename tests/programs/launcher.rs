//! `uroce run` and `uroce env` themselves: what they leave behind, what they hand on, and what they say when it cannot be done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::built;
use super::hosts::Hosts;
use super::launch::installed;

/// How long the end of a program may take to be noticed.
const PATIENCE: Duration = Duration::from_secs(30);

/// `uroce` with these arguments, which share one folder for temporary files.
fn uroce(temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(built::folder().join("uroce"));
    command.args(arguments).env("TMPDIR", temporary).env("UROCE_CONFIG", "/nonexistent").stdin(Stdio::null());
    command.env_remove("XDG_RUNTIME_DIR");
    command
}

/// An empty folder of this name.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits until the folder of the devices' files has been taken away.
#[track_caller]
fn assert_cleaned(temporary: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while fs::read_dir(temporary).unwrap().next().is_some() {
        assert!(Instant::now() < deadline, "left: {:?}", fs::read_dir(temporary).unwrap().collect::<Vec<_>>());
        thread::sleep(Duration::from_millis(5));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_ends_a_program_is_what_ends_the_launcher() {
    let temporary = folder("ends");
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 7", Some(7), None),
        ("kill -TERM $$", None, Some(libc::SIGTERM)),
        ("kill -KILL $$", None, Some(libc::SIGKILL)),
    ] {
        use std::os::unix::process::ExitStatusExt;
        let status = uroce(&temporary, &["run", "--", "sh", "-c", script]).status().unwrap();
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
        assert_cleaned(&temporary);
    }
}

#[test]
fn a_signal_reaches_the_program() {
    let temporary = folder("signal");
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let mut command = uroce(&temporary, &["run", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    assert_eq!(line, "ready\n");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert_cleaned(&temporary);
}

/// A program that waits for all its children would have waited for ever: the process that cleans up was one.
#[test]
fn a_program_has_no_children_but_its_own() {
    let temporary = folder("children");
    let script = "cat /proc/$$/task/$$/children; echo; ls $UROCE_TREE";
    let output = uroce(&temporary, &["run", "--", "sh", "-c", script]).output().unwrap();
    // `cat` itself is the one child.
    let said = text(&output.stdout);
    assert_eq!(said.lines().next().unwrap().split_whitespace().count(), 1, "{said}");
    assert!(said.ends_with("class\ndev\nlib\n"), "{said}");
    assert_cleaned(&temporary);
}

#[test]
fn what_cannot_be_run_is_said() {
    let temporary = folder("refused");
    for (arguments, part) in [
        (&["run", "--", "no-such-program"][..], "no-such-program: there is no such program in PATH"),
        (&["run", "--", "/etc"], "/etc: a folder, not a program"),
        (&["run", "-d", "mlx5_0", "--", "true"], "no device mlx5_0; there are: "),
        (&["run", "--port", "xdp", "--", "true"], "--port xdp: AF_XDP is not there yet"),
    ] {
        let output = uroce(&temporary, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with("uroce: ") && said.contains(part), "{arguments:?}: {said}");
        assert_cleaned(&temporary);
    }
}

/// Programs that change their user take no libraries from their caller: that is said, rather than a program started without.
#[test]
fn a_program_with_privileges_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let temporary = folder("privileges");
    let program = folder("privileged").join("true");
    fs::copy("/bin/true", &program).unwrap();
    let other = if rustix::process::geteuid().is_root() { Some(65534) } else { None };
    if chown(&program, other, None).is_err() || other.is_none() {
        // Only root can give a file away; a program of one's own changes nothing.
        return;
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let output = uroce(&temporary, &["run", "--", program.to_str().unwrap()]).output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("it changes its user or group when it starts"), "{said}");
}

/// Both forms of `uroce env` say the same, and a shell that evaluates it runs programs as `uroce run` does.
#[test]
fn a_shell_takes_the_variables() {
    if !installed(&["ibv_devices"]) {
        return;
    }
    let temporary = folder("env it's");
    let script = format!(
        "eval \"$('{}' env -d uroce_lo --trace)\" && exec ibv_devices",
        built::folder().join("uroce").display()
    );
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .env("TMPDIR", &temporary)
        .env_remove("XDG_RUNTIME_DIR")
        .env("UROCE_CONFIG", "/nonexistent");
    let output = shell.output().unwrap();
    let (said, traced) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.contains("uroce_lo"), "{said}{traced}");
    assert!(traced.contains("uroce: ibv_get_device_list"), "{traced}");
    let docker = uroce(&temporary, &["env", "-d", "uroce_lo", "--docker"]).output().unwrap();
    let docker = text(&docker.stdout);
    assert!(docker.lines().all(|line| line.starts_with("ENV ")), "{docker}");
    assert!(docker.contains("ENV UROCE_DEVICE=\"uroce_lo\"\n"), "{docker}");
}

/// An unprivileged container: a user namespace, process 1 of its own, and no way to the hosts' files.
#[test]
fn in_a_container() {
    if !installed(&["ibv_devices", "unshare"]) {
        return;
    }
    let temporary = folder("container");
    let uroce = uroce(&temporary, &["run", "--", "ibv_devices"]);
    let mut container = Command::new("unshare");
    container.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--net", "--ipc"]);
    container.arg(uroce.get_program()).args(uroce.get_args()).env("TMPDIR", &temporary);
    let output = container.output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("uroce_lo"), "{said}{}", text(&output.stderr));
}

/// What the program sends and receives is in the file, with the ICRC that makes it acceptable anywhere.
#[test]
fn packets_are_recorded() {
    const PORT: u16 = 18515;
    if !installed(&["ibv_rc_pingpong", "unshare", "nsenter", "ip"]) {
        return;
    }
    let Some(hosts) = Hosts::make() else { return };
    let file = std::env::temp_dir().join(format!("uroce-test-{}.pcap", std::process::id()));
    let (uroce, file) = (built::folder().join("uroce"), file.to_str().unwrap());
    let common = ["ibv_rc_pingpong", "-n", "10", "-g", "1"];
    let recorded = [uroce.to_str().unwrap(), "run", "--pcap", file, "--"];
    for said in hosts.run(PORT, &common, &[&recorded[..], &common, &[Hosts::SERVER]].concat()) {
        said.assert_says("10 iters in");
    }
    let dump = Command::new(&uroce).args(["dump", file]).output().unwrap();
    let removed = fs::remove_file(file);
    let said = text(&dump.stdout);
    assert!(dump.status.success(), "{said}{}", text(&dump.stderr));
    for direction in ["10.66.0.1 > 10.66.0.2", "10.66.0.2 > 10.66.0.1"] {
        let sent = said.lines().filter(|line| line.contains(direction) && line.contains("RC_SEND_")).count();
        assert!(sent >= 10, "{direction}: {sent}\n{said}");
    }
    assert!(said.contains(" 0 malformed, 0 others") && said.contains(" right, 0 wrong"), "{said}");
    removed.unwrap();
}
