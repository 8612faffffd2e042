//! The server's half of proofs that uploads are encryptions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hushtable_rlwe::linear::Upload;
use hushtable_rlwe::linear::proof::{COMMITMENT_BYTES, SEED_BYTES, Verifier};

use super::error::Error;
use super::proofs::{Check, check_row, lock};
use super::server::LinearServer;
use super::source;

impl LinearServer {
    /// The first seed of the proof of batch `batch`, once its uploads are there, which can no longer be others, and every
    /// earlier batch is proven: a precompute is one attempt.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::Incomplete`]; [`Error::Unproven`] for an earlier batch.
    pub fn proof_seed(&self, batch: usize) -> Result<[u8; SEED_BYTES], Error> {
        self.check(batch)?;
        (0..batch).try_for_each(|earlier| self.proven(earlier))?;
        for convolution in self.layers.batches()[batch].clone() {
            self.held(convolution)?;
        }
        Ok(self.coins("rows", batch))
    }

    /// Takes what the client commits to, and gives the second seed: the same to the same again. Takes a quarter of a
    /// millisecond an upload.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::Incomplete`], [`Error::Unproven`]; [`Error::Bytes`] for another length.
    pub fn commit(&self, batch: usize, commitment: &[u8]) -> Result<[u8; SEED_BYTES], Error> {
        let (check, seed) = (self.check(batch)?, self.proof_seed(batch)?);
        let (expected, found) = (COMMITMENT_BYTES, commitment.len());
        if expected != found {
            return Err(Error::Bytes { what: "a proof's commitment", expected, found });
        }
        // Held until it is made: another call of the same waits for it.
        let mut verifier = lock(&check.verifier);
        if verifier.is_none() && self.proven(batch).is_err() {
            let mut held = Vec::new();
            for convolution in self.layers.batches()[batch].clone() {
                held.extend(self.held(convolution)?);
            }
            let uploads: Vec<&Upload> = held.iter().map(Arc::as_ref).collect();
            let parameters = self.layers.parameters();
            let made = Verifier::new(parameters, &self.key, &uploads, &seed, commitment)?;
            *verifier = Some(Arc::new(made));
        }
        Ok(self.coins("challenge", batch))
    }

    /// Checks the answer to row `row`; one that was proven stays so.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::ProofOrder`]; [`Error::Encryption`] where the answer does not hold: the server then
    /// computes nothing more of this precompute.
    pub fn verify(&self, batch: usize, row: usize, bytes: &[u8]) -> Result<(), Error> {
        check_row(row)?;
        let check = self.check(batch)?;
        if lock(&check.rows)[row] {
            return Ok(());
        }
        let missing = Error::ProofOrder { batch, missing: "its commitment" };
        let verifier = lock(&check.verifier).clone().ok_or(missing)?;
        let found = verifier.check(&self.coins("challenge", batch), row, bytes);
        if found.is_err() {
            self.is_false.store(true, Ordering::Relaxed);
        }
        found?;
        let mut rows = lock(&check.rows);
        rows[row] = true;
        if rows.iter().all(|row| *row) {
            *lock(&check.verifier) = None;
        }
        Ok(())
    }

    /// # Errors
    /// [`Error::Unproven`].
    pub(super) fn proven(&self, batch: usize) -> Result<(), Error> {
        let is_proven = lock(&self.check(batch)?.rows).iter().all(|row| *row);
        match is_proven && !self.is_false.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Error::Unproven { batch }),
        }
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
