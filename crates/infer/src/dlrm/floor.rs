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
            let (limbs, special) = (level + 1, parameters.special_limbs());
            // What one more of it adds to a map.
            let (more, less) = match operation.kind {
                Kind::Rotate | Kind::Raise => (Work::rotate(&parameters, level), Work::default()),
                Kind::Cut => (Work::extend(limbs, special), Work::default()),
                Kind::Hoisted => (map(1, (2, 0)), map(1, (1, 0))),
                Kind::Giant => {
                    let divided = Work::division(&parameters, level);
                    (map(1, (0, 1)), map(1, (0, 0)).plus(divided))
                }
                Kind::Divide => (Work::division(&parameters, level), Work::default()),
                Kind::Close => {
                    let rescaled = usize::from(level > 0);
                    (Work::divide(limbs, special, rescaled).times(2), Work::default())
                }
                Kind::Diagonal | Kind::DiagonalOverP | Kind::Repeated | Kind::RepeatedOverP => {
                    (map(2, (0, 0)), map(1, (0, 0)))
                }
                Kind::MultiplyRescale => (Work::multiply(&parameters, level), Work::default()),
                Kind::Multiply => {
                    let switched = Work::rotate(&parameters, level);
                    (Work::tensor(limbs).plus(switched), Work::default())
                }
                Kind::Rescale => (Work::rescale(level), Work::default()),
                Kind::Constant | Kind::Add | Kind::AddPart | Kind::Copy | Kind::Read => continue,
            };
            let count = |of: fn(&Work, usize) -> usize| of(&more, degree) - of(&less, degree);
            let mut bytes = count(|work, _| work.bytes);
            let mut vectors = count(|work, degree| work.multiplications(degree)) / 8;
            if matches!(operation.kind, Kind::Diagonal | Kind::Repeated) {
                // Maps without baby steps have nothing modulo P.
                bytes = bytes * limbs / (limbs + special);
                vectors = vectors * limbs / (limbs + special);
            }
            if matches!(operation.kind, Kind::Repeated | Kind::RepeatedOverP) {
                // What repeats stays in caches.
                bytes = 0;
            }
            floor.vectors += operation.count * vectors;
            floor.read_bytes += operation.count * bytes;
        }
        Ok(floor)
    }
}
