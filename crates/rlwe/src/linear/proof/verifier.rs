//! The server's half of a proof.

use hushtable_ring::{Coefficients, Evaluations, Poly, Seed};

use super::prover::{hash, signed};
use super::rows::{add_shifted, monomials};
use super::{
    Bounds, CANDIDATES, COMMITMENT_BYTES, HASH_BYTES, ROWS, number_halves, response_bytes,
};
use crate::Error;
use crate::linear::{Parameters, PublicKey, Upload};
use crate::pack::{packed_bytes, unpack};

/// Checks a batch of uploads.
pub struct Verifier {
    parameters: Parameters,
    columns: usize,
    bounds: Bounds,
    /// A_r and C_r.
    rows: Vec<(Poly<Evaluations>, Poly<Coefficients>)>,
    hashes: Vec<u8>,
}

impl Verifier {
    /// A check of the public key and `uploads`, in the order in which the client adds them, for the first seed and what
    /// the client then committed to.
    ///
    /// # Errors
    /// [`Error::Bytes`] for a commitment of another length.
    pub fn new(
        parameters: &Parameters,
        key: &PublicKey,
        uploads: &[&Upload],
        seed: &Seed,
        commitment: &[u8],
    ) -> Result<Self, Error> {
        if commitment.len() != COMMITMENT_BYTES {
            let (what, found) = ("a proof's commitment", commitment.len());
            return Err(Error::Bytes { what, expected: COMMITMENT_BYTES, found });
        }
        let ring = parameters.ring();
        let columns = 1 + uploads.len();
        let exponents = monomials(seed, ROWS * columns, ring.degree());
        let mut masks: Vec<_> = (0..ROWS).map(|_| ring.zero()).collect();
        let mut bodies: Vec<_> = (0..ROWS).map(|_| ring.zero()).collect();
        let all = std::iter::once(&key.zero).chain(uploads.iter().map(|upload| &upload.0));
        for (column, own) in all.enumerate() {
            let exponents = (0..ROWS).map(|row| exponents[row * columns + column]);
            let mask = ring.inverse(own.mask.clone());
            add_shifted(ring, &mask, exponents.clone(), &mut masks);
            let body = ring.inverse(own.body.clone());
            add_shifted(ring, &body, exponents, &mut bodies);
        }
        let masks = masks.into_iter().map(|mask| ring.forward(mask));
        Ok(Self {
            columns,
            bounds: Bounds::new(ring.degree(), columns),
            rows: masks.zip(bodies).collect(),
            hashes: commitment.to_vec(),
            parameters: parameters.clone(),
        })
    }

    /// Checks the answer to row `row` for the second seed. What passes for all of [`ROWS`] rows is proven.
    ///
    /// # Errors
    /// [`Error::Bytes`] for another length; [`Error::Unproven`].
    ///
    /// # Panics
    /// For a row that there is not.
    pub fn check(&self, seed: &Seed, row: usize, bytes: &[u8]) -> Result<(), Error> {
        let parameters = &self.parameters;
        let (ring, degree) = (parameters.ring(), parameters.degree());
        let (expected, found) = (response_bytes(parameters, self.columns), bytes.len());
        if expected != found {
            return Err(Error::Bytes { what: "a row of a proof", expected, found });
        }
        let unproven = |what| Error::Unproven { row, what };
        let (&[candidate], rest) = bytes.split_first_chunk().expect("the length was checked");
        let (salt, mut rest) = rest.split_first_chunk().expect("the length was checked");
        let candidate = usize::from(candidate);
        if candidate >= CANDIDATES {
            return Err(unproven("it is of no candidate"));
        }
        let mut numbers = |bits: u32| {
            let mut values = vec![0; degree];
            let (own, others) = rest.split_at(packed_bytes(degree, bits));
            rest = others;
            unpack("a row of a proof", own, bits, &mut values).map(|()| values)
        };
        let bounds = self.bounds;
        let secret = numbers(bounds.secret_mask_log2 + 1)?;
        let errors = numbers(bounds.error_mask_log2 + 1)?;
        let [low, high] = number_halves(parameters.bits());
        let mut hidden = numbers(low)?;
        if high > 0 {
            let upper = numbers(high)?;
            hidden.iter_mut().zip(upper).for_each(|(value, upper)| *value |= upper << low);
        }
        let secret = centre(&secret, 1, bounds.secret_mask_log2);
        let secret = secret.ok_or_else(|| unproven("its secret is too large"))?;
        let errors = centre(&errors, bounds.error, bounds.error_mask_log2);
        let errors = errors.ok_or_else(|| unproven("its errors are too large"))?;
        let challenge = monomials(seed, ROWS, degree)[row];
        let (mask, body) = &self.rows[row];
        let mut sum = [parameters.encode(&hidden)];
        ring.add_assign(&mut sum[0], &signed(ring, &errors));
        // Less d · C_r: X^N is −1.
        add_shifted(ring, body, std::iter::once(challenge + degree), &mut sum);
        let [sum] = sum;
        let found = hash(ring, salt, mask, signed(ring, &secret), sum);
        let at = (row * CANDIDATES + candidate) * HASH_BYTES;
        match found == self.hashes[at..at + HASH_BYTES] {
            true => Ok(()),
            false => Err(unproven("it is not what was committed to")),
        }
    }
}

/// Values less 2^mask_log2, where all leave `most` to either end.
fn centre(values: &[u64], most: u64, mask_log2: u32) -> Option<Vec<i64>> {
    let room = (1u64 << (mask_log2 + 1)) - 2 * most;
    let is_within = values.iter().all(|value| value.wrapping_sub(most) < room);
    is_within.then(|| values.iter().map(|&value| value as i64 - (1 << mask_log2)).collect())
}
