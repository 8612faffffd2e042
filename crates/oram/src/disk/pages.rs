//! Memory that a disk can read into and write from without a copy: aligned to pages.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zeroize::Zeroize;

use super::PAGE_BYTES;

/// From this size on, memory is asked for in huge pages: a round's pages are touched once each and
/// in no order, where 4 KiB translations would miss.
#[cfg(any(test, target_os = "linux"))]
const HUGE_BYTES: usize = 4 << 20;

/// Consecutive pages of memory, aligned to [`PAGE_BYTES`], as O_DIRECT wants them.
///
/// The memory is zero when it is first had. A buffer that shrinks and grows again keeps its memory,
/// and what was in it: nothing is cleared, so that one buffer serves round after round at no cost.
pub struct Pages {
    /// Points to a mapping of `capacity_bytes`; dangling if `capacity_bytes` is zero.
    start: NonNull<u8>,
    capacity_bytes: usize,
    count: usize,
}

// SAFETY: the mapping belongs to this value alone and is reached only through its borrows.
unsafe impl Send for Pages {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// No pages; nothing is allocated.
    pub const fn new() -> Pages {
        Pages { start: NonNull::dangling(), capacity_bytes: 0, count: 0 }
    }

    /// `count` pages of zeros.
    ///
    /// # Panics
    ///
    /// When the system has no such memory.
    pub fn with_count(count: usize) -> Pages {
        let mut pages = Pages::new();
        pages.resize(count);
        pages
    }

    /// Pages that hold `bytes`, the last one filled up with zeros.
    pub fn from_bytes(bytes: &[u8]) -> Pages {
        let mut pages = Pages::with_count(bytes.len().div_ceil(PAGE_BYTES));
        pages.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        pages
    }

    /// Makes this `count` pages long. What is in the pages that stay is kept; pages that come hold
    /// zeros, or what they held when they last were part of this.
    ///
    /// # Panics
    ///
    /// When the system has no such memory.
    pub fn resize(&mut self, count: usize) {
        let bytes = count.checked_mul(PAGE_BYTES).expect("pages that memory can address");
        if bytes > self.capacity_bytes {
            // Growing by a half at least keeps a caller that grows by the page linear.
            self.grow(bytes.max(self.capacity_bytes / PAGE_BYTES * 3 / 2 * PAGE_BYTES));
        }
        self.count = count;
    }

    /// How many pages.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All the bytes, `count * PAGE_BYTES`.
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: `count` pages lie within the mapping, which is initialised (anonymous memory is
        // zero) and lives as long as `self`; without a mapping the slice is empty.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count * PAGE_BYTES) }
    }

    /// All the bytes, to change.
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed mutably, so that this is the only way in.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.count * PAGE_BYTES) }
    }

    /// The bytes of page `i`.
    ///
    /// # Panics
    ///
    /// When there is no such page.
    pub fn page(&self, i: usize) -> &[u8; PAGE_BYTES] {
        self.run(i, 1).try_into().expect("a page has a page's bytes")
    }

    /// The bytes of page `i`, to change.
    ///
    /// # Panics
    ///
    /// When there is no such page.
    pub fn page_mut(&mut self, i: usize) -> &mut [u8; PAGE_BYTES] {
        self.run_mut(i, 1).try_into().expect("a page has a page's bytes")
    }

    /// The bytes of `pages` pages from page `first` on.
    ///
    /// # Panics
    ///
    /// When they are not all there.
    pub fn run(&self, first: usize, pages: usize) -> &[u8] {
        &self.bytes()[self.range(first, pages)]
    }

    /// The bytes of `pages` pages from page `first` on, to change.
    ///
    /// # Panics
    ///
    /// When they are not all there.
    pub fn run_mut(&mut self, first: usize, pages: usize) -> &mut [u8] {
        let range = self.range(first, pages);
        &mut self.bytes_mut()[range]
    }

    /// Zeroes all the memory, in a way that is not optimised out: for pages that held secrets.
    pub fn wipe(&mut self) {
        let count = self.count;
        self.count = self.capacity_bytes / PAGE_BYTES;
        self.bytes_mut().zeroize();
        self.count = count;
    }

    fn range(&self, first: usize, pages: usize) -> Range<usize> {
        let end = first.saturating_add(pages);
        assert!(end <= self.count, "pages {first}..{end} of a buffer of {}", self.count);
        first * PAGE_BYTES..end * PAGE_BYTES
    }

    fn grow(&mut self, capacity_bytes: usize) {
        let start = map(capacity_bytes);
        // SAFETY: both are mappings of their own, and the old pages lie within both.
        unsafe {
            ptr::copy_nonoverlapping(self.start.as_ptr(), start.as_ptr(), self.capacity_bytes);
        }
        self.unmap();
        (self.start, self.capacity_bytes) = (start, capacity_bytes);
    }

    fn unmap(&mut self) {
        if self.capacity_bytes > 0 {
            // SAFETY: this is the mapping that `map` made, whole, and nothing borrows from it.
            let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.capacity_bytes) };
            debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
            (self.start, self.capacity_bytes) = (NonNull::dangling(), 0);
        }
    }
}

