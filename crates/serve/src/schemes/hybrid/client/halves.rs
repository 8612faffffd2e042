//! A client's halves of precomputes, as its machines see what keeps them.

use std::sync::Arc;

use hushtable_infer::hybrid::session::{
    Half as MadeHalf, Halves, HalvesError, PrecomputeId, TakenHalf,
};

use super::super::keep::{Half, Keep, KeepError, Opened};
use super::super::machines::Head;

/// In a folder, or in memory.
pub(super) struct KeptHalves(pub Keep);

impl Halves for KeptHalves {
    fn begin(&self, head: Head, record_bytes: &[u64]) -> Result<Arc<dyn MadeHalf>, HalvesError> {
        Ok(self.0.begin(head, record_bytes)?)
    }

    fn take(&self, id: &PrecomputeId) -> Result<Option<TakenHalf>, HalvesError> {
        match self.0.take(id) {
            Ok(half) => Ok(half.map(|Half { head, records }| TakenHalf { head, records })),
            Err(KeepError::Damaged(error)) => Err(error.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn list(&self) -> Vec<Head> {
        self.0.list().into_iter().map(|kept| kept.head).collect()
    }

    fn discard(&self, id: &PrecomputeId) -> Result<(), HalvesError> {
        Ok(self.0.discard(id)?)
    }
}

impl MadeHalf for Opened {
    fn commit(&self) -> Result<(), HalvesError> {
        Ok(Self::commit(self)?)
    }
}
