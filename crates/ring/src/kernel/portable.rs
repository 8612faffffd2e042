//! The specification of every kernel, in plain Rust.

use super::{COLUMNS, PackedGroup, Rows, block_words, width_bytes};
use crate::crt::Crt;
use crate::gadget::Gadget;
use crate::sample::{Stream, Words};
use crate::{Modulus, NttTable};

/// Coefficients to evaluations, in place: Cooley and Tukey's butterflies, natural to bit-reversed
/// order (Harvey, "Faster arithmetic for number-theoretic transforms", 2014).
pub fn forward(table: &NttTable, values: &mut [u64]) {
    let modulus = table.modulus();
    let mut length = table.degree();
    let mut groups = 1;
    while groups < table.degree() {
        length /= 2;
        for (group, block) in values.chunks_exact_mut(2 * length).enumerate() {
            let (w, w_shoup) = (table.roots[groups + group], table.roots_shoup[groups + group]);
            let (low, high) = block.split_at_mut(length);
            for (x, y) in low.iter_mut().zip(high) {
                let product = modulus.mul_shoup(*y, w, w_shoup);
                (*x, *y) = (modulus.add(*x, product), modulus.sub(*x, product));
            }
        }
        groups *= 2;
    }
}

/// Evaluations to coefficients, in place: Gentleman and Sande's butterflies, then 1 / N.
pub fn inverse(table: &NttTable, values: &mut [u64]) {
    let modulus = table.modulus();
    let mut length = 1;
    let mut groups = table.degree() / 2;
    while groups > 0 {
        for (group, block) in values.chunks_exact_mut(2 * length).enumerate() {
            let w = table.inverse_roots[groups + group];
            let w_shoup = table.inverse_roots_shoup[groups + group];
            let (low, high) = block.split_at_mut(length);
            for (x, y) in low.iter_mut().zip(high) {
                let difference = modulus.sub(*x, *y);
                (*x, *y) = (modulus.add(*x, *y), modulus.mul_shoup(difference, w, w_shoup));
            }
        }
        length *= 2;
        groups /= 2;
    }
    for value in values {
        *value = modulus.mul_shoup(*value, table.degree_inverse, table.degree_inverse_shoup);
    }
}

/// As [`inverse`], multiplied with `w`.
pub fn inverse_scaled(table: &NttTable, w: u64, values: &mut [u64]) {
    inverse(table, values);
    scale_assign(table.modulus(), values, w, table.modulus().shoup(w));
}

/// x += y.
pub fn add_assign(modulus: Modulus, x: &mut [u64], y: &[u64]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x = modulus.add(*x, y);
    }
}

/// x −= y.
pub fn sub_assign(modulus: Modulus, x: &mut [u64], y: &[u64]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x = modulus.sub(*x, y);
    }
}

/// x = −x.
pub fn neg_assign(modulus: Modulus, x: &mut [u64]) {
    for x in x {
        *x = modulus.neg(*x);
    }
}

/// x *= y, element by element.
pub fn mul_assign(modulus: Modulus, x: &mut [u64], y: &[u64]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x = modulus.mul(*x, y);
    }
}

/// x *= w for one number w.
pub fn scale_assign(modulus: Modulus, x: &mut [u64], w: u64, w_shoup: u64) {
    for x in x {
        *x = modulus.mul_shoup(*x, w, w_shoup);
    }
}

/// `out` = the sum over j of xs[j] · ys[j], element by element; at most [`TERMS_MAX`] terms.
///
/// [`TERMS_MAX`]: super::TERMS_MAX
pub fn inner_product(modulus: Modulus, xs: &[&[u64]], ys: &[&[u64]], out: &mut [u64]) {
    for (index, out) in out.iter_mut().enumerate() {
        let products = xs.iter().zip(ys).map(|(x, y)| u128::from(x[index]) * u128::from(y[index]));
        *out = modulus.reduce_u128(products.sum());
    }
}

/// outs[row][column] += Σ_i weights[row · stride + i] · columns[i][column], modulo 2^64.
pub fn add_columns(
    weights: &[i32],
    stride: usize,
    columns: &[[u64; COLUMNS]],
    outs: &mut [[u64; COLUMNS]],
) {
    for (row, out) in outs.iter_mut().enumerate() {
        for (column, &weight) in columns.iter().zip(&weights[row * stride..]) {
            let weight = i64::from(weight) as u64;
            for (out, value) in out.iter_mut().zip(column) {
                *out = out.wrapping_add(value.wrapping_mul(weight));
            }
        }
    }
}

/// out[i] = values[indices[i]].
pub fn permute(values: &[u64], indices: &[u32], out: &mut [u64]) {
    for (out, &index) in out.iter_mut().zip(indices) {
        *out = values[index as usize];
    }
}

/// (sum, difference) = (x + y, (x − y) · w), element by element: one step of a query's expansion.
pub fn split(modulus: Modulus, x: &mut [u64], y: &mut [u64], w: &[u64]) {
    for ((x, y), &w) in x.iter_mut().zip(y).zip(w) {
        let difference = modulus.sub(*x, *y);
        (*x, *y) = (modulus.add(*x, *y), modulus.mul(difference, w));
    }
}

/// The signed digits of the numbers that `values` holds the residues of; see
/// [`Kernel::decompose`](super::Kernel::decompose).
pub fn decompose(gadget: Gadget, crt: &Crt, values: &[u64], out: &mut [u64]) {
    let limbs = crt.limbs();
    let degree = values.len() / limbs;
    for index in 0..degree {
        let x = crt.compose_signed(|limb| values[limb * degree + index]);
        for digit in 0..gadget.digits() {
            let d = gadget.digit(x, digit);
            for (limb, modulus) in crt.moduli().iter().enumerate() {
                out[(digit * limbs + limb) * degree + index] = modulus.from_signed_vartime(d);
            }
        }
    }
}

