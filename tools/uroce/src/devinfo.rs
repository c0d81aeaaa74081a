//! `uroce devinfo`: what the devices can do, as `ibv_devinfo` of rdma-core prints it.

use std::net::IpAddr;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use uroce::verbs::{self, Device, DeviceAttributes, LinkState, Mtu, PortAttributes};

use crate::device;
use crate::output::say;

/// Show what the devices can do
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Only this device
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    device: Option<String>,
    /// Only this port; there is only port 1
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", value_parser = clap::value_parser!(u8).range(1..=1))]
    _port: Option<u8>,
    /// Only the names
    #[arg(short, long)]
    list: bool,
    /// Everything: limits, and the GIDs with their indexes
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON, which always has everything
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Nothing is opened: other programs may use the devices meanwhile.

Examples:
  uroce devinfo
  uroce devinfo -d uroce_lo -v
  uroce devinfo --json";

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    device::check(arguments.device.as_deref())?;
    let mut devices = verbs::devices()?;
    devices.retain(|device| arguments.device.as_ref().is_none_or(|name| device.name == *name));
    if arguments.json {
        return say!("{:#}", Value::from_iter(devices.iter().map(json)));
    }
    if devices.is_empty() {
        bail!("no devices: no network interface has an address");
    }
    if arguments.list {
        return print_names(&devices);
    }
    for device in &devices {
        print(device, arguments.verbose)?;
    }
    Ok(())
}

fn print_names(devices: &[Device]) -> Result<()> {
    let plural = if devices.len() == 1 { "" } else { "s" };
    say!("{} HCA{plural} found:", devices.len())?;
    for device in devices {
        say!("\t{}", device.name)?;
    }
    say!("")
}

fn print(device: &Device, verbose: bool) -> Result<()> {
    let guid = guid(device.guid);
    say!("hca_id:\t{}", device.name)?;
    for (label, value) in [
        ("transport:\t\t\t", "InfiniBand (0)"),
        ("fw_ver:\t\t\t\t", env!("CARGO_PKG_VERSION")),
        ("node_guid:\t\t\t", &guid),
        ("sys_image_guid:\t\t\t", &guid),
        // What the kernel's rxe says, being no one's product either.
        ("vendor_id:\t\t\t", "0xffffff"),
        ("vendor_part_id:\t\t\t", "0"),
        ("hw_ver:\t\t\t\t", "0x0"),
        ("phys_port_cnt:\t\t\t", "1"),
    ] {
        say!("\t{label}{value}")?;
    }
    if verbose {
        print_limits(&device.attributes())?;
    }
    print_port(device, verbose)?;
    say!("")
}

fn print_limits(attributes: &DeviceAttributes) -> Result<()> {
    for (label, value) in [
        ("max_mr_size:\t\t\t", format!("{:#x}", attributes.max_mr_size)),
        ("max_qp:\t\t\t\t", attributes.max_qp.to_string()),
        ("max_qp_wr:\t\t\t", attributes.max_qp_wr.to_string()),
        ("max_sge:\t\t\t", attributes.max_sge.to_string()),
        ("max_sge_rd:\t\t\t", attributes.max_sge.to_string()),
        ("max_cq:\t\t\t\t", attributes.max_cq.to_string()),
        ("max_cqe:\t\t\t", attributes.max_cqe.to_string()),
        ("max_mr:\t\t\t\t", attributes.max_mr.to_string()),
        ("max_pd:\t\t\t\t", attributes.max_pd.to_string()),
        ("max_qp_rd_atom:\t\t\t", attributes.max_qp_rd_atomic.to_string()),
        ("max_qp_init_rd_atom:\t\t", attributes.max_qp_rd_atomic.to_string()),
        ("atomic_cap:\t\t\t", "ATOMIC_HCA (1)".into()),
        ("max_inline_data:\t\t", attributes.max_inline.to_string()),
        ("max_pkeys:\t\t\t", attributes.max_pkeys.to_string()),
        ("local_ca_ack_delay:\t\t", attributes.local_ca_ack_delay.to_string()),
    ] {
        say!("\t{label}{value}")?;
    }
    Ok(())
}

