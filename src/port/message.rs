//! What goes with a datagram through a system call: addresses and control messages, in the kernel's layout.

use std::mem::{align_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{c_int, cmsghdr, socklen_t};

/// Bytes of control messages for one datagram, either way: four of at most four bytes each, and as many to spare.
const CONTROL_LEN: usize = 192;

/// Bytes of the longest socket address that a port uses: `sockaddr_in6`.
const ADDRESS_LEN: usize = size_of::<libc::sockaddr_in6>();

/// A UDP socket address of either family, as `sockaddr_in` or `sockaddr_in6` lays it out (ip(7), ipv6(7)).
///
/// Of all of `sockaddr_storage`, which is 128 bytes, a batch would have to clear and copy too many.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Address([u8; ADDRESS_LEN]);

impl Address {
    /// An address of no family, to be filled by the kernel.
    pub(super) const NONE: Self = Self([0; ADDRESS_LEN]);

    /// The UDP socket address of `ip` and `port`; `scope` is the interface index of a link-local IPv6 address.
    pub(super) fn udp(ip: IpAddr, port: u16, scope: u32) -> Self {
        let mut address = Self::NONE;
        match ip {
            IpAddr::V4(ip) => {
                address.put(0, &(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
                address.put(4, &ip.octets());
            }
            IpAddr::V6(ip) => {
                address.put(0, &(libc::AF_INET6 as libc::sa_family_t).to_ne_bytes());
                // Between port and address stands the flow label, which is left to the kernel.
                address.put(8, &ip.octets());
                address.put(24, &scope.to_ne_bytes());
            }
        }
        address.put(2, &port.to_be_bytes());
        address
    }

    /// Overwrites the bytes from `at` on.
    fn put(&mut self, at: usize, field: &[u8]) {
        for (to, from) in self.0.iter_mut().skip(at).zip(field) {
            *to = *from;
        }
    }

    /// The bytes from `at` on.
    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    /// The room, for the kernel to read from or write to.
    pub(super) const fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// `AF_INET`, `AF_INET6` or another.
    pub(super) fn family(&self) -> c_int {
        c_int::from(libc::sa_family_t::from_ne_bytes(self.field(0)))
    }

    /// The IP address and UDP port, unless it is of another family.
    pub(super) fn ip(&self) -> Option<(IpAddr, u16)> {
        let ip = match self.family() {
            libc::AF_INET => Ipv4Addr::from(self.field::<4>(4)).into(),
            libc::AF_INET6 => Ipv6Addr::from(self.field::<16>(8)).into(),
            _ => return None,
        };
        Some((ip, u16::from_be_bytes(self.field(2))))
    }

    /// Bytes of it that the kernel is to read.
    pub(super) fn length(&self) -> socklen_t {
        let length = match self.family() {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            _ => ADDRESS_LEN,
        };
        length as socklen_t
    }
}

/// One message to send: a datagram, or a run of them that the kernel cuts into `segment` bytes each.
pub(super) struct Outgoing<'a> {
    /// What goes in front of `bytes`: on a packet socket the headers, else nothing.
    pub(super) header: &'a [u8],
    /// UDP payload.
    pub(super) bytes: &'a [u8],
    /// Where to; `None` where the socket knows.
    pub(super) destination: Option<Address>,
    /// `UDP_SEGMENT`: bytes of each datagram but the last.
    pub(super) segment: Option<u16>,
    /// `IP_TOS` or `IPV6_TCLASS`, when it is not the socket's.
    pub(super) traffic_class: Option<u8>,
    /// `IP_TTL` or `IPV6_HOPLIMIT`, when it is not the socket's.
    pub(super) hop_limit: Option<u8>,
}

/// One message that arrived.
pub(super) struct Incoming<'a> {
    /// UDP payload, of one datagram or of several that the kernel joined; or a whole frame on a packet socket.
    pub(super) bytes: &'a [u8],
    /// The sender; `None` on a packet socket.
    pub(super) source: Option<(IpAddr, u16)>,
    /// Whether the buffer was too small for the message: its rest is lost.
    pub(super) truncated: bool,
    /// `UDP_GRO`: bytes of each joined datagram but the last.
    pub(super) segment: Option<usize>,
    /// `IP_TOS` or `IPV6_TCLASS`.
    pub(super) traffic_class: Option<u8>,
    /// `IP_TTL` or `IPV6_HOPLIMIT`.
    pub(super) hop_limit: Option<u8>,
    /// `SO_RXQ_OVFL`: how many datagrams this socket has lost to a full buffer, counted modulo 2^32.
    pub(super) overflow: Option<u32>,
}

/// Room for control messages, aligned as their headers must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control([u8; CONTROL_LEN]);

/// Bytes of a control message's header, up to its data (`CMSG_LEN(0)`).
const CONTROL_HEADER: usize = size_of::<cmsghdr>();

impl Control {
    /// Room that holds none.
    pub(super) const EMPTY: Self = Self([0; CONTROL_LEN]);

    /// The room, for the kernel to read from or write to.
    pub(super) const fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Writes the control messages that `message` asks for; returns their length.
    pub(super) fn fill(&mut self, message: &Outgoing<'_>) -> usize {
        let mut used = 0;
        if let Some(segment) = message.segment {
            used = self.push(used, libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        let v6 = message.destination.is_some_and(|to| to.family() == libc::AF_INET6);
        let (level, class, hops) = if v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
        };
        if let Some(value) = message.traffic_class {
            used = self.push(used, level, class, &c_int::from(value).to_ne_bytes());
        }
        if let Some(value) = message.hop_limit {
            used = self.push(used, level, hops, &c_int::from(value).to_ne_bytes());
        }
        used
    }

    /// Appends a control message behind `used` bytes of them; returns the new length. A header is three
    /// integers whose order `cmsg(3)` fixes, and both header and data are padded to the alignment.
    fn push(&mut self, used: usize, level: c_int, kind: c_int, data: &[u8]) -> usize {
        let length = CONTROL_HEADER + data.len();
        let fields = [&length.to_ne_bytes()[..], &level.to_ne_bytes()[..], &kind.to_ne_bytes()[..], data];
        let mut at = used;
        for field in fields {
            self.0[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        used + length.next_multiple_of(align_of::<cmsghdr>())
    }

    /// Reads the kernel's control messages, `length` bytes of them, into `incoming`.
    pub(super) fn read(&self, length: usize, incoming: &mut Incoming<'_>) {
        let mut rest = self.0.get(..length).unwrap_or(&self.0);
        while let Some((&total, fields)) = rest.split_first_chunk() {
            let total = usize::from_ne_bytes(total);
            let Some((&level, fields)) = fields.split_first_chunk() else {
                return;
            };
            let Some((&kind, _)) = fields.split_first_chunk() else {
                return;
            };
            let Some(data) = rest.get(CONTROL_HEADER..total) else {
                return;
            };
            incoming.note(c_int::from_ne_bytes(level), c_int::from_ne_bytes(kind), data);
            rest = rest.get(total.next_multiple_of(align_of::<cmsghdr>())..).unwrap_or(&[]);
        }
    }
}

impl Incoming<'_> {
    /// Takes in one control message; those of no interest are passed over.
    fn note(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let first = data.first().copied();
        let word = data.first_chunk().map(|word| u32::from_ne_bytes(*word));
        // The kernel gives IP_TOS as one byte and the others as an int.
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) => self.traffic_class = first,
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.traffic_class = word.map(low_byte),
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.hop_limit = word.map(low_byte);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => self.segment = word.map(|length| length as usize),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.overflow = word,
            _ => {}
        }
    }
}

/// The byte that an int option carries.
fn low_byte(word: u32) -> u8 {
    (word & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive() {
        for ip in ["127.1.2.3", "fe80::1:2", "::ffff:1.2.3.4"] {
            let ip: IpAddr = ip.parse().expect("an address");
            assert_eq!(Address::udp(ip, 4791, 3).ip(), Some((ip, 4791)));
        }
        assert_eq!(Address::NONE.ip(), None);
    }

    /// The offsets written out above are those of the system's headers.
    #[test]
    fn the_layout_is_the_systems() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(libc::sockaddr_in, sin_port), 2);
        assert_eq!(offset_of!(libc::sockaddr_in, sin_addr), 4);
        assert_eq!(offset_of!(libc::sockaddr_in6, sin6_port), 2);
        assert_eq!(offset_of!(libc::sockaddr_in6, sin6_addr), 8);
        assert_eq!(offset_of!(libc::sockaddr_in6, sin6_scope_id), 24);
        assert_eq!(offset_of!(cmsghdr, cmsg_level), size_of::<usize>());
        assert_eq!(offset_of!(cmsghdr, cmsg_type), size_of::<usize>() + size_of::<c_int>());
    }

    /// Lengths that no kernel writes end the reading, whatever they are.
    #[test]
    fn control_messages_are_read_within_bounds() {
        let mut incoming = Incoming {
            bytes: &[],
            source: None,
            truncated: false,
            segment: None,
            traffic_class: None,
            hop_limit: None,
            overflow: None,
        };
        let mut control = Control::EMPTY;
        let used = control.push(0, libc::SOL_UDP, libc::UDP_GRO, &1480u32.to_ne_bytes());
        let used = control.push(used, libc::IPPROTO_IP, libc::IP_TOS, &[0x6a]);
        control.read(used, &mut incoming);
        assert_eq!((incoming.segment, incoming.traffic_class), (Some(1480), Some(0x6a)));
        for total in [0usize, 1, CONTROL_HEADER, 4096, usize::MAX] {
            control.0[..size_of::<usize>()].copy_from_slice(&total.to_ne_bytes());
            control.read(CONTROL_LEN, &mut incoming);
            control.read(usize::MAX, &mut incoming);
        }
    }
}
