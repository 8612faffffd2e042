//! Linear layers on shares, and the rounding after them.

use hushtable_mpc::compare::Half;
use zeroize::Zeroize;

use super::words::mask;

/// A layer whose weights both servers know.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Linear {
    pub inputs: usize,
    pub outputs: usize,
    /// `outputs` rows of `inputs` weights.
    pub weights: Vec<i32>,
    pub bias: Vec<i64>,
}

impl Linear {
    /// This server's share of the sums, modulo 2^32.
    pub fn apply(&self, half: Half, shares: &[u32]) -> Vec<u32> {
        assert_eq!(shares.len(), self.inputs, "a share of each input");
        let rows = self.weights.chunks_exact(self.inputs);
        let product = |row: &[i32]| {
            let products =
                row.iter().zip(shares).map(|(weight, share)| (*weight as u32).wrapping_mul(*share));
            products.fold(0, u32::wrapping_add)
        };
        let bias = self.bias.iter().map(|bias| match half {
            Half::Left => *bias as u32,
            Half::Right => 0,
        });
        rows.zip(bias).map(|(row, bias)| product(row).wrapping_add(bias)).collect()
    }
}

/// What a layer makes of its inputs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sums {
    /// Weighted sums.
    Linear(Linear),
    /// Each input times a number.
    Scaled(Vec<i32>),
    /// The inputs.
    Same,
}

impl Sums {
    /// This server's share of them, modulo 2^32.
    pub fn apply(&self, half: Half, mut shares: Vec<u32>) -> Vec<u32> {
        let sums = match self {
            Self::Linear(linear) => linear.apply(half, &shares),
            Self::Scaled(scales) => {
                let scaled = shares.iter().zip(scales);
                scaled.map(|(share, scale)| share.wrapping_mul(*scale as u32)).collect()
            }
            Self::Same => return shares,
        };
        shares.zeroize();
        sums
    }

    /// Multiplications that they take.
    pub fn products(&self) -> usize {
        match self {
            Self::Linear(linear) => linear.weights.len(),
            Self::Scaled(scales) => scales.len(),
            Self::Same => 0,
        }
    }
}

/// Cuts the lowest `cut` bits off shares modulo 2^32, in a ring of `bits` bits or fewer than 32 − `cut`: left rounds
/// down and right up.
pub(super) fn shrink(half: Half, shares: &mut [u32], cut: u32, bits: u32) {
    debug_assert!(cut + bits <= 32, "a ring that the bits which are left fill");
    let mask = mask(bits);
    for share in shares {
        *share = match half {
            Half::Left => *share >> cut,
            Half::Right => (share.wrapping_neg() >> cut).wrapping_neg(),
        } & mask;
    }
}
