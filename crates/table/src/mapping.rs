//! The one place of this crate with unsafe blocks: a file as a slice of bytes.
//!
//! A page of a mapped file that the file no longer has, because somebody cut it short, or that the
//! disk cannot read, ends a process that touches it with SIGBUS. Here a handler of that signal puts
//! zeros in the place of the rest of the mapping and marks it as *lost*; whoever reads a mapping
//! asks [`Mapping::is_lost`] after reading and before using what was read. Faults anywhere else go
//! to the handler that was there before.

#![allow(unsafe_code, reason = "mapping a file is unsafe; see the SAFETY lines")]

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::ops::Deref;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use libc::{SA_ONSTACK, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGBUS, c_int, c_void, siginfo_t};
use memmap2::{Mmap, MmapOptions};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// A whole file, mapped read-only and private.
#[derive(Debug)]
pub(crate) struct Mapping {
    map: Mmap,
    watch: Watch,
}

impl Mapping {
    /// Maps all of `file`.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only, and nothing of ours ever writes to a bundle or a finished
        // prepared file in place: a build writes new files aside and swaps the names, so a mapped
        // file keeps its bytes until the last map of it goes. (`Prepared::open` looks whether a
        // file is finished before it maps it.) What is left is another program that writes to or
        // truncates the file in spite of that. We only ever read plain bytes out of the map, for
        // which every bit pattern is valid; wrong ones are found by the hashes and stamps that
        // readers check, and missing ones by the handler below.
        let map = unsafe { MmapOptions::new().map_copy_read_only(file) }?;
        let watch = Watch::new(map.as_ptr().addr(), map.len())?;
        Ok(Self { map, watch })
    }

    /// Whether a part of the file was missing or could not be read when it was touched: then what
    /// was read may be zeros that never were in the file.
    pub(crate) fn is_lost(&self) -> bool {
        // What was read before this call must not be read after it.
        std::sync::atomic::fence(Ordering::SeqCst);
        self.watch.0.is_lost.load(Ordering::SeqCst)
    }

    /// Tells the kernel that the map is about to be read from front to back.
    pub(crate) fn advise_sequential(&self) {
        // Only a hint: a kernel that refuses it reads no less correctly.
        let _ = self.map.advise(memmap2::Advice::Sequential);
    }

    /// Tells the kernel to read the file ahead of its use.
    pub(crate) fn advise_will_need(&self) {
        // Only a hint, as above.
        let _ = self.map.advise(memmap2::Advice::WillNeed);
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

/// A range of addresses that the handler knows; given back when it is dropped.
#[derive(Debug)]
struct Watch(&'static Slot);

/// A place in the list of ranges. Places are never freed, only used again, so that the handler may
/// walk the list at any moment.
#[derive(Debug)]
struct Slot {
    is_taken: AtomicBool,
    is_lost: AtomicBool,
    start: AtomicUsize,
    /// 0 while there is no range.
    end: AtomicUsize,
    next: Option<&'static Slot>,
}

static FIRST: AtomicPtr<Slot> = AtomicPtr::new(null_mut());

/// The list of places, the latest first.
fn slots() -> impl Iterator<Item = &'static Slot> {
    // SAFETY: the pointer is null or was made from a place that lives for ever.
    let first = unsafe { FIRST.load(Ordering::Acquire).as_ref() };
    std::iter::successors(first, |slot| slot.next)
}

impl Watch {
    fn new(start: usize, bytes: usize) -> io::Result<Self> {
        install()?;
        let slot = Slot::take();
        slot.is_lost.store(false, Ordering::SeqCst);
        slot.start.store(start, Ordering::SeqCst);
        slot.end.store(start + bytes, Ordering::SeqCst);
        Ok(Self(slot))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::SeqCst);
        self.0.is_taken.store(false, Ordering::SeqCst);
    }
}

impl Slot {
    /// A place that nobody uses, or a new one.
    fn take() -> &'static Self {
        let claim = |slot: &&Slot| !slot.is_taken.swap(true, Ordering::SeqCst);
        if let Some(slot) = slots().find(claim) {
            return slot;
        }
        let mut first = FIRST.load(Ordering::Acquire);
        let slot = Box::leak(Box::new(Self {
            is_taken: AtomicBool::new(true),
            is_lost: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            next: None,
        }));
        loop {
            // SAFETY: as in `slots`.
            slot.next = unsafe { first.as_ref() };
            let swapped = FIRST.compare_exchange(first, slot, Ordering::AcqRel, Ordering::Acquire);
            match swapped {
                Ok(_) => return slot,
                Err(now) => first = now,
            }
        }
    }

    /// Where the range that holds `at` ends.
    fn end_around(&self, at: usize) -> Option<usize> {
        let (start, end) = (self.start.load(Ordering::SeqCst), self.end.load(Ordering::SeqCst));
        // A place that is used again meanwhile has another start.
        let is_steady = self.start.load(Ordering::SeqCst) == start;
        (is_steady && (start..end).contains(&at)).then_some(end)
    }
}

