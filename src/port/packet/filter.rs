//! Which frames a packet socket keeps: a classic BPF program.

use libc::{c_int, sock_filter};

use crate::wire::UDP_PORT;
use crate::wire::net::Ethernet;

/// The bytes kept of a frame that passes: all.
const WHOLE: u32 = 0x4_0000;
/// `PACKET_OTHERHOST` (`include/uapi/linux/if_packet.h`): a frame for another host, as a promiscuous interface sees it.
const OTHER_HOST: u32 = 3;
const UDP: u32 = 17;
/// Where the IP header begins.
const IP: u32 = Ethernet::LEN as u32;

/// Indices into [`ROCE`] that are jumped to.
const IPV4: usize = 7;
const IPV6: usize = 14;
const ACCEPT: usize = 18;
const DROP: usize = 19;

/// Lets UDP to port 4791 through, over IPv4 (unfragmented) and IPv6, untagged, and sent to this host or to a group.
pub(super) const ROCE: [sock_filter; 20] = [
    load(libc::BPF_W | libc::BPF_ABS, ancillary(libc::SKF_AD_PKTTYPE)),
    test(1, libc::BPF_JEQ, OTHER_HOST, DROP, 2),
    // The parent of a VLAN interface sees what belongs to that one, with the tag taken off.
    load(libc::BPF_W | libc::BPF_ABS, ancillary(libc::SKF_AD_VLAN_TAG_PRESENT)),
    test(3, libc::BPF_JEQ, 0, 4, DROP),
    load(libc::BPF_H | libc::BPF_ABS, 12),
    test(5, libc::BPF_JEQ, Ethernet::IPV6 as u32, IPV6, 6),
    test(6, libc::BPF_JEQ, Ethernet::IPV4 as u32, IPV4, DROP),
    // IPv4: protocol, no fragment, and the port behind as many options as there are.
    load(libc::BPF_B | libc::BPF_ABS, IP + 9),
    test(8, libc::BPF_JEQ, UDP, 9, DROP),
    load(libc::BPF_H | libc::BPF_ABS, IP + 6),
    test(10, libc::BPF_JSET, 0x3fff, DROP, 11),
    instruction(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, IP),
    load(libc::BPF_H | libc::BPF_IND, IP + 2),
    test(13, libc::BPF_JEQ, UDP_PORT as u32, ACCEPT, DROP),
    // IPv6: next header and port.
    load(libc::BPF_B | libc::BPF_ABS, IP + 6),
    test(15, libc::BPF_JEQ, UDP, 16, DROP),
    load(libc::BPF_H | libc::BPF_ABS, IP + 40 + 2),
    test(17, libc::BPF_JEQ, UDP_PORT as u32, ACCEPT, DROP),
    instruction(libc::BPF_RET | libc::BPF_K, WHOLE),
    instruction(libc::BPF_RET | libc::BPF_K, 0),
];

const fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const fn load(size_and_mode: u32, k: u32) -> sock_filter {
    instruction(libc::BPF_LD | size_and_mode, k)
}

/// The instruction at index `at`: goes on at index `yes` if the loaded value passes, else at `no`.
const fn test(at: usize, operation: u32, k: u32, yes: usize, no: usize) -> sock_filter {
    let code = (libc::BPF_JMP | operation | libc::BPF_K) as u16;
    sock_filter { code, jt: (yes - at - 1) as u8, jf: (no - at - 1) as u8, k }
}

/// The pseudo offset of what the kernel knows beside the frame's bytes.
const fn ancillary(what: c_int) -> u32 {
    (libc::SKF_AD_OFF + what).cast_unsigned()
}
