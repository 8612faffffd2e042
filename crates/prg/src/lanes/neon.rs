//! One lane in a 128-bit register.

use super::vector::Vector;
use std::arch::aarch64::*;

/// Neon is part of the aarch64 baseline, so that these need no detection.
#[derive(Clone, Copy)]
pub(super) struct Neon(uint32x4_t);

impl Neon {
    #[inline(always)]
    fn from_u64(x: uint64x2_t) -> Self {
        // SAFETY: neon is in the baseline of every target that this file is built for.
        Self(unsafe { vreinterpretq_u32_u64(x) })
    }

    #[inline(always)]
    fn u64(self) -> uint64x2_t {
        // SAFETY: neon is in the baseline of every target that this file is built for.
        unsafe { vreinterpretq_u64_u32(self.0) }
    }
}

/// Calls an intrinsic.
macro_rules! neon {
    ($call:expr) => {
        // SAFETY: neon is in the baseline of every target that this file is built for.
        unsafe { $call }
    };
}

impl Vector for Neon {
    const LANES: usize = 1;

    #[inline(always)]
    fn load(x: &[u128]) -> Self {
        let x: &u128 = &x[0];
        // SAFETY: a u128 is 16 readable bytes, and aligned to more than a word.
        Self(unsafe { vld1q_u32(std::ptr::from_ref(x).cast()) })
    }

    #[inline(always)]
    fn store_lane(self, _: usize, out: &mut u128) {
        // SAFETY: a u128 is 16 writable bytes, and aligned to more than a word.
        unsafe { vst1q_u32(std::ptr::from_mut(out).cast(), self.0) }
    }

    #[inline(always)]
    fn splat(x: u128) -> Self {
        Self::load(&[x])
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(neon!(veorq_u32(self.0, other.0)))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self(neon!(vandq_u32(self.0, other.0)))
    }

    #[inline(always)]
    fn add32(self, other: Self) -> Self {
        Self(neon!(vaddq_u32(self.0, other.0)))
    }

    #[inline(always)]
    fn add64(self, other: Self) -> Self {
        Self::from_u64(neon!(vaddq_u64(self.u64(), other.u64())))
    }

    #[inline(always)]
    fn rotate32<const BITS: i32>(self) -> Self {
        // A negative count shifts to the right.
        let left = neon!(vshlq_u32(self.0, vdupq_n_s32(BITS)));
        let right = neon!(vshlq_u32(self.0, vdupq_n_s32(BITS - 32)));
        Self(neon!(vorrq_u32(left, right)))
    }

    #[inline(always)]
    fn rotate64<const BITS: i32>(self) -> Self {
        let left = neon!(vshlq_u64(self.u64(), vdupq_n_s64(i64::from(BITS))));
        let right = neon!(vshlq_u64(self.u64(), vdupq_n_s64(i64::from(BITS - 64))));
        Self::from_u64(neon!(vorrq_u64(left, right)))
    }

    #[inline(always)]
    fn low32(self, other: Self) -> Self {
        Self(neon!(vzip1q_u32(self.0, other.0)))
    }

    #[inline(always)]
    fn high32(self, other: Self) -> Self {
        Self(neon!(vzip2q_u32(self.0, other.0)))
    }

    #[inline(always)]
    fn low64(self, other: Self) -> Self {
        Self::from_u64(neon!(vzip1q_u64(self.u64(), other.u64())))
    }

    #[inline(always)]
    fn high64(self, other: Self) -> Self {
        Self::from_u64(neon!(vzip2q_u64(self.u64(), other.u64())))
    }
}
