//! `uroce perf`: bandwidth and latency between two ends, as perftest measures and prints them.
//!
//! The client has the options; it tells the server over TCP ([`control`]) what to do ([`plan`]). Both make a [`session`], and
//! run [`bandwidth`] or [`latency`] for each size, or the same with plain [`sockets`].

mod bandwidth;
mod client;
mod completions;
mod control;
mod latency;
mod options;
mod plan;
mod server;
mod session;
mod sockets;
mod table;

use std::net::TcpStream;

use anyhow::Result;

pub(crate) use self::client::{Client, Outcome, Place};
pub(crate) use self::options::Arguments;
pub(crate) use self::plan::{Amount, Measure, Operation, Plan};
pub(crate) use self::table::Summary;

use crate::output::say;
use crate::{device, net};

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    device::check(arguments.device.as_deref())?;
    let place = Place { device: arguments.device.clone(), gid_index: arguments.gid_index, backend: arguments.backend };
    match &arguments.server {
        Some(host) => run_client(arguments, host, &place),
        None => run_server(arguments, &place),
    }
}

/// Serves the client at the other end of `stream`, with the device that it comes to, until it goes.
pub(crate) fn serve(stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    server::serve(stream, &Place::default()).map(|_| ())
}

fn run_client(arguments: &Arguments, host: &str, place: &Place) -> Result<()> {
    let plan = arguments.plan()?;
    let mut client = Client::open(net::connect(host, arguments.port)?, plan.clone(), place)?;
    let setting = client.setting()?;
    let tables = !arguments.json;
    if tables {
        table::print_heading(&plan, setting.as_ref(), arguments.report_gbits)?;
    }
    let mut rows = Vec::new();
    for size in client.sizes() {
        let row = client.measure(size)?;
        if tables {
            table::print_row(&plan, &row, arguments.report_gbits)?;
        }
        rows.push(row);
    }
    let counters = client.counters();
    if tables {
        table::print_end(counters.as_ref(), arguments.counters)?;
    } else {
        say!("{:#}", table::json(&plan, setting.as_ref(), &rows, counters.as_ref()))?;
    }
    Ok(())
}

fn run_server(arguments: &Arguments, place: &Place) -> Result<()> {
    let listener = net::listen(arguments.port)?;
    if !arguments.json {
        say!("Waiting for a client on TCP port {} ...", listener.local_addr()?.port())?;
    }
    let (stream, _) = net::accept(&listener)?;
    let served = server::serve(stream, place)?;
    if !arguments.json {
        let (operation, measure) = (served.plan.operation.title(), served.plan.measure);
        say!(
            "Served {}: {operation} {measure:?}, {} sizes",
            served.client.ip().to_canonical(),
            served.plan.sizes.len()
        )?;
    }
    Ok(())
}
