//! The self-check: what answers is asked as a client would ask it, before any client does.

use std::time::{Duration, Instant};

use hushtable_table::Table;

use super::Answerer;
use crate::Error;

/// Has each of `halves` answer its queries a few times, and `wrong` look at the answers: it returns
/// the first row that came back different from the table's bytes. How long the fastest pass took.
///
/// # Errors
/// [`Error::SelfCheck`] for a row that came back wrong; those of the answerers and of `wrong`.
pub(crate) fn check<A: Answerer>(
    halves: &[(&A, Vec<A::Query>)],
    wrong: impl FnOnce(&[Vec<u8>]) -> Result<Option<u64>, Error>,
) -> Result<Duration, Error>
where
    Error: From<A::Error>,
{
    let mut pass = Duration::MAX;
    let mut answers = Vec::with_capacity(halves.len());
    for (half, queries) in halves {
        let mut bytes = vec![0; queries.len() * half.answer_bytes()];
        // The first pass warms caches and threads; the fastest is what a pass takes undisturbed.
        for _ in 0..PASSES {
            let started = Instant::now();
            half.answer(queries, &mut bytes)?;
            pass = pass.min(started.elapsed());
        }
        answers.push(bytes);
    }
    match wrong(&answers)? {
        None => Ok(pass),
        Some(row) => Err(Error::SelfCheck { row }),
    }
}

/// Whether the table has these bytes as row `id`.
pub(crate) fn is_row(table: &Table, id: u64, found: &[u8]) -> Result<bool, Error> {
    let mut expected = vec![0; table.row_bytes()];
    table
        .copy_rows(id, &mut expected)
        .map_err(|source| Error::Table { path: table_path(table), source: Box::new(source) })?;
    Ok(found == expected)
}

fn table_path(table: &Table) -> std::path::PathBuf {
    table.path().map_or_else(|| table.name().into(), Into::into)
}

const PASSES: usize = 3;
