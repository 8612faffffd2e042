//! Transforms in 256-bit registers: the doubles of `float`, two layers a pass.
//!
//! Blocks that fit into the first level's cache are done with before the next begins. The two layers
//! within registers are one of four blocks at once, transposed. Values of moduli up to 50 bits are
//! reduced as little as their bounds allow; in multiples of q:
//!
//! Forward, with B ≤ 3.9 between passes: the first layer reduces what it adds to, so its results are
//! up to 1 + 3/8 · B ≤ 2.5; the second does not, and its are up to 2.5 + 1/2 + 3/8 · 2.5 < 3.9.
//! Inverse, with B ≤ 2: the first layer's sums are reduced, its products are up to 1/2 + 3/4 · B ≤ 2.
//! In the second, sums of sums are up to 1, sums of products are reduced again, and products are up to
//! 1/2 + 3/8 · 4 = 2. All is below 2^53.

use super::avx2::Avx2;
use super::float::{Field, Floats, Slack};
use crate::NttTable;
use crate::ntt::DoubleRoots;

/// Least numbers of a transform.
pub(super) const DEGREE_MIN: usize = 64;
/// Numbers that are four blocks of a register each.
const TAIL: usize = 16;
/// Numbers of a block that stays in the first level's cache.
const BLOCK: usize = 2048;

type Factor = (Avx2, Avx2);

/// One transform's constants.
#[derive(Clone, Copy)]
struct Pass<'a> {
    field: Field<Avx2>,
    roots: &'a DoubleRoots,
}

