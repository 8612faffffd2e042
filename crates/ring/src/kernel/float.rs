//! Products modulo a prime by fused multiplication of doubles, for vectors without wide integer ones.
//!
//! With t the integer nearest to y · (w / q) as computed, the product's rounded value h and its error
//! l = y·w − h are doubles, and so is h − t·q: all terms are integers, and the difference is small.
//! y·w − t·q = (h − t·q) + l is thus exact. How far it may be off a multiple's middle: w / q comes
//! from a rounded 1 / q by a rounded product, and is multiplied with y and rounded, so t errs by at
//! most 1/2 + 3 · |y| · 2^-53, and |y·w − t·q| ≤ q · (1/2 + 3 · |y| · 2^-53) for 0 ≤ w < q.
//!
//! Forward butterflies of moduli below 2^50 take values up to 2q (|y| ≤ 2^51): products are up to
//! 1.25q, what they are added to is first reduced to q/2. Inverse ones take differences up to 4q
//! (|y| ≤ 2^52): products up to 2q. Moduli of 51 bits reduce what is multiplied to q/2 first:
//! products are up to 0.875q. Moduli below 2^38 reduce nothing until the end, by when a transform of
//! 2^14 numbers lets them grow to 2^14 · q. All values are integers below 2^53.

use super::portable;
use crate::{Modulus, NttTable};

/// A register of doubles.
///
/// Implementations are made below functions that enable what they need.
pub(super) trait Floats: Copy {
    /// Doubles in the register: 2 or 4.
    const LANES: usize;
    fn splat(x: f64) -> Self;
    /// # Safety
    /// `LANES` doubles are there.
    unsafe fn load(from: *const f64) -> Self;
    /// # Safety
    /// `LANES` integers are there, below 2^52.
    unsafe fn load_integers(from: *const u64) -> Self;
    /// # Safety
    /// There is room for `LANES` doubles.
    unsafe fn store(self, to: *mut f64);
    /// # Safety
    /// There is room for `LANES` integers; the doubles are integers from 0 to 2^52.
    unsafe fn store_integers(self, to: *mut u64);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// self · other − less, rounded once.
    fn mul_sub(self, other: Self, less: Self) -> Self;
    /// more − self · other, rounded once.
    fn mul_from(self, other: Self, more: Self) -> Self;
    /// The nearest integer.
    fn round(self) -> Self;
    /// `period` where negative, 0 elsewhere.
    fn period_if_negative(self, period: Self) -> Self;
    /// The lanes of both in turn: a0 b0 a1 b1 ..., the lower half in the first.
    fn interleave(self, other: Self) -> (Self, Self);
    /// What [`interleave`](Self::interleave) made of its arguments, undone.
    fn separate(self, other: Self) -> (Self, Self);
}

/// How far values may outgrow a modulus, for a transform's const parameter.
pub(super) struct Slack;

impl Slack {
    /// Moduli of 51 bits.
    pub const LITTLE: u8 = 0;
    /// Moduli of up to 50 bits.
    pub const SOME: u8 = 1;
    /// Moduli of up to 38 bits, for transforms of up to [`DEGREE_MAX`](Self::DEGREE_MAX) numbers.
    pub const AMPLE: u8 = 2;
    const DEGREE_MAX: usize = 1 << 14;

    /// What transforms by `table` have.
    pub fn of(table: &NttTable) -> u8 {
        match table.modulus().bits() {
            ..=38 if table.degree() <= Self::DEGREE_MAX => Self::AMPLE,
            ..=50 => Self::SOME,
            _ => Self::LITTLE,
        }
    }
}

/// One modulus.
#[derive(Clone, Copy)]
pub(super) struct Field<F> {
    q: F,
    reciprocal: F,
}

impl<F: Floats> Field<F> {
    #[inline(always)]
    pub(super) fn new(modulus: Modulus) -> Self {
        let q = modulus.value() as f64;
        Self { q: F::splat(q), reciprocal: F::splat(1.0 / q) }
    }

    /// A factor, and it over q.
    #[inline(always)]
    pub(super) fn factor(self, w: F) -> (F, F) {
        (w, w.mul(self.reciprocal))
    }

