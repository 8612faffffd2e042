//! Memory whose end is guarded.

use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// The byte that fills device memory before its first write.
pub(super) const UNWRITTEN: u8 = 0xa5;

/// `bytes` of memory, rounded up to 16, then a page that may not be touched.
pub(super) struct Mapping {
    base: NonNull<c_void>,
    mapped: usize,
    /// From the base to the first byte.
    lead: usize,
    bytes: usize,
    fill: u8,
}

// SAFETY: it is memory, owned by nobody else.
unsafe impl Send for Mapping {}

impl Mapping {
    /// `None` where the system has no more.
    pub(super) fn new(bytes: usize, fill: u8) -> Option<Self> {
        let page = rustix::param::page_size();
        let used = bytes.checked_next_multiple_of(16)?;
        let whole = used.checked_next_multiple_of(page)?;
        let mapped = whole.checked_add(page)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), mapped, access, MapFlags::PRIVATE).ok()?
        };
        // SAFETY: the mapping's last page, which nothing uses.
        unsafe { mprotect(base.byte_add(whole), page, MprotectFlags::empty()).ok()? };
        if fill != 0 {
            // SAFETY: the mapping's other pages.
            unsafe { std::ptr::write_bytes(base.cast::<u8>(), fill, whole) };
        }
        let base = NonNull::new(base)?;
        Some(Self { base, mapped, lead: whole - used, bytes, fill })
    }

    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr() as u64 + self.lead as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of it that hold neither zeros nor what was there before the first write.
    pub(super) fn left_bytes(&self) -> usize {
        // SAFETY: the mapping's own bytes, all initialised, to which no reference points.
        let bytes = unsafe { std::slice::from_raw_parts(self.address() as *const u8, self.bytes) };
        bytes.iter().filter(|byte| ![0, UNWRITTEN].contains(byte)).count()
    }

    /// That nobody wrote right before it or into what rounds it up.
    fn is_edge_whole(&self) -> bool {
        let edge = |from: usize, to: usize| {
            // SAFETY: bytes of the mapping before the guard, which no reference points to.
            unsafe {
                std::slice::from_raw_parts(
                    self.base.as_ptr().byte_add(from).cast::<u8>(),
                    to - from,
                )
            }
        };
        let end = self.lead + self.bytes;
        edge(0, self.lead)
            .iter()
            .chain(edge(end, end.next_multiple_of(16)))
            .all(|byte| *byte == self.fill)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let is_whole = self.is_edge_whole();
        // SAFETY: the whole mapping, once, with nothing that points to it.
        unsafe { munmap(self.base.as_ptr(), self.mapped).expect("a mapping of ours") };
        if !is_whole && !std::thread::panicking() {
            panic!("shim: bytes beside a buffer of {} bytes were written to", self.bytes);
        }
    }
}
