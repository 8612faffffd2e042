//! How rounds have ended, as the journal has it: what an operator whose call got no answer asks for.

use super::records::Reader;
use super::{Error, RoundReport};

/// What a round is known by to those who take part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "callers write it field by field")]
pub struct RoundName {
    /// Its number: one that no other round has. 0 for a round without a name.
    pub number: u64,
    /// Users who asked for rows, of all that it has places for.
    pub requested: usize,
}

impl RoundName {
    /// Of a round whose outcome nobody asks for.
    pub const NONE: Self = Self { number: 0, requested: 0 };
}

/// A round that began, and how it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Its [number](RoundName::number).
    pub round: u64,
    /// How it has ended.
    pub ended: Ended,
}

impl Settled {
    /// Of round `round`.
    pub fn new(round: u64, ended: Ended) -> Self {
        Self { round, ended }
    }
}

/// How a round that began has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The table is updated. Of a round before the last restart the report has no times, and its bytes
    /// are those before the commit's own record.
    Committed(RoundReport),
    /// It was ended without an update.
    Abandoned,
    /// It was cut short, and the table is as it was before.
    Failed,
}

/// How many are kept.
const KEPT: usize = 256;
/// Bytes of one.
pub(super) const BYTES: usize = WORDS * 8;
const WORDS: usize = 11;
/// Bytes of all that are kept.
pub(super) const ALL_BYTES_MAX: usize = KEPT * BYTES;

const COMMITTED: u64 = 1;
const ABANDONED: u64 = 2;
const FAILED: u64 = 3;

/// Adds the last one; the oldest goes where there are many.
pub(super) fn push(all: &mut Vec<Settled>, settled: Settled) {
    if all.len() >= KEPT {
        all.remove(0);
    }
    all.push(settled);
}

/// A round's own record, as its commit has it: its report says which it is.
pub(super) fn to_bytes(report: &RoundReport, update: bool) -> Vec<u8> {
    let ended = if update { COMMITTED } else { ABANDONED };
    words(ended, report).into_iter().flat_map(u64::to_le_bytes).collect()
}

/// [`to_bytes`] of all of them.
pub(super) fn all_to_bytes(all: &[Settled]) -> Vec<u8> {
    let own = |settled: &Settled| match &settled.ended {
        Ended::Committed(report) => words(COMMITTED, report),
        Ended::Abandoned => without_report(ABANDONED, settled.round),
        Ended::Failed => without_report(FAILED, settled.round),
    };
    all.iter().flat_map(own).flat_map(u64::to_le_bytes).collect()
}

fn without_report(ended: u64, round: u64) -> [u64; WORDS] {
    words(ended, &RoundReport { round, ..RoundReport::default() })
}

fn words(ended: u64, report: &RoundReport) -> [u64; WORDS] {
    [
        ended,
        report.round,
        report.rounds,
        report.users as u64,
        report.requested as u64,
        report.uploaded as u64,
        report.requests,
        report.accesses,
        report.read_bytes,
        report.written_bytes,
        report.journal_bytes,
    ]
}

/// The next one of a payload; none behind the last.
pub(super) fn read(from: &mut Reader<'_>) -> Result<Option<Settled>, Error> {
    if from.is_empty() {
        return Ok(None);
    }
    let mut words = [0; WORDS];
    for word in &mut words {
        *word = from.u64()?;
    }
    let count = |word: u64| usize::try_from(word).map_err(|_| Error::Record);
    let [ended, round, rounds, users, requested, uploaded, requests, accesses, read, written, own] =
        words;
    let ended = match ended {
        COMMITTED => Ended::Committed(RoundReport {
            round,
            rounds,
            users: count(users)?,
            requested: count(requested)?,
            uploaded: count(uploaded)?,
            requests,
            accesses,
            read_bytes: read,
            written_bytes: written,
            journal_bytes: own,
            ..RoundReport::default()
        }),
        ABANDONED => Ended::Abandoned,
        FAILED => Ended::Failed,
        _ => return Err(Error::Record),
    };
    Ok(Some(Settled { round, ended }))
}
