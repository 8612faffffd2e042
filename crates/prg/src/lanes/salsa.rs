//! Salsa20 with 128-bit keys (Bernstein, "Salsa20 specification", sections 8 and 9).

use super::Core;
use super::group::{Block32, each_block};
use super::vector::Vector;

/// "expand 16-byte k": Bernstein's constants for 128-bit keys.
const TAU: [u32; 4] = [0x6170_7865, 0x3120_646e, 0x7962_2d36, 0x6b20_6574];

/// Salsa20 of `ROUNDS` rounds: the seed is the 128-bit key, the nonce is zero.
///
/// Children are the first half of block 0, the leaf is block 1.
pub(crate) struct Salsa<const ROUNDS: usize>;

impl<const ROUNDS: usize> Core for Salsa<ROUNDS> {
    #[inline(always)]
    fn expand<V: Vector>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
        each_block::<Self, V, 2>(nodes, 0, correction, children);
    }

    #[inline(always)]
    fn convert<V: Vector>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
        each_block::<Self, V, 4>(nodes, 1, correction, leaves);
    }
}

impl<const ROUNDS: usize> Block32 for Salsa<ROUNDS> {
    /// Constants on the diagonal; the key before and after the 64-bit nonce and counter.
    #[inline(always)]
    fn block<V: Vector>(seed: [V; 4], counter: u32) -> [V; 16] {
        let mut state = [V::splat32(0); 16];
        for (word, constant) in TAU.into_iter().enumerate() {
            state[5 * word] = V::splat32(constant);
        }
        state[1..5].copy_from_slice(&seed);
        state[8] = V::splat32(counter);
        state[11..15].copy_from_slice(&seed);
        hash::<ROUNDS, V>(&state)
    }
}

/// The Salsa20 hash function of any state.
#[inline(always)]
fn hash<const ROUNDS: usize, V: Vector>(state: &[V; 16]) -> [V; 16] {
    let mut x = *state;
    for _ in 0..ROUNDS / 2 {
        quarter_round(&mut x, [0, 4, 8, 12]);
        quarter_round(&mut x, [5, 9, 13, 1]);
        quarter_round(&mut x, [10, 14, 2, 6]);
        quarter_round(&mut x, [15, 3, 7, 11]);
        quarter_round(&mut x, [0, 1, 2, 3]);
        quarter_round(&mut x, [5, 6, 7, 4]);
        quarter_round(&mut x, [10, 11, 8, 9]);
        quarter_round(&mut x, [15, 12, 13, 14]);
    }
    for (x, state) in x.iter_mut().zip(state) {
        *x = x.add32(*state);
    }
    x
}

#[inline(always)]
fn quarter_round<V: Vector>(x: &mut [V; 16], [a, b, c, d]: [usize; 4]) {
    x[b] = x[b].xor(x[a].add32(x[d]).rotate32::<7>());
    x[c] = x[c].xor(x[b].add32(x[a]).rotate32::<9>());
    x[d] = x[d].xor(x[c].add32(x[b]).rotate32::<13>());
    x[a] = x[a].xor(x[d].add32(x[c]).rotate32::<18>());
}

#[cfg(test)]
mod tests {
    use super::super::vector::Portable;
    use super::*;
    use proptest::prelude::*;
    use salsa20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};

    /// The lowest word of every register, as bytes.
    fn bytes(block: [Portable; 16]) -> [u8; 64] {
        let mut out = [0; 64];
        for (out, word) in out.chunks_exact_mut(4).zip(block) {
            out.copy_from_slice(&word.0[0].to_le_bytes());
        }
        out
    }

    #[test]
    fn block_0_of_estream_set_1_vector_0_with_128_bits() {
        // The key is 80 00 00 …: its first little-endian word is 0x80.
        let seed = [0x80, 0, 0, 0].map(Portable::splat32);
        assert_eq!(
            hex::encode_upper(bytes(Salsa::<20>::block(seed, 0))),
            "4DFA5E481DA23EA09A31022050859936DA52FCEE218005164F267CB65F5CFD7F\
             2B4F97E0FF16924A52DF269515110A07F9E460BC65EF95DA58F740B7D1DBB0AA"
        );
        assert_eq!(
            hex::encode_upper(bytes(Salsa::<12>::block(seed, 0))),
            "FC207DBFC76C5E1774961E7A5AAD09069B2225AC1CE0FE7A0CE77003E7E5BDF8\
             B31AF821000813E6C56B8C1771D6EE7039B2FBD0A68E8AD70A3944B677937897"
        );
    }

    #[test]
    fn block_3_of_estream_set_1_vector_0_with_128_bits() {
        assert_eq!(
            hex::encode_upper(bytes(Salsa::<20>::block([0x80, 0, 0, 0].map(Portable::splat32), 3))),
            "DA9C1581F429E0A00F7D67E23B730676783B262E8EB43A25F55FB90B3E753AEF\
             8C6713EC66C51881111593CCB3E8CB8F8DE124080501EEEB389C4BCB6977CF95"
        );
    }

    /// The same function under the 256-bit key layout of the specification's section 9.
    fn with_256_bits<const ROUNDS: usize>(key: [u8; 32], counter: u64, nonce: [u8; 8]) -> [u8; 64] {
        let counter = counter.to_le_bytes();
        let input = [b"expa", &key[..16], b"nd 3", &nonce, &counter, b"2-by", &key[16..], b"te k"];
        let input: Vec<u8> = input.concat();
        let state = std::array::from_fn(|i| {
            Portable::splat32(u32::from_le_bytes(input[4 * i..][..4].try_into().unwrap()))
        });
        bytes(hash::<ROUNDS, Portable>(&state))
    }

    proptest! {
        #[test]
        fn hash_function_agrees_with_the_salsa20_crate(
            key: [u8; 32], counter in 0..1u64 << 40, nonce: [u8; 8],
        ) {
            let mut expected = [0; 64];
            let mut cipher = salsa20::Salsa20::new(&key.into(), &nonce.into());
            cipher.seek(64 * counter);
            cipher.apply_keystream(&mut expected);
            prop_assert_eq!(with_256_bits::<20>(key, counter, nonce), expected);

            let mut expected = [0; 64];
            let mut cipher = salsa20::Salsa12::new(&key.into(), &nonce.into());
            cipher.seek(64 * counter);
            cipher.apply_keystream(&mut expected);
            prop_assert_eq!(with_256_bits::<12>(key, counter, nonce), expected);
        }
    }
}
