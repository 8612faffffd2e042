//! Many reads and writes at once by threads that wait: where there is no io_uring.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use super::file::Failure;
use super::{Pages, Run};

/// A thread waits for one run at a time, and past this many the system's scheduler is the limit.
const THREADS_MAX: usize = 32;

/// Starting a thread costs about as much as some reads do, so that each is to have a few.
const RUNS_PER_THREAD: usize = 4;

/// Calls pread and pwrite on several threads, started for each call.
#[derive(Debug)]
pub(super) struct Threads {
    count_max: usize,
}

impl Threads {
    pub fn new(depth: usize) -> Threads {
        Threads { count_max: depth.min(THREADS_MAX) }
    }

    pub fn read(&self, file: &File, runs: &[Run], mut into: &mut [u8]) -> Result<(), Failure> {
        let mut jobs = Vec::with_capacity(runs.len());
        for run in runs {
            let (to, behind) = into.split_at_mut(run.bytes());
            jobs.push((*run, to));
            into = behind;
        }
        self.spread(jobs, |(run, to)| read_run(file, run, to))
    }

    pub fn write(&self, file: &File, runs: &[Run], mut from: &[u8]) -> Result<(), Failure> {
        let mut jobs = Vec::with_capacity(runs.len());
        for run in runs {
            let (bytes, behind) = from.split_at(run.bytes());
            jobs.push((*run, bytes));
            from = behind;
        }
        self.spread(jobs, |(run, bytes)| {
            file.write_all_at(bytes, run.offset()).map_err(|source| Failure { run, source })
        })
    }

    pub fn read_each(
        &self,
        file: &File,
        runs: &[Run],
        each: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<(), Failure> {
        let next = AtomicUsize::new(0);
        let spare = Mutex::new(Vec::new());
        let mut failed = None;
        thread::scope(|scope| {
            // No queue: a thread with a run in hand waits until it is taken, which bounds memory.
            let (sender, receiver) = mpsc::sync_channel(0);
            for _ in 0..self.count(runs.len()) {
                let (sender, next, spare) = (sender.clone(), &next, &spare);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(&run) = runs.get(index) else { break };
                        let mut pages = lock(spare).pop().unwrap_or_else(Pages::new);
                        pages.resize(run.pages as usize);
                        let read = read_run(file, run, pages.bytes_mut()).map(|()| (index, pages));
                        // Nobody receives any more: `each` panicked.
                        if sender.send(read).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            for read in receiver {
                match read {
                    Ok((index, mut pages)) => {
                        each(index, pages.bytes_mut());
                        lock(&spare).push(pages);
                    }
                    Err(failure) => {
                        next.store(runs.len(), Ordering::Relaxed);
                        failed.get_or_insert(failure);
                    }
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Does every job, on as many threads as are worth it; after a failure no more are begun.
    fn spread<J: Send>(
        &self,
        jobs: Vec<J>,
        work: impl Fn(J) -> Result<(), Failure> + Sync,
    ) -> Result<(), Failure> {
        let threads = self.count(jobs.len());
        if threads <= 1 {
            return jobs.into_iter().try_for_each(work);
        }
        let jobs = Mutex::new(jobs.into_iter());
        let next = || lock(&jobs).next();
        let failed = Mutex::new(None);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(job) = next() {
                        if let Err(failure) = work(job) {
                            // The rest is not begun: drain the queue.
                            while next().is_some() {}
                            lock(&failed).get_or_insert(failure);
                        }
                    }
                });
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn count(&self, runs: usize) -> usize {
        self.count_max.min(runs.div_ceil(RUNS_PER_THREAD))
    }
}

/// Nothing that is locked here is left half changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_run(file: &File, run: Run, to: &mut [u8]) -> Result<(), Failure> {
    file.read_exact_at(to, run.offset()).map_err(|source| Failure { run, source })
}
