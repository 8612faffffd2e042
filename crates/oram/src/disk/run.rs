//! Runs of consecutive pages, and what must hold of them before a disk is asked.

use super::{DiskError, PAGE_BYTES, Pages};

/// Consecutive pages: one request to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Index of the first page in the store.
    pub first_page: u64,
    /// How many; a run of none is read and written as nothing.
    pub pages: u32,
}

impl Run {
    /// A run of one page.
    pub const fn page(page: u64) -> Run {
        Run { first_page: page, pages: 1 }
    }

    /// Its bytes.
    pub const fn bytes(self) -> usize {
        self.pages as usize * PAGE_BYTES
    }

    /// Where in a file it begins. Only of a run within a store, whose bytes are counted by an `u64`.
    pub(super) const fn offset(self) -> u64 {
        self.first_page * PAGE_BYTES as u64
    }

    /// The page after its last, none if that is no page number.
    pub(super) fn end(self) -> Option<u64> {
        self.first_page.checked_add(u64::from(self.pages))
    }
}

/// The fewest runs of at most `pages_max` pages that cover `pages` as they are listed: pages that
/// follow each other in the list and on the disk become one run.
pub fn runs_of(pages: impl IntoIterator<Item = u64>, pages_max: u32) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(last) if last.end() == Some(page) && last.pages < pages_max => last.pages += 1,
            _ => runs.push(Run::page(page)),
        }
    }
    runs
}

/// How many pages `runs` have, all within a store of `store_pages`.
pub(super) fn count(runs: &[Run], store_pages: u64) -> Result<usize, DiskError> {
    let mut total = 0_usize;
    for run in runs {
        if run.end().is_none_or(|end| end > store_pages) {
            return Err(DiskError::OutOfRange {
                first_page: run.first_page,
                pages: run.pages,
                store_pages,
            });
        }
        total = total.saturating_add(run.pages as usize);
    }
    Ok(total)
}

/// Checks what is to be written: within the store, no page twice (which of two writes in flight
/// comes last is the disk's choice), and as many pages as are given.
pub(super) fn check_write(runs: &[Run], from: &Pages, store_pages: u64) -> Result<(), DiskError> {
    let wanted_pages = count(runs, store_pages)?;
    if from.count() != wanted_pages {
        return Err(DiskError::Length { runs_pages: wanted_pages, given_pages: from.count() });
    }
    let overlap = |runs: &[Run]| {
        let mut pairs = runs.windows(2);
        pairs.find(|pair| pair[0].end() > Some(pair[1].first_page)).map(|pair| pair[1].first_page)
    };
    // Most callers write in ascending order; the copy is for the others.
    if overlap(runs).is_some() {
        let mut sorted: Vec<Run> = runs.iter().copied().filter(|run| run.pages > 0).collect();
        sorted.sort_unstable();
        if let Some(page) = overlap(&sorted) {
            return Err(DiskError::Overlap { page });
        }
    }
    Ok(())
}
