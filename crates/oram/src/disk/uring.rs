//! Many reads and writes in flight through io_uring.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::file::Failure;
use super::{PAGE_BYTES, Pages, Run};

/// The registered file: the only one.
const FILE: types::Fixed = types::Fixed(0);

/// Longest single request; the kernel's own bound is a little below 2 GiB.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// Most memory of [`Ring::read_each`]'s slots, unless one run alone takes more.
const SLOTS_BYTES_MAX: usize = 16 << 20;

/// Most memory of slots that is registered (pinned): what a process may lock by default is 8 MiB.
const PINNED_BYTES_MAX: usize = 2 << 20;

/// Runs that may wait to be submitted while there are others to be taken in: one system call then
/// serves several, and the disk is still not left idle.
const UNSUBMITTED_MAX: usize = 8;

/// Times that a run may come back without a page more (interrupted, or cut within a page) before
/// that is an error.
const STALLS_MAX: u32 = 100;

/// A ring of one file. No kernel thread polls it (on two cores that costs more than it saves), and
/// no completions are polled for (virtual disks have none of it).
pub(super) struct Ring {
    /// Before `slots`, so that it goes first: its registered buffers lie in them.
    ring: IoUring,
    depth: usize,
    slots: Pages,
    pinned: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("depth", &self.depth).finish_non_exhaustive()
    }
}

/// Which way bytes go.
#[derive(Clone, Copy)]
enum Way {
    Read,
    ReadPinned,
    Write,
}

/// A run in flight.
#[derive(Clone, Copy, Default)]
struct Flight {
    index: usize,
    done_bytes: usize,
    /// Times that the disk was done with it and had not got on.
    stalls: u32,
}

impl Ring {
    /// A ring for `file` that keeps up to `depth` runs in flight.
    pub fn new(file: &File, depth: usize) -> io::Result<Ring> {
        let entries = u32::try_from(depth.next_power_of_two()).map_err(io::Error::other)?;
        // Completions are taken in when this thread next enters the kernel, without interrupting it
        // in between; older kernels do not know the flag.
        let ring = match IoUring::builder().dontfork().setup_coop_taskrun().build(entries) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                IoUring::builder().dontfork().build(entries)?
            }
            ring => ring?,
        };
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        Ok(Ring { ring, depth, slots: Pages::new(), pinned: false })
    }

    /// Reads `runs` one behind the other; `into` is as long as they are.
    pub fn read(&mut self, runs: &[Run], into: &mut [u8]) -> Result<(), Failure> {
        let starts = starts(runs, into.len());
        let start = into.as_mut_ptr();
        // SAFETY: run i has `into[starts[i]..][..bytes]` to itself (`starts` checked that they all
        // lie within `into`), which is borrowed mutably until `fly` has returned.
        unsafe {
            fly(
                &mut self.ring,
                self.depth,
                Way::Read,
                runs,
                |index, _| start.add(starts[index]),
                &mut |_, _| {},
            )
        }
    }

    /// Writes `runs` from one behind the other; `from` is as long as they are.
    pub fn write(&mut self, runs: &[Run], from: &[u8]) -> Result<(), Failure> {
        let starts = starts(runs, from.len());
        let start = from.as_ptr().cast_mut();
        // SAFETY: run i's bytes lie within `from`, as in `read`; they are only read, and borrowed
        // until `fly` has returned.
        unsafe {
            fly(
                &mut self.ring,
                self.depth,
                Way::Write,
                runs,
                |index, _| start.add(starts[index]),
                &mut |_, _| {},
            )
        }
    }

    /// Reads each of `runs` into a slot of its own and hands it to `each`; the slot is then free for
    /// the next run.
    pub fn read_each(
        &mut self,
        runs: &[Run],
        each: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<(), Failure> {
        let slot_pages = runs.iter().map(|run| run.pages as usize).max().unwrap_or(0);
        let slot_bytes = slot_pages * PAGE_BYTES;
        let depth = self.depth.min(SLOTS_BYTES_MAX / slot_bytes.max(1)).max(1);
        self.fit_slots(depth * slot_pages);
        let way = if self.pinned { Way::ReadPinned } else { Way::Read };
        let start = self.slots.bytes_mut().as_mut_ptr();
        let mut take = |index: usize, slot: usize| {
            // SAFETY: `slots` has `depth` slots of `slot_bytes`, as long as which no run is longer;
            // `fly` calls this when nothing is in flight to this slot any more.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(start.add(slot * slot_bytes), runs[index].bytes())
            };
            each(index, bytes);
        };
        // SAFETY: a slot is within `slots`, which stays as it is until `fly` has returned, and `fly`
        // gives it to one run at a time.
        unsafe {
            fly(&mut self.ring, depth, way, runs, |_, slot| start.add(slot * slot_bytes), &mut take)
        }
    }

    /// Makes room for `pages` in the slots, pinned if they are few: pinned memory is not looked up
    /// again at each read.
    fn fit_slots(&mut self, pages: usize) {
        if pages <= self.slots.count() {
            return;
        }
        if std::mem::take(&mut self.pinned) {
            // Without this the old memory would be pinned for as long as the ring is.
            let _ = self.ring.submitter().unregister_buffers();
        }
        self.slots.resize(pages);
        let bytes = self.slots.bytes_mut();
        if bytes.len() <= PINNED_BYTES_MAX {
            let part = IoSliceMut::new(bytes);
            // SAFETY: an `IoSliceMut` is laid out as the system's iovec, of which this is one. The
            // slots change only here, after unregistering, and go after the ring.
            self.pinned = unsafe {
                let parts = std::slice::from_raw_parts((&raw const part).cast(), 1);
                self.ring.submitter().register_buffers(parts)
            }
            .is_ok();
        }
    }
}

