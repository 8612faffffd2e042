//! A user's dense features: as whole numbers, and as shares of them.

use hushtable_mpc::compare::Half;
use zeroize::Zeroize;

use super::Error;
use super::outline::{Outline, SEED_BYTES};
use super::stream::Stream;
use super::words::words;

/// What the seed of dense features' shares is used for.
pub(super) const DENSE: &str = "hushtable shares 2026-11 dense";
/// A dense feature is below 2^(this − fraction_bits).
const FEATURE_BITS_MAX: u32 = 24;

/// Dense features as whole numbers, in units of 2^−fraction_bits.
pub(super) fn whole(outline: &Outline, dense: &[f64]) -> Result<Vec<i64>, Error> {
    if dense.len() != outline.dense {
        let (expected, found) = (outline.dense, dense.len());
        return Err(Error::Count { what: "dense features", expected, found });
    }
    check_dense(dense, outline.fraction_bits, 0)?;
    let one = f64::from(1_u32 << outline.fraction_bits);
    Ok(dense.iter().map(|value| (value * one).round() as i64).collect())
}

/// That a user's dense features are numbers of a model with so many bits after the point: what comes from outside stays
/// so small that no sum of the first layer can leave its ring unseen.
///
/// # Errors
/// [`Error::Feature`] names the user and the first that is not.
pub fn check_dense(dense: &[f64], fraction_bits: u32, user: usize) -> Result<(), Error> {
    let limit = f64::from(1_u32 << FEATURE_BITS_MAX.saturating_sub(fraction_bits));
    // NaN is not within it either.
    let is_within = |value: &f64| value.abs() < limit;
    match dense.iter().position(|value| !is_within(value)) {
        Some(index) => Err(Error::Feature { user, index, value: dense[index], limit }),
        None => Ok(()),
    }
}

/// A server's share of the dense features, of what [`share`](super::client::share) gave for it.
pub(super) fn dense_share(outline: &Outline, half: Half, part: &[u8]) -> Result<Vec<u32>, Error> {
    outline.check_dense(half, part)?;
    match half {
        Half::Left => {
            let mut seed = [0; SEED_BYTES];
            seed.copy_from_slice(part);
            let shares = Stream::new(&seed, DENSE).words(outline.dense);
            seed.zeroize();
            Ok(shares)
        }
        Half::Right => Ok(words(part)),
    }
}
