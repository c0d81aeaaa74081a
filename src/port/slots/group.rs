//! The sockets of one address, one for each slot, and the envelope that they lie in.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::sock_filter;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use socket2::Socket;

use super::Slot;
use super::room::with_room;
use crate::port::interface::scope_of;
use crate::port::sys;
use crate::port::udp::{explain, open, socket_address};
use crate::wire::UDP_PORT;

/// How many sockets.
const COUNT: usize = Slot::COUNT as usize;
/// Datagrams thrown away at most when a socket changes hands; who goes on sending must not keep it from being taken.
const STALE: usize = 4096;

/// Picks the socket by the high byte of the destination queue pair in the BTH, which is where the UDP payload begins. What is
/// too short for that, or for a slot beyond, goes to the first one, which is nobody's.
const STEER: [sock_filter; 6] = [
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 4),
    instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 0xff_ffff),
    instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 0, 0, 16),
    instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, 0, COUNT as u32),
    instruction(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
];

const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// All sockets of one address. See the [module](super).
#[derive(Debug)]
pub(super) struct Group {
    pub(super) address: IpAddr,
    /// A Unix socket in whose receive queue the sockets are, in order, as one message.
    envelope: OwnedFd,
}

impl Group {
    /// Makes the sockets of `address`.
    ///
    /// # Errors
    /// `EADDRINUSE` when somebody has its port 4791; the text says who that can be.
    pub(super) fn create(address: IpAddr) -> io::Result<Self> {
        let scope = scope_of(address)?;
        let bind = |shared: bool| {
            let socket = open(address)?;
            socket.set_reuse_port(shared)?;
            // Nobody reads it yet, so nothing may be stored in it.
            sys::attach_filter(socket.as_fd(), &[sys::DROP_ALL])?;
            socket.bind(&socket_address(address, UDP_PORT, scope).into())?;
            Ok(socket)
        };
        let explained =
            |error: io::Error| if error.kind() == io::ErrorKind::AddrInUse { explain(address, &error) } else { error };
        // A socket that does not share says whether the port is free. One that does would be let in to any other group of
        // this user, and get a place there that is not its slot's.
        let _: Socket = bind(false).map_err(|error| explain(address, &error))?;
        with_room(|| {
            let sockets = (0..COUNT).map(|_| bind(true)).collect::<io::Result<Vec<Socket>>>()?;
            if let Some(first) = sockets.first() {
                sys::attach_reuseport_filter(first.as_fd(), &STEER)?;
            }
            let kind = SocketType::SEQPACKET;
            let (envelope, hand) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
            send_descriptors(&hand, &[0], &sockets.iter().map(AsFd::as_fd).collect::<Vec<_>>())?;
            Ok(Self { address, envelope })
        })
        .map_err(explained)
    }

    /// The group of `address` in an envelope that another process gave.
    pub(super) fn given(address: IpAddr, envelope: OwnedFd) -> Self {
        Self { address, envelope }
    }

    /// The envelope, to be given to others.
    pub(super) fn envelope(&self) -> BorrowedFd<'_> {
        self.envelope.as_fd()
    }

    /// The socket of a slot, empty and without a filter of its own.
    pub(super) fn socket(&self, slot: u8) -> io::Result<Socket> {
        let socket = with_room(|| {
            let (_, mut sockets) = receive_descriptors(&self.envelope, &mut [0], RecvFlags::PEEK)?;
            if sockets.len() != COUNT {
                // It could not hold them all: the kernel leaves out what is beyond the limit.
                return Err(io::Error::from_raw_os_error(libc::EMFILE));
            }
            Ok(Socket::from(sockets.swap_remove(usize::from(slot) % COUNT)))
        })?;
        sys::attach_filter(socket.as_fd(), &[sys::DROP_ALL])?;
        let mut byte = [MaybeUninit::uninit()];
        for _ in 0..STALE {
            if socket.recv(&mut byte).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
        }
        sys::detach_filter(socket.as_fd())?;
        Ok(socket)
    }
}

/// Sends one message that carries descriptors.
pub(super) fn send_descriptors(to: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message and the descriptors that it carries; how many bytes it has.
pub(super) fn receive_descriptors(
    from: &OwnedFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(from, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}
