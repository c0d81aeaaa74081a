//! The variables that make a program find our libraries and our devices.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The library that stands in for the system's, as programs ask for it. NCCL tries the bare name first.
const VERBS_NAMES: [&str; 2] = ["libibverbs.so.1", "libibverbs.so"];
/// The file that cargo makes of it, and where it is installed without a version.
const VERBS: &str = "libibverbs.so";
/// The library that leads paths to the folder.
const REDIRECT: &str = "liburoce_redirect.so";

/// What the program's environment is to say.
pub(super) struct Variables {
    /// Where both libraries are.
    pub(super) libraries: PathBuf,
    pub(super) devices: Vec<String>,
    pub(super) port: Option<&'static str>,
    pub(super) pcap: Option<PathBuf>,
    pub(super) trace: bool,
}

impl Variables {
    /// The variables, with a folder that describes the devices. What the environment has of the loader's lists stays behind
    /// ours.
    ///
    /// # Errors
    /// When the folder of libraries cannot be made.
    pub(super) fn with_tree(&self, tree: &Path) -> Result<Vec<(&'static str, OsString)>> {
        let names = tree.join("lib");
        link_names(&self.libraries, &names)?;
        let mut variables = vec![
            ("LD_LIBRARY_PATH", before(&names, "LD_LIBRARY_PATH")),
            ("LD_PRELOAD", before(&names.join(REDIRECT), "LD_PRELOAD")),
            ("UROCE_TREE", tree.into()),
        ];
        if !self.devices.is_empty() {
            variables.push(("UROCE_DEVICE", self.devices.join(",").into()));
        }
        if let Some(port) = self.port {
            variables.push(("UROCE_PORT", port.into()));
        }
        if let Some(pcap) = &self.pcap {
            variables.push(("UROCE_PCAP", pcap.into()));
        }
        if self.trace {
            variables.push(("UROCE_TRACE", "1".into()));
        }
        Ok(variables)
    }
}

/// `first`, and behind it what the variable holds already.
fn before(first: &Path, variable: &str) -> OsString {
    let mut value = first.as_os_str().to_owned();
    let others = env::var_os(variable).unwrap_or_default();
    let is_other = |part: &&OsStr| !part.is_empty() && *part != first.as_os_str();
    for part in env::split_paths(&others).map(PathBuf::into_os_string).filter(|part| is_other(&part.as_os_str())) {
        value.push(":");
        value.push(part);
    }
    value
}

/// A folder with the names that programs ask for, and nothing else that could take another library's place.
fn link_names(libraries: &Path, names: &Path) -> Result<()> {
    let link = |target: &str, name: &str| {
        let place = names.join(name);
        let _ = std::fs::remove_file(&place);
        symlink(libraries.join(target), &place).with_context(|| format!("cannot make {}", place.display()))
    };
    std::fs::create_dir_all(names).with_context(|| format!("cannot make {}", names.display()))?;
    for name in VERBS_NAMES {
        link(VERBS, name)?;
    }
    link(REDIRECT, REDIRECT)
}

/// Where the libraries are: `../lib/uroce` when installed, beside the command when it was just built.
///
/// # Errors
/// When they are in neither place; says how to get them.
pub(super) fn libraries() -> Result<PathBuf> {
    let command = env::current_exe().context("where this command is")?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let places = [folder.join("../lib/uroce"), folder.to_owned()];
    for place in &places {
        if [VERBS, REDIRECT].iter().all(|library| place.join(library).exists()) {
            return place.canonicalize().with_context(|| format!("{}", place.display()));
        }
    }
    let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    bail!(
        "no {VERBS} with {REDIRECT} in {}; `tools/install PREFIX` puts them in place, `cargo build` makes them",
        places.join(" or ")
    )
}
