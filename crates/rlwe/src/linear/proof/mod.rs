//! A proof that uploads are encryptions of numbers, with errors that a flood hides: for servers whose weights are
//! secret, of clients that may cheat.
//!
//! An upload that encrypts fractions of a plaintext step would take the mask s out of the answer's body and leave
//! too little noise to hide the weights. So the client proves, for a batch of U bodies c_j of masks a_j (the public
//! key is one of them), that one secret s opens all of them to a multiple of a quarter step and a short error. It is
//! a proof of plaintext knowledge whose cost is shared by the batch, as multiparty computation with homomorphic
//! encryption has them (Baum, Cozzo and Smart, "Using TopGear in Overdrive", SAC 2019), here for bodies under a
//! secret that stays hidden, and modulo powers of two.
//!
//! # The protocol
//! 1. Once it holds all bodies the server sends a seed. It gives [`ROWS`] rows of monomials W_rj = ±X^k, and with
//!    them A_r = Σ_j W_rj · a_j and C_r = Σ_j W_rj · c_j, which is −A_r · s + E_r + round(Q · M_r / t): E_r and M_r are
//!    the same sums of errors and numbers.
//! 2. The client draws, [`CANDIDATES`] times for each row, masks y_s, y_E uniform in −Y..Y and y_M uniform modulo t,
//!    and sends a hash of w = −A_r · y_s + y_E + round(Q · y_M / t) and of a salt ([`Prover::commit`]).
//! 3. The server sends another seed, which gives a monomial d_r for each row.
//! 4. The client answers each row with z_s = y_s + d_r · s, z_E = y_E + d_r · E_r (and what rounding leaves) and
//!    z_M = y_M + d_r · M_r modulo t, of the first candidate whose z_s and z_E stay so far within Y that every
//!    value is as likely whatever s and E_r are ([`Prover::respond`]).
//! 5. The server hashes −A_r · z_s + z_E + round(Q · z_M / t) − d_r · C_r, and takes the row where that is the
//!    candidate's hash and z_s and z_E lie within their bounds ([`Verifier::check`]).
//!
//! # What it proves
//! Take B for the bound of z_E and 2^w monomials or fewer, of all 2N. Of a row whose C_r + A_r · s is not within
//! (N / 2^w) · B of half steps, no candidate has an answer to more than 2^w of the d_r: of more, two differ
//! by X^δ with 2^w dividing δ, their answers' difference gives (1 − X^δ)(C_r + A_r · s) within 2B of whole steps,
//! and N / 2^w shifts of that add up to 2 (C_r + A_r · s), since X^(δ · N / 2^v) = −1 for some v ≥ w. By the same
//! argument, where an x_j = c_j + a_j · s is not within (N / 2^w′) times that of quarter steps, no more than 2^w′ of
//! the W_rj make row r a good one. `CHALLENGE_LOG2` and `ROW_LOG2` are chosen for a chance of 2^-5 each, so
//! that a row is passed with 2^-4 and all ten with 2^-40. Challenges are the server's coins, sent when what they are
//! for has come and is fixed: there is nothing to try again in private.
//!
//! The secret that opens is one and the same, up to its half. Take three W_rj that make row r a good one under secrets
//! of their own. Eliminating the rest of the row and c_j leaves a combination of two uniform polynomials (the rest of A_r,
//! and a_j: the masks are a hash's), with short polynomials for factors, near steps in all N coefficients. With
//! factors other than zero such a combination exists with a chance below 2^-N, by a count of short factors, errors and
//! steps ([`is_unique`]). With factors of zero the three secrets are equal, because polynomials over the integers have no divisors of zero.
//!
//! # What it says
//! Nothing beyond: z_M is uniform, z_s and z_E are uniform within their bounds whatever was masked, for every d_r, and
//! which candidate is taken has the same chances; salted hashes hide w (as random oracles).
//!
//! # What follows
//! Numbers of k bits are encrypted as if they had k + 2, the lowest two 0, and an answer's s is drawn modulo 2^(k + 2):
//! what is a quarter step in an upload is hidden like every number. The client rounds its share of the sum up and
//! the server its own down, which is exact. Noise is bounded by [`verified_noise_log2`] and flooded as that of honest
//! uploads is.

mod prover;
mod rows;
#[cfg(test)]
mod tests;
mod verifier;

pub use prover::Prover;
pub use verifier::Verifier;

use hushtable_ring::SIGMA;

use super::Parameters;
use super::noise::NOISE_DEVIATIONS;
use crate::pack::packed_bytes;

/// Rows of a proof, each answered on its own.
pub const ROWS: usize = 10;

