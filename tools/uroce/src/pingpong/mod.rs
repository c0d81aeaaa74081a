//! `uroce pingpong`: two ends send each other messages in turn. Either end can be `ibv_rc_pingpong`, `ibv_uc_pingpong`,
//! `ibv_ud_pingpong` or `ibv_srq_pingpong` of rdma-core, on the kernel's rxe or on a network card.

mod exchange;
mod handshake;
mod inbox;
mod srq;

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use uroce::verbs::{ConnectOptions, Context, Mtu, Peer, random_psn};

use self::exchange::{End, Report};
use self::handshake::Address;
use crate::output::say;
use crate::{device, net};

/// Exchange messages in turn with a peer that runs this command, or ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The service, rc by default (srq: several rc connections on a shared receive queue), and the host of the server; without
    /// a host, be the server
    #[arg(value_name = "rc | uc | ud | srq | HOST", num_args = 0..=2)]
    words: Vec<String>,
    /// TCP port over which both ends get to know each other
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Device; by default the one whose address the TCP connection uses
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    device: Option<String>,
    /// Port of the device; there is only port 1
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=1), hide = true)]
    ib_port: u8,
    /// Index of the GID to use; by default that of the TCP connection's address
    #[arg(short = 'g', long = "gid-idx", value_name = "INDEX")]
    gid_index: Option<u8>,
    /// Path MTU in bytes
    #[arg(short, long, default_value = "1024", value_parser = device::parse_mtu)]
    mtu: Mtu,
    /// Receive requests to have posted
    #[arg(short, long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    rx_depth: u32,
    /// Messages that each end sends
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
    /// Connections (srq only); both ends must have the same number
    #[arg(short = 'q', long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=handshake::PLACES as i64))]
    num_qp: u32,
    /// Bytes of a message; 4096 by default, 1024 with ud, whose messages are one packet
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(..=1 << 30))]
    size: Option<u32>,
    /// Sleep until a completion comes, instead of polling
    #[arg(short, long)]
    events: bool,
    /// Check what was received (the server does)
    #[arg(short, long)]
    chk: bool,
    /// Service level; Ethernet has none, so it is accepted and ignored
    #[arg(short = 'l', long, default_value_t = 0)]
    sl: u8,
    /// How to reach the network
    #[arg(long, value_name = "BACKEND")]
    backend: Option<device::Backend>,
}

const EXAMPLES: &str = "\
Examples:
  uroce pingpong                           be the server; the client says which device it comes to
  uroce pingpong 192.0.2.1                 be the client of a server on 192.0.2.1
  uroce pingpong ud 192.0.2.1              datagrams; nothing makes up for one that is lost
  uroce pingpong srq -q 4 192.0.2.1        four connections on a shared receive queue
  ibv_rc_pingpong -d rxe0 -g 1             the server may also be the kernel's
  uroce pingpong -d uroce_eth0 -g 1 -s 65536 -n 100 -c 192.0.2.1";

/// Services that the peers' tools know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Service {
    Rc,
    Uc,
    Ud,
    Srq,
}

impl Service {
    /// Bytes of a message: as the peers' tools have it, when nothing else is asked for (ud: whatever its help says).
    fn size(self, arguments: &Arguments) -> u32 {
        arguments.size.unwrap_or(if self == Self::Ud { 1024 } else { 4096 })
    }
}

/// How long a peer may take to answer in the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    device::check(arguments.device.as_deref())?;
    let (service, server) = service_and_server(&arguments.words)?;
    let stream = match server {
        Some(host) => net::connect(host, arguments.port)?,
        None => net::accept(&net::listen(arguments.port)?)?.0,
    };
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    let local = stream.local_addr()?;
    let name = device::choose(arguments.device.as_deref(), local)?;
    let context = device::options(&name, arguments.backend).open()?;
    let index = device::gid_index(&context, arguments.gid_index, local)?;
    if service == Service::Srq {
        return srq::run(stream, &context, index, arguments, server.is_some());
    }
    let mut end = End::new(&context, service, arguments, server.is_some())?;
    let own = end.qp().local(random_psn()).at(context.address(index)?);
    say!("  local address:  {}", Address(own))?;
    connect(stream, &context, &mut end, own, index, arguments, server.is_some())?;
    let report = end.exchange(arguments.iters)?;
    print(&report, service.size(arguments), arguments.iters)?;
    if arguments.chk && server.is_none() {
        end.check()?;
    }
    Ok(())
}

/// The service and the host among the positional arguments.
fn service_and_server(words: &[String]) -> Result<(Service, Option<&str>)> {
    let (service, rest) = match words {
        [first, rest @ ..] => match Service::from_str(first, true) {
            Ok(service) => (service, rest),
            Err(_) => (Service::Rc, words),
        },
        [] => (Service::Rc, words),
    };
    match rest {
        [] => Ok((service, None)),
        [host] => Ok((service, Some(host))),
        [_, extra, ..] => bail!("{extra}: one host is enough"),
    }
}

/// Tells the peer of us, learns of it, and connects the queue pair; in the order of the kernel's tool, whose server is
/// ready to receive before it answers, so that the client may send at once.
fn connect(
    mut stream: TcpStream,
    context: &Context,
    end: &mut End,
    own: Peer,
    index: u8,
    arguments: &Arguments,
    client: bool,
) -> Result<()> {
    let options = options(arguments, index);
    let mut ready = |peer: &Peer| end.connect(own.psn, peer, &options).with_context(|| refusal(context, peer, index));
    let peer = if client {
        handshake::tell(&mut stream, &own)?;
        let peer = handshake::learn(&mut stream)?;
        handshake::finish(&mut stream)?;
        ready(&peer)?;
        peer
    } else {
        let peer = handshake::learn(&mut stream)?;
        ready(&peer)?;
        handshake::tell(&mut stream, &own)?;
        handshake::await_finish(&mut stream)?;
        peer
    };
    say!("  remote address: {}", Address(peer))?;
    Ok(())
}

/// How a queue pair is connected.
fn options(arguments: &Arguments, index: u8) -> ConnectOptions {
    ConnectOptions {
        path_mtu: Some(arguments.mtu),
        source_gid_index: Some(index),
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        ..ConnectOptions::default()
    }
}

/// What is said when it cannot be.
fn refusal(context: &Context, peer: &Peer, index: u8) -> String {
    let device = context.device();
    format!(
        "{} cannot be connected to {} (GID index {index}, its largest path MTU is {})",
        device.name,
        peer.address,
        device.mtu.bytes()
    )
}

/// Prints what came out, as the kernel's tool does.
fn print(report: &Report, size: u32, iters: u64) -> Result<()> {
    let seconds = report.elapsed.as_secs_f64();
    // Both ways.
    let bytes = u64::from(size) * iters * 2;
    say!("{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec", bytes as f64 * 8.0 / 1e6 / seconds)?;
    say!("{iters} iters in {seconds:.2} seconds = {:.2} usec/iter", seconds * 1e6 / iters as f64)
}
