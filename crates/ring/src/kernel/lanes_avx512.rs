//! Arithmetic modulo one prime in the eight lanes of an AVX-512 register, by IFMA's 52-bit products.

#![allow(clippy::needless_range_loop, reason = "registers side by side, by number")]

use std::arch::x86_64::*;

use crate::Modulus;

/// A factor below q, beside floor(factor · 2^52 / q).
pub(super) type Factor = (__m512i, __m512i);

/// The constants of one modulus in all lanes.
///
/// `WIDE` moduli have 51 bits: lazily reduced values are below 2q. Others have at most 50, and
/// values in forward butterflies are below 4q, in inverse ones below 2q.
#[derive(Clone, Copy)]
pub(super) struct Lanes<const WIDE: bool> {
    pub q: __m512i,
    pub two_q: __m512i,
    /// 2^52 − q: what adds −q · x in the low 52 bits of a sum.
    minus_q: __m512i,
    mask: __m512i,
}

impl<const WIDE: bool> Lanes<WIDE> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn new(modulus: Modulus) -> Self {
        let q = modulus.value() as i64;
        Self {
            q: _mm512_set1_epi64(q),
            two_q: _mm512_set1_epi64(2 * q),
            minus_q: _mm512_set1_epi64((1 << 52) - q),
            mask: _mm512_set1_epi64((1 << 52) - 1),
        }
    }

    /// x − bound where x is at least that; x is below 2^63.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn minus_once(x: __m512i, bound: __m512i) -> __m512i {
        _mm512_min_epu64(x, _mm512_sub_epi64(x, bound))
    }

    /// x + y, for x and y below q.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn add(self, x: __m512i, y: __m512i) -> __m512i {
        Self::minus_once(_mm512_add_epi64(x, y), self.q)
    }

    /// x − y, for x and y below q.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn sub(self, x: __m512i, y: __m512i) -> __m512i {
        // A negative difference is a huge number: the lesser is the residue.
        let difference = _mm512_sub_epi64(x, y);
        _mm512_min_epu64(difference, _mm512_add_epi64(difference, self.q))
    }

    /// x · w below 2q, for x below 2^52.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn times_lazy(self, x: __m512i, (w, shoup): Factor) -> __m512i {
        let zero = _mm512_setzero_si512();
        let quotient = _mm512_madd52hi_epu64(zero, x, shoup);
        let product = _mm512_madd52lo_epu64(zero, x, w);
        _mm512_and_si512(_mm512_madd52lo_epu64(product, quotient, self.minus_q), self.mask)
    }

    /// x · w, for x below 2^52.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub fn times(self, x: __m512i, w: Factor) -> __m512i {
        Self::minus_once(self.times_lazy(x, w), self.q)
    }

    /// Butterflies (x + y · w, x − y · w), step by step side by side: each waits for its products.
    ///
    /// Three sets of butterflies, a bit for each, save operations of moduli below 2^50 within a pass:
    /// those of `SIGNED` get an x of −2q to 2q; those of `ADDED` leave differences of −2q to 2q, for
    /// they will be some butterfly's signed x; those of `MULTIPLIED` leave what is right in its low
    /// 52 bits only, for it will be multiplied.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub fn forward<
        const COUNT: usize,
        const SIGNED: u32,
        const ADDED: u32,
        const MULTIPLIED: u32,
    >(
        self,
        x: &mut [__m512i; COUNT],
        y: &mut [__m512i; COUNT],
        w: &[Factor; COUNT],
    ) {
        let zero = _mm512_setzero_si512();
        let mut quotient = [zero; COUNT];
        for i in 0..COUNT {
            quotient[i] = _mm512_madd52hi_epu64(zero, y[i], w[i].1);
        }
        if WIDE {
            for i in 0..COUNT {
                y[i] = _mm512_madd52lo_epu64(zero, y[i], w[i].0);
            }
            for i in 0..COUNT {
                x[i] = Self::minus_once(x[i], self.q);
            }
            for i in 0..COUNT {
                y[i] = _mm512_madd52lo_epu64(y[i], quotient[i], self.minus_q);
            }
            for i in 0..COUNT {
                y[i] = Self::minus_once(_mm512_and_si512(y[i], self.mask), self.q);
            }
            for i in 0..COUNT {
                let minus = _mm512_sub_epi64(_mm512_add_epi64(x[i], self.q), y[i]);
                (x[i], y[i]) = (_mm512_add_epi64(x[i], y[i]), minus);
            }
            return;
        }
        for i in 0..COUNT {
            y[i] = _mm512_madd52lo_epu64(zero, y[i], w[i].0);
        }
        for i in 0..COUNT {
            let other = match SIGNED >> i & 1 {
                0 => _mm512_sub_epi64(x[i], self.two_q),
                _ => _mm512_add_epi64(x[i], self.two_q),
            };
            // What is negative is huge: the lesser is in 0..2q.
            x[i] = _mm512_min_epu64(x[i], other);
        }
        for i in 0..COUNT {
            y[i] = _mm512_madd52lo_epu64(y[i], quotient[i], self.minus_q);
        }
        for i in 0..COUNT {
            let product = match MULTIPLIED >> i & 1 {
                0 => _mm512_and_si512(y[i], self.mask),
                _ => y[i],
            };
            let base = match ADDED >> i & 1 {
                0 => _mm512_add_epi64(x[i], self.two_q),
                _ => x[i],
            };
            (x[i], y[i]) = (_mm512_add_epi64(x[i], product), _mm512_sub_epi64(base, product));
        }
    }

    /// What [`forward`](Self::forward) leaves, in 0..q.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn reduce(self, x: __m512i) -> __m512i {
        if WIDE {
            return Self::minus_once(x, self.q);
        }
        Self::minus_once(Self::minus_once(x, self.two_q), self.q)
    }

    /// Butterflies (x + y, (x − y) · w), step by step side by side; all below 2q, `WIDE` ones' below q.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub fn inverse<const COUNT: usize>(
        self,
        x: &mut [__m512i; COUNT],
        y: &mut [__m512i; COUNT],
        w: &[Factor; COUNT],
    ) {
        let zero = _mm512_setzero_si512();
        let mut quotient = [zero; COUNT];
        for i in 0..COUNT {
            (x[i], y[i]) = self.sum_and_difference(x[i], y[i]);
        }
        for i in 0..COUNT {
            quotient[i] = _mm512_madd52hi_epu64(zero, y[i], w[i].1);
        }
        for i in 0..COUNT {
            x[i] = Self::minus_once(x[i], if WIDE { self.q } else { self.two_q });
        }
        for i in 0..COUNT {
            y[i] = _mm512_madd52lo_epu64(zero, y[i], w[i].0);
        }
        for i in 0..COUNT {
            y[i] = _mm512_madd52lo_epu64(y[i], quotient[i], self.minus_q);
        }
        for i in 0..COUNT {
            y[i] = _mm512_and_si512(y[i], self.mask);
            if WIDE {
                y[i] = Self::minus_once(y[i], self.q);
            }
        }
    }

    /// x + y and x − y for a product: below 4q, of `WIDE` moduli below 2q.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn sum_and_difference(self, x: __m512i, y: __m512i) -> (__m512i, __m512i) {
        let bound = if WIDE { self.q } else { self.two_q };
        (_mm512_add_epi64(x, y), _mm512_sub_epi64(_mm512_add_epi64(x, bound), y))
    }

    /// ((x + y) · w0, (x − y) · w1), in 0..q.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub fn inverse_last(self, x: __m512i, y: __m512i, w: &[Factor; 2]) -> (__m512i, __m512i) {
        let (sum, difference) = self.sum_and_difference(x, y);
        (self.times(sum, w[0]), self.times(difference, w[1]))
    }
}