    /// x modulo q, in −q/2..q/2.
    #[inline(always)]
    pub(super) fn reduce(self, x: F) -> F {
        x.mul(self.reciprocal).round().mul_from(self.q, x)
    }

    /// x · w modulo q, as said above.
    #[inline(always)]
    pub(super) fn times(self, x: F, (w, over_q): (F, F)) -> F {
        let quotient = x.mul(over_q).round();
        let high = x.mul(w);
        let low = x.mul_sub(w, high);
        quotient.mul_from(self.q, high).add(low)
    }

    /// x in 0..q.
    #[inline(always)]
    pub(super) fn finish(self, x: F) -> F {
        let x = self.reduce(x);
        x.add(x.period_if_negative(self.q))
    }

    #[inline(always)]
    pub(super) fn forward<const SLACK: u8>(self, x: F, y: F, w: (F, F)) -> (F, F) {
        let x = if SLACK == Slack::AMPLE { x } else { self.reduce(x) };
        let y = if SLACK == Slack::LITTLE { self.reduce(y) } else { y };
        let product = self.times(y, w);
        (x.add(product), x.sub(product))
    }

    #[inline(always)]
    pub(super) fn inverse<const SLACK: u8>(self, x: F, y: F, w: (F, F)) -> (F, F) {
        let (sum, difference) = (x.add(y), x.sub(y));
        let difference = if SLACK == Slack::LITTLE { self.reduce(difference) } else { difference };
        let sum = if SLACK == Slack::AMPLE { sum } else { self.reduce(sum) };
        (sum, self.times(difference, w))
    }

    /// Root `k` in all lanes.
    #[inline(always)]
    fn root(self, roots: &[u64], k: usize) -> (F, F) {
        self.factor(F::splat(roots[k] as f64))
    }

    /// `LANES` roots from `k` on, of which only the first `count` differ, the others repeat them.
    #[inline(always)]
    fn roots(self, roots: &[u64], k: usize, count: usize) -> (F, F) {
        let mut lanes = [0; 4];
        let roots = &roots[k..k + count];
        for (lane, to) in lanes[..F::LANES].iter_mut().enumerate() {
            *to = roots[lane % count];
        }
        // SAFETY: four integers, and no register has more lanes.
        self.factor(unsafe { F::load_integers(lanes.as_ptr()) })
    }
}

/// How a transform's numbers lie in memory while it runs: doubles in place of the integers.
#[inline(always)]
fn cast(values: &mut [u64]) -> *mut f64 {
    values.as_mut_ptr().cast()
}

/// Coefficients to evaluations.
#[inline(always)]
pub(super) fn forward<F: Floats, const SLACK: u8>(table: &NttTable, values: &mut [u64]) {
    let degree = values.len();
    assert!(degree == table.degree() && degree >= 2 * F::LANES);
    let field = Field::<F>::new(table.modulus());
    let roots = &table.roots[..degree];
    let at = cast(values);
    // SAFETY: every offset below is less than the degree, a multiple of LANES and of the blocks'
    // lengths; the first layer reads integers, the others the doubles that it left.
    unsafe {
        let mut length = degree / 2;
        for offset in (0..length).step_by(F::LANES) {
            let (x, y) = (at.add(offset), at.add(offset + length));
            let (sum, difference) = field.forward::<SLACK>(
                F::load_integers(x.cast()),
                F::load_integers(y.cast()),
                field.root(roots, 1),
            );
            sum.store(x);
            difference.store(y);
        }
        let mut groups = 2;
        // Two layers a pass, while both are wider than a register.
        while length >= 4 * F::LANES {
            let quarter = length / 4;
            let (half, step) = (2 * quarter, 4 * quarter);
            for group in 0..groups {
                let w = field.root(roots, groups + group);
                let w0 = field.root(roots, 2 * (groups + group));
                let w1 = field.root(roots, 2 * (groups + group) + 1);
                for offset in (0..quarter).step_by(F::LANES) {
                    let at = at.add(group * step + offset);
                    let (a, c) = field.forward::<SLACK>(F::load(at), F::load(at.add(half)), w);
                    let (b, d) = field.forward::<SLACK>(
                        F::load(at.add(quarter)),
                        F::load(at.add(half + quarter)),
                        w,
                    );
                    let (a, b) = field.forward::<SLACK>(a, b, w0);
                    let (c, d) = field.forward::<SLACK>(c, d, w1);
                    a.store(at);
                    b.store(at.add(quarter));
                    c.store(at.add(half));
                    d.store(at.add(half + quarter));
                }
            }
            length = quarter;
            groups *= 4;
        }
        if length >= 2 * F::LANES {
            let half = length / 2;
            for group in 0..groups {
                let w = field.root(roots, groups + group);
                for offset in (0..half).step_by(F::LANES) {
                    let at = at.add(group * length + offset);
                    let (x, y) = field.forward::<SLACK>(F::load(at), F::load(at.add(half)), w);
                    x.store(at);
                    y.store(at.add(half));
                }
            }
            groups *= 2;
        }
        // Blocks as long as a register now: two of them, their lanes mixed anew for every layer.
        for group in (0..groups).step_by(2) {
            let at = at.add(group * F::LANES);
            let (mut x, mut y) = (F::load(at), F::load(at.add(F::LANES)));
            let mut scale = 1;
            while scale < F::LANES {
                (x, y) = x.interleave(y);
                let w = field.roots(roots, scale * (groups + group), 2 * scale);
                (x, y) = field.forward::<SLACK>(x, y, w);
                scale *= 2;
            }
            (x, y) = field.finish(x).interleave(field.finish(y));
            x.store_integers(at.cast());
            y.store_integers(at.add(F::LANES).cast());
        }
    }
}

