//! The system calls that no safe crate offers in the shape a port needs: batches of datagrams with control messages.
//!
//! Everything unsafe of the ports stands here. The functions take borrowed descriptors and slices and keep no pointer
//! after they return, so a caller cannot misuse them: the worst is an `io::Error`.
#![allow(unsafe_code)]

use std::io;
use std::mem::{self, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, c_void, iovec, mmsghdr, msghdr, socklen_t};

use super::message::{Address, Control, Incoming, Outgoing};

/// The most messages that one call of [`send_batch`] hands to the kernel.
pub(super) const SEND_BATCH: usize = 16;
/// The most messages that one call of [`ReceiveBatch::receive`] takes.
pub(super) const RECEIVE_BATCH: usize = 32;
/// `UDP_NO_CHECK6_RX` (`include/uapi/linux/udp.h`): accept IPv6 datagrams that have no UDP checksum.
pub(super) const UDP_NO_CHECK6_RX: c_int = 102;
/// `PACKET_VNET_HDR` (`include/uapi/linux/if_packet.h`): frames have a header that says how to offload.
pub(super) const PACKET_VNET_HDR: c_int = 15;
/// A BPF program of one instruction: keep nothing of any datagram.
pub(super) const DROP_ALL: libc::sock_filter =
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
/// Sets an integer socket option (`setsockopt(2)`).
///
/// # Errors
/// What the kernel says: `ENOPROTOOPT` when it is too old to know the option.
pub(super) fn set_option(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<c_int>() bytes at the pointer, which is that of a live c_int.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast::<c_void>(),
            size_of::<c_int>() as socklen_t,
        )
    };
    check(result).map(drop)
}

/// Reads a socket option that is `N` words long (`getsockopt(2)`).
///
/// # Errors
/// What the kernel says; `EINVAL` when the option is shorter.
pub(super) fn option_words<const N: usize>(fd: &impl AsFd, level: c_int, name: c_int) -> io::Result<[u32; N]> {
    let mut words = [0; N];
    let mut length = size_of::<[u32; N]>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the array that the pointer is of, and the length it wrote.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            words.as_mut_ptr().cast::<c_void>(),
            ptr::from_mut(&mut length),
        )
    };
    check(result)?;
    if (length as usize) < size_of::<[u32; N]>() { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(words) }
}

/// Makes both buffers of a socket as large as the kernel allows, up to `size` bytes each: up to `net.core.rmem_max` and `wmem_max`,
/// or all of it for the privileged. What the kernel refuses stays as it is.
pub(super) fn grow_buffers(fd: BorrowedFd<'_>, size: c_int) {
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set_option(fd, libc::SOL_SOCKET, force, size).is_err() {
            let _ = set_option(fd, libc::SOL_SOCKET, plain, size);
        }
    }
}

/// Binds a packet socket to an interface, to receive frames of every protocol (packet(7)).
///
/// # Errors
/// `ENETDOWN` when the interface is down, `ENODEV` when it is gone.
pub(super) fn bind_packet(fd: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: c_int::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the kernel reads the sockaddr_ll, which lives through the call, and no more than its size.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            ptr::from_ref(&address).cast::<libc::sockaddr>(),
            size_of::<libc::sockaddr_ll>() as socklen_t,
        )
    };
    check(result).map(drop)
}

/// Attaches a classic BPF program, which decides how many bytes of each arriving datagram the socket keeps.
///
/// # Errors
/// `EINVAL` for a program that the kernel does not accept, `ENOMEM` when it exceeds `optmem_max`.
pub(super) fn attach_filter(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_FILTER, program)
}

/// Attaches a classic BPF program that picks the socket for each datagram that arrives for a group of `SO_REUSEPORT` sockets, of
/// which `fd` is one: it returns the place of the socket, and reads the UDP payload.
///
/// # Errors
/// As [`attach_filter`].
pub(super) fn attach_reuseport_filter(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Takes off what [`attach_filter`] attached.
///
/// # Errors
/// `ENOENT` when there is nothing to take off.
pub(super) fn detach_filter(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
}

fn attach(fd: BorrowedFd<'_>, option: c_int, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads a sock_fprog and the `len` instructions it points to, and copies them; both live through
    // the call, and the kernel does not write to them (the type lacks const).
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            ptr::from_ref(&program).cast::<c_void>(),
            size_of::<libc::sock_fprog>() as socklen_t,
        )
    };
    check(result).map(drop)
}

/// Waits until one of `readable` can be read or one of `writable` written, or `timeout` passes (`None`: for ever).
/// Returns whether any became ready.
///
/// # Errors
/// Those of `ppoll(2)`, EINTR among them.
pub(super) fn poll(readable: &[RawFd], writable: &[RawFd], timeout: Option<Duration>) -> io::Result<bool> {
    let entry = |events| move |&fd: &RawFd| libc::pollfd { fd, events, revents: 0 };
    let mut entries: Vec<_> =
        readable.iter().map(entry(libc::POLLIN)).chain(writable.iter().map(entry(libc::POLLOUT))).collect();
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    });
    // SAFETY: the kernel reads and writes `entries.len()` pollfds and reads the timespec (or is given none); a null
    // signal mask leaves the mask as it is. A descriptor that is not open is reported in revents.
    let result = unsafe {
        libc::ppoll(
            entries.as_mut_ptr(),
            entries.len() as libc::nfds_t,
            timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
            ptr::null(),
        )
    };
    check(result).map(|ready| ready > 0)
}

