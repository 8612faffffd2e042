//! HighwayHash-256 (Alakuijala, Cox and Wassenberg, "Fast keyed hash/pseudo-random function using
//! SIMD multiply and permute", 2016), over the `highway` crate.

use super::Core;
use highway::{HighwayHash as _, HighwayHasher, Key};

/// The 256-bit key is the seed twice; the messages are 32 bytes, a counter and zeros: 0 makes the
/// children, 1 and 2 the halves of the leaf.
///
/// The crate picks AVX2 or SSE4.1 where the machine has them, whatever the tier.
pub(crate) struct HighwayHash;

impl Core for HighwayHash {
    #[inline(always)]
    fn children<const N: usize>(seeds: &[u128; N]) -> [[u128; 2]; N] {
        seeds.map(|seed| tag(seed, 0))
    }

    #[inline(always)]
    fn leaves<const N: usize>(seeds: &[u128; N]) -> [[u128; 4]; N] {
        seeds.map(|seed| {
            let ([a, b], [c, d]) = (tag(seed, 1), tag(seed, 2));
            [a, b, c, d]
        })
    }
}

fn tag(seed: u128, counter: u8) -> [u128; 2] {
    let (low, high) = (seed as u64, (seed >> 64) as u64);
    let mut packet = [0; 32];
    packet[0] = counter;
    let [a, b, c, d] = HighwayHasher::new(Key([low, high, low, high])).hash256(&packet);
    [u128::from(a) | u128::from(b) << 64, u128::from(c) | u128::from(d) << 64]
}
