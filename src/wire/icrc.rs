//! The invariant CRC: a CRC-32 over what no switch or router changes on the way (IBTA 7.8.1, A17.5).
//!
//! It covers eight bytes of ones in place of the local route header, then the IP header, the UDP header and the
//! datagram, with the fields that may change on the way replaced by ones. On the wire its low byte comes first.

pub(crate) mod rxe_flush;

use core::net::{Ipv4Addr, Ipv6Addr};

use crc32fast::Hasher;

use super::bytes::Fields;
use super::net::PROTOCOL_UDP;
use super::{Bth, ICRC_LEN, UDP_PORT};

/// The fields of an IP header that the ICRC covers and that differ from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPseudo {
    /// An IPv4 header without options.
    V4(Ipv4Pseudo),
    /// An IPv6 header without extension headers.
    V6(Ipv6Pseudo),
}

/// What of an IPv4 header enters the ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Pseudo {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// The ID field. A receiver that is not told it uses [`check_unknown_id`].
    pub identification: u16,
    /// The DF flag; `rdma_rxe` and most NICs set it.
    pub dont_fragment: bool,
}

/// What of an IPv6 header enters the ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Pseudo {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

/// The ICRC of `datagram` (BTH to pad) under that IP header and UDP source port.
///
/// The length fields of IP and UDP are taken to be those of this datagram and its ICRC. Below 12 bytes there
/// is no BTH, and no meaning in the result.
#[must_use]
#[inline]
pub fn compute(ip: &IpPseudo, source_port: u16, datagram: &[u8]) -> u32 {
    match ip {
        IpPseudo::V4(ip) => covered_v4(ip, source_port, datagram).finalize(),
        IpPseudo::V6(ip) => covered_v6(ip, source_port, datagram).finalize(),
    }
}

/// Finds the IPv4 ID with which `received` is the right ICRC of `datagram`, or `None`: the packet is corrupt.
///
/// `ip.identification` is tried first, and then all 32 bits of the ICRC are the check. Otherwise 16 of them
/// go into the ID, and 16 are left to detect corruption.
#[must_use]
#[inline]
pub fn check_unknown_id(ip: &Ipv4Pseudo, source_port: u16, datagram: &[u8], received: u32) -> Option<u16> {
    if datagram.len() < Bth::LEN {
        return None;
    }
    solve_id(ip, covered_v4(ip, source_port, datagram).finalize() ^ received, datagram.len())
}

/// The IPv4 ID that explains a difference of two ICRCs, when there are `behind` bytes from the BTH to the end.
#[inline]
fn solve_id(ip: &Ipv4Pseudo, difference: u32, behind: usize) -> Option<u16> {
    if difference == 0 {
        return Some(ip.identification);
    }
    // A CRC is linear: the difference is that of the IDs, times x to the power of the bits behind the ID, and times
    // the 32 zero bits that a CRC puts behind every message. Undo the product. An ID has degree 15 at most, which the
    // reflected register keeps in its upper half: the lower half must be empty.
    let quotient = power::divide(difference, BYTES_BEHIND_ID + behind)?;
    let [0, 0, first, second] = quotient.to_le_bytes() else {
        return None;
    };
    Some(ip.identification ^ u16::from_be_bytes([first, second]))
}

/// Bytes between the IPv4 ID and the datagram, and the four zero bytes that a CRC puts behind every message.
const BYTES_BEHIND_ID: usize = 14 + 8 + 4;

#[inline]
fn covered_v4(ip: &Ipv4Pseudo, source_port: u16, datagram: &[u8]) -> Hasher {
    let (bth, rest) = masked_bth(datagram);
    let udp_length = udp_length(datagram);
    let mut bytes = [0xff; 8 + 20 + 8 + Bth::LEN];
    bytes.put::<8, 1>([0x45]);
    bytes.put::<10, 2>(udp_length.wrapping_add(20).to_be_bytes());
    bytes.put::<12, 2>(ip.identification.to_be_bytes());
    bytes.put::<14, 2>([if ip.dont_fragment { 0x40 } else { 0 }, 0]);
    bytes.put::<17, 1>([PROTOCOL_UDP]);
    bytes.put::<20, 4>(ip.source.octets());
    bytes.put::<24, 4>(ip.destination.octets());
    bytes.put::<28, 2>(source_port.to_be_bytes());
    bytes.put::<30, 2>(UDP_PORT.to_be_bytes());
    bytes.put::<32, 2>(udp_length.to_be_bytes());
    bytes.put::<36, { Bth::LEN }>(bth);
    crc32(Hasher::new(), &bytes, rest)
}