/// Sends up to [`SEND_BATCH`] messages in one call of `sendmmsg(2)`, without waiting; returns how many the kernel took.
/// When it took less than all, the next call tells why.
///
/// # Errors
/// What the kernel says of the first message.
pub(super) fn send_batch(fd: BorrowedFd<'_>, messages: &[Outgoing<'_>]) -> io::Result<usize> {
    let count = messages.len().min(SEND_BATCH);
    let mut addresses = [Address::NONE; SEND_BATCH];
    let mut vectors = [[vector(&[]); 2]; SEND_BATCH];
    let mut controls = [Control::EMPTY; SEND_BATCH];
    let mut headers = [empty_header(); SEND_BATCH];
    let slots = addresses.iter_mut().zip(&mut vectors).zip(&mut controls).zip(&mut headers);
    for (message, (((address, vectors), control), header)) in messages.iter().zip(slots) {
        *vectors = [vector(message.header), vector(message.bytes)];
        header.msg_hdr.msg_iov = vectors.as_mut_ptr();
        header.msg_hdr.msg_iovlen = vectors.len() as _;
        if let Some(destination) = message.destination {
            *address = destination;
            (header.msg_hdr.msg_name, header.msg_hdr.msg_namelen) =
                (address.bytes_mut().as_mut_ptr().cast(), destination.length());
        }
        let used = control.fill(message);
        if used > 0 {
            header.msg_hdr.msg_control = control.bytes_mut().as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = used as _;
        }
    }
    // SAFETY: the first `count` headers point to an address, vectors and control bytes in arrays that live through the
    // call; the vectors point to the messages' headers and bytes, which are borrowed through it and which sending only reads.
    let result = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count as _, libc::MSG_DONTWAIT as _) };
    check(result).map(|sent| usize::try_from(sent).unwrap_or(0))
}

/// Buffers that one `recvmmsg(2)` fills.
pub(super) struct ReceiveBatch {
    buffers: Box<[u8]>,
    addresses: [Address; RECEIVE_BATCH],
    controls: Box<[Control; RECEIVE_BATCH]>,
    results: [MessageLength; RECEIVE_BATCH],
}

/// What the kernel told about a message's lengths.
#[derive(Clone, Copy, Default)]
struct MessageLength {
    bytes: usize,
    control: usize,
    truncated: bool,
}

impl ReceiveBatch {
    /// Bytes of each buffer: the longest IP packet, or super-packet, with the headers that a packet socket puts in front.
    const BUFFER_LEN: usize = (64 << 10) + 128;

    /// Buffers for [`RECEIVE_BATCH`] messages. Their memory is touched, and so taken, only as far as messages fill it.
    pub(super) fn new() -> Self {
        Self {
            buffers: vec![0; RECEIVE_BATCH * Self::BUFFER_LEN].into_boxed_slice(),
            addresses: [Address::NONE; RECEIVE_BATCH],
            controls: Box::new([Control::EMPTY; RECEIVE_BATCH]),
            results: [MessageLength::default(); RECEIVE_BATCH],
        }
    }

    /// Receives up to `limit` messages without waiting; returns how many. Zero: nothing is there.
    ///
    /// # Errors
    /// What the kernel says, other than `EAGAIN` and `EINTR`.
    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, limit: usize) -> io::Result<usize> {
        let limit = limit.min(RECEIVE_BATCH);
        let mut vectors = [iovec { iov_base: ptr::null_mut(), iov_len: 0 }; RECEIVE_BATCH];
        let mut headers = [empty_header(); RECEIVE_BATCH];
        let buffers = self.buffers.chunks_exact_mut(Self::BUFFER_LEN);
        let stores = buffers.zip(&mut self.addresses).zip(self.controls.iter_mut());
        for (((buffer, address), control), (vector, header)) in
            stores.zip(vectors.iter_mut().zip(&mut headers)).take(limit)
        {
            *vector = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            *address = Address::NONE;
            header.msg_hdr = msghdr {
                msg_name: address.bytes_mut().as_mut_ptr().cast(),
                msg_namelen: address.bytes_mut().len() as socklen_t,
                msg_iov: vector,
                msg_iovlen: 1,
                msg_control: control.bytes_mut().as_mut_ptr().cast(),
                msg_controllen: control.bytes_mut().len() as _,
                ..header.msg_hdr
            };
        }
        // SAFETY: the first `limit` headers point to a vector, an address and control bytes of the lengths they name, all
        // of which live through the call and are borrowed by nobody else; the vectors point to distinct buffers. A null
        // timeout means none.
        let result = unsafe {
            libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), limit as _, libc::MSG_DONTWAIT as _, ptr::null_mut())
        };
        let count = match check(result) {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(error) => return Err(error),
        };
        for (result, header) in self.results.iter_mut().zip(&headers).take(count) {
            *result = MessageLength {
                bytes: header.msg_len as usize,
                control: header.msg_hdr.msg_controllen,
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            };
        }
        Ok(count)
    }

    /// The first `count` messages of the last [`receive`](Self::receive), whose return value `count` is.
    pub(super) fn messages(&self, count: usize) -> impl Iterator<Item = Incoming<'_>> {
        let buffers = self.buffers.chunks_exact(Self::BUFFER_LEN);
        let stores = buffers.zip(&self.addresses).zip(self.controls.iter()).zip(&self.results);
        stores.take(count).map(|(((buffer, address), control), length)| {
            let mut incoming = Incoming {
                bytes: buffer.get(..length.bytes).unwrap_or(buffer),
                source: address.ip(),
                truncated: length.truncated,
                segment: None,
                traffic_class: None,
                hop_limit: None,
                overflow: None,
            };
            control.read(length.control, &mut incoming);
            incoming
        })
    }
}

/// A vector of bytes that the kernel only reads.
const fn vector(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// A message header that names nothing.
const fn empty_header() -> mmsghdr {
    // SAFETY: the header consists of integers and raw pointers, for which zero is a value.
    unsafe { mem::zeroed() }
}

/// The result of a system call, or the error that it left in `errno`.
fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
