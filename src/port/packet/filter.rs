//! Which frames a packet socket keeps: a classic BPF program.

use libc::{c_int, sock_filter};

use crate::wire::net::Ethernet;
use crate::wire::{Qpn, UDP_PORT};

/// The bytes kept of a frame that passes: all.
const WHOLE: u32 = 0x4_0000;
/// `PACKET_OTHERHOST` (`include/uapi/linux/if_packet.h`): a frame for another host, as a promiscuous interface sees it.
const OTHER_HOST: u32 = 3;
const UDP: u32 = 17;
/// Where the IP header begins.
const IP: u32 = Ethernet::LEN as u32;

/// Indices into the program that are jumped to.
const IPV4: usize = 7;
const IPV6: usize = 16;
const CHECK: usize = 21;
const ACCEPT: usize = 25;
const DROP: usize = 26;

/// Bytes from the UDP header to the destination queue pair in the BTH, with the byte in front of it.
const QUEUE_PAIR: u32 = 8 + 4;

/// Lets UDP to port 4791 through, over IPv4 (unfragmented) and IPv6, untagged, and sent to this host or to a group; of that
/// what is for queue pairs of `slot`, the high byte of their numbers, or for a multicast group; all of it without a slot.
pub(super) const fn roce(slot: Option<u8>) -> [sock_filter; 27] {
    // Of no bit of the number, none differs.
    let (mask, slot) = match slot {
        Some(slot) => (Qpn::MULTICAST.value(), slot as u32),
        None => (0, 0),
    };
    [
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
        test(13, libc::BPF_JEQ, UDP_PORT as u32, 14, DROP),
        load(libc::BPF_W | libc::BPF_IND, IP + QUEUE_PAIR),
        instruction(libc::BPF_JMP | libc::BPF_JA, (CHECK - 16) as u32),
        // IPv6: next header and port.
        load(libc::BPF_B | libc::BPF_ABS, IP + 6),
        test(17, libc::BPF_JEQ, UDP, 18, DROP),
        load(libc::BPF_H | libc::BPF_ABS, IP + 40 + 2),
        test(19, libc::BPF_JEQ, UDP_PORT as u32, 20, DROP),
        load(libc::BPF_W | libc::BPF_ABS, IP + 40 + QUEUE_PAIR),
        // Either: the slot.
        instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask),
        test(22, libc::BPF_JEQ, Qpn::MULTICAST.value(), ACCEPT, 23),
        instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        test(24, libc::BPF_JEQ, slot, ACCEPT, DROP),
        instruction(libc::BPF_RET | libc::BPF_K, WHOLE),
        instruction(libc::BPF_RET | libc::BPF_K, 0),
    ]
}

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
