//! How much noise a sum has: a bound for its tail.

use hushtable_ring::SIGMA;

/// Deviations that noise is taken to stay within: a subgaussian number exceeds ten with a chance of at most
/// 2 · exp(−50) < 2^-71.
pub const NOISE_DEVIATIONS: f64 = 10.0;

/// log2 of a bound on the noise of Σ ŵ_j · (uploads) and its re-randomisation, for weights whose squares
/// sum to `energy` over all ŵ_j together.
///
/// Every part is a sum of independent subgaussian numbers times fixed ones, and so subgaussian, with the
/// sum of their variances times squares: an upload's error (the discrete Gaussian's moments are below the
/// Gaussian's of the same deviation: Canonne, Kamath and Steinke, NeurIPS 2020, lemma 8), its rounding
/// (uniform within 1/2, for masks r are uniform: variance 1/12), u (uniformly ternary: 2/3) times the
/// public key's error, and e′ times s. The public key's error has energy at most 2 N σ² but for a chance below
/// 2^-400 at N = 4096, and s at most N.
pub fn noise_log2(degree: usize, energy: f64) -> f64 {
    let (degree, error) = (degree as f64, SIGMA * SIGMA);
    let uploads = energy * (error + 1.0 / 12.0);
    let fresh = 2.0 / 3.0 * (2.0 * degree * error) + error * degree;
    (uploads + fresh).log2() / 2.0 + NOISE_DEVIATIONS.log2()
}

/// A bound on what rounding a mask and a body to integers adds, in the units of what is rounded to: each
/// is uniform within 1/2, and the mask's are multiplied by s, of energy at most N.
pub(super) fn rounding_max(degree: usize) -> f64 {
    NOISE_DEVIATIONS * ((degree as f64 + 1.0) / 12.0).sqrt()
}