/// Evaluations to coefficients.
#[inline(always)]
pub(super) fn inverse<F: Floats, const SLACK: u8>(table: &NttTable, values: &mut [u64]) {
    let degree = values.len();
    assert!(degree == table.degree() && degree >= 2 * F::LANES);
    let field = Field::<F>::new(table.modulus());
    let roots = &table.inverse_roots[..degree];
    let at = cast(values);
    // SAFETY: as in `forward`, backwards.
    unsafe {
        let mut groups = degree / F::LANES;
        for group in (0..groups).step_by(2) {
            let at = at.add(group * F::LANES);
            let mut x = F::load_integers(at.cast());
            let mut y = F::load_integers(at.add(F::LANES).cast());
            let mut scale = F::LANES / 2;
            while scale > 0 {
                (x, y) = x.separate(y);
                let w = field.roots(roots, scale * (groups + group), 2 * scale);
                (x, y) = field.inverse::<SLACK>(x, y, w);
                scale /= 2;
            }
            (x, y) = x.separate(y);
            x.store(at);
            y.store(at.add(F::LANES));
        }
        let mut length = F::LANES;
        while groups >= 8 {
            groups /= 4;
            let step = 4 * length;
            for group in 0..groups {
                let w = field.root(roots, groups + group);
                let w0 = field.root(roots, 2 * (groups + group));
                let w1 = field.root(roots, 2 * (groups + group) + 1);
                for offset in (0..length).step_by(F::LANES) {
                    let at = at.add(group * step + offset);
                    let (a, b) = field.inverse::<SLACK>(F::load(at), F::load(at.add(length)), w0);
                    let (c, d) = field.inverse::<SLACK>(
                        F::load(at.add(2 * length)),
                        F::load(at.add(3 * length)),
                        w1,
                    );
                    let (a, c) = field.inverse::<SLACK>(a, c, w);
                    let (b, d) = field.inverse::<SLACK>(b, d, w);
                    a.store(at);
                    b.store(at.add(length));
                    c.store(at.add(2 * length));
                    d.store(at.add(3 * length));
                }
            }
            length = step;
        }
        if groups == 4 {
            for group in 0..2 {
                let w = field.root(roots, 2 + group);
                for offset in (0..length).step_by(F::LANES) {
                    let at = at.add(group * 2 * length + offset);
                    let (x, y) = field.inverse::<SLACK>(F::load(at), F::load(at.add(length)), w);
                    x.store(at);
                    y.store(at.add(length));
                }
            }
            length *= 2;
        }
        // The last layer multiplies with 1 / N besides.
        let over = field.factor(F::splat(table.degree_inverse as f64));
        let last = field.factor(F::splat(table.last_inverse_root as f64));
        for offset in (0..length).step_by(F::LANES) {
            let (to_x, to_y) = (at.add(offset), at.add(offset + length));
            let (x, y) = (F::load(to_x), F::load(to_y));
            let (mut sum, mut difference) = (x.add(y), x.sub(y));
            if SLACK == Slack::LITTLE {
                (sum, difference) = (field.reduce(sum), field.reduce(difference));
            }
            field.finish(field.times(sum, over)).store_integers(to_x.cast());
            field.finish(field.times(difference, last)).store_integers(to_y.cast());
        }
    }
}

