//! Element by element, by AVX-512 IFMA; slices of a multiple of eight elements.

use std::arch::x86_64::*;

use super::garner::{Garner, LIMBS_MAX};
use super::lanes_avx512::{Factor, Lanes};
use crate::Modulus;
use crate::crt::Crt;
use crate::gadget::Gadget;

/// Elements of a vector.
pub(super) const LANES: usize = 8;

/// One vector of `values`, a multiple of [`LANES`] long.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(values: &[u64; LANES]) -> __m512i {
    // SAFETY: 64 bytes.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(values: &mut [u64; LANES], x: __m512i) {
    // SAFETY: 64 bytes.
    unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), x) }
}

/// x = f(x, y) vector by vector.
macro_rules! each {
    (|$x:ident, $y:ident| $f:expr, $xs:expr, $ys:expr) => {{
        let (xs, []) = $xs.as_chunks_mut::<LANES>() else { unreachable!("whole vectors") };
        for (at, $y) in xs.iter_mut().zip($ys.as_chunks::<LANES>().0) {
            let ($x, $y) = (load(at), load($y));
            store(at, $f);
        }
    }};
    (|$x:ident| $f:expr, $xs:expr) => {{
        let (xs, []) = $xs.as_chunks_mut::<LANES>() else { unreachable!("whole vectors") };
        for at in xs {
            let $x = load(at);
            store(at, $f);
        }
    }};
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn add_assign(modulus: Modulus, xs: &mut [u64], ys: &[u64]) {
    let lanes = Lanes::<true>::new(modulus);
    each!(|x, y| lanes.add(x, y), xs, ys);
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn sub_assign(modulus: Modulus, xs: &mut [u64], ys: &[u64]) {
    let lanes = Lanes::<true>::new(modulus);
    each!(|x, y| lanes.sub(x, y), xs, ys);
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn neg_assign(modulus: Modulus, xs: &mut [u64]) {
    let lanes = Lanes::<true>::new(modulus);
    each!(|x| lanes.sub(_mm512_setzero_si512(), x), xs);
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn scale_assign(modulus: Modulus, xs: &mut [u64], w: u64) {
    let lanes = Lanes::<true>::new(modulus);
    let factor = splat((w, modulus.shoup(w)));
    each!(|x| lanes.times(x, factor), xs);
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn mul_assign(modulus: Modulus, xs: &mut [u64], ys: &[u64]) {
    let lanes = Lanes::<true>::new(modulus);
    let product = Product::new(modulus);
    each!(|x, y| product.multiply(lanes, x, y), xs, ys);
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn split(modulus: Modulus, xs: &mut [u64], ys: &mut [u64], ws: &[u64]) {
    let lanes = Lanes::<true>::new(modulus);
    let product = Product::new(modulus);
    let (xs, ys) = (xs.as_chunks_mut::<LANES>().0, ys.as_chunks_mut::<LANES>().0);
    for ((to_x, to_y), w) in xs.iter_mut().zip(ys).zip(ws.as_chunks::<LANES>().0) {
        let (x, y) = (load(to_x), load(to_y));
        store(to_x, lanes.add(x, y));
        store(to_y, product.multiply(lanes, lanes.sub(x, y), load(w)));
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn splat((w, shoup): (u64, u64)) -> Factor {
    (_mm512_set1_epi64(w as i64), _mm512_set1_epi64(shoup as i64))
}

/// 1 / q modulo 2^52.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn q_inverse(modulus: Modulus) -> __m512i {
    // Newton's iteration doubles the right bits, from the three of q · q = 1 modulo 8.
    let q = modulus.value();
    let inverse = (0..5).fold(q, |x, _| x.wrapping_mul(2u64.wrapping_sub(q.wrapping_mul(x))));
    _mm512_set1_epi64((inverse & ((1 << 52) - 1)) as i64)
}

/// Products of two variables, by Montgomery's reduction and a constant that takes it back.
#[derive(Clone, Copy)]
struct Product {
    /// 1 / q modulo 2^52.
    q_inverse: __m512i,
    /// 2^52 modulo q.
    back: Factor,
}

impl Product {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(modulus: Modulus) -> Self {
        let q = modulus.value();
        let back = (1 << 52) % q;
        Self { q_inverse: q_inverse(modulus), back: splat((back, modulus.shoup(back))) }
    }

    /// x · y, for x and y below q.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn multiply(self, lanes: Lanes<true>, x: __m512i, y: __m512i) -> __m512i {
        let zero = _mm512_setzero_si512();
        let low = _mm512_madd52lo_epu64(zero, x, y);
        let high = _mm512_madd52hi_epu64(lanes.q, x, y);
        let quotient = _mm512_madd52lo_epu64(zero, low, self.q_inverse);
        // The low halves are the same: the high ones' difference, plus q, is (x · y) / 2^52 exactly.
        let reduced = _mm512_sub_epi64(high, _mm512_madd52hi_epu64(zero, quotient, lanes.q));
        lanes.times(reduced, self.back)
    }
}

/// Sums of up to 256 products, reduced once.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn inner_product(modulus: Modulus, xs: &[&[u64]], ys: &[&[u64]], out: &mut [u64]) {
    let sum = Sum::new(modulus);
    let length = out.len();
    assert!(xs.len() == ys.len() && length.is_multiple_of(LANES));
    assert!(xs.iter().chain(ys).all(|values| values.len() == length));
    let mut start = 0;
    while start < length {
        // SAFETY: every slice has `length` elements, and those from `start` on that are read do lie
        // in them.
        start += unsafe {
            match length - start {
                32.. => inner_product_at::<4>(&sum, xs, ys, start, out),
                16.. => inner_product_at::<2>(&sum, xs, ys, start, out),
                _ => inner_product_at::<1>(&sum, xs, ys, start, out),
            }
        };
    }
}

/// `VECTORS` vectors of sums from element `start` on; how many elements that were.
///
/// # Safety
/// All slices are as long as `out`, which reaches as far.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
unsafe fn inner_product_at<const VECTORS: usize>(
    sum: &Sum,
    xs: &[&[u64]],
    ys: &[&[u64]],
    start: usize,
    out: &mut [u64],
) -> usize {
    let mut low = [_mm512_setzero_si512(); VECTORS];
    let mut high = low;
    for (x, y) in xs.iter().zip(ys) {
        for i in 0..VECTORS {
            // SAFETY: as the caller promises.
            let (x, y) = unsafe {
                (
                    _mm512_loadu_si512(x.as_ptr().add(start + LANES * i).cast()),
                    _mm512_loadu_si512(y.as_ptr().add(start + LANES * i).cast()),
                )
            };
            low[i] = _mm512_madd52lo_epu64(low[i], x, y);
            high[i] = _mm512_madd52hi_epu64(high[i], x, y);
        }
    }
    for i in 0..VECTORS {
        let value = sum.reduce(high[i], low[i]);
        // SAFETY: as the caller promises.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(start + LANES * i).cast(), value) };
    }
    LANES * VECTORS
}

/// The reduction of long sums: their high words are folded with 2^78 and 2^52 modulo q, which
/// leaves less than 2^86; then Barrett's estimate of the quotient, short by one at most.
#[derive(Clone, Copy)]
struct Sum {
    q: __m512i,
    minus_q: __m512i,
    mask: __m512i,
    low_half: __m512i,
    high: __m512i,
    middle: __m512i,
    reciprocal: __m512i,
    /// The estimate sees what is above bits − 4 bits.
    left: __m128i,
    right: __m128i,
}

impl Sum {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(modulus: Modulus) -> Self {
        let q = modulus.value();
        let power = |bits: u32| ((1u128 << bits) % u128::from(q)) as i64;
        let drop = modulus.bits() as i32 - 4;
        let reciprocal = ((1u128 << (52 + drop)) / u128::from(q)) as i64;
        Self {
            q: _mm512_set1_epi64(q as i64),
            minus_q: _mm512_set1_epi64((1 << 52) - q as i64),
            mask: _mm512_set1_epi64((1 << 52) - 1),
            low_half: _mm512_set1_epi64((1 << 26) - 1),
            high: _mm512_set1_epi64(power(78)),
            middle: _mm512_set1_epi64(power(52)),
            reciprocal: _mm512_set1_epi64(reciprocal),
            left: _mm_cvtsi32_si128(52 - drop),
            right: _mm_cvtsi32_si128(drop),
        }
    }

    /// high · 2^52 + low modulo q, for high below 2^60 and any low.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn reduce(&self, high: __m512i, low: __m512i) -> __m512i {
        let high = _mm512_add_epi64(high, _mm512_srli_epi64::<52>(low));
        let low = _mm512_and_si512(low, self.mask);
        let top = _mm512_srli_epi64::<26>(high);
        let middle = _mm512_and_si512(high, self.low_half);
        let zero = _mm512_setzero_si512();
        let mut folded = _mm512_madd52lo_epu64(low, top, self.high);
        let mut folded_high = _mm512_madd52hi_epu64(zero, top, self.high);
        folded = _mm512_madd52lo_epu64(folded, middle, self.middle);
        folded_high = _mm512_madd52hi_epu64(folded_high, middle, self.middle);
        // Not carried: the shifted low word may overlap the high one, and is added.
        let seen = _mm512_add_epi64(
            _mm512_sll_epi64(folded_high, self.left),
            _mm512_srl_epi64(folded, self.right),
        );
        let quotient = _mm512_madd52hi_epu64(zero, seen, self.reciprocal);
        let rest = _mm512_madd52lo_epu64(folded, quotient, self.minus_q);
        let rest = _mm512_and_si512(rest, self.mask);
        _mm512_min_epu64(rest, _mm512_sub_epi64(rest, self.q))
    }
}

/// out[i] = values[indices[i]], fast where each eight outputs come from eight inputs side by side,
/// as an automorphism's do.
///
/// # Panics
/// If an index is out of range.
#[target_feature(enable = "avx512f")]
pub(super) fn permute(values: &[u64], indices: &[u32], out: &mut [u64]) {
    let (blocks, _) = values.as_chunks::<LANES>();
    let (out, _) = out.as_chunks_mut::<LANES>();
    for (out, indices) in out.iter_mut().zip(indices.as_chunks::<LANES>().0) {
        // SAFETY: 32 bytes.
        let lanes = unsafe { _mm256_loadu_si256(indices.as_ptr().cast()) };
        let lanes = _mm512_cvtepu32_epi64(lanes);
        let block = _mm512_set1_epi64(i64::from(indices[0] & !7));
        if _mm512_cmpgt_epu64_mask(_mm512_xor_si512(lanes, block), _mm512_set1_epi64(7)) == 0 {
            let block = load(&blocks[indices[0] as usize / LANES]);
            store(out, _mm512_permutexvar_epi64(lanes, block));
        } else {
            *out = indices.map(|index| values[index as usize]);
        }
    }
}

/// Residues modulo `to` of what `values` are modulo `from`, taken from −from / 2 to from / 2.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn recentre(from: Modulus, to: Modulus, values: &[u64], out: &mut [u64]) {
    let lanes = Lanes::<true>::new(to);
    let one = splat((1, to.shoup(1)));
    let half = _mm512_set1_epi64((from.value() / 2) as i64);
    let wrap = _mm512_set1_epi64((from.value() % to.value()) as i64);
    let values = values.as_chunks::<LANES>().0;
    for (out, values) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(values) {
        let x = load(values);
        let is_above = _mm512_cmpgt_epu64_mask(x, half);
        let residue = lanes.times(x, one);
        store(out, lanes.sub(residue, _mm512_maskz_mov_epi64(is_above, wrap)));
    }
}

/// A number in two words: high · 2^52 + low.
#[derive(Clone, Copy)]
struct Wide {
    high: __m512i,
    low: __m512i,
}

#[inline]
#[target_feature(enable = "avx512f")]
fn wide(x: u128) -> Wide {
    Wide {
        high: _mm512_set1_epi64((x >> 52) as i64),
        low: _mm512_set1_epi64(x as i64 & ((1 << 52) - 1)),
    }
}

/// Signed digits, the residues composed by mixed radix in words of 52 bits.
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(super) fn decompose(
    gadget: Gadget,
    crt: &Crt,
    garner: &Garner,
    values: &[u64],
    out: &mut [u64],
) {
    match garner.limbs {
        1 => decompose_limbs::<1>(gadget, crt, garner, values, out),
        2 => decompose_limbs::<2>(gadget, crt, garner, values, out),
        3 => decompose_limbs::<3>(gadget, crt, garner, values, out),
        4 => decompose_limbs::<4>(gadget, crt, garner, values, out),
        5 => decompose_limbs::<5>(gadget, crt, garner, values, out),
        6 => decompose_limbs::<6>(gadget, crt, garner, values, out),
        7 => decompose_limbs::<7>(gadget, crt, garner, values, out),
        _ => decompose_limbs::<LIMBS_MAX>(gadget, crt, garner, values, out),
    }
}

#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
fn decompose_limbs<const LIMBS: usize>(
    gadget: Gadget,
    crt: &Crt,
    garner: &Garner,
    values: &[u64],
    out: &mut [u64],
) {
    let degree = values.len() / LIMBS;
    assert!(garner.limbs == LIMBS && degree.is_multiple_of(LANES));
    assert!(values.len() == LIMBS * degree && out.len() == values.len() * gadget.digits());
    let mut lanes = [Lanes::<true>::new(crt.moduli()[0]); LIMBS];
    for (lanes, &modulus) in lanes.iter_mut().zip(crt.moduli()) {
        *lanes = Lanes::new(modulus);
    }
    let mask = _mm512_set1_epi64((1 << 52) - 1);
    let half = wide(garner.product / 2);
    let offset = wide(gadget.offset());
    let product = wide(garner.product);
    let base_bits = gadget.base_bits();
    let digit_mask = _mm512_set1_epi64((1 << base_bits) - 1);
    let digit_half = _mm512_set1_epi64(1 << (base_bits - 1));
    // Eight vectors are composed, then cut digit by digit: lines of one row are written in a row.
    const VECTORS: usize = 8;
    let mut composed = [Wide { high: mask, low: mask }; VECTORS];
    for first in (0..degree).step_by(VECTORS * LANES) {
        let count = VECTORS.min((degree - first) / LANES);
        for (index, to) in composed[..count].iter_mut().enumerate() {
            let start = first + LANES * index;
            let mut v = [_mm512_setzero_si512(); LIMBS];
            let mut x = Wide { high: v[0], low: v[0] };
            for i in 0..LIMBS {
                // SAFETY: `start` + LANES is at most the degree, and `values` has LIMBS of it.
                v[i] =
                    unsafe { _mm512_loadu_si512(values.as_ptr().add(i * degree + start).cast()) };
                if i == 0 {
                    x.low = v[0];
                    continue;
                }
                let mut below = lanes[i].times(v[i - 1], splat(garner.steps[i][i]));
                for j in (0..i - 1).rev() {
                    let digit = lanes[i].times(v[j], splat(garner.steps[i][i]));
                    below = lanes[i].add(lanes[i].times(below, splat(garner.steps[i][j])), digit);
                }
                v[i] = lanes[i].times(lanes[i].sub(v[i], below), splat(garner.inverses[i]));
                let radix = wide(garner.radices[i]);
                x.low = _mm512_madd52lo_epu64(x.low, v[i], radix.low);
                x.high = _mm512_madd52hi_epu64(x.high, v[i], radix.low);
                if i > 1 {
                    x.high = _mm512_add_epi64(x.high, _mm512_mullo_epi64(v[i], radix.high));
                }
            }
            let carry = _mm512_srli_epi64::<52>(x.low);
            x = Wide { high: _mm512_add_epi64(x.high, carry), low: _mm512_and_si512(x.low, mask) };
            // Above Q / 2 the difference is negative; Q is taken off there, and the offset added.
            let borrow = _mm512_srai_epi64::<63>(_mm512_sub_epi64(half.low, x.low));
            let above = _mm512_sub_epi64(_mm512_add_epi64(half.high, borrow), x.high);
            let above = _mm512_movepi64_mask(above);
            let low = _mm512_add_epi64(x.low, offset.low);
            let low = _mm512_mask_sub_epi64(low, above, low, product.low);
            let high = _mm512_add_epi64(x.high, offset.high);
            let high = _mm512_mask_sub_epi64(high, above, high, product.high);
            *to = Wide {
                high: _mm512_add_epi64(high, _mm512_srai_epi64::<52>(low)),
                low: _mm512_and_si512(low, mask),
            };
        }
        for digit in 0..gadget.digits() {
            let weight = gadget.weight_bits(digit) as i32;
            let is_last = digit + 1 == gadget.digits();
            let (left, right) = (_mm_cvtsi32_si128(52 - weight), _mm_cvtsi32_si128(weight));
            let beyond = _mm_cvtsi32_si128(weight - 52);
            let mut cut = [mask; VECTORS];
            for (x, to) in composed[..count].iter().zip(&mut cut) {
                let shifted = if weight < 52 {
                    _mm512_or_si512(_mm512_sll_epi64(x.high, left), _mm512_srl_epi64(x.low, right))
                } else {
                    _mm512_sra_epi64(x.high, beyond)
                };
                *to = if is_last {
                    shifted
                } else {
                    _mm512_sub_epi64(_mm512_and_si512(shifted, digit_mask), digit_half)
                };
            }
            for (limb, lanes) in lanes.iter().enumerate() {
                for (index, d) in cut[..count].iter().enumerate() {
                    // Negative digits are huge numbers: the lesser is the residue.
                    let residue = _mm512_min_epu64(*d, _mm512_add_epi64(*d, lanes.q));
                    let at = (digit * LIMBS + limb) * degree + first + LANES * index;
                    // SAFETY: `out` has LIMBS · degree elements for each digit.
                    unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(at).cast(), residue) };
                }
            }
        }
    }
}
