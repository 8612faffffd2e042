//! Four doubles in a 256-bit register, and the kernels over them.

use std::arch::x86_64::*;

use super::float::{self, Floats, Slack};
use crate::{Modulus, NttTable};

/// Elements that [`inner_product`] takes at once.
pub(super) const LANES: usize = 8;

/// Only the functions below make one: they enable what the intrinsics need, and everything is
/// inlined into them.
#[derive(Clone, Copy)]
struct Avx2(__m256d);

/// Calls an intrinsic.
macro_rules! avx2 {
    ($call:expr) => {
        // SAFETY: the type is only made below functions with avx2 and fma enabled, whose callers
        // detected both.
        unsafe { $call }
    };
}

/// 2^52: adding it leaves an integer in the low bits.
const SHIFTER: f64 = 4_503_599_627_370_496.0;

impl Floats for Avx2 {
    const LANES: usize = 4;

    #[inline(always)]
    fn splat(x: f64) -> Self {
        Self(avx2!(_mm256_set1_pd(x)))
    }

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        Self(avx2!(_mm256_loadu_pd(from)))
    }

    #[inline(always)]
    unsafe fn load_integers(from: *const u64) -> Self {
        let shifter = Self::splat(SHIFTER);
        let bits = avx2!(_mm256_or_pd(_mm256_loadu_pd(from.cast()), shifter.0));
        Self(bits).sub(shifter)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        avx2!(_mm256_storeu_pd(to, self.0));
    }

    #[inline(always)]
    unsafe fn store_integers(self, to: *mut u64) {
        let shifter = Self::splat(SHIFTER);
        avx2!(_mm256_storeu_pd(to.cast(), _mm256_xor_pd(self.add(shifter).0, shifter.0)));
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(avx2!(_mm256_add_pd(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(avx2!(_mm256_sub_pd(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(avx2!(_mm256_mul_pd(self.0, other.0)))
    }

    #[inline(always)]
    fn mul_sub(self, other: Self, less: Self) -> Self {
        Self(avx2!(_mm256_fmsub_pd(self.0, other.0, less.0)))
    }

    #[inline(always)]
    fn mul_from(self, other: Self, more: Self) -> Self {
        Self(avx2!(_mm256_fnmadd_pd(self.0, other.0, more.0)))
    }

    #[inline(always)]
    fn round(self) -> Self {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        Self(avx2!(_mm256_round_pd::<NEAREST>(self.0)))
    }

    #[inline(always)]
    fn period_if_negative(self, period: Self) -> Self {
        Self(avx2!(_mm256_and_pd(
            period.0,
            _mm256_cmp_pd::<_CMP_LT_OQ>(self.0, _mm256_setzero_pd())
        )))
    }

    #[inline(always)]
    fn interleave(self, other: Self) -> (Self, Self) {
        let low = avx2!(_mm256_unpacklo_pd(self.0, other.0));
        let high = avx2!(_mm256_unpackhi_pd(self.0, other.0));
        (
            Self(avx2!(_mm256_permute2f128_pd::<0x20>(low, high))),
            Self(avx2!(_mm256_permute2f128_pd::<0x31>(low, high))),
        )
    }

    #[inline(always)]
    fn separate(self, other: Self) -> (Self, Self) {
        let low = avx2!(_mm256_permute2f128_pd::<0x20>(self.0, other.0));
        let high = avx2!(_mm256_permute2f128_pd::<0x31>(self.0, other.0));
        (Self(avx2!(_mm256_unpacklo_pd(low, high))), Self(avx2!(_mm256_unpackhi_pd(low, high))))
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn forward(table: &NttTable, values: &mut [u64]) {
    match Slack::of(table) {
        Slack::AMPLE => float::forward::<Avx2, { Slack::AMPLE }>(table, values),
        Slack::SOME => float::forward::<Avx2, { Slack::SOME }>(table, values),
        _ => float::forward::<Avx2, { Slack::LITTLE }>(table, values),
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn inverse(table: &NttTable, values: &mut [u64]) {
    match Slack::of(table) {
        Slack::AMPLE => float::inverse::<Avx2, { Slack::AMPLE }>(table, values),
        Slack::SOME => float::inverse::<Avx2, { Slack::SOME }>(table, values),
        _ => float::inverse::<Avx2, { Slack::LITTLE }>(table, values),
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn mul_assign(modulus: Modulus, x: &mut [u64], y: &[u64]) {
    float::mul_assign::<Avx2>(modulus, x, y);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn scale_assign(modulus: Modulus, x: &mut [u64], w: u64) {
    float::scale_assign::<Avx2>(modulus, x, w);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn split(modulus: Modulus, x: &mut [u64], y: &mut [u64], w: &[u64]) {
    float::split::<Avx2>(modulus, x, y, w);
}

/// Whole vectors' sums of up to 256 products, in halves of 26 bits: those of 52, 53 and 52 bits.
#[target_feature(enable = "avx2,fma")]
pub(super) fn inner_product(modulus: Modulus, xs: &[&[u64]], ys: &[&[u64]], out: &mut [u64]) {
    const VECTORS: usize = 2;
    let length = out.len();
    assert!(xs.len() == ys.len() && length.is_multiple_of(4 * VECTORS));
    assert!(xs.iter().chain(ys).all(|values| values.len() == length));
    let half = _mm256_set1_epi64x((1 << 26) - 1);
    let sum = float::Sum::<Avx2>::new(modulus);
    for start in (0..length).step_by(4 * VECTORS) {
        let mut low = [_mm256_setzero_si256(); VECTORS];
        let (mut middle, mut high) = (low, low);
        for (x, y) in xs.iter().zip(ys) {
            for i in 0..VECTORS {
                // SAFETY: every slice has `length` elements.
                let (x, y) = unsafe {
                    (
                        _mm256_loadu_si256(x.as_ptr().add(start + 4 * i).cast()),
                        _mm256_loadu_si256(y.as_ptr().add(start + 4 * i).cast()),
                    )
                };
                let (x0, x1) = (_mm256_and_si256(x, half), _mm256_srli_epi64::<26>(x));
                let (y0, y1) = (_mm256_and_si256(y, half), _mm256_srli_epi64::<26>(y));
                low[i] = _mm256_add_epi64(low[i], _mm256_mul_epu32(x0, y0));
                let cross = _mm256_add_epi64(_mm256_mul_epu32(x0, y1), _mm256_mul_epu32(x1, y0));
                middle[i] = _mm256_add_epi64(middle[i], cross);
                high[i] = _mm256_add_epi64(high[i], _mm256_mul_epu32(x1, y1));
            }
        }
        for i in 0..VECTORS {
            let middle = _mm256_add_epi64(middle[i], _mm256_srli_epi64::<26>(low[i]));
            let high = _mm256_add_epi64(high[i], _mm256_srli_epi64::<26>(middle));
            let low = _mm256_and_si256(low[i], half);
            let low = _mm256_or_si256(low, _mm256_slli_epi64::<26>(_mm256_and_si256(middle, half)));
            let words = [_mm256_srli_epi64::<26>(high), _mm256_and_si256(high, half), low];
            let words = words.map(|word| {
                let mut lanes = [0; 4];
                // SAFETY: 32 bytes.
                unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), word) };
                lanes
            });
            sum.reduce(&words, &mut out[start + 4 * i..][..4]);
        }
    }
}
