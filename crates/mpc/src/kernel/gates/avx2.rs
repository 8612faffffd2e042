//! AES-NI: one block a register.

use super::lockstep::{self, Machine};
use crate::Block;
use crate::garble::Inputs;
use std::arch::asm;
use std::arch::x86_64::*;

struct Avx2;

// SAFETY: it needs avx2 and aes.
unsafe impl Machine for Avx2 {
    type Register = __m128i;
    type Mask = __m128i;
    const BLOCKS: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m128i {
        // SAFETY: the caller lends 16 bytes.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, x: __m128i) {
        // SAFETY: the caller lends 16 bytes.
        unsafe { _mm_storeu_si128(to.cast(), x) }
    }

    #[inline(always)]
    unsafe fn store_low(to: *mut u64, [x, y]: [__m128i; 2]) {
        // SAFETY: the caller lends 2 words.
        unsafe { _mm_storeu_si128(to.cast(), _mm_unpacklo_epi64(x, y)) }
    }

    #[inline(always)]
    unsafe fn broadcast(x: Block) -> __m128i {
        // SAFETY: the caller has the features; so below.
        unsafe { _mm_set_epi64x((x >> 64) as i64, x as i64) }
    }

    #[inline(always)]
    unsafe fn xor(x: __m128i, y: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_xor_si128(x, y) }
    }

    #[inline(always)]
    unsafe fn colour(x: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe {
            let low_words = _mm_shuffle_epi32::<0>(x);
            _mm_srai_epi32::<31>(_mm_slli_epi32::<31>(low_words))
        }
    }

    #[inline(always)]
    unsafe fn chosen(bits: u16) -> __m128i {
        // SAFETY: as above.
        unsafe { Self::colour(_mm_cvtsi32_si128(i32::from(bits))) }
    }

    #[inline(always)]
    unsafe fn xor_where(mask: __m128i, x: __m128i, y: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_xor_si128(x, _mm_and_si128(mask, y)) }
    }

    #[inline(always)]
    unsafe fn sigma(x: __m128i) -> __m128i {
        const SWAP_HALVES: i32 = 0b01_00_11_10;
        // SAFETY: as above.
        unsafe {
            let swapped = _mm_shuffle_epi32::<SWAP_HALVES>(x);
            _mm_xor_si128(swapped, _mm_and_si128(x, _mm_set_epi64x(-1, 0)))
        }
    }

    #[inline(always)]
    unsafe fn permute<const N: usize>(
        keys: &[__m128i; 11],
        mut x: [__m128i; N],
        y: [__m128i; N],
    ) -> [__m128i; N] {
        let [first, inner @ .., last] = keys;
        for x in &mut x {
            // SAFETY: as above.
            *x = unsafe { _mm_xor_si128(*x, *first) };
        }
        for &key in inner {
            for x in &mut x {
                // SAFETY: as above.
                *x = unsafe { _mm_aesenc_si128(*x, key) };
            }
            // SAFETY: as above.
            unsafe { keep_abreast(&mut x) };
        }
        for (x, y) in x.iter_mut().zip(y) {
            // SAFETY: as above.
            *x = unsafe { _mm_aesenclast_si128(*x, _mm_xor_si128(y, *last)) };
        }
        x
    }
}

/// Holds the compiler to one round of all blocks before the next round of any. Left to itself it runs
/// blocks one after the other to save registers, and every block then waits for its own latency.
#[inline]
#[target_feature(enable = "avx2,aes")]
fn keep_abreast(x: &mut [__m128i]) {
    let (fours, _) = x.as_chunks_mut::<4>();
    for [a, b, c, d] in fours {
        // SAFETY: no instruction is emitted; the operands stay as they are.
        unsafe {
            asm!(
                "/* {} {} {} {} */",
                inout(xmm_reg) * a,
                inout(xmm_reg) * b,
                inout(xmm_reg) * c,
                inout(xmm_reg) * d,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

#[target_feature(enable = "avx2,aes")]
pub(super) fn garble<const TMMO: bool>(
    inputs: &Inputs<'_>,
    delta: Block,
    tables: &mut [u8],
    masks: &mut [u64],
) {
    // SAFETY: this function has the features.
    unsafe { lockstep::garble::<Avx2, TMMO>(inputs, delta, tables, masks) }
}

#[target_feature(enable = "avx2,aes")]
pub(super) fn evaluate<const TMMO: bool>(inputs: &Inputs<'_>, tables: &[u8], out: &mut [u64]) {
    // SAFETY: this function has the features.
    unsafe { lockstep::evaluate::<Avx2, TMMO>(inputs, tables, out) }
}

#[target_feature(enable = "avx2,aes")]
pub(super) fn select(delta: Block, zeros: &[Block], choices: &[u16], out: &mut [Block]) {
    // SAFETY: this function has the features.
    unsafe { lockstep::select::<Avx2>(delta, zeros, choices, out) }
}

#[cfg(any(test, feature = "bench"))]
#[target_feature(enable = "avx2,aes")]
pub(super) fn churn(block: Block, blocks: u64) -> Block {
    // SAFETY: this function has the features.
    unsafe { lockstep::churn::<Avx2>(block, blocks) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn agrees_with_portable() {
        super::super::check::agrees_with_portable(hushtable_prg::Tier::Avx2);
    }
}