/// The handler that SIGBUS had before, and the size of a page.
static BEFORE: OnceLock<Before> = OnceLock::new();

struct Before {
    action: libc::sigaction,
    page_bytes: usize,
}

/// Puts the handler in its place, once for the process.
fn install() -> io::Result<()> {
    static ATTEMPT: OnceLock<Result<(), i32>> = OnceLock::new();
    let attempt = ATTEMPT.get_or_init(|| {
        let failed = || io::Error::last_os_error().raw_os_error().unwrap_or_default();
        // SAFETY: plain numbers and a null pointer, for which zeros are valid.
        let mut action: libc::sigaction = unsafe { zeroed() };
        // SAFETY: `action` is a valid place for the action that is in force now.
        if unsafe { libc::sigaction(SIGBUS, std::ptr::null(), &mut action) } != 0 {
            return Err(failed());
        }
        // Known before our handler can be called.
        let _ = BEFORE.set(Before { action, page_bytes: rustix::param::page_size() });
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
        // SAFETY: as above.
        let mut ours: libc::sigaction = unsafe { zeroed() };
        ours.sa_sigaction = handler as *const () as usize;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        // SAFETY: `ours` is a whole action, and its handler only does what a signal handler may:
        // atomic loads and stores, and bare system calls.
        match unsafe { libc::sigaction(SIGBUS, &ours, null_mut()) } {
            0 => Ok(()),
            _ => Err(failed()),
        }
    });
    attempt.map_err(io::Error::from_raw_os_error)
}

/// Called by the kernel on the thread that touched a page which is not there.
extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands over a valid `siginfo_t`.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // A signal that somebody sent has a code of 0 or less, and no address.
    if code > 0 && replace(at) {
        return;
    }
    pass_on(signal, info, context);
}

/// Puts zeros in the place of a mapping from the page of `at` on, if `at` is in one of ours.
fn replace(at: usize) -> bool {
    let Some(Before { page_bytes, .. }) = BEFORE.get() else { return false };
    let found = slots().find_map(|slot| Some((slot, slot.end_around(at)?)));
    let Some((slot, end)) = found else { return false };
    // Before the zeros can be read.
    slot.is_lost.store(true, Ordering::SeqCst);
    let page = at - at % page_bytes;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: the range lies in a mapping of ours, which lives, for a thread is reading it: dropping
    // it takes a `Mapping` that nobody borrows. It was read-only and stays so. What is in it now is
    // bytes of the file that are not there, and such as nobody will use, for the mapping is lost.
    unsafe {
        mmap_anonymous(without_provenance_mut(page), end - page, ProtFlags::READ, flags).is_ok()
    }
}

/// Does what would have been done without us.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(Before { action, .. }) = BEFORE.get() else { return };
    match action.sa_sigaction {
        SIG_IGN => {}
        SIG_DFL => {
            // SAFETY: `action` was in force before. It ends the process as soon as the signal,
            // which is blocked until we return, comes again.
            unsafe {
                libc::sigaction(signal, action, null_mut());
                libc::raise(signal);
            }
        }
        handler if action.sa_flags & SA_SIGINFO != 0 => {
            // SAFETY: with this flag it is a function of these three.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without it, of the signal's number alone.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        file
    }

    #[test]
    fn a_file_cut_short_is_lost_and_ends_no_process() {
        let (cut, whole) = (file(1 << 20), file(1 << 20));
        let (left, right) = (Mapping::new(&cut).unwrap(), Mapping::new(&whole).unwrap());
        assert_eq!(left[1 << 19], 7);
        cut.set_len(5_000).unwrap();
        assert!(!left.is_lost());
        // Several threads at once, as an engine reads.
        let sums: Vec<u64> = std::thread::scope(|scope| {
            let sum = || left.iter().map(|&byte| u64::from(byte)).sum();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(sum)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(sums.iter().all(|&sum| sum == 7 * 5_000), "{sums:?}");
        assert!(left.is_lost() && !right.is_lost());
        assert!(right.iter().all(|&byte| byte == 7));
        // Its place is used again by a mapping that is not lost.
        drop(left);
        let next = Mapping::new(&whole).unwrap();
        assert!(!next.is_lost());
    }

    #[test]
    fn a_fault_elsewhere_still_ends_the_process() {
        const CHILD: &str = "HUSHTABLE_TEST_FAULT_ELSEWHERE";
        let name = "mapping::tests::a_fault_elsewhere_still_ends_the_process";
        if std::env::var_os(CHILD).is_some() {
            let cut = file(1 << 20);
            let _ours = Mapping::new(&file(1)).unwrap();
            // SAFETY: a read-only map of a file that nobody else has.
            let map = unsafe { Mmap::map(&cut) }.unwrap();
            cut.set_len(0).unwrap();
            std::process::exit(i32::from(map[4096]));
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let status = child.args(["--exact", name]).env(CHILD, "1").output().unwrap().status;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(SIGBUS), "{status:?}");
    }
}
