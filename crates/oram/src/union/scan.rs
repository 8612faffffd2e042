//! The set by scanning, as FEDORA does it (section 4.2): K²/2 comparisons, in chunks.
//!
//! Oblivious as well, and slower from a few hundred requests on. Kept to compare with.

use super::DUMMY;
use crate::oblivious::{Mask, compact};
use zeroize::Zeroizing;

/// Requests in a chunk of the paper's.
pub const CHUNK_LEN: usize = 16 * 1024;

/// The set of one chunk's requests.
pub struct Scanned {
    /// As many entries as the chunk has requests: the rows, in the order in which they were first
    /// asked for, then [`DUMMY`] to the end. Secret.
    pub ids: Zeroizing<Vec<u32>>,
    /// How many of them are rows. Secret.
    pub count: u64,
}

/// The sets of the chunks of `ids`. A row that is asked for in two chunks is in both sets.
pub fn scan(ids: &[u32]) -> Vec<Scanned> {
    ids.chunks(CHUNK_LEN).map(scan_chunk).collect()
}

fn scan_chunk(ids: &[u32]) -> Scanned {
    let mut seen = Zeroizing::new(Vec::with_capacity(ids.len()));
    let mut flags = Zeroizing::new(Vec::with_capacity(ids.len()));
    for id in ids {
        let repeated = Mask::from_bit(u64::from(contains(&seen, *id)));
        let dummy = Mask::equal(u64::from(*id), u64::from(DUMMY));
        flags.push(repeated.or(dummy).not());
        seen.push(*id);
    }
    let mut rows: Zeroizing<Vec<u64>> =
        Zeroizing::new(ids.iter().map(|id| u64::from(*id)).collect());
    let count = compact(&mut flags, &mut rows, &mut [], 0);
    let entries = rows.iter().zip(flags.iter());
    let ids = entries.map(|(row, is)| is.select_u32(*row as u32, DUMMY)).collect();
    Scanned { ids: Zeroizing::new(ids), count }
}

/// 1 if `id` is among `seen`, else 0; all of them are looked at.
fn contains(seen: &[u32], id: u32) -> u32 {
    seen.iter().fold(0, |found, other| found | u32::from(*other == id))
}
