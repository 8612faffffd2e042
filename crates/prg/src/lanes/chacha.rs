//! ChaCha with 128-bit keys (Bernstein, "ChaCha, a variant of Salsa20", 2008).

use super::Core;

/// "expand 16-byte k": Bernstein's constants for 128-bit keys.
const TAU: [u32; 4] = [0x6170_7865, 0x3120_646e, 0x7962_2d36, 0x6b20_6574];

/// ChaCha of `ROUNDS` rounds: the seed is the 128-bit key, the nonce is zero.
///
/// Children are the first half of block 0, the leaf is block 1.
pub(crate) struct ChaCha<const ROUNDS: usize>;

impl<const ROUNDS: usize> Core for ChaCha<ROUNDS> {
    #[inline(always)]
    fn children<const N: usize>(seeds: &[u128; N]) -> [[u128; 2]; N] {
        let block = block::<ROUNDS, N>(&state(seeds, 0));
        std::array::from_fn(|lane| gather(&block, lane))
    }

    #[inline(always)]
    fn leaves<const N: usize>(seeds: &[u128; N]) -> [[u128; 4]; N] {
        let block = block::<ROUNDS, N>(&state(seeds, 1));
        std::array::from_fn(|lane| gather(&block, lane))
    }
}

/// One lane's words as little-endian `u128`s.
#[inline(always)]
pub(super) fn gather<const N: usize, const W: usize>(
    block: &[[u32; N]; 16],
    lane: usize,
) -> [u128; W] {
    std::array::from_fn(|j| {
        (0..4).fold(0, |word, k| word | u128::from(block[4 * j + k][lane]) << (32 * k))
    })
}

/// Word `word` of every seed.
#[inline(always)]
pub(super) fn seed_words<const N: usize>(seeds: &[u128; N], word: usize) -> [u32; N] {
    std::array::from_fn(|lane| (seeds[lane] >> (32 * word)) as u32)
}

/// Constants, key, key again, 64-bit counter, 64-bit nonce.
#[inline(always)]
fn state<const N: usize>(seeds: &[u128; N], counter: u32) -> [[u32; N]; 16] {
    std::array::from_fn(|word| match word {
        0..4 => [TAU[word]; N],
        4..12 => seed_words(seeds, word % 4),
        12 => [counter; N],
        _ => [0; N],
    })
}

#[inline(always)]
fn block<const ROUNDS: usize, const N: usize>(input: &[[u32; N]; 16]) -> [[u32; N]; 16] {
    let mut x = *input;
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
    for (x, input) in x.iter_mut().zip(input) {
        for lane in 0..N {
            x[lane] = x[lane].wrapping_add(input[lane]);
        }
    }
    x
}

#[inline(always)]
fn quarter_round<const N: usize>(x: &mut [[u32; N]; 16], [a, b, c, d]: [usize; 4]) {
    add_xor_rotate(x, a, b, d, 16);
    add_xor_rotate(x, c, d, b, 12);
    add_xor_rotate(x, a, b, d, 8);
    add_xor_rotate(x, c, d, b, 7);
}

/// a += b; d ^= a; d <<<= bits
#[inline(always)]
fn add_xor_rotate<const N: usize>(x: &mut [[u32; N]; 16], a: usize, b: usize, d: usize, bits: u32) {
    for lane in 0..N {
        x[a][lane] = x[a][lane].wrapping_add(x[b][lane]);
        x[d][lane] = (x[d][lane] ^ x[a][lane]).rotate_left(bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chacha20::cipher::{KeyIvInit, StreamCipher};
    use proptest::prelude::*;

    /// Block of one lane, as bytes.
    fn bytes(block: [[u32; 1]; 16]) -> [u8; 64] {
        let mut out = [0; 64];
        for (out, [word]) in out.chunks_exact_mut(4).zip(block) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The same permutation under the 256-bit key layout of RFC 8439.
    fn rfc_8439<const ROUNDS: usize>(key: [u8; 32], counter: u32, nonce: [u8; 12]) -> [u8; 64] {
        let word =
            |bytes: &[u8], i: usize| [u32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap())];
        const SIGMA: &[u8] = b"expand 32-byte k";
        bytes(block::<ROUNDS, 1>(&std::array::from_fn(|i| match i {
            0..4 => word(SIGMA, i),
            4..12 => word(&key, i - 4),
            12 => [counter],
            _ => word(&nonce, i - 13),
        })))
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

    proptest! {
        #[test]
        fn block_function_agrees_with_the_chacha20_crate(
            key: [u8; 32], counter in 0u32..u32::MAX, nonce: [u8; 12],
        ) {
            let mut expected = [0; 64];
            let mut cipher = chacha20::ChaCha20::new(&key.into(), &nonce.into());
            chacha20::cipher::StreamCipherSeek::seek(&mut cipher, 64 * u64::from(counter));
            cipher.apply_keystream(&mut expected);
            prop_assert_eq!(rfc_8439::<20>(key, counter, nonce), expected);

            let mut expected = [0; 64];
            let mut cipher = chacha20::ChaCha12::new(&key.into(), &nonce.into());
            chacha20::cipher::StreamCipherSeek::seek(&mut cipher, 64 * u64::from(counter));
            cipher.apply_keystream(&mut expected);
            prop_assert_eq!(rfc_8439::<12>(key, counter, nonce), expected);
        }
    }
}
