//! Programs of users whose home is not theirs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::launch::{Launch, installed};

/// A program that was started as root and gave up its privileges has root's `HOME` still. It found no device at all: the file with
/// links to devices, looked for there, was closed to it.
#[test]
fn a_closed_home_hides_no_device() {
    if !installed(&["ibv_devices"]) {
        return;
    }
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("closed");
    let _ = fs::remove_dir(&home);
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, Permissions::from_mode(0o000)).unwrap();
    let said = Launch::new("uroce_lo", &["ibv_devices"]).env("HOME", home.to_str().unwrap()).run();
    fs::remove_dir(&home).unwrap();
    said.assert_says("uroce_lo");
}
