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

use super::lanes_avx512::Lanes;
use crate::{Modulus, NttTable};

/// Elements that are transformed in registers: the least degree there is a kernel for.
pub(super) const LEAF: usize = 64;

/// A pointer to roots and to their Shoup quotients.
#[derive(Clone, Copy)]
struct Roots {
    roots: *const u64,
    shoup: *const u64,
}

/// A root beside its quotient.
type Root = (__m512i, __m512i);

impl Roots {
    /// Root `k` in all lanes.
    ///
    /// # Safety
    /// `k` is below the length of the table.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn one(self, k: usize) -> Root {
        // SAFETY: as the caller promises.
        unsafe {
            (
                _mm512_set1_epi64(self.roots.add(k).read() as i64),
                _mm512_set1_epi64(self.shoup.add(k).read() as i64),
            )
        }
    }

    /// Roots `k` to `k + 1`, four times over.
    ///
    /// # Safety
    /// `k + 2` is at most the length of the table; likewise below with 4 and 8.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn two(self, k: usize) -> Root {
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
    unsafe fn four(self, k: usize) -> Root {
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
    unsafe fn eight(self, k: usize) -> Root {
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

/// What [`shuffle`] made of its arguments, undone.
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
    // As many layers first as leave a multiple of three.
    let parts = match (length / LEAF).trailing_zeros() {
        0 => 1,
        layers => 2usize << ((layers - 1) % 3),
    };
    let part = length / parts;
    // SAFETY: the parts are blocks inside this one.
    unsafe {
        match parts {
            1 => return forward_leaf(lanes, roots, values, k),
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
    let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); 8];
    let mut layer = 1;
    while layer < PARTS {
        for i in 0..layer {
            // SAFETY: a node below k.
            w[layer + i] = unsafe { roots.one(layer * k + i) };
        }
        layer *= 2;
    }
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
    w: &[Root; 8],
) {
    let mut distance = PARTS / 2;
    let mut layer = 1;
    while distance > 0 {
        for group in 0..layer {
            for i in 2 * distance * group..2 * distance * group + distance {
                (v[i], v[i + distance]) = lanes.forward(v[i], v[i + distance], w[layer + group]);
            }
        }
        distance /= 2;
        layer *= 2;
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
    let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); 8];
    for (layer, i) in [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3)] {
        // SAFETY: a node below k.
        w[layer + i] = unsafe { roots.one(layer * k + i) };
    }
    butterflies(lanes, &mut v, &w);
    for i in [0, 2, 4, 6] {
        let node = 8 * k + i;
        // SAFETY: nodes below k.
        let w = unsafe { [roots.two(node), roots.four(2 * node), roots.eight(4 * node)] };
        // Lanes a0 b0 a1 b1 ... and a4 b4 a5 b5 ...; then a0 a4 b0 b4 a1 a5 ... and a2 a6 ...; then
        // a0 a2 a4 a6 b0 ... and a1 a3 ...: each time the roots' order repeats.
        let (mut x, mut y) = (v[i], v[i + 1]);
        for w in w {
            (x, y) = shuffle(x, y);
            (x, y) = lanes.forward(x, y, w);
        }
        (x, y) = shuffle(lanes.reduce(x), lanes.reduce(y));
        // SAFETY: the leaf has 64 elements.
        unsafe {
            _mm512_storeu_si512(values.add(8 * i).cast(), x);
            _mm512_storeu_si512(values.add(8 * i + 8).cast(), y);
        }
    }
}

/// Evaluations to coefficients.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) fn inverse(table: &NttTable, values: &mut [u64]) {
    assert!(values.len() == table.degree() && values.len() >= LEAF);
    let roots =
        Roots { roots: table.inverse_roots.as_ptr(), shoup: table.inverse_roots_shoup.as_ptr() };
    assert!(table.inverse_roots.len() == values.len());
    assert!(table.inverse_roots_shoup.len() == values.len());
    // SAFETY: as in `forward`.
    unsafe {
        if is_wide(table.modulus()) {
            inverse_root::<true>(Lanes::new(table.modulus()), roots, values, table);
        } else {
            inverse_root::<false>(Lanes::new(table.modulus()), roots, values, table);
        }
    }
}

/// The whole transform: its last layer multiplies with 1 / N besides.
///
/// # Safety
/// As for [`forward_block`].
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn inverse_root<const WIDE: bool>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: &mut [u64],
    table: &NttTable,
) {
    let pair =
        |(w, shoup): (u64, u64)| (_mm512_set1_epi64(w as i64), _mm512_set1_epi64(shoup as i64));
    let last = [
        pair((table.degree_inverse, table.degree_inverse_shoup)),
        pair((table.last_inverse_root, table.last_inverse_root_shoup)),
    ];
    // SAFETY: the caller's.
    unsafe { inverse_block(lanes, roots, values.as_mut_ptr(), values.len(), 1, Some(last)) };
}