/// x *= y.
#[inline(always)]
pub(super) fn mul_assign<F: Floats>(modulus: Modulus, xs: &mut [u64], ys: &[u64]) {
    let field = Field::<F>::new(modulus);
    let whole = xs.len() - xs.len() % F::LANES;
    let (ys, ys_rest) = ys.split_at(whole);
    let (xs, xs_rest) = xs.split_at_mut(whole);
    for (x, y) in xs.chunks_exact_mut(F::LANES).zip(ys.chunks_exact(F::LANES)) {
        // SAFETY: LANES elements each.
        unsafe {
            let w = field.factor(F::load_integers(y.as_ptr()));
            let product = field.times(F::load_integers(x.as_ptr()), w);
            field.finish(product).store_integers(x.as_mut_ptr());
        }
    }
    portable::mul_assign(modulus, xs_rest, ys_rest);
}

/// x *= w.
#[inline(always)]
pub(super) fn scale_assign<F: Floats>(modulus: Modulus, xs: &mut [u64], w: u64) {
    let field = Field::<F>::new(modulus);
    let factor = field.factor(F::splat(w as f64));
    let mut chunks = xs.chunks_exact_mut(F::LANES);
    for x in &mut chunks {
        // SAFETY: LANES elements.
        unsafe {
            let product = field.times(F::load_integers(x.as_ptr()), factor);
            field.finish(product).store_integers(x.as_mut_ptr());
        }
    }
    portable::scale_assign(modulus, chunks.into_remainder(), w, modulus.shoup(w));
}

/// (x, y) = (x + y, (x − y) · w).
#[inline(always)]
pub(super) fn split<F: Floats>(modulus: Modulus, xs: &mut [u64], ys: &mut [u64], ws: &[u64]) {
    for (x, y) in xs.iter_mut().zip(ys.iter_mut()) {
        (*x, *y) = (modulus.add(*x, *y), modulus.sub(*x, *y));
    }
    mul_assign::<F>(modulus, ys, ws);
}

/// The reduction of sums in words of 26 and 52 bits: high · 2^78 + middle · 2^52 + low.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Sum<F> {
    field: Field<F>,
    high: (F, F),
    middle: (F, F),
}

#[cfg(target_arch = "x86_64")]
impl<F: Floats> Sum<F> {
    #[inline(always)]
    pub(super) fn new(modulus: Modulus) -> Self {
        let field = Field::new(modulus);
        let power = |bits: u32| field.factor(F::splat(modulus.reduce_u128(1 << bits) as f64));
        Self { field, high: power(78), middle: power(52) }
    }

    /// The sum of the three words in each lane: below 2^52, 2^26 and 2^52.
    #[inline(always)]
    pub(super) fn reduce(&self, [high, middle, low]: &[[u64; 4]; 3], out: &mut [u64]) {
        assert!(out.len() == F::LANES && F::LANES <= 4);
        // SAFETY: four integers are read, and LANES written. Products are up to q · (1/2 + 3 · 2^-1)
        // and q · (1/2 + 2^-25): with what is left of the low word, below 4q, an integer of 2^53.
        unsafe {
            let high = self.field.times(F::load_integers(high.as_ptr()), self.high);
            let middle = self.field.times(F::load_integers(middle.as_ptr()), self.middle);
            let low = self.field.reduce(F::load_integers(low.as_ptr()));
            self.field.finish(high.add(middle).add(low)).store_integers(out.as_mut_ptr());
        }
    }
}
