//! What the environment asks of the library; `uroce run` sets it.

use std::env;
use std::path::PathBuf;
use std::sync::OnceLock;

use uroce::verbs::Backend;

use crate::edge::{Failure, Result};

/// The names of the devices to show, from `UROCE_DEVICE`; `None`: all.
pub(crate) fn devices() -> Option<Vec<String>> {
    let names = env::var("UROCE_DEVICE").ok().filter(|names| !names.is_empty())?;
    Some(names.split(',').map(|name| name.trim().to_owned()).collect())
}

/// The port that contexts are opened on, from `UROCE_PORT`; `None`: the device's own.
///
/// # Errors
/// EINVAL for a port that there is not.
pub(crate) fn backend() -> Result<Option<Backend>> {
    match env::var("UROCE_PORT").as_deref() {
        Err(_) | Ok("") => Ok(None),
        Ok("udp") => Ok(Some(Backend::Udp)),
        Ok("packet") => Ok(Some(Backend::Packet)),
        Ok(other) => Err(Failure::invalid(format!("UROCE_PORT is {other:?}; udp and packet are the ports there are"))),
    }
}

/// The file that packets are recorded in, from `UROCE_PCAP`, in which `%p` stands for the process. The second context of a
/// process gets a name of its own.
pub(crate) fn capture() -> Option<PathBuf> {
    static OPENED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let name = env::var("UROCE_PCAP").ok().filter(|name| !name.is_empty())?;
    let mut name = name.replace("%p", &std::process::id().to_string());
    let before = OPENED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    if before > 0 {
        name = format!("{name}.{before}");
    }
    Some(name.into())
}

/// Whether verbs are traced to standard error (`UROCE_TRACE`).
pub(crate) fn traces() -> bool {
    static TRACES: OnceLock<bool> = OnceLock::new();
    *TRACES.get_or_init(|| env::var_os("UROCE_TRACE").is_some_and(|value| !value.is_empty() && value != "0"))
}
