//! The random numbers behind simulated faults.

use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
///
/// Written out here, in ten lines, because a seed that once found a bug must find it for ever: the general crates keep the
/// right to change what a seed yields, and those that promise not to are built for cryptography.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any 64 bits.
    pub(super) const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, or 0 if that is 0. The bias is below `bound` / 2^64.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// True with the given probability, 0 to 1. Always draws, so that a change of one probability shifts no other decision.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits are what a double holds exactly.
        ((self.bits() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A duration from `least` to `most`, or `least` if that is more.
    pub(super) fn duration(&mut self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX);
        least + Duration::from_nanos(self.below(span.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seeds 0 and 1234567, as the reference implementation gives them.
    #[test]
    fn the_stream_is_the_published_one() {
        let mut random = Random::new(0);
        assert_eq!(random.bits(), 0xe220_a839_7b1d_cdaf);
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn chances_and_ranges_hold() {
        let mut random = Random::new(7);
        let hits = (0..100_000).filter(|_| random.chance(0.05)).count();
        assert!((4_700..5_300).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !random.chance(0.0) && random.chance(1.0)));
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
        let (least, most) = (Duration::from_nanos(5), Duration::from_nanos(7));
        assert!((0..1000).all(|_| (least..=most).contains(&random.duration(least, most))));
        assert_eq!(random.duration(most, least), most);
    }
}
