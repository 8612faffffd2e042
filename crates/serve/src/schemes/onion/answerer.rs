//! What the scheduler runs: encrypted queries over a prepared table.

use hushtable_pir::onion;

use crate::batch::Answerer;

impl Answerer for onion::Server {
    type Query = onion::Asked;
    type Error = onion::Error;

    fn answer_bytes(&self) -> usize {
        self.backend().geometry().response_bytes()
    }

    fn answer(&self, queries: &[onion::Asked], responses: &mut [u8]) -> Result<(), Self::Error> {
        Self::answer(self, queries, responses)
    }
}
