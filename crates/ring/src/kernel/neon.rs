//! Two doubles in a 128-bit register, and the kernels over them.

use std::arch::aarch64::*;

use super::float::{self, Floats, Slack};
use crate::{Modulus, NttTable};

/// Neon is part of the aarch64 baseline, so that this needs no detection.
#[derive(Clone, Copy)]
struct Neon(float64x2_t);

/// Calls an intrinsic.
macro_rules! neon {
    ($call:expr) => {
        // SAFETY: neon is in the baseline of every target that this file is built for; pointers
        // are good for two lanes, as the callers promise.
        unsafe { $call }
    };
}

impl Floats for Neon {
    const LANES: usize = 2;

    #[inline(always)]
    fn splat(x: f64) -> Self {
        Self(neon!(vdupq_n_f64(x)))
    }

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        Self(neon!(vld1q_f64(from)))
    }

    #[inline(always)]
    unsafe fn load_integers(from: *const u64) -> Self {
        Self(neon!(vcvtq_f64_u64(vld1q_u64(from))))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        neon!(vst1q_f64(to, self.0));
    }

    #[inline(always)]
    unsafe fn store_integers(self, to: *mut u64) {
        neon!(vst1q_u64(to, vcvtq_u64_f64(self.0)));
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(neon!(vaddq_f64(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(neon!(vsubq_f64(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(neon!(vmulq_f64(self.0, other.0)))
    }

    #[inline(always)]
    fn mul_sub(self, other: Self, less: Self) -> Self {
        Self(neon!(vfmaq_f64(vnegq_f64(less.0), self.0, other.0)))
    }

    #[inline(always)]
    fn mul_from(self, other: Self, more: Self) -> Self {
        Self(neon!(vfmsq_f64(more.0, self.0, other.0)))
    }

    #[inline(always)]
    fn round(self) -> Self {
        Self(neon!(vrndnq_f64(self.0)))
    }

    #[inline(always)]
    fn period_if_negative(self, period: Self) -> Self {
        let negative = neon!(vcltzq_f64(self.0));
        let bits = neon!(vandq_u64(negative, vreinterpretq_u64_f64(period.0)));
        Self(neon!(vreinterpretq_f64_u64(bits)))
    }

    #[inline(always)]
    fn interleave(self, other: Self) -> (Self, Self) {
        (Self(neon!(vzip1q_f64(self.0, other.0))), Self(neon!(vzip2q_f64(self.0, other.0))))
    }

    #[inline(always)]
    fn separate(self, other: Self) -> (Self, Self) {
        self.interleave(other)
    }
}

pub(super) fn forward(table: &NttTable, values: &mut [u64]) {
    match Slack::of(table) {
        Slack::AMPLE => float::forward::<Neon, { Slack::AMPLE }>(table, values),
        Slack::SOME => float::forward::<Neon, { Slack::SOME }>(table, values),
        _ => float::forward::<Neon, { Slack::LITTLE }>(table, values),
    }
}

pub(super) fn inverse(table: &NttTable, values: &mut [u64]) {
    match Slack::of(table) {
        Slack::AMPLE => float::inverse::<Neon, { Slack::AMPLE }>(table, values),
        Slack::SOME => float::inverse::<Neon, { Slack::SOME }>(table, values),
        _ => float::inverse::<Neon, { Slack::LITTLE }>(table, values),
    }
}

pub(super) fn mul_assign(modulus: Modulus, x: &mut [u64], y: &[u64]) {
    float::mul_assign::<Neon>(modulus, x, y);
}

pub(super) fn scale_assign(modulus: Modulus, x: &mut [u64], w: u64) {
    float::scale_assign::<Neon>(modulus, x, w);
}

pub(super) fn split(modulus: Modulus, x: &mut [u64], y: &mut [u64], w: &[u64]) {
    float::split::<Neon>(modulus, x, y, w);
}
