//! What the scheduler runs: keys over a table, whole inferences over a layout's bins or over all
//! tables of a model.

use hushtable_pir::{batch, dpf, model};

use crate::batch::{Absent, Answerer};

impl Answerer for dpf::Server {
    type Query = dpf::Key;
    type Error = hushtable_pir::Error;

    fn answer_bytes(&self) -> usize {
        self.backend().shape().row_bytes()
    }

    fn answer(&self, keys: &[dpf::Key], answers: &mut [u8]) -> Result<(), Self::Error> {
        Self::answer(self, keys, answers)
    }

    fn absent(error: &Self::Error) -> Option<Absent> {
        absent(error)
    }
}

impl Answerer for batch::Server {
    type Query = batch::BatchKeys;
    type Error = hushtable_pir::Error;

    fn answer_bytes(&self) -> usize {
        self.backend().geometry().answer_bytes()
    }

    fn answer(&self, bags: &[batch::BatchKeys], answers: &mut [u8]) -> Result<(), Self::Error> {
        Self::answer(self, bags, answers)
    }

    fn absent(error: &Self::Error) -> Option<Absent> {
        absent(error)
    }
}

impl Answerer for model::Server {
    type Query = model::Inference;
    type Error = hushtable_pir::Error;

    fn answer_bytes(&self) -> usize {
        Self::answer_bytes(self)
    }

    fn answer(&self, queries: &[model::Inference], answers: &mut [u8]) -> Result<(), Self::Error> {
        Self::answer(self, queries, answers)
    }

    fn absent(error: &Self::Error) -> Option<Absent> {
        absent(error)
    }
}

/// The shard that a front found no server of.
fn absent(error: &hushtable_pir::Error) -> Option<Absent> {
    match *error {
        hushtable_pir::Error::Absent { shard, retry_after, .. } => {
            Some(Absent { shard, retry_after })
        }
        _ => None,
    }
}
