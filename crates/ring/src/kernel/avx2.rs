//! Four doubles in a 256-bit register, and the kernels over them.

use std::arch::x86_64::*;

use super::float::{self, Floats, Slack};
use super::{ntt_avx2, portable};
use crate::{Modulus, NttTable};

/// Elements that [`inner_product`] takes at once.
pub(super) const LANES: usize = 8;

/// Only the functions below make one: they enable what the intrinsics need, and everything is
/// inlined into them.
#[derive(Clone, Copy)]
pub(super) struct Avx2(pub(super) __m256d);

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

impl Avx2 {
    /// Sixteen doubles, the first of each four together, then the second and so on.
    ///
    /// # Safety
    /// They are there.
    #[inline(always)]
    pub(super) unsafe fn load_columns(from: *const f64) -> [Self; 4] {
        // Halves of registers are loaded where they belong: exchanging them costs more.
        // SAFETY: the caller's.
        let [a, b, c, d] = unsafe {
            [
                Self::load_halves(from),
                Self::load_halves(from.add(4)),
                Self::load_halves(from.add(2)),
                Self::load_halves(from.add(6)),
            ]
        };
        let ((a, b), (c, d)) = (a.unpack(b), c.unpack(d));
        [a, b, c, d]
    }

    /// # Safety
    /// Two doubles are there, and eight further on.
    #[inline(always)]
    unsafe fn load_halves(from: *const f64) -> Self {
        Self(avx2!(_mm256_insertf128_pd::<1>(
            _mm256_castpd128_pd256(_mm_loadu_pd(from)),
            _mm_loadu_pd(from.add(8)),
        )))
    }