/// New memory of `bytes > 0` bytes, zero. Mapped rather than allocated: an allocator clears memory
/// of a large alignment by touching it, before it can be told of huge pages.
fn map(bytes: usize) -> NonNull<u8> {
    // SAFETY: a new private mapping, at an address of the system's choice, disturbs no other.
    let start = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let start = start.unwrap_or_else(|error| panic!("no memory for {bytes} bytes: {error}"));
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_BYTES {
        // SAFETY: the advice is for the mapping just made, and changes no content.
        let _ = unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxHugepage) };
    }
    NonNull::new(start.cast()).expect("the system maps nothing at address zero")
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.unmap();
    }
}

impl Default for Pages {
    fn default() -> Pages {
        Pages::new()
    }
}

impl Clone for Pages {
    fn clone(&self) -> Pages {
        Pages::from_bytes(self.bytes())
    }
}

impl PartialEq for Pages {
    fn eq(&self, other: &Pages) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Pages {}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the bytes: they may be rows.
        f.debug_struct("Pages").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_zero_and_kept_while_growing() {
        let mut pages = Pages::with_count(3);
        assert_eq!(pages.bytes(), [0; 3 * PAGE_BYTES]);
        pages.page_mut(2).fill(7);
        for count in [4, 5, 100, 2 * HUGE_BYTES / PAGE_BYTES] {
            pages.resize(count);
            assert_eq!(pages.bytes().as_ptr().addr() % PAGE_BYTES, 0);
            assert_eq!(pages.count(), count);
            assert_eq!(pages.page(2), &[7; PAGE_BYTES]);
            assert!(pages.run(3, count - 3).iter().all(|&byte| byte == 0));
        }
        pages.resize(1);
        pages.resize(3);
        assert_eq!(pages.page(2), &[7; PAGE_BYTES], "what shrank keeps its memory");
        let copy = pages.clone();
        assert_eq!(copy, pages);
        pages.resize(1);
        pages.wipe();
        pages.resize(3);
        assert_eq!(pages.bytes(), [0; 3 * PAGE_BYTES], "wiping reaches what is not shown");
        assert_ne!(copy, pages);
    }

    #[test]
    fn no_pages_are_no_bytes() {
        let mut pages = Pages::new();
        assert!(pages.is_empty() && pages.bytes().is_empty() && pages.bytes_mut().is_empty());
        pages.resize(0);
        pages.wipe();
        assert_eq!(pages.clone(), Pages::default());
    }

    #[test]
    #[should_panic(expected = "pages 2..4 of a buffer of 3")]
    fn a_run_past_the_end_is_refused() {
        Pages::with_count(3).run(2, 2);
    }
}
