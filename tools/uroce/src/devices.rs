//! `uroce devices`: the devices there are, as `ibv_devices` of rdma-core lists them.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use uroce::verbs::{self, Device};

use crate::output::say;

/// List the devices: one for each network interface with an address
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Nothing is opened: other programs may use the devices meanwhile.

Examples:
  uroce devices
  uroce devices --json";

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let devices = verbs::devices()?;
    if arguments.json {
        return say!("{:#}", Value::from_iter(devices.iter().map(json)));
    }
    say!("    {:<16}\t   node GUID", "device")?;
    say!("    {:<16}\t----------------", "------")?;
    for device in &devices {
        say!("    {:<16}\t{:016x}", device.name, device.guid)?;
    }
    Ok(())
}

fn json(device: &Device) -> Value {
    json!({
        "name": device.name,
        "interface": device.interface,
        "state": device.state.to_string(),
        "node_guid": format!("{:016x}", device.guid),
    })
}
