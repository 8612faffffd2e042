//! Digits of residues modulo one prime or two, four coefficients at a time.
//!
//! A coefficient is two words: high · 2^51 + low, with low from 0 to 2^51 once what it carries is
//! moved. Products of two residues are two doubles (Emmart, Zheng and Weems, "Faster modular
//! exponentiation using double precision floating point arithmetic on the GPU", ARITH 2018, section
//! III): x · y + 3 · 2^102 rounds to a multiple of 2^51, and what it was rounded by is added to
//! 3 · 2^51, so that the bits of either count units.

use std::arch::x86_64::*;

use super::avx2::Avx2;
use super::float::{Field, Floats};
use super::garner::Garner;
use crate::crt::Crt;
use crate::gadget::Gadget;

/// Most limbs.
pub(super) const LIMBS_MAX: usize = 2;
/// Coefficients of a vector.
pub(super) const LANES: usize = 4;
/// Bits of a lower word.
const LOW_BITS: u32 = 51;
const LOW_MASK: i64 = (1 << LOW_BITS) - 1;
/// What makes a word positive for a shift: below 2^61 in absolute value before.
const BIAS: i64 = 1 << 62;
/// 3 · 2^102, 3 · 2^51, and their sum.
const HIGH_BASE: f64 = (3u128 << 102) as f64;
const LOW_BASE: f64 = (3u64 << 51) as f64;
const BASES: f64 = ((3u128 << 102) + (3u128 << 51)) as f64;

/// A number in two words.
type Words = [__m256i; 2];

/// As [`scalar`](super::scalar::decompose), for whole vectors of up to [`LIMBS_MAX`] limbs.
#[target_feature(enable = "avx2,fma")]
pub(super) fn decompose(
    gadget: Gadget,
    crt: &Crt,
    garner: &Garner,
    values: &[u64],
    out: &mut [u64],
) {
    let (limbs, moduli, digits) = (garner.limbs, crt.moduli(), gadget.digits());
    let degree = values.len() / limbs;
    assert!(limbs <= LIMBS_MAX && moduli.len() == limbs && degree.is_multiple_of(LANES));
    assert!(values.len() == limbs * degree && out.len() == digits * values.len());
    let (half, product) = (words(garner.product as i128 / 2), words(garner.product as i128));
    let offset = words(gadget.offset() as i128);
    let first = Field::<Avx2>::new(moduli[limbs - 1]);
    let inverse = first.factor(Avx2::splat(garner.inverses[limbs - 1].0 as f64));
    let radix = _mm256_set1_pd(moduli[0].value() as f64);
    let low_mask = _mm256_set1_epi64x(LOW_MASK);
    for index in (0..degree).step_by(LANES) {
        let from = values[index..].as_ptr();
        // SAFETY: LANES numbers are left of each limb.
        let mut x = [_mm256_setzero_si256(), unsafe { _mm256_loadu_si256(from.cast()) }];
        if limbs == 2 {
            // SAFETY: likewise.
            let difference =
                unsafe { Avx2::load_integers(from.add(degree)).sub(Avx2::load_integers(from)) };
            // Of either sign, below 2^51: see `float`.
            let digit = first.finish(first.times(difference, inverse)).0;
            let high = _mm256_fmadd_pd(digit, radix, _mm256_set1_pd(HIGH_BASE));
            let low = _mm256_sub_pd(_mm256_set1_pd(BASES), high);
            let low = _mm256_fmadd_pd(digit, radix, low);
            x[0] = minus_bits(high, HIGH_BASE);
            x[1] = _mm256_add_epi64(x[1], minus_bits(low, LOW_BASE));
        }
        let above = carried(minus(half, x));
        let is_above = _mm256_cmpgt_epi64(_mm256_setzero_si256(), above[0]);
        let taken =
            [_mm256_and_si256(product[0], is_above), _mm256_and_si256(product[1], is_above)];
        let x = carried(plus(minus(x, taken), offset));
        for digit in 0..digits {
            let weight = gadget.weight_bits(digit);
            let bits = match weight < LOW_BITS {
                true => _mm256_add_epi64(
                    _mm256_sll_epi64(x[0], count(LOW_BITS - weight)),
                    _mm256_srl_epi64(_mm256_and_si256(x[1], low_mask), count(weight)),
                ),
                false => shifted(x[0], weight - LOW_BITS),
            };
            let value = match digit + 1 == digits {
                true => bits,
                false => {
                    let mask = _mm256_set1_epi64x((1 << gadget.base_bits()) - 1);
                    let half = _mm256_set1_epi64x(1 << (gadget.base_bits() - 1));
                    _mm256_sub_epi64(_mm256_and_si256(bits, mask), half)
                }
            };
            let is_negative = _mm256_cmpgt_epi64(_mm256_setzero_si256(), value);
            for (limb, modulus) in moduli.iter().enumerate() {
                let q = _mm256_set1_epi64x(modulus.value() as i64);
                let residue = _mm256_add_epi64(value, _mm256_and_si256(q, is_negative));
                let to = &mut out[(digit * limbs + limb) * degree + index..][..LANES];
                // SAFETY: LANES words are written to as many.
                unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), residue) };
            }
        }
    }
}

/// A constant's words.
#[target_feature(enable = "avx2")]
#[inline]
fn words(x: i128) -> Words {
    [_mm256_set1_epi64x((x >> LOW_BITS) as i64), _mm256_set1_epi64x(x as i64 & LOW_MASK)]
}

#[target_feature(enable = "avx2")]
#[inline]
fn plus(x: Words, y: Words) -> Words {
    [_mm256_add_epi64(x[0], y[0]), _mm256_add_epi64(x[1], y[1])]
}

#[target_feature(enable = "avx2")]
#[inline]
fn minus(x: Words, y: Words) -> Words {
    [_mm256_sub_epi64(x[0], y[0]), _mm256_sub_epi64(x[1], y[1])]
}

/// What the bits of `x` have more than those of `base`.
#[target_feature(enable = "avx2")]
#[inline]
fn minus_bits(x: __m256d, base: f64) -> __m256i {
    _mm256_sub_epi64(_mm256_castpd_si256(x), _mm256_set1_epi64x(base.to_bits() as i64))
}

/// floor(x / 2^bits).
#[target_feature(enable = "avx2")]
#[inline]
fn shifted(x: __m256i, bits: u32) -> __m256i {
    let positive = _mm256_add_epi64(x, _mm256_set1_epi64x(BIAS));
    _mm256_sub_epi64(_mm256_srl_epi64(positive, count(bits)), _mm256_set1_epi64x(BIAS >> bits))
}

/// The same number, its lower word from 0 to 2^51.
#[target_feature(enable = "avx2")]
#[inline]
fn carried([high, low]: Words) -> Words {
    let high = _mm256_add_epi64(high, shifted(low, LOW_BITS));
    [high, _mm256_and_si256(low, _mm256_set1_epi64x(LOW_MASK))]
}

#[target_feature(enable = "avx2")]
#[inline]
fn count(bits: u32) -> __m128i {
    _mm_cvtsi32_si128(bits as i32)
}
