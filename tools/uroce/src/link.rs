//! `uroce link`: devices with names of one's own, as `rdma link` of iproute2 makes them for the kernel's rxe.

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use uroce::verbs::links::{self, Link};
use uroce::verbs::{self, LinkState};

use crate::device;
use crate::output::say;

/// Add, delete and show devices with names of your own
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a device on a network interface: NAME netdev INTERFACE [backend udp|packet] [mtu BYTES]
    #[command(after_help = ADD_EXAMPLES)]
    Add {
        /// The device's name
        name: String,
        /// `netdev INTERFACE`, and where wanted `backend udp|packet` and `mtu BYTES` (the largest path MTU). `type rxe` may
        /// stand here, too
        #[arg(required = true, value_name = "OPTION VALUE")]
        options: Vec<String>,
    },
    /// Delete a device that was added; its interface has its usual one again
    #[command(visible_alias = "del")]
    Delete {
        /// The device's name
        name: String,
    },
    /// Show all devices, or one
    #[command(visible_aliases = ["list", "ls"])]
    Show {
        /// The device's name
        name: Option<String>,
    },
}

const EXAMPLES: &str = "\
Links are kept in $XDG_CONFIG_HOME/uroce/links.toml (~/.config/uroce/links.toml), or in the file that UROCE_CONFIG names.

Examples:
  uroce link add rxe_0 netdev eth0
  uroce link add rxe_1 type rxe netdev eth1 mtu 1024
  uroce link show
  uroce link delete rxe_0";

const ADD_EXAMPLES: &str = "\
Examples:
  uroce link add rxe_0 netdev eth0
  uroce link add rxe_0 type rxe netdev eth0 backend packet mtu 1024";

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Some(Command::Add { name, options }) => Ok(links::add(link(name, options)?)?),
        Some(Command::Delete { name }) => Ok(links::delete(name)?),
        Some(Command::Show { name }) => show(name.as_deref()),
        None => show(None),
    }
}

/// Reads options as iproute2 has them: a word and its value.
fn link(name: &str, options: &[String]) -> Result<Link> {
    let mut link = Link::new(name, "");
    for pair in options.chunks(2) {
        let [option, value] = pair else {
            bail!("{}: a value is missing behind it", pair.concat());
        };
        match (option.as_str(), value.as_str()) {
            ("netdev", interface) => link.netdev = interface.into(),
            ("type", "rxe" | "uroce") => {}
            ("type", other) => bail!("type {other}: rxe and uroce mean the same here, and there is no other"),
            ("backend", "udp") => link.backend = verbs::Backend::Udp,
            ("backend", "packet") => link.backend = verbs::Backend::Packet,
            ("backend", other) => bail!("backend {other}: udp and packet are possible"),
            ("mtu", bytes) => link.mtu = Some(bytes.parse().with_context(|| format!("mtu {bytes}"))?),
            (other, _) => bail!("{other}: netdev, type, backend and mtu are possible"),
        }
    }
    if link.netdev.is_empty() {
        bail!("netdev is missing: uroce link add {name} netdev INTERFACE");
    }
    Ok(link)
}

fn show(name: Option<&str>) -> Result<()> {
    // The kernel's tool takes the port, too.
    let name = name.map(|name| name.strip_suffix("/1").unwrap_or(name));
    let wanted = |device: &str| name.is_none_or(|name| name == device);
    let (devices, mut shown) = (verbs::devices()?, false);
    for device in devices.iter().filter(|device| wanted(&device.name)) {
        let (state, physical) = match device.state {
            LinkState::Active => ("ACTIVE", "LINK_UP"),
            LinkState::NoCarrier => ("DOWN", "POLLING"),
            LinkState::Down => ("DOWN", "DISABLED"),
        };
        say!("link {}/1 state {state} physical_state {physical} netdev {} ", device.name, device.interface)?;
        shown = true;
    }
    // A link whose interface has gone is no device, but it can come back, or be deleted.
    let lost = |link: &&Link| wanted(&link.name) && !devices.iter().any(|device| device.name == link.name);
    for link in links::list()?.iter().filter(lost) {
        say!("link {}/1 state DOWN physical_state DISABLED netdev {} ", link.name, link.netdev)?;
        shown = true;
    }
    match name {
        Some(name) if !shown => device::check(Some(name)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Link> {
        link("rxe_0", &line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_as_iproute2_reads_them() {
        let expected = Link { backend: verbs::Backend::Packet, mtu: Some(1024), ..Link::new("rxe_0", "eth0") };
        assert_eq!(read("type rxe netdev eth0 backend packet mtu 1024").unwrap(), expected);
        assert_eq!(read("netdev eth0").unwrap(), Link::new("rxe_0", "eth0"));
        for (line, word) in [
            ("type rxe", "netdev is missing"),
            ("netdev", "a value is missing"),
            ("type siw netdev eth0", "siw"),
            ("netdev eth0 colour red", "colour"),
            ("netdev eth0 mtu big", "mtu big"),
            ("netdev eth0 backend xdp", "xdp"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