/// The block of `length` elements at `values`, node `k`; `last` is there for the root.
///
/// # Safety
/// As for [`forward_block`].
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn inverse_block<const WIDE: bool>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: *mut u64,
    length: usize,
    k: usize,
    last: Option<[Root; 2]>,
) {
    let parts = match (length / LEAF).trailing_zeros() {
        0 => 1,
        layers => 2usize << ((layers - 1) % 3),
    };
    let part = length / parts;
    // SAFETY: the parts are blocks inside this one.
    unsafe {
        for index in 0..parts {
            let values = values.add(index * part);
            if part == LEAF {
                inverse_leaf(
                    lanes,
                    roots,
                    values,
                    parts * k + index,
                    if parts == 1 { last } else { None },
                );
            } else {
                inverse_block(lanes, roots, values, part, parts * k + index, None);
            }
        }
        match (parts, last) {
            (1, _) => {}
            (2, None) => inverse_pass::<WIDE, 2, false>(lanes, roots, values, part, k, None),
            (4, None) => inverse_pass::<WIDE, 4, false>(lanes, roots, values, part, k, None),
            (_, None) => inverse_pass::<WIDE, 8, false>(lanes, roots, values, part, k, None),
            (2, _) => inverse_pass::<WIDE, 2, true>(lanes, roots, values, part, k, last),
            (4, _) => inverse_pass::<WIDE, 4, true>(lanes, roots, values, part, k, last),
            _ => inverse_pass::<WIDE, 8, true>(lanes, roots, values, part, k, last),
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
    last: Option<[Root; 2]>,
) {
    let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); 8];
    let mut layer = 1;
    while layer < PARTS {
        for i in 0..layer {
            // SAFETY: a node below k.
            w[layer + i] = unsafe { roots.one(layer * k + i) };
        }
        layer *= 2;
    }
    let last = if LAST { last } else { None };
    for offset in (0..part).step_by(8) {
        let mut v = [_mm512_setzero_si512(); PARTS];
        for (i, v) in v.iter_mut().enumerate() {
            // SAFETY: inside part i.
            *v = unsafe { _mm512_loadu_si512(values.add(i * part + offset).cast()) };
        }
        inverse_butterflies(lanes, &mut v, &w, last);
        for (i, v) in v.iter().enumerate() {
            // SAFETY: inside part i.
            unsafe { _mm512_storeu_si512(values.add(i * part + offset).cast(), *v) };
        }
    }
}

/// log2 `PARTS` layers over whole vectors, the last of the transform reduced to 0..q.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
fn inverse_butterflies<const WIDE: bool, const PARTS: usize>(
    lanes: Lanes<WIDE>,
    v: &mut [__m512i; PARTS],
    w: &[Root; 8],
    last: Option<[Root; 2]>,
) {
    let mut distance = 1;
    let mut layer = PARTS / 2;
    while layer > 0 {
        for group in 0..layer {
            for i in 2 * distance * group..2 * distance * group + distance {
                let (x, y) = (v[i], v[i + distance]);
                (v[i], v[i + distance]) = match last {
                    Some(last) if layer == 1 => lanes.inverse_last(x, y, last),
                    _ => lanes.inverse(x, y, w[layer + group]),
                };
            }
        }
        distance *= 2;
        layer /= 2;
    }
}

/// Six layers of 64 elements.
///
/// # Safety
/// As for [`forward_block`].
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn inverse_leaf<const WIDE: bool>(
    lanes: Lanes<WIDE>,
    roots: Roots,
    values: *mut u64,
    k: usize,
    last: Option<[Root; 2]>,
) {
    let mut v = [_mm512_setzero_si512(); 8];
    for i in [0, 2, 4, 6] {
        let node = 8 * k + i;
        // SAFETY: nodes below k, and the leaf has 64 elements.
        let (w, mut x, mut y) = unsafe {
            (
                [roots.eight(4 * node), roots.four(2 * node), roots.two(node)],
                _mm512_loadu_si512(values.add(8 * i).cast()),
                _mm512_loadu_si512(values.add(8 * i + 8).cast()),
            )
        };
        // The forward leaf's orders backwards.
        for w in w {
            (x, y) = unshuffle(x, y);
            (x, y) = lanes.inverse(x, y, w);
        }
        (v[i], v[i + 1]) = unshuffle(x, y);
    }
    let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); 8];
    for (layer, i) in [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3)] {
        // SAFETY: a node below k.
        w[layer + i] = unsafe { roots.one(layer * k + i) };
    }
    inverse_butterflies(lanes, &mut v, &w, last);
    for (i, v) in v.iter().enumerate() {
        // SAFETY: the leaf has 64 elements.
        unsafe { _mm512_storeu_si512(values.add(8 * i).cast(), *v) };
    }
}