impl Pass<'_> {
    /// Root `k` in all lanes.
    #[inline(always)]
    fn root(self, k: usize) -> Factor {
        self.field.factor(Avx2::splat(self.roots.all[k]))
    }

    /// The roots of chunk `index` of [`TAIL`] numbers.
    #[inline(always)]
    fn tail(self, index: usize) -> [Factor; 3] {
        let roots = self.roots.tail[12 * index..][..12].as_ptr();
        // SAFETY: four doubles from 0, 4 and 8 on.
        let (w, w0, w1) =
            unsafe { (Avx2::load(roots), Avx2::load(roots.add(4)), Avx2::load(roots.add(8))) };
        [self.field.factor(w), self.field.factor(w0), self.field.factor(w1)]
    }

    /// The second layer of a forward pass: what it adds to needs no reduction.
    #[inline(always)]
    fn forward_again<const SLACK: u8>(self, x: Avx2, y: Avx2, w: Factor) -> (Avx2, Avx2) {
        if SLACK == Slack::LITTLE {
            return self.field.forward::<SLACK>(x, y, w);
        }
        let product = self.field.times(y, w);
        (x.add(product), x.sub(product))
    }

    /// Two layers of `length` numbers at `at`, whose roots are k, 2k and 2k + 1.
    ///
    /// # Safety
    /// So many doubles are there; integers where `INTEGERS`.
    #[inline(always)]
    unsafe fn forward_pair<const SLACK: u8, const INTEGERS: bool>(
        self,
        at: *mut f64,
        length: usize,
        k: usize,
    ) {
        let quarter = length / 4;
        let (w, w0, w1) = (self.root(k), self.root(2 * k), self.root(2 * k + 1));
        for offset in (0..quarter).step_by(Avx2::LANES) {
            // SAFETY: `offset` is below a quarter of the length.
            unsafe {
                let to = parts(at.add(offset), quarter);
                let [a, b, c, d] = if INTEGERS { load_integers(to) } else { load(to) };
                let (a, c) = self.field.forward::<SLACK>(a, c, w);
                let (b, d) = self.field.forward::<SLACK>(b, d, w);
                let (a, b) = self.forward_again::<SLACK>(a, b, w0);
                let (c, d) = self.forward_again::<SLACK>(c, d, w1);
                store([a, b, c, d], to);
            }
        }
    }

    /// The layers within registers of chunk `index`, at `at`: to integers.
    ///
    /// # Safety
    /// [`TAIL`] doubles are there.
    #[inline(always)]
    unsafe fn forward_tail<const SLACK: u8>(self, at: *mut f64, index: usize) {
        let [w, w0, w1] = self.tail(index);
        // SAFETY: four registers at `at`.
        unsafe {
            let [a, b, c, d] = Avx2::load_columns(at);
            let (a, c) = self.field.forward::<SLACK>(a, c, w);
            let (b, d) = self.field.forward::<SLACK>(b, d, w);
            let (a, b) = self.forward_again::<SLACK>(a, b, w0);
            let (c, d) = self.forward_again::<SLACK>(c, d, w1);
            let (a, b) = (self.field.finish(a), self.field.finish(b));
            let (c, d) = (self.field.finish(c), self.field.finish(d));
            store_integers(Avx2::rows([a, b, c, d]), parts(at, Avx2::LANES));
        }
    }

    /// The second layer of an inverse pass, of what were sums: their sums need no reduction.
    #[inline(always)]
    fn inverse_sums<const SLACK: u8>(self, x: Avx2, y: Avx2, w: Factor) -> (Avx2, Avx2) {
        if SLACK == Slack::LITTLE {
            return self.field.inverse::<SLACK>(x, y, w);
        }
        (x.add(y), self.field.times(x.sub(y), w))
    }

    /// Undoes [`forward_tail`](Self::forward_tail).
    ///
    /// # Safety
    /// [`TAIL`] integers are there.
    #[inline(always)]
    unsafe fn inverse_tail<const SLACK: u8>(self, at: *mut f64, index: usize) {
        let [w, w0, w1] = self.tail(index);
        // SAFETY: four registers at `at`.
        unsafe {
            let rows = parts(at, Avx2::LANES);
            let [a, b, c, d] = Avx2::columns(load_integers(rows));
            let (a, b) = self.field.inverse::<SLACK>(a, b, w0);
            let (c, d) = self.field.inverse::<SLACK>(c, d, w1);
            let (a, c) = self.inverse_sums::<SLACK>(a, c, w);
            let (b, d) = self.field.inverse::<SLACK>(b, d, w);
            store(Avx2::rows([a, b, c, d]), rows);
        }
    }

    /// Undoes [`forward_pair`](Self::forward_pair).
    ///
    /// # Safety
    /// `length` doubles are there.
    #[inline(always)]
    unsafe fn inverse_pair<const SLACK: u8>(self, at: *mut f64, length: usize, k: usize) {
        let quarter = length / 4;
        let (w, w0, w1) = (self.root(k), self.root(2 * k), self.root(2 * k + 1));
        for offset in (0..quarter).step_by(Avx2::LANES) {
            // SAFETY: `offset` is below a quarter of the length.
            unsafe {
                let to = parts(at.add(offset), quarter);
                let [a, b, c, d] = load(to);
                let (a, b) = self.field.inverse::<SLACK>(a, b, w0);
                let (c, d) = self.field.inverse::<SLACK>(c, d, w1);
                let (a, c) = self.inverse_sums::<SLACK>(a, c, w);
                let (b, d) = self.field.inverse::<SLACK>(b, d, w);
                store([a, b, c, d], to);
            }
        }
    }

    /// The last layer, which multiplies with 1 / N besides: to integers.
    #[inline(always)]
    fn last<const SLACK: u8>(self, x: Avx2, y: Avx2, [over, last]: [Factor; 2]) -> [Avx2; 2] {
        let (mut sum, mut difference) = (x.add(y), x.sub(y));
        if SLACK == Slack::LITTLE {
            (sum, difference) = (self.field.reduce(sum), self.field.reduce(difference));
        }
        let (sum, difference) = (self.field.times(sum, over), self.field.times(difference, last));
        [self.field.finish(sum), self.field.finish(difference)]
    }
}

/// Coefficients to evaluations.
#[inline(always)]
pub(super) fn forward<const SLACK: u8>(table: &NttTable, values: &mut [u64]) {
    let degree = values.len();
    assert!(degree == table.degree() && degree >= DEGREE_MIN);
    let pass = Pass { field: Field::new(table.modulus()), roots: &table.double_roots()[0] };
    let at: *mut f64 = values.as_mut_ptr().cast();
    let mut length = degree;
    // SAFETY: blocks of `length` numbers fill the degree; the first pass finds integers, and each
    // other one what the one before left.
    unsafe {
        if degree.trailing_zeros().is_multiple_of(2) {
            pass.forward_pair::<SLACK, true>(at, length, 1);
            length /= 4;
        } else {
            length /= 2;
            let w = pass.root(1);
            for offset in (0..length).step_by(Avx2::LANES) {
                let (x, y) = (at.add(offset), at.add(offset + length));
                let (low, high) = (Avx2::load_integers(x.cast()), Avx2::load_integers(y.cast()));
                let (low, high) = pass.field.forward::<SLACK>(low, high, w);
                low.store(x);
                high.store(y);
            }
        }
        while length > BLOCK {
            for block in 0..degree / length {
                let at = at.add(block * length);
                pass.forward_pair::<SLACK, false>(at, length, degree / length + block);
            }
            length /= 4;
        }
        for first in (0..degree).step_by(length) {
            let mut part = length;
            while part > Avx2::LANES {
                let k = (degree + first) / part;
                for block in 0..length / part {
                    let at = at.add(first + block * part);
                    pass.forward_pair::<SLACK, false>(at, part, k + block);
                }
                part /= 4;
            }
            for start in (first..first + length).step_by(TAIL) {
                pass.forward_tail::<SLACK>(at.add(start), start / TAIL);
            }
        }
    }
}

