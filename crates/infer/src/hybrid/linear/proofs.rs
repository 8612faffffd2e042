//! Both halves of proofs that uploads are encryptions, batch by batch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hushtable_rlwe::linear::proof::{COMMITMENT_BYTES, Prover, ROWS, SEED_BYTES, Verifier};
use hushtable_rlwe::linear::{Errors, Upload};
use zeroize::Zeroizing;

use super::client::LinearClient;
use super::error::Error;
use super::server::LinearServer;
use super::source;

/// What a client keeps to prove with.
#[derive(Default)]
pub(super) struct Proofs {
    /// Of each upload that is not proven yet.
    errors: Mutex<HashMap<u64, Errors>>,
    /// Of each batch that was committed to, the prover and what it sent.
    begun: Mutex<HashMap<usize, (Arc<Prover>, Vec<u8>)>>,
}

impl Proofs {
    pub(super) fn keep(&self, index: u64, errors: Errors) {
        lock(&self.errors).insert(index, errors);
    }
}

impl LinearClient {
    /// Commits to a proof of batch `batch` of [`Layers::batches`](super::Layers::batches), for the server's seed: the
    /// same bytes each time. `tensor` gives each convolution's whole input, as it was uploaded.
    ///
    /// # Errors
    /// [`Error::Index`]; [`Error::Bytes`] for a seed of another length; [`Error::ProofOrder`] before all chunks were
    /// uploaded.
    pub fn commit(
        &self,
        batch: usize,
        seed: &[u8],
        tensor: impl Fn(usize) -> Result<Arc<Vec<u64>>, Error>,
    ) -> Result<Vec<u8>, Error> {
        let convolutions = self.layers.batches().get(batch).ok_or(self.no_batch(batch))?;
        let seed = read_seed(seed)?;
        if let Some((_, bytes)) = lock(&self.proofs.begun).get(&batch) {
            return Ok(bytes.clone());
        }
        let mut own = source(&self.seed, "proof", [batch, 0, 0]);
        let mut prover = Prover::new(&self.client, self.layers.columns(batch), &seed, &mut own);
        prover.add(&self.client, 0, None, &self.public_key_and_errors().1);
        let mut values = Zeroizing::new(vec![0; self.layers.parameters().degree()]);
        for convolution in convolutions.clone() {
            let layout = self.layers.layout(convolution)?;
            let tensor = tensor(convolution)?;
            for upload in 0..layout.uploads() {
                values.fill(0);
                layout.pack(upload, &tensor, &mut values);
                let index = self.layers.index(convolution, upload);
                let errors = lock(&self.proofs.errors).remove(&index);
                let missing = Error::ProofOrder { batch, missing: "an upload" };
                let errors = errors.ok_or(missing)?;
                prover.add(&self.client, index, Some(&values), &errors);
            }
        }
        let bytes = prover.commit();
        lock(&self.proofs.begun).insert(batch, (Arc::new(prover), bytes.clone()));
        Ok(bytes)
    }

    /// Answers row `row` of a proof, for the server's second seed.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::Bytes`]; [`Error::ProofOrder`] before [`commit`](Self::commit);
    /// [`Error::Encryption`] where no mask hides the answer, once in millions of proofs.
    pub fn prove(&self, batch: usize, seed: &[u8], row: usize) -> Result<Vec<u8>, Error> {
        check_row(row)?;
        let seed = read_seed(seed)?;
        let begun = lock(&self.proofs.begun);
        let missing = Error::ProofOrder { batch, missing: "its commitment" };
        let prover = begun.get(&batch).map(|(prover, _)| Arc::clone(prover)).ok_or(missing)?;
        drop(begun);
        Ok(prover.respond(&seed, row)?)
    }

    /// Forgets what a batch was proven by.
    pub fn forget_proof(&self, batch: usize) {
        lock(&self.proofs.begun).remove(&batch);
    }

    fn no_batch(&self, index: usize) -> Error {
        Error::Index { what: "batch", index, count: self.layers.batches().len() }
    }
}

/// What a server knows of a batch's proof.
#[derive(Default)]
pub(super) struct Check {
    /// What the client committed to, once it did.
    verifier: OnceLock<Verifier>,
    /// Rows that hold.
    rows: Mutex<[bool; ROWS]>,
    /// Whether one did not.
    is_false: OnceLock<()>,
}

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

fn check_row(index: usize) -> Result<(), Error> {
    match index < ROWS {
        true => Ok(()),
        false => Err(Error::Index { what: "row of a proof", index, count: ROWS }),
    }
}

fn read_seed(bytes: &[u8]) -> Result<[u8; SEED_BYTES], Error> {
    let (expected, found) = (SEED_BYTES, bytes.len());
    bytes.try_into().map_err(|_| Error::Bytes { what: "a proof's seed", expected, found })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
