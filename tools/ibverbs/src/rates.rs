//! The rates that address vectors and ports are given in.

use std::ffi::c_int;

/// `enum ibv_rate`, how often 2.5 Gbit/s that is, and Mbit/s.
const RATES: &[(u32, c_int, c_int)] = &[
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 5, 14_062),
    (12, 22, 56_250),
    (13, 45, 112_500),
    (14, 67, 168_750),
    (15, 10, 25_781),
    (16, 41, 103_125),
    (17, 82, 206_250),
    (18, 123, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// `IBV_RATE_MAX`: whatever the link does.
const MAX: u32 = 0;

/// -1 for what is no rate.
pub(crate) extern "C" fn ibv_rate_to_mult(rate: u32) -> c_int {
    RATES.iter().find(|known| known.0 == rate).map_or(-1, |known| known.1)
}

pub(crate) extern "C" fn mult_to_ibv_rate(multiple: c_int) -> u32 {
    RATES.iter().find(|known| known.1 == multiple).map_or(MAX, |known| known.0)
}

/// -1 for what is no rate.
pub(crate) extern "C" fn ibv_rate_to_mbps(rate: u32) -> c_int {
    RATES.iter().find(|known| known.0 == rate).map_or(-1, |known| known.2)
}

pub(crate) extern "C" fn mbps_to_ibv_rate(megabits: c_int) -> u32 {
    RATES.iter().find(|known| known.2 == megabits).map_or(MAX, |known| known.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_convert_there_and_back() {
        for &(rate, multiple, megabits) in RATES {
            assert_eq!(mult_to_ibv_rate(ibv_rate_to_mult(rate)), rate);
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
            assert!((megabits - multiple * 2_500).abs() <= megabits / 7, "{rate}: {multiple} and {megabits}");
        }
        assert_eq!((ibv_rate_to_mult(99), ibv_rate_to_mbps(0), mult_to_ibv_rate(3)), (-1, -1, MAX));
    }
}