/// Evaluations to coefficients.
#[inline(always)]
pub(super) fn inverse<const SLACK: u8>(table: &NttTable, values: &mut [u64]) {
    let degree = values.len();
    assert!(degree == table.degree() && degree >= DEGREE_MIN);
    let pass = Pass { field: Field::new(table.modulus()), roots: &table.double_roots()[1] };
    let at: *mut f64 = values.as_mut_ptr().cast();
    // What the last pass joins: two parts, or four.
    let joined = if degree.trailing_zeros().is_multiple_of(2) { 4 } else { 2 };
    let rest = degree / joined;
    let mut length = rest;
    while length > BLOCK {
        length /= 4;
    }
    // SAFETY: as in `forward`, backwards.
    unsafe {
        for first in (0..degree).step_by(length) {
            for start in (first..first + length).step_by(TAIL) {
                pass.inverse_tail::<SLACK>(at.add(start), start / TAIL);
            }
            let mut part = TAIL;
            while part <= length {
                let k = (degree + first) / part;
                for block in 0..length / part {
                    pass.inverse_pair::<SLACK>(at.add(first + block * part), part, k + block);
                }
                part *= 4;
            }
        }
        while length < rest {
            length *= 4;
            for block in 0..degree / length {
                pass.inverse_pair::<SLACK>(at.add(block * length), length, degree / length + block);
            }
        }
        let ends = [
            pass.field.factor(Avx2::splat(table.degree_inverse as f64)),
            pass.field.factor(Avx2::splat(table.last_inverse_root as f64)),
        ];
        let (w0, w1) = (pass.root(2), pass.root(3));
        for offset in (0..rest).step_by(Avx2::LANES) {
            let to = parts(at.add(offset), rest);
            if joined == 2 {
                let [x, y] = pass.last::<SLACK>(Avx2::load(to[0]), Avx2::load(to[1]), ends);
                x.store_integers(to[0].cast());
                y.store_integers(to[1].cast());
                continue;
            }
            let [a, b, c, d] = load(to);
            let (a, b) = pass.field.inverse::<SLACK>(a, b, w0);
            let (c, d) = pass.field.inverse::<SLACK>(c, d, w1);
            let ([a, c], [b, d]) = (pass.last::<SLACK>(a, c, ends), pass.last::<SLACK>(b, d, ends));
            store_integers([a, b, c, d], to);
        }
    }
}

/// Four places, `apart` doubles from one to the next.
#[inline(always)]
fn parts(at: *mut f64, apart: usize) -> [*mut f64; 4] {
    [at, at.wrapping_add(apart), at.wrapping_add(2 * apart), at.wrapping_add(3 * apart)]
}

/// # Safety
/// A register's doubles are at each.
#[inline(always)]
unsafe fn load([a, b, c, d]: [*mut f64; 4]) -> [Avx2; 4] {
    // SAFETY: the caller's.
    unsafe { [Avx2::load(a), Avx2::load(b), Avx2::load(c), Avx2::load(d)] }
}

/// # Safety
/// A register's integers are at each.
#[inline(always)]
unsafe fn load_integers([a, b, c, d]: [*mut f64; 4]) -> [Avx2; 4] {
    // SAFETY: the caller's.
    unsafe {
        [
            Avx2::load_integers(a.cast()),
            Avx2::load_integers(b.cast()),
            Avx2::load_integers(c.cast()),
            Avx2::load_integers(d.cast()),
        ]
    }
}

/// # Safety
/// There is room for a register at each.
#[inline(always)]
unsafe fn store([a, b, c, d]: [Avx2; 4], to: [*mut f64; 4]) {
    // SAFETY: the caller's.
    unsafe {
        a.store(to[0]);
        b.store(to[1]);
        c.store(to[2]);
        d.store(to[3]);
    }
}

/// # Safety
/// There is room for a register at each.
#[inline(always)]
unsafe fn store_integers([a, b, c, d]: [Avx2; 4], to: [*mut f64; 4]) {
    // SAFETY: the caller's.
    unsafe {
        a.store_integers(to[0].cast());
        b.store_integers(to[1].cast());
        c.store_integers(to[2].cast());
        d.store_integers(to[3].cast());
    }
}
