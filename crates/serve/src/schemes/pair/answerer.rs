//! What the scheduler runs: keys over a table, whole inferences over a layout's bins.

use hushtable_pir::{batch, dpf};

use crate::batch::Answerer;

impl Answerer for dpf::Server {
    type Query = dpf::Key;
    type Error = hushtable_pir::Error;

    fn answer_bytes(&self) -> usize {
        self.backend().shape().row_bytes()
    }

    fn answer(&self, keys: &[dpf::Key], answers: &mut [u8]) -> Result<(), Self::Error> {
        Self::answer(self, keys, answers)
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
}
