//! The negacyclic NTT by AVX-512 IFMA: products of 52 bits, eight at a time.
//!
//! Butterflies are Harvey's, lazily reduced: below 2^50 a modulus leaves two spare bits and values
//! stay below 4q; a 51-bit one leaves one, and they stay below 2q at two more operations a
//! butterfly ([`Lanes`]' `WIDE`). Three layers are done for every pass over memory, depth first, so
//! that blocks stay in the first-level cache; the last six ([`leaf`](forward_leaf)) in registers,
//! three of them across the lanes of pairs of vectors. The k-th node of the tree of blocks (1 is the
//! whole, 2k and 2k + 1 are the halves of k) multiplies with `roots[k]`, so that the roots of
//! neighbours lie side by side and no further table is needed.

use std::arch::x86_64::*;

use super::lanes_avx512::{Factor, Lanes};
use crate::{Modulus, NttTable};

/// Elements that are transformed in registers: the least degree there is a kernel for.
pub(super) const LEAF: usize = 64;

/// A pointer to roots and to their Shoup quotients.
#[derive(Clone, Copy)]
struct Roots {
    roots: *const u64,
    shoup: *const u64,
}

impl Roots {
    /// Root `k` in all lanes.
    ///
    /// # Safety
    /// `k` is below the length of the table.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn one(self, k: usize) -> Factor {
        // SAFETY: as the caller promises.
        unsafe {
            (
                _mm512_set1_epi64(self.roots.add(k).read() as i64),
                _mm512_set1_epi64(self.shoup.add(k).read() as i64),
            )
        }
    }

    /// The roots of node `k` and of the nodes below it, `PARTS` − 1 in all, numbered as if k were 1.
    ///
    /// # Safety
    /// They are in the table.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn tree<const PARTS: usize>(self, k: usize) -> [Factor; 8] {
        let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); 8];
        for (layer, i) in [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3)] {
            if layer < PARTS {
                // SAFETY: as the caller promises.
                w[layer + i] = unsafe { self.one(layer * k + i) };
            }
        }
        w
    }

    /// Roots `k` to `k + 1`, four times over.
    ///
    /// # Safety
    /// `k + 2` is at most the length of the table; likewise below with 4 and 8.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn two(self, k: usize) -> Factor {
        // SAFETY: as the caller promises.
        unsafe {
            (
                _mm512_broadcast_i64x2(_mm_loadu_si128(self.roots.add(k).cast())),
                _mm512_broadcast_i64x2(_mm_loadu_si128(self.shoup.add(k).cast())),
            )
        }
    }

    /// Roots `k` to `k + 3`, twice over.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn four(self, k: usize) -> Factor {
        // SAFETY: as the caller promises.
        unsafe {
            (
                _mm512_broadcast_i64x4(_mm256_loadu_si256(self.roots.add(k).cast())),
                _mm512_broadcast_i64x4(_mm256_loadu_si256(self.shoup.add(k).cast())),
            )
        }
    }

    /// Roots `k` to `k + 7`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn eight(self, k: usize) -> Factor {
        // SAFETY: as the caller promises.
        unsafe {
            (
                _mm512_loadu_si512(self.roots.add(k).cast()),
                _mm512_loadu_si512(self.shoup.add(k).cast()),
            )
        }
    }
}

/// The lanes of `a` and `b` interleaved: a0 b0 a1 b1 ... in the first vector, the upper halves' in
/// the second.
#[inline]
#[target_feature(enable = "avx512f")]
fn shuffle(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
    let low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    let high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    (_mm512_permutex2var_epi64(a, low, b), _mm512_permutex2var_epi64(a, high, b))
}

/// Undoes [`shuffle`].
#[inline]
#[target_feature(enable = "avx512f")]
fn unshuffle(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
    let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    (_mm512_permutex2var_epi64(a, even, b), _mm512_permutex2var_epi64(a, odd, b))
}

/// Coefficients to evaluations.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) fn forward(table: &NttTable, values: &mut [u64]) {
    assert!(values.len() == table.degree() && values.len() >= LEAF);
    assert!(table.roots.len() == values.len() && table.roots_shoup.len() == values.len());
    let roots = Roots { roots: table.roots.as_ptr(), shoup: table.roots_shoup.as_ptr() };
    // SAFETY: `values` is one block of a power of two of at least LEAF elements, and the tables
    // have a root for each of its nodes.
    unsafe {
        if is_wide(table.modulus()) {
            forward_block::<true>(
                Lanes::new(table.modulus()),
                roots,
                values.as_mut_ptr(),
                values.len(),
                1,
            );
        } else {
            forward_block::<false>(
                Lanes::new(table.modulus()),
                roots,
                values.as_mut_ptr(),
                values.len(),
                1,
            );
        }
    }
}

