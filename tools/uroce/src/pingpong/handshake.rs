//! What the pingpong tools of rdma-core tell each other over TCP: who they are, as text of a fixed length, and "done".

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};

use anyhow::{Result, anyhow, bail};
use uroce::verbs::{Gid, Peer, Psn, Qpn};

/// Bytes of a message: LID, QPN and PSN in 4, 6 and 6 hexadecimal digits, the GID in 32, colons between, a zero at the end.
const LENGTH: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
/// What the client says last.
const DONE: &[u8] = b"done\0";

/// Sends what the peer must know of us.
pub(super) fn tell(stream: &mut TcpStream, own: &Peer) -> Result<()> {
    let mut message = text(own).into_bytes();
    message.push(0);
    debug_assert_eq!(message.len(), LENGTH);
    Ok(stream.write_all(&message)?)
}

/// Receives what the peer says of itself.
pub(super) fn learn(stream: &mut TcpStream) -> Result<Peer> {
    let mut message = [0; LENGTH];
    stream.read_exact(&mut message).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            anyhow!("the peer closed the connection in the handshake; its own message says why")
        }
        ErrorKind::WouldBlock => anyhow!("the peer is silent: it does not speak the handshake of ibv_rc_pingpong"),
        _ => error.into(),
    })?;
    parse(&message).ok_or_else(|| {
        let start: String =
            message.iter().take(20).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
        anyhow!("the peer does not speak the handshake of ibv_rc_pingpong: it says \"{start}...\"")
    })
}

/// Queue pairs that the tool with a shared receive queue knows of, whether they are used or not.
pub(super) const PLACES: usize = 256;

/// Sends what the peer must know of each of our queue pairs; the places that are left are zeros.
pub(super) fn tell_all(stream: &mut TcpStream, own: &[Peer]) -> Result<()> {
    let nobody = "0000:000000:000000:00000000000000000000000000000000";
    let mut message = Vec::with_capacity(PLACES * LENGTH);
    for place in 0..PLACES {
        message.extend_from_slice(own.get(place).map_or_else(|| nobody.to_owned(), text).as_bytes());
        message.push(0);
    }
    Ok(stream.write_all(&message)?)
}

/// Receives what the peer says of its queue pairs, and keeps the first `count`.
pub(super) fn learn_all(stream: &mut TcpStream, count: usize) -> Result<Vec<Peer>> {
    let mut peers = Vec::with_capacity(PLACES);
    for _ in 0..PLACES {
        peers.push(learn(stream)?);
    }
    peers.truncate(count);
    let used = peers.iter().take_while(|peer| peer.qpn.value() > 0).count();
    if used < count {
        bail!("the peer has {used} queue pairs, we have {count}: give both ends the same with -q");
    }
    Ok(peers)
}

/// The client is ready.
pub(super) fn finish(stream: &mut TcpStream) -> Result<()> {
    Ok(stream.write_all(DONE)?)
}

/// Waits until the client is ready.
pub(super) fn await_finish(stream: &mut TcpStream) -> Result<()> {
    let mut done = [0; DONE.len()];
    match stream.read_exact(&mut done) {
        Ok(()) => Ok(()),
        Err(error) => bail!("the peer broke off the handshake: {error}"),
    }
}

/// A peer as the tools print it.
pub(super) struct Address(pub(super) Peer);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Peer { address, qpn, psn } = self.0;
        let gid = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        write!(f, "LID 0x0000, QPN 0x{:06x}, PSN 0x{:06x}, GID {gid}", qpn.value(), psn.value())
    }
}

fn text(peer: &Peer) -> String {
    let gid: String = peer.gid().0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0000:{:06x}:{:06x}:{gid}", peer.qpn.value(), peer.psn.value())
}

fn parse(message: &[u8; LENGTH]) -> Option<Peer> {
    let text = std::str::from_utf8(message).ok()?.trim_end_matches('\0');
    let mut fields = text.split(':');
    // Ethernet has no LID.
    u16::from_str_radix(fields.next()?, 16).ok()?;
    let number = |field: &str| u32::from_str_radix(field, 16).ok().filter(|number| *number < Psn::SPACE);
    let (qpn, psn) = (number(fields.next()?)?, number(fields.next()?)?);
    let gid = fields.next().filter(|gid| gid.len() == 32 && fields.next().is_none())?;
    let gid = Gid(u128::from_str_radix(gid, 16).ok()?.to_be_bytes());
    Some(Peer { address: gid.address(), qpn: Qpn::new(qpn), psn: Psn::new(psn) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> [u8; LENGTH] {
        let mut message = [0; LENGTH];
        message[..text.len()].copy_from_slice(text.as_bytes());
        message
    }

    #[test]
    fn a_peer_is_told_as_the_kernels_tool_tells_it() {
        let peer = Peer { address: "10.99.0.2".parse().unwrap(), qpn: Qpn::new(17), psn: Psn::new(0xab_cdef) };
        assert_eq!(text(&peer), "0000:000011:abcdef:00000000000000000000ffff0a630002");
        assert_eq!(parse(&message(&text(&peer))), Some(peer));
        assert_eq!(Address(peer).to_string(), "LID 0x0000, QPN 0x000011, PSN 0xabcdef, GID ::ffff:10.99.0.2");
    }

    #[test]
    fn what_another_program_says_is_refused() {
        for text in [
            "",
            "SSH-2.0-OpenSSH",
            "0000:000011:abcdef:00000000000000000000ffff0a63000",
            "0000:000011:abcdef:00000000000000000000ffff0a63000g",
            "0000:1000011:abcde:00000000000000000000ffff0a630002",
        ] {
            assert_eq!(parse(&message(text)), None, "{text}");
        }
    }
}
