//! ChaCha with 128-bit keys (Bernstein, "ChaCha, a variant of Salsa20", 2008).

use super::Core;
use super::group::{Block32, each_block};
use super::vector::Vector;

/// "expand 16-byte k": Bernstein's constants for 128-bit keys.
const TAU: [u32; 4] = [0x6170_7865, 0x3120_646e, 0x7962_2d36, 0x6b20_6574];

/// ChaCha of `ROUNDS` rounds: the seed is the 128-bit key, the nonce is zero.
///
/// Children are the first half of block 0, the leaf is block 1.
pub(crate) struct ChaCha<const ROUNDS: usize>;

impl<const ROUNDS: usize> Core for ChaCha<ROUNDS> {
    #[inline(always)]
    fn expand<V: Vector>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
        each_block::<Self, V, 2>(nodes, 0, correction, children);
    }

    #[inline(always)]
    fn convert<V: Vector>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
        each_block::<Self, V, 4>(nodes, 1, correction, leaves);
    }
}

impl<const ROUNDS: usize> Block32 for ChaCha<ROUNDS> {
    /// Constants, key, key again, 64-bit counter, 64-bit nonce.
    #[inline(always)]
    fn block<V: Vector>(seed: [V; 4], counter: u32) -> [V; 16] {
        let mut state = [V::splat32(0); 16];
        for (word, constant) in TAU.into_iter().enumerate() {
            state[word] = V::splat32(constant);
        }
        state[4..8].copy_from_slice(&seed);
        state[8..12].copy_from_slice(&seed);
        state[12] = V::splat32(counter);
        hash::<ROUNDS, V>(&state)
    }
}

/// The ChaCha block function of any state.
#[inline(always)]
fn hash<const ROUNDS: usize, V: Vector>(state: &[V; 16]) -> [V; 16] {
    let mut x = *state;
    for _ in 0..ROUNDS / 2 {
        quarter_round(&mut x, [0, 4, 8, 12]);
        quarter_round(&mut x, [1, 5, 9, 13]);
        quarter_round(&mut x, [2, 6, 10, 14]);
        quarter_round(&mut x, [3, 7, 11, 15]);
        quarter_round(&mut x, [0, 5, 10, 15]);
        quarter_round(&mut x, [1, 6, 11, 12]);
        quarter_round(&mut x, [2, 7, 8, 13]);
        quarter_round(&mut x, [3, 4, 9, 14]);
    }
    for (x, state) in x.iter_mut().zip(state) {
        *x = x.add32(*state);
    }
    x
}

#[inline(always)]
fn quarter_round<V: Vector>(x: &mut [V; 16], [a, b, c, d]: [usize; 4]) {
    x[a] = x[a].add32(x[b]);
    x[d] = x[d].xor(x[a]).rotate32::<16>();
    x[c] = x[c].add32(x[d]);
    x[b] = x[b].xor(x[c]).rotate32::<12>();
    x[a] = x[a].add32(x[b]);
    x[d] = x[d].xor(x[a]).rotate32::<8>();
    x[c] = x[c].add32(x[d]);
    x[b] = x[b].xor(x[c]).rotate32::<7>();
}

#[cfg(test)]
mod tests {
    use super::super::vector::Portable;
    use super::*;
    use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
    use proptest::prelude::*;

    /// The lowest word of every register, as bytes.
    fn bytes(block: [Portable; 16]) -> [u8; 64] {
        let mut out = [0; 64];
        for (out, word) in out.chunks_exact_mut(4).zip(block) {
            out.copy_from_slice(&word.0[0].to_le_bytes());
        }
        out
    }

    /// The same function under the 256-bit key layout of RFC 8439.
    fn rfc_8439<const ROUNDS: usize>(key: [u8; 32], counter: u32, nonce: [u8; 12]) -> [u8; 64] {
        let input = [b"expand 32-byte k", &key[..], &counter.to_le_bytes(), &nonce].concat();
        let state = std::array::from_fn(|i| {
            Portable::splat32(u32::from_le_bytes(input[4 * i..][..4].try_into().unwrap()))
        });
        bytes(hash::<ROUNDS, Portable>(&state))
    }

    #[test]
    fn block_function_of_rfc_8439_section_2_3_2() {
        let key = std::array::from_fn(|i| i as u8);
        let nonce = [0, 0, 0, 9, 0, 0, 0, 0x4a, 0, 0, 0, 0];
        assert_eq!(
            hex::encode(rfc_8439::<20>(key, 1, nonce)),
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e\
             d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
        );
    }

    #[test]
    fn blocks_0_and_1_of_the_zero_key_of_128_bits() {
        // draft-strombergson-chacha-test-vectors-01, TC1, 128-bit key.
        let block = |rounds, counter| {
            let seed = [Portable::splat32(0); 4];
            hex::encode(bytes(match rounds {
                12 => ChaCha::<12>::block(seed, counter),
                _ => ChaCha::<20>::block(seed, counter),
            }))
        };
        assert_eq!(
            block(20, 0),
            "89670952608364fd00b2f90936f031c8e756e15dba04b8493d00429259b20f46\
             cc04f111246b6c2ce066be3bfb32d9aa0fddfbc12123d4b9e44f34dca05a103f"
        );
        assert_eq!(
            block(20, 1),
            "6cd135c2878c832b5896b134f6142a9d4d8d0d8f1026d20a0a81512cbce6e975\
             8a7143d021978022a384141a80cea3062f41f67a752e66ad3411984c787e30ad"
        );
        assert_eq!(
            block(12, 0),
            "e1047ba9476bf8ff312c01b4345a7d8ca5792b0ad467313f1dc412b5fdce3241\
             0dea8b68bd774c36a920f092a04d3f95274fbeff97bc8491fcef37f85970b450"
        );
        assert_eq!(
            block(12, 1),
            "1d43b61a8f7e19fceddef368ae6bfb11101bd9fd3e4d127de30db2db1b472e76\
             426803a45e15b962751986ef1d9d50f598a5dcdc9fa529a28357991e784ea20f"
        );
    }

    proptest! {
        #[test]
        fn block_function_agrees_with_the_chacha20_crate(
            key: [u8; 32], counter in 0..u32::MAX, nonce: [u8; 12],
        ) {
            let mut expected = [0; 64];
            let mut cipher = chacha20::ChaCha20::new(&key.into(), &nonce.into());
            cipher.seek(64 * u64::from(counter));
            cipher.apply_keystream(&mut expected);
            prop_assert_eq!(rfc_8439::<20>(key, counter, nonce), expected);

            let mut expected = [0; 64];
            let mut cipher = chacha20::ChaCha12::new(&key.into(), &nonce.into());
            cipher.seek(64 * u64::from(counter));
            cipher.apply_keystream(&mut expected);
            prop_assert_eq!(rfc_8439::<12>(key, counter, nonce), expected);
        }
    }
}