/// Whether a modulus leaves one spare bit only.
fn is_wide(modulus: Modulus) -> bool {
    modulus.bits() > 50
}

/// Parts into which one pass cuts a block. The first pass takes so many layers that the number of
/// those left is a multiple of three.
fn parts_of(length: usize) -> usize {
    match (length / LEAF).trailing_zeros() {
        0 => 1,
        layers => 2 << ((layers - 1) % 3),
    }
}

/// The block of `length` elements at `values`, node `k`.
///
/// # Safety
/// `length` is a power of two, at least [`LEAF`]; all nodes below `k` have roots.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn forward_block<const WIDE: bool>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: *mut u64,
    length: usize,
    k: usize,
) {
    let parts = parts_of(length);
    let part = length / parts;
    // SAFETY: the parts are blocks inside this one.
    unsafe {
        match parts {
            1 => {}
            2 => forward_pass::<WIDE, 2>(lanes, roots, values, part, k),
            4 => forward_pass::<WIDE, 4>(lanes, roots, values, part, k),
            _ => forward_pass::<WIDE, 8>(lanes, roots, values, part, k),
        }
        for index in 0..parts {
            let values = values.add(index * part);
            if part == LEAF {
                forward_leaf(lanes, roots, values, parts * k + index);
            } else {
                forward_block(lanes, roots, values, part, parts * k + index);
            }
        }
    }
}

/// log2 `PARTS` layers of `PARTS` parts of `part` elements each.
///
/// # Safety
/// As for [`forward_block`]; `part` is a multiple of 8.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn forward_pass<const WIDE: bool, const PARTS: usize>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: *mut u64,
    part: usize,
    k: usize,
) {
    // SAFETY: nodes below k.
    let w = unsafe { roots.tree::<PARTS>(k) };
    for offset in (0..part).step_by(8) {
        let mut v = [_mm512_setzero_si512(); PARTS];
        for (i, v) in v.iter_mut().enumerate() {
            // SAFETY: inside part i.
            *v = unsafe { _mm512_loadu_si512(values.add(i * part + offset).cast()) };
        }
        butterflies(lanes, &mut v, &w);
        for (i, v) in v.iter().enumerate() {
            // SAFETY: inside part i.
            unsafe { _mm512_storeu_si512(values.add(i * part + offset).cast(), *v) };
        }
    }
}

/// log2 `PARTS` layers over whole vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
fn butterflies<const WIDE: bool, const PARTS: usize>(
    lanes: Lanes<WIDE>,
    v: &mut [__m512i; PARTS],
    w: &[Factor; 8],
) {
    if PARTS == 8 {
        let ([mut a, mut b], [mut c, mut d]);
        (a, b) = ([v[0], v[1], v[2], v[3]], [v[4], v[5], v[6], v[7]]);
        lanes.forward::<4, 0b0000, 0b0011, 0b1100>(&mut a, &mut b, &[w[1]; 4]);
        (c, d) = ([a[0], a[1], b[0], b[1]], [a[2], a[3], b[2], b[3]]);
        lanes.forward::<4, 0b1100, 0b0101, 0b1010>(&mut c, &mut d, &[w[2], w[2], w[3], w[3]]);
        (a, b) = ([c[0], d[0], c[2], d[2]], [c[1], d[1], c[3], d[3]]);
        lanes.forward::<4, 0b1010, 0, 0>(&mut a, &mut b, &[w[4], w[5], w[6], w[7]]);
        for i in 0..4 {
            (v[2 * i], v[2 * i + 1]) = (a[i], b[i]);
        }
    } else if PARTS == 4 {
        let (mut a, mut b) = ([v[0], v[1]], [v[2], v[3]]);
        lanes.forward::<2, 0b00, 0b01, 0b10>(&mut a, &mut b, &[w[1]; 2]);
        let (mut c, mut d) = ([a[0], b[0]], [a[1], b[1]]);
        lanes.forward::<2, 0b10, 0, 0>(&mut c, &mut d, &[w[2], w[3]]);
        for i in 0..2 {
            (v[2 * i], v[2 * i + 1]) = (c[i], d[i]);
        }
    } else {
        let (mut a, mut b) = ([v[0]], [v[1]]);
        lanes.forward::<1, 0, 0, 0>(&mut a, &mut b, &[w[1]]);
        (v[0], v[1]) = (a[0], b[0]);
    }
}

