//! What the scheduler runs: encrypted queries over a prepared table.

use hushtable_pir::onion;

use crate::batch::{Absent, Answerer};

impl Answerer for onion::Server {
    type Query = onion::Asked;
    type Error = onion::Error;

    fn answer_bytes(&self) -> usize {
        self.backend().answer_bytes()
    }

    fn answer(&self, queries: &[onion::Asked], responses: &mut [u8]) -> Result<(), Self::Error> {
        Self::answer(self, queries, responses)
    }

    fn absent(error: &Self::Error) -> Option<Absent> {
        match error {
            &onion::Error::Absent { shard, retry_after, .. } => Some(Absent { shard, retry_after }),
            _ => None,
        }
    }
}