/// Masks that are committed to for each row, for the chance that some hide no answer.
pub const CANDIDATES: usize = 4;

/// log2 of how many of a row's 2N monomials do with an upload that is none: 2N / 2^5.
const ROW_LOG2: u32 = 5;

/// The same of a row's challenges, which [`CANDIDATES`] share: 2N / 4 / 2^5.
const CHALLENGE_LOG2: u32 = 7;

/// How much wider masks are than what they hide, beside the 2N numbers of an answer: a candidate is
/// no good with a chance below 2^-6, a row has none with 2^-24.
const ROOM_LOG2: u32 = 6;

/// Bytes of a seed.
pub const SEED_BYTES: usize = 32;

/// Bytes of a commitment's hash, and of its salt.
const HASH_BYTES: usize = 32;

/// Bytes of [`Prover::commit`].
pub const COMMITMENT_BYTES: usize = ROWS * CANDIDATES * HASH_BYTES;

/// The largest magnitude of an error, of which the table of chances ends.
const ERROR_MAX: f64 = 42.0;

/// How large what is masked may be, and the masks: for a batch of as many columns, the public key with it.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// E_r stays within ± this, but for a chance of 2^-70 a coefficient.
    error: u64,
    /// Masks of errors are in −2^this..2^this.
    error_mask_log2: u32,
    /// The same of secrets.
    secret_mask_log2: u32,
}

impl Bounds {
    fn new(degree: usize, columns: usize) -> Self {
        let variance = columns as f64 * (SIGMA * SIGMA + 1.0 / 12.0);
        // Two more for the roundings of what is masked and of its mask.
        let error = (NOISE_DEVIATIONS * variance.sqrt()).ceil() as u64 + 2;
        let error = error.next_power_of_two();
        let secret_mask_log2 = 1 + degree.ilog2() + ROOM_LOG2;
        Self { error, error_mask_log2: error.ilog2() + secret_mask_log2, secret_mask_log2 }
    }
}

/// Bytes of [`Prover::respond`], one row's.
pub fn response_bytes(parameters: &Parameters, columns: usize) -> usize {
    let degree = parameters.degree();
    let bounds = Bounds::new(degree, columns);
    let numbers = number_halves(parameters.bits());
    let bits = [bounds.secret_mask_log2 + 1, bounds.error_mask_log2 + 1, numbers[0], numbers[1]];
    let packed = bits.into_iter().map(|bits| packed_bytes(degree, bits));
    1 + HASH_BYTES + packed.sum::<usize>()
}

/// The bits of a number's low part and of its high part: as many as are packed at once.
fn number_halves(bits: u32) -> [u32; 2] {
    [bits.min(32), bits.saturating_sub(32)]
}

/// Whether the secret that opens a batch is one by counting alone.
///
/// Factors are sums of three secrets times two monomials each, twice within N / 2^w · 2Y; errors likewise. What they can be, in
/// two factors, an error and a number of k + 1 bits a coefficient, is to stay 10 bits below Q: primes split, so that
/// a product of a uniform polynomial is uniform in an ideal only.
pub fn is_unique(parameters: &Parameters, columns: usize) -> bool {
    let bounds = Bounds::new(parameters.degree(), columns);
    let short = |mask_log2: u32| {
        let most = 6.0 * f64::from(mask_log2 + 1 + CHALLENGE_LOG2 - 1).exp2();
        (2.0 * most).log2()
    };
    let count = 2.0 * short(bounds.secret_mask_log2) + short(bounds.error_mask_log2);
    count + f64::from(parameters.bits() + 1) < parameters.ring().modulus_log2() - 10.0
}

/// log2 of a bound on the noise of Σ ŵ_j · (uploads) and its re-randomisation where uploads were proven, whatever they
/// are, for weights whose absolute values sum to `norm` over all ŵ_j together and batches of `columns` bodies.
///
/// What a proof leaves of an upload's error is multiplied by weights; of the public key's, by ternary numbers. A
/// fresh error is multiplied by a secret of which twice is within N / 2^w · 2Y.
pub fn verified_noise_log2(degree: usize, columns: usize, norm: f64) -> f64 {
    let bounds = Bounds::new(degree, columns);
    // N / (2N / 2^x).
    let slack = |log2: u32| f64::from(log2 - 1).exp2();
    let error =
        (f64::from(bounds.error_mask_log2).exp2() + 1.0) * slack(CHALLENGE_LOG2) * slack(ROW_LOG2);
    let secret = f64::from(bounds.secret_mask_log2).exp2() * slack(CHALLENGE_LOG2);
    let degree = degree as f64;
    ((norm + degree) * error + degree * ERROR_MAX * secret + 1.0).log2()
}
