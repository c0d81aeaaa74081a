//! The command and the libraries, as this source makes them, in the profile of this test.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder with the command and the libraries in it, built once.
pub(crate) fn folder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // target/PROFILE/deps/THIS
        let folder = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "-p", "uroce-ibverbs", "-p", "uroce-redirect", "-p", "uroce-cli"]);
        cargo.arg("--target-dir").arg(folder.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the drop-in library does not build");
        folder
    })
}
