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
    /// same bytes each time. `tensor` gives each convolution's whole input, as it was uploaded. Takes a third of a
    /// millisecond an upload.
    ///
    /// # Errors
    /// [`Error::Index`]; [`Error::Bytes`] for a seed of another length; [`Error::ProofOrder`] before all chunks were
    /// uploaded; [`Error::OtherSeed`] for another seed than it was committed to for.
    pub fn commit(
        &self,
        batch: usize,
        seed: &[u8],
        tensor: impl Fn(usize) -> Result<Arc<Vec<u64>>, Error>,
    ) -> Result<Vec<u8>, Error> {
        let convolutions = self.layers.batches().get(batch).ok_or(self.no_batch(batch))?;
        let seed = read_seed(seed)?;
        // Held until it is made: another call of the same waits for it.
        let mut all = lock(&self.proofs.begun);
        if let Some(begun) = all.get(&batch) {
            return match begun.seed == seed {
                true => Ok(begun.commitment.clone()),
                false => Err(Error::OtherSeed { batch }),
            };
        }
        let mut errors = lock(&self.proofs.errors);
        let index = |convolution, upload| self.layers.index(convolution, upload);
        for convolution in convolutions.clone() {
            let uploads = 0..self.layers.layout(convolution)?.uploads();
            if !uploads.map(|upload| index(convolution, upload)).all(|it| errors.contains_key(&it))
            {
                return Err(Error::ProofOrder { batch, missing: "an upload" });
            }
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
                let index = index(convolution, upload);
                prover.add(&self.client, index, Some(&values), &errors[&index]);
            }
        }
        for convolution in convolutions.clone() {
            for upload in 0..self.layers.layout(convolution)?.uploads() {
                errors.remove(&index(convolution, upload));
            }
        }
        let commitment = prover.commit();
        let prover = Some(Arc::new(prover));
        let begun = Begun { seed, commitment: commitment.clone(), challenge: None, prover };
        all.insert(batch, begun);
        Ok(commitment)
    }

    /// Answers row `row` of a proof, for the server's second seed.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::Bytes`]; [`Error::ProofOrder`] before [`commit`](Self::commit), or once it was proven;
    /// [`Error::OtherSeed`] for another seed than that of the first row that was answered;
    /// [`Error::Encryption`] where no mask hides the answer, once in millions of proofs.
    pub fn prove(&self, batch: usize, seed: &[u8], row: usize) -> Result<Vec<u8>, Error> {
        check_row(row)?;
        let seed = read_seed(seed)?;
        let prover = {
            let missing = || Error::ProofOrder { batch, missing: "its commitment" };
            let mut all = lock(&self.proofs.begun);
            let begun = all.get_mut(&batch).ok_or_else(missing)?;
            if *begun.challenge.get_or_insert(seed) != seed {
                return Err(Error::OtherSeed { batch });
            }
            Arc::clone(begun.prover.as_ref().ok_or_else(missing)?)
        };
        Ok(prover.respond(&seed, row)?)
    }

    /// Forgets what a batch was proven by. It is not proven again.
    pub fn forget_proof(&self, batch: usize) {
        if let Some(begun) = lock(&self.proofs.begun).get_mut(&batch) {
            begun.prover = None;
        }
    }

    fn no_batch(&self, index: usize) -> Error {
        Error::Index { what: "batch", index, count: self.layers.batches().len() }
    }
}

fn read_seed(bytes: &[u8]) -> Result<[u8; SEED_BYTES], Error> {
    let (expected, found) = (SEED_BYTES, bytes.len());
    bytes.try_into().map_err(|_| Error::Bytes { what: "a proof's seed", expected, found })
}
