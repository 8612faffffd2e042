//! Salsa20 with 128-bit keys (Bernstein, "Salsa20 specification", sections 8 and 9).

use super::Core;
use super::chacha::{gather, seed_words};

/// "expand 16-byte k": Bernstein's constants for 128-bit keys.
const TAU: [u32; 4] = [0x6170_7865, 0x3120_646e, 0x7962_2d36, 0x6b20_6574];

/// Salsa20 of `ROUNDS` rounds: the seed is the 128-bit key, the nonce is zero.
///
/// Children are the first half of block 0, the leaf is block 1.
pub(crate) struct Salsa<const ROUNDS: usize>;

impl<const ROUNDS: usize> Core for Salsa<ROUNDS> {
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

/// Constants on the diagonal, the key before and after nonce and counter.
#[inline(always)]
fn state<const N: usize>(seeds: &[u128; N], counter: u32) -> [[u32; N]; 16] {
    std::array::from_fn(|word| match word {
        0 | 5 | 10 | 15 => [TAU[word / 5]; N],
        1..5 => seed_words(seeds, word - 1),
        11..15 => seed_words(seeds, word - 11),
        8 => [counter; N],
        _ => [0; N],
    })
}

#[inline(always)]
fn block<const ROUNDS: usize, const N: usize>(input: &[[u32; N]; 16]) -> [[u32; N]; 16] {
    let mut x = *input;
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
    for (x, input) in x.iter_mut().zip(input) {
        for lane in 0..N {
            x[lane] = x[lane].wrapping_add(input[lane]);
        }
    }
    x
}

#[inline(always)]
fn quarter_round<const N: usize>(x: &mut [[u32; N]; 16], [a, b, c, d]: [usize; 4]) {
    add_rotate_xor(x, b, a, d, 7);
    add_rotate_xor(x, c, b, a, 9);
    add_rotate_xor(x, d, c, b, 13);
    add_rotate_xor(x, a, d, c, 18);
}

/// target ^= (a + b) <<< bits
#[inline(always)]
fn add_rotate_xor<const N: usize>(
    x: &mut [[u32; N]; 16],
    target: usize,
    a: usize,
    b: usize,
    bits: u32,
) {
    for lane in 0..N {
        x[target][lane] ^= x[a][lane].wrapping_add(x[b][lane]).rotate_left(bits);
    }
}
