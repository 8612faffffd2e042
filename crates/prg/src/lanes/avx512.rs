//! Four lanes in a 512-bit register.

use super::vector::Vector;
use std::arch::x86_64::*;

/// Only the functions that the `avx512` tier enters through make one: they carry the target
/// features that the intrinsics below need, and everything here is inlined into them.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512i);

/// Calls an intrinsic and wraps its result.
macro_rules! wrap {
    ($call:expr) => {
        // SAFETY: the type is only instantiated below functions with avx512f enabled, whose
        // callers hold a platform of the avx512 tier.
        Self(unsafe { $call })
    };
}

impl Vector for Avx512 {
    const LANES: usize = 4;

    #[inline(always)]
    fn load(x: &[u128]) -> Self {
        let x: &[u128; 4] = x[..4].try_into().expect("four values were sliced");
        wrap!(_mm512_loadu_si512(x.as_ptr().cast()))
    }

    #[inline(always)]
    fn store_lane(self, lane: usize, out: &mut u128) {
        // SAFETY: avx512f as above; both types are 64 bytes without padding.
        let lanes: [__m128i; 4] = unsafe { std::mem::transmute(self.0) };
        // SAFETY: a u128 is 16 writable bytes; the store needs no alignment.
        unsafe { _mm_storeu_si128(std::ptr::from_mut(out).cast(), lanes[lane]) }
    }

    #[inline(always)]
    fn splat(x: u128) -> Self {
        Self::load(&[x; 4])
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        wrap!(_mm512_xor_si512(self.0, other.0))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        wrap!(_mm512_and_si512(self.0, other.0))
    }

    #[inline(always)]
    fn add32(self, other: Self) -> Self {
        wrap!(_mm512_add_epi32(self.0, other.0))
    }

    #[inline(always)]
    fn add64(self, other: Self) -> Self {
        wrap!(_mm512_add_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn rotate32<const BITS: i32>(self) -> Self {
        wrap!(_mm512_rol_epi32::<BITS>(self.0))
    }

    #[inline(always)]
    fn rotate64<const BITS: i32>(self) -> Self {
        wrap!(_mm512_rol_epi64::<BITS>(self.0))
    }

    #[inline(always)]
    fn low32(self, other: Self) -> Self {
        wrap!(_mm512_unpacklo_epi32(self.0, other.0))
    }

    #[inline(always)]
    fn high32(self, other: Self) -> Self {
        wrap!(_mm512_unpackhi_epi32(self.0, other.0))
    }

    #[inline(always)]
    fn low64(self, other: Self) -> Self {
        wrap!(_mm512_unpacklo_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn high64(self, other: Self) -> Self {
        wrap!(_mm512_unpackhi_epi64(self.0, other.0))
    }
}
