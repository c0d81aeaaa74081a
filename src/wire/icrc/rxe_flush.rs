//! The ICRC that the kernel's `rdma_rxe` gives a FLUSH, and demands of one.
//!
//! Its opcode table (`rxe_opcode.c`, seen in 6.12) says of a FLUSH where each header is, but not where the payload is: at 0,
//! then. So what it takes for the payload is the whole datagram, which its ICRC covers a second time, as it is, behind the
//! headers. A FLUSH whose ICRC obeys the specification is dropped by it without a word.
//!
//! A requester cannot know its peer, so it tries the one and then the other. How it tells the port, which makes the ICRC: by
//! a reserved bit of the BTH, which the port takes off.

use super::{Hasher, IpPseudo, Ipv4Pseudo, covered_v4, covered_v6, solve_id};
use crate::wire::{Bth, Opcode};

/// A reserved bit of the BTH, beside FECN and BECN.
const MARK: u8 = 1;
const MARK_AT: usize = 4;

/// Has the port give this FLUSH the kernel's ICRC.
pub(crate) fn mark(datagram: &mut [u8]) {
    if let Some(byte) = datagram.get_mut(MARK_AT) {
        *byte |= MARK;
    }
}

/// Takes the mark off; whether there was one.
pub(crate) fn take_mark(datagram: &mut [u8]) -> bool {
    if !is_flush(datagram) {
        return false;
    }
    datagram.get_mut(MARK_AT).is_some_and(|byte| {
        let marked = *byte & MARK != 0;
        *byte &= !MARK;
        marked
    })
}

/// Whether the rule can be asked for: the datagram is a FLUSH.
#[inline]
pub(crate) fn is_flush(datagram: &[u8]) -> bool {
    datagram.first() == Some(&Opcode::RC_FLUSH.value()) && datagram.len() >= Bth::LEN
}

/// As [`compute`](super::compute), by the kernel's rule.
pub(crate) fn compute(ip: &IpPseudo, source_port: u16, datagram: &[u8]) -> u32 {
    let covered = match ip {
        IpPseudo::V4(ip) => covered_v4(ip, source_port, datagram),
        IpPseudo::V6(ip) => covered_v6(ip, source_port, datagram),
    };
    again(covered, datagram)
}

/// As [`check_unknown_id`](super::check_unknown_id), by the kernel's rule.
pub(crate) fn check_unknown_id(ip: &Ipv4Pseudo, source_port: u16, datagram: &[u8], received: u32) -> Option<u16> {
    let expected = again(covered_v4(ip, source_port, datagram), datagram);
    solve_id(ip, expected ^ received, 2 * datagram.len())
}

fn again(mut covered: Hasher, datagram: &[u8]) -> u32 {
    covered.update(datagram);
    covered.finalize()
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::wire::icrc;

    const IP: Ipv4Pseudo = Ipv4Pseudo {
        source: Ipv4Addr::new(10, 99, 0, 1),
        destination: Ipv4Addr::new(10, 99, 0, 2),
        identification: 0,
        dont_fragment: true,
    };

    fn flush() -> Vec<u8> {
        (0..32).map(|byte| if byte == 0 { Opcode::RC_FLUSH.value() } else { byte & 0xf0 }).collect()
    }

    #[test]
    fn the_two_rules_differ_and_either_finds_the_id() {
        let datagram = flush();
        let ip = |identification| IpPseudo::V4(Ipv4Pseudo { identification, ..IP });
        for id in [0, 1, 0xfffe] {
            let (theirs, right) = (compute(&ip(id), 0xc000, &datagram), icrc::compute(&ip(id), 0xc000, &datagram));
            assert_ne!(theirs, right);
            assert_eq!(check_unknown_id(&IP, 0xc000, &datagram, theirs), Some(id));
            assert_eq!(check_unknown_id(&IP, 0xc000, &datagram, right), None);
            assert_eq!(icrc::check_unknown_id(&IP, 0xc000, &datagram, theirs), None);
        }
    }

    #[test]
    fn only_a_flush_is_marked_and_the_mark_comes_off() {
        let mut datagram = flush();
        assert!(!take_mark(&mut datagram));
        mark(&mut datagram);
        assert!(take_mark(&mut datagram));
        assert_eq!(datagram, flush());
        datagram[0] = Opcode::RC_WRITE_ONLY.value();
        mark(&mut datagram);
        assert!(!take_mark(&mut datagram));
        assert!(!take_mark(&mut []));
    }
}
