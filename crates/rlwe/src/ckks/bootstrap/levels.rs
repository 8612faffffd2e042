//! What the levels of a set that bootstraps are for.

use super::super::{Error, ParameterSpec};
use super::DEPTH;

/// So many slots two maps each way take in less time than three, which leave fewer levels besides.
const FEW_SLOTS: usize = 2048;

/// How long the primes are of a set that bootstraps, and what for; from the lowest level up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootstrapLevels {
    /// Bits of q_0. By so many more than the scale's, coefficients are smaller than q_0: the sine is as
    /// far from them as the square of their ratio.
    pub first: u32,
    /// Bits of the scale, and of the primes of the next two.
    pub scale: u32,
    /// Levels, and maps, from slots to coefficients.
    pub to_coefficients: usize,
    /// Levels that are left when all is done.
    pub left: usize,
    /// Bits of the primes of the reduction's eight levels and of the maps to slots.
    pub reduction: u32,
    /// Levels, and maps, from coefficients to slots.
    pub to_slots: usize,
    /// Bits of P's primes, and how many there are.
    pub special: (u32, usize),
}

impl BootstrapLevels {
    /// For few slots at N = 2^16: 15 levels left, keys of three digits.
    pub const R16: Self = Self { left: 15, special: (50, 10), ..Self::L16 };

    /// For few slots at N = 2^16: 20 levels left, keys of six digits.
    pub const L16: Self = Self {
        first: 51,
        scale: 40,
        to_coefficients: 2,
        left: 20,
        reduction: 51,
        to_slots: 2,
        special: (50, 6),
    };

    /// For all slots at N = 2^16: 12 levels left.
    pub const F16: Self = Self { to_coefficients: 3, left: 12, to_slots: 3, ..Self::R16 };

    /// For N = 2^15: 5 levels left, at a scale of 32 bits.
    pub const Y15: Self =
        Self { first: 42, scale: 32, left: 5, reduction: 50, special: (51, 2), ..Self::L16 };

    /// Those of 128 bits at `degree` that take `slots` numbers in least time.
    ///
    /// # Errors
    /// [`Error::Bootstrap`] for a degree that has none.
    pub fn of(degree: usize, slots: usize) -> Result<Self, Error> {
        match degree {
            65536 if slots <= FEW_SLOTS => Ok(Self::R16),
            65536 => Ok(Self::F16),
            32768 => Ok(Self::Y15),
            _ => {
                let nearest = if degree < 49152 { 32768 } else { 65536 };
                let why = format!(
                    "degree {degree} has no levels of 128 bits for it: 32768 and 65536 have, \
                     {nearest} is nearest"
                );
                Err(Error::Bootstrap { why })
            }
        }
    }

    /// The set of `degree`, whose name says so where it is below 128 bits.
    ///
    /// # Errors
    /// [`Error::Parameters`] where there are too few primes of some length.
    pub fn spec(&self, name: &str, degree: usize) -> Result<ParameterSpec, Error> {
        let runs = [
            (self.first, 1),
            (self.scale, self.to_coefficients + self.left),
            (self.reduction, DEPTH + self.to_slots),
        ];
        ParameterSpec::of_runs(name, degree, &runs, self.special, self.scale)
    }

    /// The level that ciphertexts are raised to.
    pub fn top(&self) -> usize {
        self.reduced_from().saturating_add(self.to_slots)
    }

    /// The level that the reduction starts at.
    pub fn reduced_from(&self) -> usize {
        self.output().saturating_add(DEPTH)
    }

    /// The level that ciphertexts have afterwards.
    pub fn output(&self) -> usize {
        self.to_coefficients.saturating_add(self.left)
    }
}
