//! HighwayHash-256 (Alakuijala, Cox and Wassenberg, "Fast keyed hash/pseudo-random function using
//! SIMD multiply and permute", 2016), over the `highway` crate.

use super::Core;
use super::group::each_seed;
use super::vector::Vector;
use highway::{HighwayHash as _, HighwayHasher, Key};

/// The 256-bit key is the seed twice; the messages are 32 bytes, a counter and zeros: 0 makes the
/// children, 1 and 2 the halves of the leaf.
///
/// The crate picks AVX2 or SSE4.1 where the machine has them, whatever the tier.
pub(crate) struct HighwayHash;

impl Core for HighwayHash {
    fn expand<V: Vector>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
        each_seed(nodes, correction, children, |seed| tag(seed, 0));
    }

    fn convert<V: Vector>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
        each_seed(nodes, correction, leaves, |seed| {
            let ([a, b], [c, d]) = (tag(seed, 1), tag(seed, 2));
            [a, b, c, d]
        });
    }
}

fn tag(seed: u128, counter: u8) -> [u128; 2] {
    let (low, high) = (seed as u64, (seed >> 64) as u64);
    let mut packet = [0; 32];
    packet[0] = counter;
    let [a, b, c, d] = HighwayHasher::new(Key([low, high, low, high])).hash256(&packet);
    [u128::from(a) | u128::from(b) << 64, u128::from(c) | u128::from(d) << 64]
}

#[cfg(test)]
mod tests {
    use super::*;
    use highway::PortableHash;

    /// The key of highwayhash_test.cc: the bytes 0 to 31.
    const KEY: [u64; 4] = [
        0x0706_0504_0302_0100,
        0x0f0e_0d0c_0b0a_0908,
        0x1716_1514_1312_1110,
        0x1f1e_1d1c_1b1a_1918,
    ];

    #[test]
    fn the_crate_is_highwayhash_as_its_authors_have_it() {
        // kExpected256 of highwayhash_test.cc, the message 00 01 … 1f of 32 bytes.
        let message: [u8; 32] = std::array::from_fn(|i| i as u8);
        let expected = [
            0xbce3_8c90_39a1_c3fe,
            0x42d5_6326_a3c1_1289,
            0xe355_95f7_64fc_aea9,
            0xc9b0_3c6b_c947_5a99,
        ];
        assert_eq!(HighwayHasher::new(Key(KEY)).hash256(&message), expected);
        assert_eq!(PortableHash::new(Key(KEY)).hash256(&message), expected);
    }

    #[test]
    fn key_and_message_are_laid_out_as_documented() {
        let [low, high] = [0x0123_4567_89ab_cdef, 0x1122_3344_5566_7788];
        let mut message = [0; 32];
        message[0] = 2;
        let words = PortableHash::new(Key([low, high, low, high])).hash256(&message);
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let tag = tag(u128::from(low) | u128::from(high) << 64, 2).map(u128::to_le_bytes);
        assert_eq!(tag.as_flattened(), bytes);
    }
}