/// Where each run's bytes begin in a buffer that holds them one behind the other.
fn starts(runs: &[Run], buffer_bytes: usize) -> Vec<usize> {
    let mut end = 0;
    let start = |run: &Run| {
        end += run.bytes();
        end - run.bytes()
    };
    let starts = runs.iter().map(start).collect();
    assert!(end <= buffer_bytes, "runs of {end} bytes in a buffer of {buffer_bytes}");
    starts
}

/// What is in flight. Dropped only when nothing is: if `take` panics, this waits before the memory
/// that the kernel writes to is unwound.
struct InFlight<'a> {
    ring: &'a mut IoUring,
    /// Pushed, and not yet taken in.
    count: usize,
    /// Pushed, and not yet handed to the kernel.
    unsubmitted: usize,
}

impl InFlight<'_> {
    /// Queues `request`. The ring's entries bound how many requests are in flight.
    ///
    /// # Safety
    ///
    /// The request's memory is valid until `self` is dropped.
    unsafe fn push(&mut self, request: &squeue::Entry) {
        // SAFETY: by this function's contract.
        let pushed = unsafe { self.ring.submission().push(request) };
        pushed.expect("a queue with an entry for each slot");
        self.count += 1;
        self.unsubmitted += 1;
    }

    /// The slot and result of the next request that is done; waits for it. At least one is in
    /// flight.
    fn next(&mut self) -> io::Result<(usize, i32)> {
        loop {
            let waiting = self.ring.completion().is_empty();
            if waiting || self.unsubmitted >= UNSUBMITTED_MAX {
                self.enter(usize::from(waiting))?;
            }
            if let Some(completion) = self.ring.completion().next() {
                self.count -= 1;
                return Ok((completion.user_data() as usize, completion.result()));
            }
        }
    }

    /// Hands what was pushed to the kernel, and waits for `wanted` completions.
    fn enter(&mut self, wanted: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(wanted) {
                Ok(_) => {
                    self.unsubmitted = self.ring.submission().len();
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The kernel is short of memory for requests, or of room for completions: those in
                // flight must come first.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ResourceBusy | ErrorKind::WouldBlock) =>
                {
                    if !self.ring.completion().is_empty() {
                        return Ok(());
                    }
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        while self.count > 0 {
            let reaped = self.ring.completion().count();
            self.count -= reaped.min(self.count);
            if self.count > 0 && self.enter(1).is_err() {
                // The kernel may still write to memory that is about to be something else's.
                std::process::abort();
            }
        }
    }
}

/// Carries all `runs`, up to `depth` at once, and calls `take(index, slot)` as each is done; the
/// slot (below `depth`) is the run's from its start to the end of that call.
///
/// # Safety
///
/// `memory(index, slot)` points to the run's bytes: valid for reads (`Way::Write`) or writes (else,
/// and nobody else's) from this call's start until it returns.
unsafe fn fly(
    ring: &mut IoUring,
    depth: usize,
    way: Way,
    runs: &[Run],
    memory: impl Fn(usize, usize) -> *mut u8,
    take: &mut dyn FnMut(usize, usize),
) -> Result<(), Failure> {
    let mut flights = vec![Flight::default(); depth.min(runs.len())];
    let mut free: Vec<usize> = (0..flights.len()).rev().collect();
    let mut in_flight = InFlight { ring, count: 0, unsubmitted: 0 };
    let mut failed: Option<Failure> = None;
    let mut next = 0;
    let request = |slot: usize, flight: Flight| -> squeue::Entry {
        let run = runs[flight.index];
        let bytes = (run.bytes() - flight.done_bytes).min(REQUEST_BYTES_MAX) as u32;
        let offset = run.offset() + flight.done_bytes as u64;
        let at = memory(flight.index, slot).wrapping_add(flight.done_bytes);
        let entry = match way {
            Way::Read => opcode::Read::new(FILE, at, bytes).offset(offset).build(),
            Way::ReadPinned => opcode::ReadFixed::new(FILE, at, bytes, 0).offset(offset).build(),
            Way::Write => opcode::Write::new(FILE, at, bytes).offset(offset).build(),
        };
        entry.user_data(slot as u64)
    };
    loop {
        while failed.is_none() && next < runs.len() {
            if runs[next].pages == 0 {
                take(next, 0);
                next += 1;
                continue;
            }
            let Some(slot) = free.pop() else { break };
            flights[slot] = Flight { index: next, ..Flight::default() };
            // SAFETY: the memory is valid by this function's contract, to its end and so past that
            // of `in_flight`.
            unsafe { in_flight.push(&request(slot, flights[slot])) };
            next += 1;
        }
        if in_flight.count == 0 {
            return failed.map_or(Ok(()), Err);
        }
        let (slot, result) = match in_flight.next() {
            Ok(completion) => completion,
            Err(source) => return Err(Failure { run: runs[flights[0].index], source }),
        };
        let flight = &mut flights[slot];
        let run = runs[flight.index];
        match advance(flight, run, result, way) {
            Ok(true) => {
                take(flight.index, slot);
                free.push(slot);
            }
            Ok(false) if failed.is_none() => {
                // SAFETY: as above.
                unsafe { in_flight.push(&request(slot, *flight)) };
            }
            // What is left of a run after another's failure is not asked for.
            Ok(false) => {}
            Err(source) => {
                failed.get_or_insert(Failure { run, source });
            }
        }
    }
}

/// Notes what came of `flight`: whether its run is complete, or the rest is to be asked for.
fn advance(flight: &mut Flight, run: Run, result: i32, way: Way) -> io::Result<bool> {
    let end = match usize::try_from(result) {
        Ok(bytes) => flight.done_bytes + bytes,
        Err(_) => match io::Error::from_raw_os_error(result.saturating_neg()) {
            error if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
                flight.done_bytes
            }
            error => return Err(error),
        },
    };
    if end >= run.bytes() {
        return Ok(true);
    }
    // Direct I/O goes on at a whole page only.
    let whole = end / PAGE_BYTES * PAGE_BYTES;
    flight.stalls = if whole > flight.done_bytes { 0 } else { flight.stalls + 1 };
    flight.done_bytes = whole;
    match way {
        Way::Read | Way::ReadPinned if result == 0 => Err(ErrorKind::UnexpectedEof.into()),
        Way::Read | Way::ReadPinned if flight.stalls > STALLS_MAX => {
            Err(ErrorKind::UnexpectedEof.into())
        }
        Way::Write if flight.stalls > STALLS_MAX => Err(ErrorKind::WriteZero.into()),
        _ => Ok(false),
    }
}
