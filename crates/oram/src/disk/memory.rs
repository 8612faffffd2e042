//! Pages in memory: for tests, and for trees that need not outlive the process.

use std::time::Instant;

use super::run::{check_write, count};
use super::{Counters, DiskError, Pages, Run, Store, elapsed_us};

/// A store whose pages are in memory, and go with it. Everything else is as of a disk.
#[derive(Debug)]
pub struct MemoryStore {
    pages: Pages,
    counters: Counters,
}

impl MemoryStore {
    /// A store of `pages` pages of zeros.
    pub fn new(pages: usize) -> MemoryStore {
        MemoryStore { pages: Pages::with_count(pages), counters: Counters::default() }
    }

    /// All of it, as an adversary with the disk sees it.
    pub fn contents(&self) -> &Pages {
        &self.pages
    }

    /// All of it, for an adversary that writes.
    pub fn contents_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }
}

impl Store for MemoryStore {
    fn pages(&self) -> u64 {
        self.pages.count() as u64
    }

    fn read(&mut self, runs: &[Run], into: &mut Pages) -> Result<(), DiskError> {
        let start = Instant::now();
        into.resize(count(runs, self.pages())?);
        let mut rest = into.bytes_mut();
        for run in runs {
            let (to, behind) = rest.split_at_mut(run.bytes());
            to.copy_from_slice(self.pages.run(run.first_page as usize, run.pages as usize));
            rest = behind;
        }
        self.counters.reads += runs.len() as u64;
        self.counters.read_bytes += into.bytes().len() as u64;
        self.counters.read_us += elapsed_us(start);
        Ok(())
    }

    fn write(&mut self, runs: &[Run], from: &Pages) -> Result<(), DiskError> {
        let start = Instant::now();
        check_write(runs, from, self.pages())?;
        let mut rest = from.bytes();
        for run in runs {
            let (bytes, behind) = rest.split_at(run.bytes());
            self.pages.run_mut(run.first_page as usize, run.pages as usize).copy_from_slice(bytes);
            rest = behind;
        }
        self.counters.writes += runs.len() as u64;
        self.counters.written_bytes += from.bytes().len() as u64;
        self.counters.write_us += elapsed_us(start);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.counters.syncs += 1;
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
