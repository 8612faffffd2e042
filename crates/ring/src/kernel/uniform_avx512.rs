//! Uniform residues from a seed: ChaCha20 (RFC 8439), sixteen blocks side by side.

#![allow(clippy::needless_range_loop, reason = "registers side by side, by number")]

use std::arch::x86_64::*;

use super::avx512::LANES;
use super::lanes_avx512::Lanes;
use super::{Modulus, Stream};

/// Blocks that are computed together, and 64-bit words of one.
const BLOCKS: usize = 16;
const BLOCK_WORDS: usize = 8;

/// See [`Kernel::uniform`](super::Kernel::uniform).
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn uniform(modulus: Modulus, stream: Stream, weight: u64, out: &mut [u64]) {
    let lanes = Lanes::<true>::new(modulus);
    let factor = [weight, modulus.shoup(weight)].map(|w| _mm512_set1_epi64(w as i64));
    let cut = _mm512_set1_epi64((u64::MAX >> (64 - modulus.bits())) as i64);
    let mut start = start(stream);
    let mut filled = 0;
    while filled < out.len() {
        let words = words(&start);
        start[COUNTER] = _mm512_add_epi32(start[COUNTER], _mm512_set1_epi32(BLOCKS as i32));
        for words in words {
            let value = _mm512_and_si512(words, cut);
            let is_below = _mm512_cmplt_epu64_mask(value, lanes.q);
            let scaled = lanes.times(value, (factor[0], factor[1]));
            let kept = _mm512_maskz_compress_epi64(is_below, scaled);
            let count = is_below.count_ones() as usize;
            match out[filled..].first_chunk_mut::<LANES>() {
                // SAFETY: 64 bytes.
                Some(out) => unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), kept) },
                None => {
                    let rest = &mut out[filled..];
                    let mut last = [0; LANES];
                    // SAFETY: 64 bytes.
                    unsafe { _mm512_storeu_si512(last.as_mut_ptr().cast(), kept) };
                    rest.copy_from_slice(&last[..rest.len()]);
                    if count >= rest.len() {
                        return;
                    }
                }
            }
            filled += count;
        }
    }
}

/// The words that sixteen blocks start from, block by block in the lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn start(stream: Stream) -> [__m512i; 16] {
    let mut bytes = [0; 64];
    bytes[..16].copy_from_slice(b"expand 32-byte k");
    bytes[16..48].copy_from_slice(stream.seed);
    bytes[52..].copy_from_slice(&stream.nonce());
    let (words, _) = bytes.as_chunks::<4>();
    let mut start = [_mm512_setzero_si512(); 16];
    for (start, word) in start.iter_mut().zip(words) {
        *start = _mm512_set1_epi32(i32::from_le_bytes(*word));
    }
    start[COUNTER] = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    start
}

/// A round: quarter rounds of four words each, side by side. Written out, so that every word stays in a
/// register.
macro_rules! round {
    ($state:ident, $([$a:literal, $b:literal, $c:literal, $d:literal]),*) => {
        round!(step $state, 16, $([$a, $b, $d]),*);
        round!(step $state, 12, $([$c, $d, $b]),*);
        round!(step $state, 8, $([$a, $b, $d]),*);
        round!(step $state, 7, $([$c, $d, $b]),*);
    };
    (step $state:ident, $bits:literal, $([$to:literal, $by:literal, $turned:literal]),*) => {
        $($state[$to] = _mm512_add_epi32($state[$to], $state[$by]);)*
        $($state[$turned] = _mm512_xor_si512($state[$turned], $state[$to]);)*
        $($state[$turned] = _mm512_rol_epi32::<$bits>($state[$turned]);)*
    };
}

/// The 64-bit words of sixteen blocks, one after the other.
#[inline]
#[target_feature(enable = "avx512f")]
fn words(start: &[__m512i; 16]) -> [__m512i; BLOCKS * BLOCK_WORDS / LANES] {
    let mut state = *start;
    for _ in 0..10 {
        round!(state, [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]);
        round!(state, [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]);
    }
    for i in 0..16 {
        state[i] = _mm512_add_epi32(state[i], start[i]);
    }
    // Word k of blocks 0, 1, 4, 5, 8, 9, 12, 13, and of those between.
    let mut halves = [[_mm512_setzero_si512(); BLOCK_WORDS]; 2];
    for k in 0..BLOCK_WORDS {
        halves[0][k] = _mm512_unpacklo_epi32(state[2 * k], state[2 * k + 1]);
        halves[1][k] = _mm512_unpackhi_epi32(state[2 * k], state[2 * k + 1]);
    }
    let mut out = [_mm512_setzero_si512(); 16];
    for (half, rows) in halves.iter().enumerate() {
        for parity in 0..2 {
            // Words k and k + 1 of every second block, block by block.
            let mut pairs = [_mm512_setzero_si512(); 4];
            for k in 0..4 {
                let [x, y] = [rows[2 * k], rows[2 * k + 1]];
                pairs[k] = match parity {
                    0 => _mm512_unpacklo_epi64(x, y),
                    _ => _mm512_unpackhi_epi64(x, y),
                };
            }
            let [a, b, c, d] = pairs;
            let low = [_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0x44>(c, d)];
            let high = [_mm512_shuffle_i64x2::<0xee>(a, b), _mm512_shuffle_i64x2::<0xee>(c, d)];
            let block = 2 * half + parity;
            out[block] = _mm512_shuffle_i64x2::<0x88>(low[0], low[1]);
            out[block + 4] = _mm512_shuffle_i64x2::<0xdd>(low[0], low[1]);
            out[block + 8] = _mm512_shuffle_i64x2::<0x88>(high[0], high[1]);
            out[block + 12] = _mm512_shuffle_i64x2::<0xdd>(high[0], high[1]);
        }
    }
    out
}

/// The word of a block that counts.
const COUNTER: usize = 12;