/// Six layers of 64 elements, and the reduction to 0..q.
///
/// # Safety
/// As for [`forward_block`].
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn forward_leaf<const WIDE: bool>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: *mut u64,
    k: usize,
) {
    let mut v = [_mm512_setzero_si512(); 8];
    for (i, v) in v.iter_mut().enumerate() {
        // SAFETY: the leaf has 64 elements.
        *v = unsafe { _mm512_loadu_si512(values.add(8 * i).cast()) };
    }
    // SAFETY: nodes below k.
    let w = unsafe { roots.tree::<8>(k) };
    butterflies(lanes, &mut v, &w);
    // Pairs of vectors. Their lanes a0 b0 a1 b1 ... and a4 b4 a5 b5 ...; then a0 a4 b0 b4 a1 a5 ...
    // and a2 a6 ...; then a0 a2 a4 a6 b0 ... and a1 a3 ...: each time the roots' order repeats.
    let (mut x, mut y) = ([v[0], v[2], v[4], v[6]], [v[1], v[3], v[5], v[7]]);
    for layer in 0..3 {
        let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); 4];
        for i in 0..4 {
            (x[i], y[i]) = shuffle(x[i], y[i]);
            let node = 8 * k + 2 * i;
            // SAFETY: nodes below k.
            w[i] = unsafe {
                match layer {
                    0 => roots.two(node),
                    1 => roots.four(2 * node),
                    _ => roots.eight(4 * node),
                }
            };
        }
        lanes.forward::<4, 0, 0, 0>(&mut x, &mut y, &w);
    }
    for i in 0..4 {
        let (x, y) = shuffle(lanes.reduce(x[i]), lanes.reduce(y[i]));
        // SAFETY: the leaf has 64 elements.
        unsafe {
            _mm512_storeu_si512(values.add(16 * i).cast(), x);
            _mm512_storeu_si512(values.add(16 * i + 8).cast(), y);
        }
    }
}

/// Evaluations to coefficients, multiplied with `w`.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) fn inverse(table: &NttTable, w: u64, values: &mut [u64]) {
    assert!(values.len() == table.degree() && values.len() >= LEAF);
    let roots =
        Roots { roots: table.inverse_roots.as_ptr(), shoup: table.inverse_roots_shoup.as_ptr() };
    assert!(table.inverse_roots.len() == values.len());
    assert!(table.inverse_roots_shoup.len() == values.len());
    // SAFETY: as in `forward`.
    unsafe {
        if is_wide(table.modulus()) {
            inverse_root::<true>(Lanes::new(table.modulus()), roots, values, table, w);
        } else {
            inverse_root::<false>(Lanes::new(table.modulus()), roots, values, table, w);
        }
    }
}

/// The whole transform: its last layer multiplies with w / N besides.
///
/// # Safety
/// As for [`forward_block`].
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn inverse_root<const WIDE: bool>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: &mut [u64],
    table: &NttTable,
    w: u64,
) {
    let modulus = table.modulus();
    let last = [table.degree_inverse, table.last_inverse_root].map(|root| {
        let root = modulus.mul(root, w);
        (_mm512_set1_epi64(root as i64), _mm512_set1_epi64(modulus.shoup(root) as i64))
    });
    let length = values.len();
    // SAFETY: the caller's.
    unsafe { inverse_block::<WIDE, true>(lanes, roots, values.as_mut_ptr(), length, 1, last) };
}

/// The block of `length` elements at `values`, node `k`; `LAST` for the whole.
///
/// # Safety
/// As for [`forward_block`].
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn inverse_block<const WIDE: bool, const LAST: bool>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: *mut u64,
    length: usize,
    k: usize,
    last: [Factor; 2],
) {
    let parts = parts_of(length);
    let part = length / parts;
    // SAFETY: the parts are blocks inside this one.
    unsafe {
        if parts == 1 {
            return inverse_leaf::<WIDE, LAST>(lanes, roots, values, k, last);
        }
        for index in 0..parts {
            let values = values.add(index * part);
            if part == LEAF {
                inverse_leaf::<WIDE, false>(lanes, roots, values, parts * k + index, last);
            } else {
                inverse_block::<WIDE, false>(lanes, roots, values, part, parts * k + index, last);
            }
        }
        match parts {
            2 => inverse_pass::<WIDE, 2, LAST>(lanes, roots, values, part, k, last),
            4 => inverse_pass::<WIDE, 4, LAST>(lanes, roots, values, part, k, last),
            _ => inverse_pass::<WIDE, 8, LAST>(lanes, roots, values, part, k, last),
        }
    }
}