    /// Four rows' columns.
    #[inline(always)]
    pub(super) fn columns([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        let (low_even, high_even) = a.exchange(c);
        let (low_odd, high_odd) = b.exchange(d);
        let ((a, b), (c, d)) = (low_even.unpack(low_odd), high_even.unpack(high_odd));
        [a, b, c, d]
    }

    /// Four columns' rows.
    #[inline(always)]
    pub(super) fn rows([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        let ((a, b), (c, d)) = (a.unpack(b), c.unpack(d));
        let ((a, c), (b, d)) = (a.exchange(c), b.exchange(d));
        [a, b, c, d]
    }

    /// The lower halves of both, and the upper ones.
    #[inline(always)]
    fn exchange(self, other: Self) -> (Self, Self) {
        (
            Self(avx2!(_mm256_permute2f128_pd::<0x20>(self.0, other.0))),
            Self(avx2!(_mm256_permute2f128_pd::<0x31>(self.0, other.0))),
        )
    }

    /// Within halves, the first doubles of both, and the second ones.
    #[inline(always)]
    fn unpack(self, other: Self) -> (Self, Self) {
        (
            Self(avx2!(_mm256_unpacklo_pd(self.0, other.0))),
            Self(avx2!(_mm256_unpackhi_pd(self.0, other.0))),
        )
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn forward(table: &NttTable, values: &mut [u64]) {
    match Slack::of(table) {
        Slack::AMPLE if values.len() >= ntt_avx2::DEGREE_MIN => {
            ntt_avx2::forward::<{ Slack::AMPLE }>(table, values);
        }
        Slack::SOME if values.len() >= ntt_avx2::DEGREE_MIN => {
            ntt_avx2::forward::<{ Slack::SOME }>(table, values);
        }
        Slack::LITTLE if values.len() >= ntt_avx2::DEGREE_MIN => {
            ntt_avx2::forward::<{ Slack::LITTLE }>(table, values);
        }
        Slack::AMPLE => float::forward::<Avx2, { Slack::AMPLE }>(table, values),
        Slack::SOME => float::forward::<Avx2, { Slack::SOME }>(table, values),
        _ => float::forward::<Avx2, { Slack::LITTLE }>(table, values),
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn inverse(table: &NttTable, values: &mut [u64]) {
    match Slack::of(table) {
        Slack::AMPLE if values.len() >= ntt_avx2::DEGREE_MIN => {
            ntt_avx2::inverse::<{ Slack::AMPLE }>(table, values);
        }
        Slack::SOME if values.len() >= ntt_avx2::DEGREE_MIN => {
            ntt_avx2::inverse::<{ Slack::SOME }>(table, values);
        }
        Slack::LITTLE if values.len() >= ntt_avx2::DEGREE_MIN => {
            ntt_avx2::inverse::<{ Slack::LITTLE }>(table, values);
        }
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

/// Most products of [`few_products`], and most bits of their modulus: each is up to 0.875 q (`float`),
/// and sums are below 2^53.
const FEW: usize = 8;
const FEW_BITS: u32 = 50;

/// Whole vectors' sums of up to 256 products.
#[target_feature(enable = "avx2,fma")]
pub(super) fn inner_product(modulus: Modulus, xs: &[&[u64]], ys: &[&[u64]], out: &mut [u64]) {
    match xs.len() <= FEW && modulus.bits() <= FEW_BITS {
        true => few_products(modulus, xs, ys, out),
        false => many_products(modulus, xs, ys, out),
    }
}

/// Each product is reduced on its own.
#[target_feature(enable = "avx2,fma")]
fn few_products(modulus: Modulus, xs: &[&[u64]], ys: &[&[u64]], out: &mut [u64]) {
    let length = out.len();
    assert!(xs.len() == ys.len() && length.is_multiple_of(Avx2::LANES));
    assert!(xs.iter().chain(ys).all(|values| values.len() == length));
    let field = float::Field::<Avx2>::new(modulus);
    for start in (0..length).step_by(Avx2::LANES) {
        let mut sum = Avx2::splat(0.0);
        for (x, y) in xs.iter().zip(ys) {
            // SAFETY: every slice has `length` elements.
            let (x, y) = unsafe {
                (
                    Avx2::load_integers(x.as_ptr().add(start)),
                    Avx2::load_integers(y.as_ptr().add(start)),
                )
            };
            sum = sum.add(field.times(x, field.factor(y)));
        }
        // SAFETY: likewise.
        unsafe { field.finish(sum).store_integers(out.as_mut_ptr().add(start)) };
    }
}

/// x += y.
#[target_feature(enable = "avx2")]
pub(super) fn add_assign(modulus: Modulus, x: &mut [u64], y: &[u64]) {
    portable::add_assign(modulus, x, y);
}

/// x −= y.
#[target_feature(enable = "avx2")]
pub(super) fn sub_assign(modulus: Modulus, x: &mut [u64], y: &[u64]) {
    portable::sub_assign(modulus, x, y);
}

/// Residues modulo `to` of what `values` are modulo `from`, taken from −from / 2 to from / 2.
#[target_feature(enable = "avx2,fma")]
pub(super) fn recentre(from: Modulus, to: Modulus, values: &[u64], out: &mut [u64]) {
    let length = out.len();
    assert!(values.len() == length && length.is_multiple_of(Avx2::LANES));
    let field = float::Field::<Avx2>::new(to);
    let (q, half) = (Avx2::splat(from.value() as f64), Avx2::splat((from.value() / 2) as f64));
    for start in (0..length).step_by(Avx2::LANES) {
        // SAFETY: both slices have `length` elements.
        unsafe {
            let value = Avx2::load_integers(values.as_ptr().add(start));
            let centred = value.sub(half.sub(value).period_if_negative(q));
            field.finish(centred).store_integers(out.as_mut_ptr().add(start));
        }
    }
}

/// Products in halves of 26 bits, whose sums are those of 52, 53 and 52 bits.
#[target_feature(enable = "avx2,fma")]
fn many_products(modulus: Modulus, xs: &[&[u64]], ys: &[&[u64]], out: &mut [u64]) {
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
