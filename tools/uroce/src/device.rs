//! Which device to use, and which of its addresses.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use clap::ValueEnum;
use uroce::verbs::{self, Context, Device, Mtu, OpenOptions};

/// How a device reaches the network, as options name it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Backend {
    /// UDP sockets, without privilege
    Udp,
    /// Packet sockets, which need CAP_NET_RAW
    Packet,
}

/// The name of the device to use: the one asked for, or the one whose address a TCP connection has at this end (loopback
/// addresses are all the loopback device's).
pub(crate) fn choose(asked: Option<&str>, local: SocketAddr) -> Result<String> {
    if let Some(name) = asked {
        return Ok(name.to_string());
    }
    let local = local.ip().to_canonical();
    let devices = verbs::devices()?;
    let serves =
        |device: &&Device| if local.is_loopback() { device.loopback } else { device.addresses().contains(&local) };
    match devices.iter().find(serves) {
        Some(device) => Ok(device.name.clone()),
        None => bail!("no device has the address {local}: choose one with -d ({})", names(&devices)),
    }
}

/// Makes sure that a device that was asked for exists, before anybody waits for it.
pub(crate) fn check(asked: Option<&str>) -> Result<()> {
    let Some(name) = asked else { return Ok(()) };
    let devices = verbs::devices()?;
    if devices.iter().any(|device| device.name == name) {
        return Ok(());
    }
    bail!("no such device: {name} (there are: {})", names(&devices))
}

/// The names of devices, to choose from.
pub(crate) fn names(devices: &[Device]) -> String {
    devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// How to open the device `name`.
pub(crate) fn options(name: &str, backend: Option<Backend>) -> OpenOptions {
    let options = Context::options(name);
    match backend {
        None => options,
        Some(Backend::Udp) => options.backend(verbs::Backend::Udp),
        Some(Backend::Packet) => options.backend(verbs::Backend::Packet),
    }
}

/// The index of the GID to send from: the one asked for, or the one of the address that the TCP connection has, or the first
/// of that family.
pub(crate) fn gid_index(context: &Context, asked: Option<u8>, local: SocketAddr) -> Result<u8> {
    if let Some(index) = asked {
        context.gid(index)?;
        return Ok(index);
    }
    let local = local.ip().to_canonical();
    let addresses = context.addresses();
    let same = addresses.iter().position(|address| *address == local);
    let index = same.or_else(|| addresses.iter().position(|address| address.is_ipv4() == local.is_ipv4()));
    Ok(index.and_then(|index| u8::try_from(index).ok()).unwrap_or(0))
}

/// Reads a path MTU given in bytes.
pub(crate) fn parse_mtu(text: &str) -> Result<Mtu, String> {
    text.parse().ok().and_then(Mtu::from_bytes).ok_or_else(|| "one of 256, 512, 1024, 2048, 4096".into())
}
