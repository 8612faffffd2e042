//! What a plan takes at least.

use hushtable_rlwe::ckks::Work;
use hushtable_rlwe::ring::Platform;

use super::cost::{Kind, operations};
use super::error::Error;
use super::plan::Plan;

/// A floor under the server's time of one query: instructions and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "two counts")]
pub struct Floor {
    /// Multiplications of 52 bits, eight at a time.
    pub vectors: usize,
    /// Bytes of keys and prepared maps, each read as often as it is used.
    pub read_bytes: usize,
}

impl Floor {
    /// Of the operations of `plan`. Additions, and whatever is not an operation on ciphertexts, are not
    /// counted.
    ///
    /// # Errors
    /// [`Error::Ckks`], [`Error::Terms`] for a parameter set that there is not.
    pub fn of(plan: &Plan, platform: Platform) -> Result<Self, Error> {
        let parameters = plan.parameters.check(platform)?;
        let degree = parameters.degree();
        let mut floor = Self::default();
        for operation in operations(plan) {
            let level = operation.level;
            let map =
                |diagonals, rotations| Work::transform(&parameters, level, diagonals, rotations);
            // What one more of it adds to a map.
            let (more, less) = match operation.kind {
                Kind::Rotate => (map(1, (0, 1)), map(1, (0, 0))),
                Kind::Hoisted => (map(1, (2, 0)), map(1, (1, 0))),
                Kind::Diagonal => (map(2, (0, 0)), map(1, (0, 0))),
                Kind::Divide => (Work::division(&parameters, level), Work::default()),
                Kind::Multiply => (Work::multiply(&parameters, level), Work::default()),
            };
            let count = |of: fn(&Work, usize) -> usize| of(&more, degree) - of(&less, degree);
            let mut bytes = count(|work, _| work.bytes);
            let mut vectors = count(|work, degree| work.multiplications(degree)) / 8;
            if operation.kind == Kind::Diagonal {
                // Maps without baby steps have nothing modulo P.
                let (limbs, special) = (level + 1, parameters.special_limbs());
                bytes = bytes * limbs / (limbs + special);
                vectors = vectors * limbs / (limbs + special);
            }
            floor.vectors += operation.count * vectors;
            floor.read_bytes += operation.count * bytes;
        }
        Ok(floor)
    }
}
