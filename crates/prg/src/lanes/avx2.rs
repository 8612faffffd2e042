//! Two lanes in a 256-bit register.

use super::vector::Vector;
use std::arch::x86_64::*;

/// Only the functions that the `avx2` tier enters through make one: they carry the target
/// features that the intrinsics below need, and everything here is inlined into them.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256i);

/// Calls an intrinsic and wraps its result.
macro_rules! wrap {
    ($call:expr) => {
        // SAFETY: the type is only instantiated below functions with avx2 enabled, whose
        // callers hold a platform of the avx2 tier.
        Self(unsafe { $call })
    };
}

impl Vector for Avx2 {
    const LANES: usize = 2;

    #[inline(always)]
    fn load(x: &[u128]) -> Self {
        let x: &[u128; 2] = x[..2].try_into().expect("two values were sliced");
        wrap!(_mm256_loadu_si256(x.as_ptr().cast()))
    }

    #[inline(always)]
    fn store_lane(self, lane: usize, out: &mut u128) {
        // SAFETY: avx2 as above; both types are 32 bytes without padding.
        let lanes: [__m128i; 2] = unsafe { std::mem::transmute(self.0) };
        // SAFETY: a u128 is 16 writable bytes; the store needs no alignment.
        unsafe { _mm_storeu_si128(std::ptr::from_mut(out).cast(), lanes[lane]) }
    }

    #[inline(always)]
    fn splat(x: u128) -> Self {
        Self::load(&[x; 2])
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        wrap!(_mm256_xor_si256(self.0, other.0))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        wrap!(_mm256_and_si256(self.0, other.0))
    }

    #[inline(always)]
    fn add32(self, other: Self) -> Self {
        wrap!(_mm256_add_epi32(self.0, other.0))
    }

    #[inline(always)]
    fn add64(self, other: Self) -> Self {
        wrap!(_mm256_add_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn rotate32<const BITS: i32>(self) -> Self {
        wrap!(_mm256_or_si256(
            _mm256_sll_epi32(self.0, _mm_cvtsi32_si128(BITS)),
            _mm256_srl_epi32(self.0, _mm_cvtsi32_si128(32 - BITS)),
        ))
    }

    #[inline(always)]
    fn rotate64<const BITS: i32>(self) -> Self {
        wrap!(_mm256_or_si256(
            _mm256_sll_epi64(self.0, _mm_cvtsi32_si128(BITS)),
            _mm256_srl_epi64(self.0, _mm_cvtsi32_si128(64 - BITS)),
        ))
    }

    #[inline(always)]
    fn low32(self, other: Self) -> Self {
        wrap!(_mm256_unpacklo_epi32(self.0, other.0))
    }

    #[inline(always)]
    fn high32(self, other: Self) -> Self {
        wrap!(_mm256_unpackhi_epi32(self.0, other.0))
    }

    #[inline(always)]
    fn low64(self, other: Self) -> Self {
        wrap!(_mm256_unpacklo_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn high64(self, other: Self) -> Self {
        wrap!(_mm256_unpackhi_epi64(self.0, other.0))
    }
}
