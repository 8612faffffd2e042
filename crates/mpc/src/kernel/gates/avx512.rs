//! VAES: four blocks a register.

use super::lockstep::{self, Machine};
use crate::Block;
use crate::garble::Inputs;
use std::arch::asm;
use std::arch::x86_64::*;

struct Avx512;

/// Shuffle that swaps the two 64-bit halves of every 128-bit block.
const SWAP_HALVES: i32 = 0b01_00_11_10;

// SAFETY: it needs avx512f, bw, dq, vl and vaes.
unsafe impl Machine for Avx512 {
    type Register = __m512i;
    type Mask = __mmask8;
    const BLOCKS: usize = 4;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        // SAFETY: the caller lends 64 bytes.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, x: __m512i) {
        // SAFETY: the caller lends 64 bytes.
        unsafe { _mm512_storeu_si512(to.cast(), x) }
    }

    #[inline(always)]
    unsafe fn store_low(to: *mut u64, [x, y]: [__m512i; 2]) {
        // SAFETY: the caller lends 8 words.
        unsafe {
            let low = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
            _mm512_storeu_si512(to.cast(), _mm512_permutex2var_epi64(x, low, y));
        }
    }

    #[inline(always)]
    unsafe fn broadcast(x: Block) -> __m512i {
        // SAFETY: the caller has the features; so below.
        unsafe { _mm512_broadcast_i64x2(_mm_set_epi64x((x >> 64) as i64, x as i64)) }
    }

    #[inline(always)]
    unsafe fn xor(x: __m512i, y: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_xor_si512(x, y) }
    }

    #[inline(always)]
    unsafe fn colour(x: __m512i) -> __mmask8 {
        // SAFETY: as above.
        unsafe { _mm512_test_epi64_mask(_mm512_unpacklo_epi64(x, x), _mm512_set1_epi64(1)) }
    }

    #[inline(always)]
    unsafe fn chosen(bits: u16) -> __mmask8 {
        // SAFETY: as above.
        unsafe {
            let each = _mm512_setr_epi64(1, 1, 2, 2, 4, 4, 8, 8);
            _mm512_test_epi64_mask(_mm512_set1_epi64(i64::from(bits)), each)
        }
    }

    #[inline(always)]
    unsafe fn xor_where(mask: __mmask8, x: __m512i, y: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_mask_xor_epi64(x, mask, x, y) }
    }

    #[inline(always)]
    unsafe fn sigma(x: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let swapped = _mm512_shuffle_epi32::<SWAP_HALVES>(x);
            _mm512_mask_xor_epi64(swapped, 0b10_10_10_10, swapped, x)
        }
    }

    #[inline(always)]
    unsafe fn permute<const N: usize>(
        keys: &[__m512i; 11],
        mut x: [__m512i; N],
        y: [__m512i; N],
    ) -> [__m512i; N] {
        let [first, inner @ .., last] = keys;
        for x in &mut x {
            // SAFETY: as above.
            *x = unsafe { _mm512_xor_si512(*x, *first) };
        }
        for &key in inner {
            for x in &mut x {
                // SAFETY: as above.
                *x = unsafe { _mm512_aesenc_epi128(*x, key) };
            }
            // SAFETY: as above.
            unsafe { keep_abreast(&mut x) };
        }
        for (x, y) in x.iter_mut().zip(y) {
            // SAFETY: as above.
            *x = unsafe { _mm512_aesenclast_epi128(*x, _mm512_xor_si512(y, *last)) };
        }
        x
    }
}

/// Holds the compiler to one round of all registers before the next round of any. Left to itself it
/// runs some of them alone to save registers, and these then wait for their own latency.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn keep_abreast(x: &mut [__m512i]) {
    let (fours, _) = x.as_chunks_mut::<4>();
    for [a, b, c, d] in fours {
        // SAFETY: no instruction is emitted; the operands stay as they are.
        unsafe {
            asm!(
                "/* {} {} {} {} */",
                inout(zmm_reg) * a,
                inout(zmm_reg) * b,
                inout(zmm_reg) * c,
                inout(zmm_reg) * d,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
pub(super) fn garble<const TMMO: bool>(
    inputs: &Inputs<'_>,
    delta: Block,
    tables: &mut [u8],
    masks: &mut [u64],
) {
    // SAFETY: this function has the features.
    unsafe { lockstep::garble::<Avx512, TMMO>(inputs, delta, tables, masks) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
pub(super) fn evaluate<const TMMO: bool>(inputs: &Inputs<'_>, tables: &[u8], out: &mut [u64]) {
    // SAFETY: this function has the features.
    unsafe { lockstep::evaluate::<Avx512, TMMO>(inputs, tables, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
pub(super) fn select(delta: Block, zeros: &[Block], choices: &[u16], out: &mut [Block]) {
    // SAFETY: this function has the features.
    unsafe { lockstep::select::<Avx512>(delta, zeros, choices, out) }
}

#[cfg(any(test, feature = "bench"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
pub(super) fn churn(block: Block, blocks: u64) -> Block {
    // SAFETY: this function has the features.
    unsafe { lockstep::churn::<Avx512>(block, blocks) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn agrees_with_portable() {
        super::super::check::agrees_with_portable(hushtable_prg::Tier::Avx512);
    }
}