fn print_port(device: &Device, verbose: bool) -> Result<()> {
    let port = device.port_attributes();
    say!("\t\tport:\t1")?;
    say!("\t\t\tstate:\t\t\t{}", state(port.state))?;
    say!("\t\t\tmax_mtu:\t\t{}", mtu(port.max_mtu))?;
    say!("\t\t\tactive_mtu:\t\t{}", mtu(port.active_mtu))?;
    // Ethernet has no subnet manager and no local identifiers.
    say!("\t\t\tsm_lid:\t\t\t0\n\t\t\tport_lid:\t\t0\n\t\t\tport_lmc:\t\t0x00")?;
    say!("\t\t\tlink_layer:\t\tEthernet")?;
    if verbose {
        say!("\t\t\tmax_msg_sz:\t\t{:#x}", port.max_message_size)?;
        say!("\t\t\tpkey_tbl_len:\t\t1\n\t\t\tgid_tbl_len:\t\t{}", port.gid_count)?;
        say!("\t\t\tphys_state:\t\t{}", physical_state(port.state))?;
        for (index, address) in device.addresses().into_iter().enumerate() {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            say!("\t\t\tGID[{index:3}]:\t\t{address}, RoCE v2")?;
        }
    }
    Ok(())
}

fn guid(guid: u64) -> String {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| guid >> shift & 0xffff);
    format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")
}

fn state(state: LinkState) -> &'static str {
    match state {
        LinkState::Active => "PORT_ACTIVE (4)",
        LinkState::Down | LinkState::NoCarrier => "PORT_DOWN (1)",
    }
}

fn physical_state(state: LinkState) -> &'static str {
    match state {
        LinkState::Active => "LINK_UP (5)",
        LinkState::NoCarrier => "POLLING (2)",
        LinkState::Down => "DISABLED (3)",
    }
}

/// A path MTU with its number in `enum ibv_mtu`.
fn mtu(mtu: Mtu) -> String {
    let number = 1 + Mtu::ALL.iter().take_while(|smaller| **smaller < mtu).count();
    format!("{} ({number})", mtu.bytes())
}

fn json(device: &Device) -> Value {
    let DeviceAttributes { max_mr_size, max_qp, max_qp_wr, max_sge, max_inline, max_cq, max_cqe, .. } =
        device.attributes();
    let DeviceAttributes { max_mr, max_pd, max_qp_rd_atomic, local_ca_ack_delay, max_pkeys, .. } = device.attributes();
    let PortAttributes { state, max_mtu, active_mtu, link_mtu, max_message_size, pkey, .. } = device.port_attributes();
    json!({
        "name": device.name,
        "interface": device.interface,
        "node_guid": format!("{:016x}", device.guid),
        "limits": {
            "max_mr_size": max_mr_size, "max_qp": max_qp, "max_qp_wr": max_qp_wr, "max_sge": max_sge,
            "max_inline": max_inline, "max_cq": max_cq, "max_cqe": max_cqe, "max_mr": max_mr, "max_pd": max_pd,
            "max_qp_rd_atomic": max_qp_rd_atomic, "local_ca_ack_delay": local_ca_ack_delay, "max_pkeys": max_pkeys,
        },
        "ports": [{
            "state": state.to_string(), "max_mtu": max_mtu.bytes(), "active_mtu": active_mtu.bytes(),
            "link_mtu": link_mtu, "max_message_size": max_message_size, "pkey": pkey,
            "gids": device.addresses(),
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_ibverbs() {
        assert_eq!(Mtu::ALL.map(mtu), ["256 (1)", "512 (2)", "1024 (3)", "2048 (4)", "4096 (5)"]);
        assert_eq!(guid(0x5054_00ff_fe99_0002), "5054:00ff:fe99:0002");
    }
}
