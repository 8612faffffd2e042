//! The client's half of proofs that uploads are encryptions.

use std::sync::Arc;

use hushtable_rlwe::linear::proof::{Prover, SEED_BYTES};
use zeroize::Zeroizing;

use super::client::LinearClient;
use super::error::Error;
use super::proofs::{Begun, check_row, lock};
use super::source;

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
        if let Some(begun) = lock(&self.proofs.begun).get(&batch) {
            return Ok(begun.commitment.clone());
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
        let commitment = prover.commit();
        let begun = Begun { prover: Arc::new(prover), commitment: commitment.clone() };
        lock(&self.proofs.begun).insert(batch, begun);
        Ok(commitment)
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
        let prover = Arc::clone(&begun.get(&batch).ok_or(missing)?.prover);
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

fn read_seed(bytes: &[u8]) -> Result<[u8; SEED_BYTES], Error> {
    let (expected, found) = (SEED_BYTES, bytes.len());
    bytes.try_into().map_err(|_| Error::Bytes { what: "a proof's seed", expected, found })
}
