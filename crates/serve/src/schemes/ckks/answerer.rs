//! What the scheduler runs: a model on encrypted features, each query begun on a thread of its own, which the
//! others help where they have none.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hushtable_infer::dlrm::{self, Keys};
use hushtable_pir::Threads;

use super::engine::Computation;
use crate::batch::Answerer;

/// A model and the threads that compute it.
pub(super) struct Computing {
    pub computation: Arc<Computation>,
    pub threads: Threads,
}

/// A query whose length was checked.
pub(super) struct Asked {
    pub keys: Arc<Keys>,
    pub query: Bytes,
    /// What was wrong with it, where something was: its answer is zeros then, and is not sent. Others in
    /// its pass are none the worse for it.
    pub refused: Arc<OnceLock<dlrm::Error>>,
}

impl Answerer for Computing {
    type Query = Asked;
    type Error = Infallible;

    fn answer_bytes(&self) -> usize {
        self.computation.info.answer_bytes()
    }

    fn answer(&self, queries: &[Asked], answers: &mut [u8]) -> Result<(), Infallible> {
        let answer_bytes = self.answer_bytes();
        let pairs: Vec<_> = queries.iter().zip(answers.chunks_mut(answer_bytes)).collect();
        self.threads.each(pairs, |(asked, out)| {
            match self.computation.engine.answer(&asked.keys, &asked.query) {
                Ok(answer) if answer.len() == out.len() => out.copy_from_slice(&answer),
                Ok(answer) => {
                    let (expected, found) = (answer_bytes, answer.len());
                    tracing::error!(expected, found, "an answer of another length");
                    drop(asked.refused.set(dlrm::Error::Bytes {
                        what: "an answer",
                        expected,
                        found,
                    }));
                }
                Err(error) => drop(asked.refused.set(error)),
            }
        });
        Ok(())
    }
}
