//! Copies a store while it is written to: the pages as they were at one moment.
//!
//! A thread copies page after page. A page that is about to be written before its turn is copied by
//! whoever writes it, first. So the copy is of the moment at which it began, whatever is written since,
//! and who writes waits for a read and a write of those pages at most. What the copying shows is nothing:
//! every page is read once, and in which order follows from what was written meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::file::{create_new, io_error, missing_or, write_error};
use super::{Counters, DiskError, PAGE_BYTES, Pages, Run, Store};

/// Pages that the thread copies at a time; whoever writes meanwhile waits for them.
const RUN_PAGES: u64 = 64;

/// Where a copy is made from, while one is.
#[derive(Clone, Default)]
pub(crate) struct Tap {
    copying: Arc<Mutex<Option<Copying>>>,
    /// Holds the thread up, so that a test decides what is written meanwhile.
    #[cfg(test)]
    pub paused: Arc<std::sync::atomic::AtomicBool>,
}

/// A copy in the making.
struct Copying {
    to: File,
    path: PathBuf,
    /// A bit a page: it is copied.
    copied: Vec<u64>,
    /// What went wrong while a write was waiting: the write goes on, the copy does not.
    failed: Option<DiskError>,
}

impl Copying {
    fn is_copied(&self, page: u64) -> bool {
        self.copied[(page / 64) as usize] >> (page % 64) & 1 == 1
    }

    fn note(&mut self, run: Run) {
        for page in run.first_page..run.first_page + u64::from(run.pages) {
            self.copied[(page / 64) as usize] |= 1 << (page % 64);
        }
    }

    /// The pages of `run` that are not copied yet, as runs.
    fn missing(&self, run: Run) -> Vec<Run> {
        let pages = run.first_page..run.first_page + u64::from(run.pages);
        super::runs_of(pages.filter(|&page| !self.is_copied(page)), u32::MAX)
    }

    fn write(&mut self, run: Run, bytes: &[u8]) -> Result<(), DiskError> {
        let written = self.to.write_all_at(bytes, run.first_page * PAGE_BYTES as u64);
        written.map_err(|source| {
            write_error(&self.to, "write", &self.path, bytes.len() as u64, source)
        })?;
        self.note(run);
        Ok(())
    }
}

impl Tap {
    fn locked(&self) -> MutexGuard<'_, Option<Copying>> {
        self.copying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a copy is being made.
    pub fn is_open(&self) -> bool {
        self.locked().is_some()
    }

    /// Begins a copy of a store of `pages` pages, to a new file.
    ///
    /// # Errors
    ///
    /// A file that is there, a disk without the space.
    pub fn begin(&self, path: &Path, pages: u64) -> Result<(), DiskError> {
        let to = create_new(path)?;
        super::file::reserve(&to, path, pages * PAGE_BYTES as u64)?;
        let copied = vec![0; pages.div_ceil(64) as usize];
        *self.locked() = Some(Copying { to, path: path.to_owned(), copied, failed: None });
        Ok(())
    }

    /// Copies what nobody has written since, from the store's file, and ends the copy, which is then
    /// durable. `progress` is told the pages done and all of them.
    ///
    /// # Errors
    ///
    /// The disks; [`DiskError::Poisoned`] where the store was closed meanwhile.
    pub fn finish(
        &self,
        store: &Path,
        pages: u64,
        progress: &dyn Fn(u64, u64),
    ) -> Result<(), DiskError> {
        let outcome = self.copy_all(store, pages, progress);
        let copying = self.locked().take();
        outcome?;
        match copying {
            Some(Copying { failed: Some(error), .. }) => Err(error),
            Some(Copying { to, path, .. }) => to.sync_all().map_err(io_error("sync", &path)),
            None => Err(DiskError::Poisoned { path: store.to_owned() }),
        }
    }

    fn copy_all(
        &self,
        store: &Path,
        pages: u64,
        progress: &dyn Fn(u64, u64),
    ) -> Result<(), DiskError> {
        let from = File::open(store).map_err(missing_or("open", store))?;
        // The store passes the system's cache by, where it can: what the cache has may be old.
        #[cfg(target_os = "linux")]
        {
            let flags = rustix::fs::fcntl_getfl(&from);
            let direct = |flags| rustix::fs::fcntl_setfl(&from, flags);
            if let Ok(flags) = flags {
                let is_direct = direct(flags | rustix::fs::OFlags::DIRECT).is_ok();
                let mut probe = Pages::with_count(1);
                if is_direct && from.read_exact_at(probe.bytes_mut(), 0).is_err() {
                    let _ = direct(flags);
                }
            }
        }
        let mut buffer = Pages::new();
        for first_page in (0..pages).step_by(RUN_PAGES as usize) {
            #[cfg(test)]
            while self.paused.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let run = Run { first_page, pages: RUN_PAGES.min(pages - first_page) as u32 };
            let mut locked = self.locked();
            let Some(copying) = locked.as_mut().filter(|copying| copying.failed.is_none()) else {
                return Ok(());
            };
            for run in copying.missing(run) {
                buffer.resize(run.pages as usize);
                let at = run.first_page * PAGE_BYTES as u64;
                from.read_exact_at(buffer.bytes_mut(), at).map_err(io_error("read", store))?;
                copying.write(run, buffer.bytes())?;
            }
            drop(locked);
            progress(first_page + u64::from(run.pages), pages);
            // Who waits to write comes first.
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// A store that can be copied while it is written to.
pub(crate) struct TapStore<S: Store> {
    inner: S,
    tap: Tap,
}

impl<S: Store> TapStore<S> {
    pub fn new(inner: S, tap: Tap) -> Self {
        Self { inner, tap }
    }
}

impl<S: Store> Drop for TapStore<S> {
    fn drop(&mut self) {
        // Whoever opens the file next writes without copying first.
        *self.tap.locked() = None;
    }
}

impl<S: Store> Store for TapStore<S> {
    fn pages(&self) -> u64 {
        self.inner.pages()
    }

    fn read(&mut self, runs: &[Run], into: &mut Pages) -> Result<(), DiskError> {
        self.inner.read(runs, into)
    }

    fn read_each(
        &mut self,
        runs: &[Run],
        each: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<(), DiskError> {
        self.inner.read_each(runs, each)
    }

    fn write(&mut self, runs: &[Run], from: &Pages) -> Result<(), DiskError> {
        if let Some(copying) = self.tap.locked().as_mut().filter(|copying| copying.failed.is_none())
        {
            let missing: Vec<Run> = runs.iter().flat_map(|&run| copying.missing(run)).collect();
            let mut pages = Pages::new();
            let copied = self.inner.read(&missing, &mut pages).and_then(|()| {
                let mut at = 0;
                for &run in &missing {
                    copying.write(run, pages.run(at, run.pages as usize))?;
                    at += run.pages as usize;
                }
                Ok(())
            });
            // What is trained does not wait for a backup's disk.
            copying.failed = copied.err();
        }
        self.inner.write(runs, from)
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.inner.sync()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
