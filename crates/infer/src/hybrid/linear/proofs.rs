//! What either half keeps of proofs that uploads are encryptions, batch by batch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hushtable_rlwe::linear::Errors;
use hushtable_rlwe::linear::proof::{Prover, ROWS, SEED_BYTES, Verifier};

use super::error::Error;

/// What a client keeps to prove with.
#[derive(Default)]
pub(super) struct Proofs {
    /// Of each upload that is not proven yet.
    pub errors: Mutex<HashMap<u64, Errors>>,
    /// Of each batch that was committed to.
    pub begun: Mutex<HashMap<usize, Begun>>,
}

/// A batch is committed to once, for one seed, and answered for one challenge: two answers under the same masks would give
/// the secret.
pub(super) struct Begun {
    pub seed: [u8; SEED_BYTES],
    pub commitment: Vec<u8>,
    pub challenge: Option<[u8; SEED_BYTES]>,
    /// None once it was proven.
    pub prover: Option<Arc<Prover>>,
}

impl Proofs {
    pub fn keep(&self, index: u64, errors: Errors) {
        lock(&self.errors).insert(index, errors);
    }
}

/// What a server knows of a batch's proof.
#[derive(Default)]
pub(super) struct Check {
    /// Of what the client committed to, once it did; none any more once it was proven.
    pub verifier: Mutex<Option<Arc<Verifier>>>,
    /// Rows that hold.
    pub rows: Mutex<[bool; ROWS]>,
}

/// # Errors
/// [`Error::Index`].
pub(super) fn check_row(index: usize) -> Result<(), Error> {
    match index < ROWS {
        true => Ok(()),
        false => Err(Error::Index { what: "row of a proof", index, count: ROWS }),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
