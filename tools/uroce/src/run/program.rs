//! The program that is to be run.

use std::env;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Set-user-ID, set-group-ID.
const PRIVILEGED: u32 = 0o6000;

/// The file of a program, looked for as a shell does.
///
/// # Errors
/// When there is none, or when the loader would ignore our libraries because the file gives privileges.
pub(super) fn find(name: &str) -> Result<PathBuf> {
    let path = if name.contains('/') { Some(PathBuf::from(name)) } else { in_path(name) };
    let path = path.with_context(|| format!("{name}: there is no such program in PATH"))?;
    let metadata = path.metadata().with_context(|| format!("{}", path.display()))?;
    if metadata.is_dir() {
        bail!("{}: a folder, not a program", path.display());
    }
    if metadata.mode() & PRIVILEGED != 0 && !is_own(&metadata) {
        bail!(
            "{}: it changes its user or group when it starts, and such programs take no libraries from their caller; \
             run a copy of it without that, as that user",
            path.display()
        );
    }
    Ok(path)
}

fn in_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Whether the file changes nothing: its owner, and its group, are the caller's already.
fn is_own(metadata: &Metadata) -> bool {
    let mode = metadata.mode();
    let same_user = mode & 0o4000 == 0 || metadata.uid() == rustix::process::geteuid().as_raw();
    let same_group = mode & 0o2000 == 0 || metadata.gid() == rustix::process::getegid().as_raw();
    same_user && same_group
}