/// log2 `PARTS` layers of `PARTS` parts of `part` elements each.
///
/// # Safety
/// As for [`forward_block`]; `part` is a multiple of 8.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn inverse_pass<const WIDE: bool, const PARTS: usize, const LAST: bool>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: *mut u64,
    part: usize,
    k: usize,
    last: [Factor; 2],
) {
    // SAFETY: nodes below k.
    let w = unsafe { roots.tree::<PARTS>(k) };
    for offset in (0..part).step_by(8) {
        let mut v = [_mm512_setzero_si512(); PARTS];
        for (i, v) in v.iter_mut().enumerate() {
            // SAFETY: inside part i.
            *v = unsafe { _mm512_loadu_si512(values.add(i * part + offset).cast()) };
        }
        inverse_butterflies::<WIDE, PARTS, LAST>(lanes, &mut v, &w, &last);
        for (i, v) in v.iter().enumerate() {
            // SAFETY: inside part i.
            unsafe { _mm512_storeu_si512(values.add(i * part + offset).cast(), *v) };
        }
    }
}

/// log2 `PARTS` layers over whole vectors; with `LAST` the last is the transform's, reduced to 0..q.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
fn inverse_butterflies<const WIDE: bool, const PARTS: usize, const LAST: bool>(
    lanes: Lanes<WIDE>,
    v: &mut [__m512i; PARTS],
    w: &[Factor; 8],
    last: &[Factor; 2],
) {
    let end = |x: &mut __m512i, y: &mut __m512i| (*x, *y) = lanes.inverse_last(*x, *y, last);
    if PARTS == 8 {
        let ([mut a, mut b], [mut c, mut d]);
        (a, b) = ([v[0], v[2], v[4], v[6]], [v[1], v[3], v[5], v[7]]);
        lanes.inverse(&mut a, &mut b, &[w[4], w[5], w[6], w[7]]);
        (c, d) = ([a[0], b[0], a[2], b[2]], [a[1], b[1], a[3], b[3]]);
        lanes.inverse(&mut c, &mut d, &[w[2], w[2], w[3], w[3]]);
        (a, b) = ([c[0], c[1], d[0], d[1]], [c[2], c[3], d[2], d[3]]);
        if LAST {
            a.iter_mut().zip(&mut b).for_each(|(x, y)| end(x, y));
        } else {
            lanes.inverse(&mut a, &mut b, &[w[1]; 4]);
        }
        for i in 0..4 {
            (v[i], v[i + 4]) = (a[i], b[i]);
        }
    } else if PARTS == 4 {
        let (mut a, mut b) = ([v[0], v[2]], [v[1], v[3]]);
        lanes.inverse(&mut a, &mut b, &[w[2], w[3]]);
        let (mut c, mut d) = ([a[0], b[0]], [a[1], b[1]]);
        if LAST {
            c.iter_mut().zip(&mut d).for_each(|(x, y)| end(x, y));
        } else {
            lanes.inverse(&mut c, &mut d, &[w[1]; 2]);
        }
        for i in 0..2 {
            (v[i], v[i + 2]) = (c[i], d[i]);
        }
    } else {
        let (mut a, mut b) = ([v[0]], [v[1]]);
        if LAST {
            end(&mut a[0], &mut b[0]);
        } else {
            lanes.inverse(&mut a, &mut b, &[w[1]]);
        }
        (v[0], v[1]) = (a[0], b[0]);
    }
}

/// Six layers of 64 elements.
///
/// # Safety
/// As for [`forward_block`].
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn inverse_leaf<const WIDE: bool, const LAST: bool>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: *mut u64,
    k: usize,
    last: [Factor; 2],
) {
    let (mut x, mut y) = ([_mm512_setzero_si512(); 4], [_mm512_setzero_si512(); 4]);
    for i in 0..4 {
        // SAFETY: the leaf has 64 elements.
        unsafe {
            x[i] = _mm512_loadu_si512(values.add(16 * i).cast());
            y[i] = _mm512_loadu_si512(values.add(16 * i + 8).cast());
        }
    }
    // The forward leaf's orders backwards.
    for layer in 0..3 {
        let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); 4];
        for i in 0..4 {
            (x[i], y[i]) = unshuffle(x[i], y[i]);
            let node = 8 * k + 2 * i;
            // SAFETY: nodes below k.
            w[i] = unsafe {
                match layer {
                    0 => roots.eight(4 * node),
                    1 => roots.four(2 * node),
                    _ => roots.two(node),
                }
            };
        }
        lanes.inverse(&mut x, &mut y, &w);
    }
    let mut v = [_mm512_setzero_si512(); 8];
    for i in 0..4 {
        (v[2 * i], v[2 * i + 1]) = unshuffle(x[i], y[i]);
    }
    // SAFETY: nodes below k.
    let w = unsafe { roots.tree::<8>(k) };
    inverse_butterflies::<WIDE, 8, LAST>(lanes, &mut v, &w, &last);
    for (i, v) in v.iter().enumerate() {
        // SAFETY: the leaf has 64 elements.
        unsafe { _mm512_storeu_si512(values.add(8 * i).cast(), *v) };
    }
}
