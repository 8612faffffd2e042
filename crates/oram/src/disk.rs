//! Where the trees lie: stores of 4 KiB pages that read and write many places at once.
//!
//! A round's reads are known before the first of them (FEDORA, section 4.4: nothing that is read says
//! where to read next), so a [`Store`] is given all of its runs of pages and keeps as many of them in
//! flight as the disk likes. Which pages, in which order and how many is what an adversary sees:
//! nothing here may be told by a secret, and nothing here is secret, so this code branches freely.
//!
//! [`FileStore`] is the real one; [`MemoryStore`] holds its pages in memory; [`FaultStore`] wraps
//! either, fails at a chosen operation as if the power went, and records what an adversary sees.

pub(crate) mod backup;
mod error;
pub(crate) mod faults;
pub(crate) mod file;
mod memory;
mod pages;
mod pread;
mod run;
#[cfg(target_os = "linux")]
mod uring;

pub use error::DiskError;
pub use faults::{Access, FaultSpec, FaultStore, Faults, Tear, Trace, Unsynced};
pub use file::{Direct, FileSpec, FileStore, IoKind};
pub use memory::MemoryStore;
pub use pages::Pages;
pub use run::{Run, runs_of};

/// Bytes of a page, the unit of everything that is read and written.
pub const PAGE_BYTES: usize = 4096;

/// How many runs [`Store::read_each`] reads at a time where a store has no better way.
const BATCH_RUNS: usize = 64;

/// What a store, or a journal, has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Runs read.
    pub reads: u64,
    /// Bytes read; of a store, a multiple of [`PAGE_BYTES`].
    pub read_bytes: u64,
    /// Runs written, or records appended.
    pub writes: u64,
    /// Bytes written; of a store, a multiple of [`PAGE_BYTES`].
    pub written_bytes: u64,
    /// Times that writes were made durable.
    pub syncs: u64,
    /// Microseconds within reads, with what [`Store::read_each`] calls.
    pub read_us: u64,
    /// Microseconds within writes and syncs.
    pub write_us: u64,
}

/// An array of pages that outlives the process.
pub trait Store: Send {
    /// How many pages there are; every page read or written is below this.
    fn pages(&self) -> u64;

    /// Reads `runs`, the first to page 0 of `into` and each next one behind it. `into` is resized
    /// to what was read. Runs may overlap.
    ///
    /// # Errors
    ///
    /// A run outside the store ([`DiskError::OutOfRange`]; then nothing is read), or what the disk
    /// says; then what is in `into` is unspecified.
    fn read(&mut self, runs: &[Run], into: &mut Pages) -> Result<(), DiskError>;

    /// Reads `runs` and hands each to `each` as it comes, with its index in `runs`, while others are
    /// in flight. The order is the disk's, so `each` must not do anything by it that would matter.
    /// Memory is bounded by the longest run times the runs in flight; the bytes are `each`'s to
    /// change, and hold something else once it returns.
    ///
    /// # Errors
    ///
    /// As [`read`](Store::read); runs that came before the error were handed out.
    fn read_each(
        &mut self,
        runs: &[Run],
        each: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<(), DiskError> {
        let mut pages = Pages::new();
        for (batch, batch_runs) in runs.chunks(BATCH_RUNS).enumerate() {
            self.read(batch_runs, &mut pages)?;
            let mut rest = pages.bytes_mut();
            for (i, run) in batch_runs.iter().enumerate() {
                let (bytes, behind) = rest.split_at_mut(run.bytes());
                each(batch * BATCH_RUNS + i, bytes);
                rest = behind;
            }
        }
        Ok(())
    }

    /// Writes `runs`, the first from page 0 of `from` and each next one from behind it. Durable only
    /// after [`sync`](Store::sync); until then a crash leaves any of the written sectors old or new.
    ///
    /// # Errors
    ///
    /// A run outside the store, runs that overlap, a `from` that is not as long as the runs (then
    /// nothing is written), or what the disk says; then any of the runs may have been written.
    fn write(&mut self, runs: &[Run], from: &Pages) -> Result<(), DiskError>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    ///
    /// What the disk says. What was written since the last sync may then be lost, and the store
    /// takes no more writes ([`DiskError::Poisoned`]): the system forgets which pages failed, so that
    /// a second sync would succeed without having written them.
    fn sync(&mut self) -> Result<(), DiskError>;

    /// What was done so far.
    fn counters(&self) -> Counters;
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn pages(&self) -> u64 {
        (**self).pages()
    }

    fn read(&mut self, runs: &[Run], into: &mut Pages) -> Result<(), DiskError> {
        (**self).read(runs, into)
    }

    fn read_each(
        &mut self,
        runs: &[Run],
        each: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<(), DiskError> {
        (**self).read_each(runs, each)
    }

    fn write(&mut self, runs: &[Run], from: &Pages) -> Result<(), DiskError> {
        (**self).write(runs, from)
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        (**self).sync()
    }

    fn counters(&self) -> Counters {
        (**self).counters()
    }
}

/// Microseconds since `start`.
fn elapsed_us(start: std::time::Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
