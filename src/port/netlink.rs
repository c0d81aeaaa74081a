//! Questions to the kernel's network configuration over rtnetlink (rtnetlink(7)).

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A socket to rtnetlink, for questions or for notifications.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// A socket to ask with.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// A socket that is told of changes in the multicast groups `groups`, to be read with [`notifications`](Self::notifications).
    pub(super) fn subscribe(groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        groups.iter().try_for_each(|&group| socket.add_membership(group))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The kernel's answer to a question that has one, and its answers to one that asks for a `dump`.
    ///
    /// # Errors
    /// The kernel's own, for instance `ENOENT` for a neighbour it does not know and `ENETUNREACH` for a route it does not have.
    pub(super) fn ask(&mut self, question: RouteNetlinkMessage, dump: bool) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = if dump { NLM_F_REQUEST | NLM_F_DUMP } else { NLM_F_REQUEST };
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for message in messages(&bytes) {
                match message?.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    _ => {}
                }
            }
            if !dump && !answers.is_empty() {
                return Ok(answers);
            }
        }
    }

    /// The changes that came since the last call.
    ///
    /// # Errors
    /// `ENOBUFS` when some were lost.
    pub(super) fn notifications(&mut self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut changes = Vec::new();
        let mut room = Vec::with_capacity(NOTIFICATION_ROOM);
        loop {
            room.clear();
            match self.socket.recv(&mut room, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(error) => return Err(error),
            }
            let inner = messages(&room).filter_map(|message| match message.ok()?.payload {
                NetlinkPayload::InnerMessage(change) => Some(change),
                _ => None,
            });
            changes.extend(inner);
        }
    }
}

/// Bytes of one notification at most: the kernel allocates them in pages (`NLMSG_GOODSIZE`).
const NOTIFICATION_ROOM: usize = 8192;

impl AsRawFd for Netlink {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The messages that one datagram holds, up to the first that cannot be read.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<NetlinkMessage<RouteNetlinkMessage>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes);
        let length = message.as_ref().map_or(0, |message| message.header.length as usize);
        // Messages are padded to four bytes (`NLMSG_ALIGN`).
        bytes = bytes.get(length.next_multiple_of(4)..).filter(|_| length > 0).unwrap_or(&[]);
        Some(message.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)))
    })
}
