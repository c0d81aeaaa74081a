//! The TCP connection over which two programs get to know each other.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

/// How long a host may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to `host`, at whichever of its addresses answers first.
///
/// A host written as an IPv6 address may stand in brackets.
pub(crate) fn connect(host: &str, port: u16) -> Result<TcpStream> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let addresses = (bare, port).to_socket_addrs().with_context(|| format!("cannot find the host {host}"))?;
    let mut failure = anyhow!("it has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                failure = anyhow!("connection refused: start the server there first, or give its port with -p");
            }
            Err(error) => failure = error.into(),
        }
    }
    Err(failure.context(format!("cannot connect to {host}, TCP port {port}")))
}

/// Listens on `port` of every address, of both families where the host has both.
pub(crate) fn listen(port: u16) -> Result<TcpListener> {
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    let listener = match both {
        Err(error) if error.kind() != ErrorKind::AddrInUse => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
        other => other,
    };
    listener.with_context(|| format!("cannot listen on TCP port {port}: choose another one with -p"))
}

/// Waits for one client.
pub(crate) fn accept(listener: &TcpListener) -> Result<(TcpStream, SocketAddr)> {
    let (stream, address) = listener.accept().context("cannot accept a client")?;
    stream.set_nodelay(true)?;
    Ok((stream, address))
}