#[inline]
fn covered_v6(ip: &Ipv6Pseudo, source_port: u16, datagram: &[u8]) -> Hasher {
    let (bth, rest) = masked_bth(datagram);
    let udp_length = udp_length(datagram);
    let mut bytes = [0xff; 4 + 40 + 8 + Bth::LEN];
    bytes.put::<4, 1>([0x6f]);
    bytes.put::<8, 2>(udp_length.to_be_bytes());
    bytes.put::<10, 1>([PROTOCOL_UDP]);
    bytes.put::<12, 16>(ip.source.octets());
    bytes.put::<28, 16>(ip.destination.octets());
    bytes.put::<44, 2>(source_port.to_be_bytes());
    bytes.put::<46, 2>(UDP_PORT.to_be_bytes());
    bytes.put::<48, 2>(udp_length.to_be_bytes());
    bytes.put::<52, { Bth::LEN }>(bth);
    // Four of the eight bytes of ones leave the register at zero. Without them the array is a multiple of 16 bytes,
    // as that of IPv4 is, which spares the CRC its slow tail.
    crc32(Hasher::new_with_initial(!0), &bytes, rest)
}

/// The UDP length of a datagram, its ICRC included; what does not fit in 16 bits has no right ICRC anyway.
#[inline]
const fn udp_length(datagram: &[u8]) -> u16 {
    (8 + datagram.len() + ICRC_LEN) as u16
}

/// The BTH with its byte of congestion bits as ones, and what follows it.
#[inline]
fn masked_bth(datagram: &[u8]) -> ([u8; Bth::LEN], &[u8]) {
    let Some((bth, rest)) = datagram.split_first_chunk() else {
        return ([0xff; Bth::LEN], datagram);
    };
    let mut bth = *bth;
    bth.put::<4, 1>([0xff]);
    (bth, rest)
}

#[inline]
fn crc32(mut hasher: Hasher, headers: &[u8], rest: &[u8]) -> Hasher {
    hasher.update(headers);
    hasher.update(rest);
    hasher
}

/// Arithmetic modulo the CRC-32 polynomial P, reflected: bit 31 of a register is the coefficient of x^0.
mod power {
    /// P without x^32, reflected.
    const POLYNOMIAL: u32 = 0xedb8_8320;
    /// The polynomial 1.
    const ONE: u32 = 1 << 31;
    /// x^(-8n) for n below 256.
    static LOW: [u32; 256] = powers(divided_by_x(ONE, 8));
    /// x^(-8 * 256 n) for n below 256.
    static HIGH: [u32; 256] = powers(divided_by_x(ONE, 8 * 256));

    /// `value` divided by x^(8 * bytes); `None` above 65,535 bytes, which no UDP datagram has.
    #[inline]
    pub(super) fn divide(value: u32, bytes: usize) -> Option<u32> {
        let [high, low] = u16::try_from(bytes).ok()?.to_be_bytes();
        let quotient = times(value, LOW[usize::from(low)]);
        Some(if high == 0 { quotient } else { times(quotient, HIGH[usize::from(high)]) })
    }

    /// The product of two polynomials.
    const fn times(a: u32, mut b: u32) -> u32 {
        let mut product = 0;
        let mut bit = 0;
        while bit < 32 {
            // All ones where `a` has x^bit.
            let has = ((a << bit).cast_signed() >> 31).cast_unsigned();
            product ^= b & has;
            b = times_x(b);
            bit += 1;
        }
        product
    }

    const fn times_x(value: u32) -> u32 {
        value >> 1 ^ (POLYNOMIAL & (value & 1).wrapping_neg())
    }

    /// `value` divided by x^bits. P has the term 1, so x can be divided by.
    const fn divided_by_x(mut value: u32, bits: u32) -> u32 {
        let mut bit = 0;
        while bit < bits {
            let odd = value >> 31;
            value = (value ^ (POLYNOMIAL & odd.wrapping_neg())) << 1 | odd;
            bit += 1;
        }
        value
    }

    /// The powers of `base`, from 1.
    const fn powers(base: u32) -> [u32; 256] {
        let mut table = [ONE; 256];
        let mut n = 1;
        while n < table.len() {
            table[n] = times(table[n - 1], base);
            n += 1;
        }
        table
    }
}

#[cfg(test)]
mod tests;
