//! The server's half of proofs that uploads are encryptions.

use std::sync::Arc;

use hushtable_rlwe::linear::Upload;
use hushtable_rlwe::linear::proof::{COMMITMENT_BYTES, SEED_BYTES, Verifier};

use super::error::Error;
use super::proofs::{Check, check_row, lock};
use super::server::LinearServer;
use super::source;

impl LinearServer {
    /// The first seed of the proof of batch `batch`, once its uploads are there: they can no longer be others.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::Incomplete`].
    pub fn proof_seed(&self, batch: usize) -> Result<[u8; SEED_BYTES], Error> {
        self.check(batch)?;
        for convolution in self.layers.batches()[batch].clone() {
            self.held(convolution)?;
        }
        Ok(self.coins("rows", batch))
    }

    /// Takes what the client commits to, and gives the second seed: the same to the same again.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::Incomplete`]; [`Error::Bytes`] for another length.
    pub fn commit(&self, batch: usize, commitment: &[u8]) -> Result<[u8; SEED_BYTES], Error> {
        let (check, seed) = (self.check(batch)?, self.proof_seed(batch)?);
        let (expected, found) = (COMMITMENT_BYTES, commitment.len());
        if expected != found {
            return Err(Error::Bytes { what: "a proof's commitment", expected, found });
        }
        if check.verifier.get().is_none() {
            let mut held = Vec::new();
            for convolution in self.layers.batches()[batch].clone() {
                held.extend(self.held(convolution)?);
            }
            let uploads: Vec<&Upload> = held.iter().map(Arc::as_ref).collect();
            let parameters = self.layers.parameters();
            let verifier = Verifier::new(parameters, &self.key, &uploads, &seed, commitment)?;
            drop(check.verifier.set(verifier));
        }
        Ok(self.coins("challenge", batch))
    }

    /// Checks the answer to row `row`.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::ProofOrder`]; [`Error::Encryption`] for one that does not hold: then none of the batch
    /// is computed on any more.
    pub fn verify(&self, batch: usize, row: usize, bytes: &[u8]) -> Result<(), Error> {
        check_row(row)?;
        let check = self.check(batch)?;
        let missing = Error::ProofOrder { batch, missing: "its commitment" };
        let verifier = check.verifier.get().ok_or(missing)?;
        let found = verifier.check(&self.coins("challenge", batch), row, bytes);
        match found {
            Ok(()) => lock(&check.rows)[row] = true,
            Err(_) => drop(check.is_false.set(())),
        }
        Ok(found?)
    }

    /// # Errors
    /// [`Error::Unproven`].
    pub(super) fn proven(&self, batch: usize) -> Result<(), Error> {
        let check = self.check(batch)?;
        let is_proven = check.is_false.get().is_none() && lock(&check.rows).iter().all(|row| *row);
        if is_proven { Ok(()) } else { Err(Error::Unproven { batch }) }
    }

    fn check(&self, index: usize) -> Result<&Check, Error> {
        let count = self.checks.len();
        self.checks.get(index).ok_or(Error::Index { what: "batch", index, count })
    }

    /// Coins of this precompute, which nobody knows before they are sent.
    fn coins(&self, purpose: &str, batch: usize) -> [u8; SEED_BYTES] {
        source(&self.seed, purpose, [batch, 0, 0]).seed()
    }
}
