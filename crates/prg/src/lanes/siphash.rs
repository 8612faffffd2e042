//! SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).

use super::Core;
use super::group::{Word64, each_word};
use super::vector::Vector;

/// SipHash-2-4 keyed with the seed, on the one-byte messages 0 to 3 (children) and 4 to 11 (leaf);
/// of each two, the first message makes the low half of a 128-bit word.
pub(crate) struct SipHash24;

impl Core for SipHash24 {
    #[inline(always)]
    fn expand<V: Vector>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
        each_word::<Self, V, 2>(nodes, 0, correction, children);
    }

    #[inline(always)]
    fn convert<V: Vector>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
        each_word::<Self, V, 4>(nodes, 4, correction, leaves);
    }
}

impl Word64 for SipHash24 {
    #[inline(always)]
    fn word<V: Vector>([low, high]: [V; 2], message: u8) -> V {
        // A message of under eight bytes is one word: its bytes, then its length in the top byte.
        let word = V::splat64(1 << 56 | u64::from(message));
        // "somepseudorandomlygeneratedbytes"
        let mut v = [
            low.xor(V::splat64(0x736f_6d65_7073_6575)),
            high.xor(V::splat64(0x646f_7261_6e64_6f6d)),
            low.xor(V::splat64(0x6c79_6765_6e65_7261)),
            high.xor(V::splat64(0x7465_6462_7974_6573)),
        ];
        v[3] = v[3].xor(word);
        sip_round(&mut v);
        sip_round(&mut v);
        v[0] = v[0].xor(word);
        v[2] = v[2].xor(V::splat64(0xff));
        for _ in 0..4 {
            sip_round(&mut v);
        }
        v[0].xor(v[1]).xor(v[2].xor(v[3]))
    }
}

#[inline(always)]
fn sip_round<V: Vector>(v: &mut [V; 4]) {
    v[0] = v[0].add64(v[1]);
    v[2] = v[2].add64(v[3]);
    v[1] = v[1].rotate64::<13>().xor(v[0]);
    v[3] = v[3].rotate64::<16>().xor(v[2]);
    v[0] = v[0].rotate64::<32>();
    v[2] = v[2].add64(v[1]);
    v[0] = v[0].add64(v[3]);
    v[1] = v[1].rotate64::<17>().xor(v[2]);
    v[3] = v[3].rotate64::<21>().xor(v[0]);
    v[2] = v[2].rotate64::<32>();
}

#[cfg(test)]
mod tests {
    use super::super::vector::Portable;
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip::SipHasher24;
    use std::hash::Hasher;

    fn tag(key: u128, message: u8) -> u64 {
        let key = [key as u64, (key >> 64) as u64].map(Portable::splat64);
        let mut word = 0;
        SipHash24::word(key, message).store_lane(0, &mut word);
        word as u64
    }

    fn tag_by_crate(key: u128, message: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&key.to_le_bytes());
        hasher.write(message);
        hasher.finish()
    }

    /// The key of the paper's appendix A.
    const KEY: u128 = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;

    #[test]
    fn the_authors_vector_of_one_byte() {
        // vectors.h of the reference code, second line: the message 00.
        assert_eq!(tag(KEY, 0).to_le_bytes(), [0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74]);
    }

    #[test]
    fn the_crate_is_the_papers_siphash() {
        // Appendix A: the message 00 01 … 0e.
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(tag_by_crate(KEY, &message), 0xa129_ca61_49be_45e5);
    }

    proptest! {
        #[test]
        fn agrees_with_the_siphasher_crate(key: u128, message: u8) {
            prop_assert_eq!(tag(key, message), tag_by_crate(key, &[message]));
        }
    }
}