/// Residues modulo `to` of what `values` are modulo `from`, taken from −from / 2 to from / 2.
/// A client's noise goes through it, so there is no division: a division's time depends on its operands.
pub fn recentre(from: Modulus, to: Modulus, values: &[u64], out: &mut [u64]) {
    let one = to.shoup(1);
    let (half, wrap) = (from.value() / 2, from.value() % to.value());
    for (out, &value) in out.iter_mut().zip(values) {
        let is_above = ((half.wrapping_sub(value) as i64) >> 63) as u64;
        *out = to.sub(to.mul_shoup(value, 1, one), wrap & is_above);
    }
}

/// `out` = Σ_j xs[j] · weights[j] + counts · wrap; see [`Kernel::combine`](super::Kernel::combine).
pub fn combine(
    modulus: Modulus,
    xs: &[&[u64]],
    weights: &[u64],
    counts: &[u8],
    wrap: u64,
    out: &mut [u64],
) {
    for (index, out) in out.iter_mut().enumerate() {
        let terms = xs.iter().zip(weights).map(|(x, &w)| u128::from(x[index]) * u128::from(w));
        let wraps = u128::from(counts[index]) * u128::from(wrap);
        *out = modulus.reduce_u128(terms.sum::<u128>() + wraps);
    }
}

/// `out` = Σ_j xs[j] / moduli[j], rounded, in doubles added one after another from 1/2 on.
pub fn count_wraps(moduli: &[Modulus], xs: &[&[u64]], out: &mut [u8]) {
    for (index, out) in out.iter_mut().enumerate() {
        let add = |sum: f64, (x, modulus): (&&[u64], &Modulus)| {
            sum + x[index] as f64 * (1.0 / modulus.value() as f64)
        };
        *out = xs.iter().zip(moduli).fold(0.5, add) as u8;
    }
}

/// `outs[side]` = Σ_j xs[j] · (row j of `rows`)[side] / 2^52; see
/// [`Kernel::row_products`](super::Kernel::row_products).
pub fn row_products(
    modulus: Modulus,
    xs: &[&[u64]],
    rows: Rows,
    more: &[(&[u64], [&[u64]; 2])],
    outs: [&mut [u64]; 2],
) {
    let length = outs[0].len();
    let width = width_bytes(modulus);
    let block = block_words(length, 1);
    let back = modulus.inv((1 << 52) % modulus.value());
    let row = |j: usize, side: usize, index: usize| match (rows, side) {
        (Rows::Packed(bytes), _) => {
            let count = bytes.len() / (length * width);
            packed(bytes, width, block, (count, 2 * j + side), index)
        }
        (Rows::Apart { firsts, .. }, 0) => firsts[j * length + index],
        (Rows::Apart { seconds, .. }, _) => {
            packed(seconds, width, block, (seconds.len() / (length * width), j), index)
        }
    };
    for (side, out) in outs.into_iter().enumerate() {
        for (index, out) in out.iter_mut().enumerate() {
            let product =
                |(j, x): (usize, &&[u64])| u128::from(x[index]) * u128::from(row(j, side, index));
            let sum: u128 = xs.iter().enumerate().map(product).sum();
            let product = |(x, ys): &(&[u64], [&[u64]; 2])| {
                u128::from(x[index]) * u128::from(ys[side][index])
            };
            let sum = sum + more.iter().map(product).sum::<u128>();
            *out = modulus.mul(modulus.reduce_u128(sum), back);
        }
    }
}

/// `outs[side]` = Σ over groups and terms of packed · factors[side] / 2^52; see
/// [`Kernel::packed_products`](super::Kernel::packed_products).
pub fn packed_products(
    modulus: Modulus,
    groups: &[PackedGroup],
    start: usize,
    outs: [&mut [u64]; 2],
) {
    let width = width_bytes(modulus);
    let back = modulus.inv((1 << 52) % modulus.value());
    for (side, out) in outs.into_iter().enumerate() {
        for (index, out) in (start..).zip(out) {
            let mut sum = 0u128;
            for group in groups {
                let block = block_words(group.length(modulus), group.run);
                for &(term, factors) in &group.terms {
                    let place = (group.count, term);
                    let x = packed(group.packed, width, block, place, index / group.run);
                    sum += u128::from(x) * u128::from(factors[side][index]);
                }
            }
            *out = modulus.mul(modulus.reduce_u128(sum), back);
        }
    }
}

/// Number `index` of polynomial `which` of `count` that are packed `block` numbers at a time.
fn packed(
    bytes: &[u8],
    width: usize,
    block: usize,
    (count, which): (usize, usize),
    index: usize,
) -> u64 {
    let at = ((index / block * count + which) * block + index % block) * width;
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(word)
}

/// See [`Kernel::uniform`](super::Kernel::uniform).
pub fn uniform(modulus: Modulus, stream: Stream, weight: u64, out: &mut [u64]) {
    let mut words = Words::new(stream.seed, &stream.nonce());
    let (mask, shoup) = (u64::MAX >> (64 - modulus.bits()), modulus.shoup(weight));
    out.fill_with(|| {
        loop {
            let word = words.next() & mask;
            if word < modulus.value() {
                break modulus.mul_shoup(word, weight, shoup);
            }
        }
    });
}
