//! What a lookup brings, and what it cost.

use std::time::Duration;

use hushtable_client::{Tally, Timed};
use hushtable_table::{DType, Error as TableError, Version, decode_rows};

use super::Answers;

/// Rows that a lookup fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rows {
    /// `ids × row_bytes` bytes, in the ids' order.
    pub rows: Vec<u8>,
    /// What it cost.
    pub stats: LookupStats,
    /// How a row's bytes make numbers.
    pub format: RowFormat,
}

/// The rows of a bag of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BagRows {
    /// `ids × row_bytes` bytes, in the ids' order: zero where an id was dropped.
    pub rows: Vec<u8>,
    /// For each id whether its row is there.
    pub kept: Vec<bool>,
    /// Distinct ids that were dropped.
    pub dropped: usize,
    /// Keys sent to each server.
    pub keys: usize,
    /// What it cost.
    pub stats: LookupStats,
    /// How a row's bytes make numbers.
    pub format: RowFormat,
}

/// The rows of several bags of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BagsRows {
    /// Each bag's, in their order.
    pub bags: Vec<BagPart>,
    /// Keys sent to each server, for all bags.
    pub keys: usize,
    /// Requests sent to each server: one, where it takes as many bags at once.
    pub requests: usize,
    /// What all of it cost.
    pub stats: LookupStats,
    /// How a row's bytes make numbers.
    pub format: RowFormat,
}

/// The rows of one of several bags.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BagPart {
    /// `ids × row_bytes` bytes, in the ids' order: zero where an id was dropped.
    pub rows: Vec<u8>,
    /// For each id whether its row is there.
    pub kept: Vec<bool>,
    /// Distinct ids that were dropped.
    pub dropped: usize,
}

/// How a row's bytes make numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "three facts of a table")]
pub struct RowFormat {
    /// Their type.
    pub dtype: DType,
    /// Numbers in a row.
    pub dim: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
}

impl Timed for Rows {
    fn took(&mut self, elapsed: Duration, moves: u32) {
        self.stats.elapsed = elapsed;
        self.stats.retries += moves;
    }
}

impl Timed for BagsRows {
    fn took(&mut self, elapsed: Duration, moves: u32) {
        self.stats.elapsed = elapsed;
        self.stats.retries += moves;
    }
}

impl Timed for BagRows {
    fn took(&mut self, elapsed: Duration, moves: u32) {
        self.stats.elapsed = elapsed;
        self.stats.retries += moves;
    }
}

impl RowFormat {
    /// The numbers of whole rows.
    ///
    /// # Errors
    /// Those of [`decode_rows`].
    pub fn decode(self, rows: &[u8]) -> Result<Vec<f32>, TableError> {
        let Self { dtype, dim, row_bytes } = self;
        let mut numbers = vec![0.0; rows.len() / row_bytes * dim];
        decode_rows(dtype, dim, rows, &mut numbers)?;
        Ok(numbers)
    }
}

/// What a lookup cost, all servers together where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupStats {
    /// Bytes of keys and queries sent.
    pub sent_bytes: u64,
    /// Bytes of answers received.
    pub received_bytes: u64,
    /// From the call to its rows.
    pub elapsed: Duration,
    /// How long the request waited at the server where it waited longer.
    pub queue: Duration,
    /// What its passes took at the server where they took longer.
    pub answer: Duration,
    /// Times that a request was sent again: to a busy server, or to another server because the first drained or was
    /// out of reach.
    pub retries: u32,
    /// The version of the table (of the model, where a whole inference was asked for) that the rows
    /// come from.
    pub version: Version,
}

impl LookupStats {
    pub(super) fn of(version: Version, answers: &[Answers], tally: Tally) -> Self {
        let longest = |of: fn(&Answers) -> Duration| answers.iter().map(of).max();
        Self {
            sent_bytes: tally.sent_bytes,
            received_bytes: answers.iter().map(|reply| reply.answers.len() as u64).sum(),
            elapsed: Duration::ZERO,
            queue: longest(|reply| reply.queue).unwrap_or_default(),
            answer: longest(|reply| reply.answer).unwrap_or_default(),
            retries: tally.retries,
            version,
        }
    }
}
