//! The dot products of each pair of shared vectors.
//!
//! The dealer shares a random vector R for each, and the products R·R' of each pair. Left and right open M = E + R for
//! every vector E; then E·E' = M·M' − M·R' − R·M' + R·R', which is linear in what the dealer shares (Beaver, CRYPTO
//! 1991, with one mask a vector for all its products).
//!
//! **What a server sees** is M, which is uniform, for R is and is used once.

use hushtable_mpc::compare::Half;
use zeroize::Zeroize;

use super::Error;
use super::dealt::Dealt;
use super::stream::Stream;

/// A step's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Products {
    pub vectors: usize,
    pub dim: usize,
}

impl Products {
    /// Pairs, in the order of facebook's DLRM: (1,0), (2,0), (2,1), (3,0), ...
    pub fn pairs(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.vectors).flat_map(|i| (0..i).map(move |j| (i, j)))
    }

    pub fn count(self) -> usize {
        self.vectors * self.vectors.saturating_sub(1) / 2
    }

    pub fn values(self) -> usize {
        self.vectors * self.dim
    }

    pub fn given_bytes(self) -> usize {
        4 * (self.values() + self.count())
    }

    /// The dot product of vector `i` of some and `j` of others.
    pub fn dot(self, x: &[u32], i: usize, y: &[u32], j: usize) -> u32 {
        let x = &x[i * self.dim..][..self.dim];
        let y = &y[j * self.dim..][..self.dim];
        let products = x.iter().zip(y).map(|(x, y)| x.wrapping_mul(*y));
        products.fold(0, u32::wrapping_add)
    }

    /// Adds masks and their products to what right is given; `own` is the dealer's randomness.
    pub fn deal(self, own: &mut Stream, left: &mut Stream, given: &mut Vec<u8>) {
        let mut masks = own.words(self.values());
        let mut shares = left.words(self.values() + self.count());
        let products = self.pairs().map(|(i, j)| self.dot(&masks, i, &masks, j));
        let numbers: Vec<u32> = masks.iter().copied().chain(products).collect();
        let rest = numbers.iter().zip(&shares).map(|(number, share)| number.wrapping_sub(*share));
        given.extend(rest.flat_map(u32::to_le_bytes));
        masks.zeroize();
        shares.zeroize();
    }
}

/// What one server has for a step: used once.
pub(super) struct Keys {
    products: Products,
    half: Half,
    /// Shares of the vectors R, then of their products.
    masks: Vec<u32>,
}

impl Keys {
    pub fn take(products: Products, half: Half, dealt: &mut Dealt<'_>) -> Result<Self, Error> {
        let masks = dealt.numbers(products.values() + products.count())?;
        Ok(Self { products, half, masks })
    }

    /// This server's share of M.
    pub fn reveal(&self, x: &[u32]) -> Vec<u64> {
        x.iter().zip(&self.masks).map(|(x, mask)| u64::from(x.wrapping_add(*mask))).collect()
    }

    /// This server's share of each product.
    pub fn finish(&self, opened: &[u64]) -> Vec<u32> {
        let opened: Vec<u32> = opened.iter().map(|it| *it as u32).collect();
        let (masks, of_pairs) = self.masks.split_at(self.products.values());
        let dot = |x: &[u32], i, y: &[u32], j| self.products.dot(x, i, y, j);
        let pairs = self.products.pairs().zip(of_pairs).map(|((i, j), of_pair)| {
            let both = match self.half {
                Half::Left => dot(&opened, i, &opened, j),
                Half::Right => 0,
            };
            both.wrapping_sub(dot(&opened, i, masks, j))
                .wrapping_sub(dot(masks, i, &opened, j))
                .wrapping_add(*of_pair)
        });
        pairs.collect()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.masks.zeroize();
    }
}
