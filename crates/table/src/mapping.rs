//! The one unsafe block of this crate: a file as a slice of bytes.

#![allow(unsafe_code, reason = "mapping a file is unsafe; see the SAFETY line")]

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::{Mmap, MmapOptions};

/// A whole file, mapped read-only and private.
#[derive(Debug)]
pub(crate) struct Mapping(Mmap);

impl Mapping {
    /// Maps all of `file`.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only, and nothing of ours ever writes to a bundle in place: a
        // build writes new files aside and swaps the folder, so a mapped file keeps its bytes
        // until the last map of it goes. What is left is another program that writes to or
        // truncates the file in spite of that. We only ever copy plain bytes out of the map, for
        // which every bit pattern is valid, and `Table::open` says what such a program causes
        // (wrong bytes, which the version and `verify` catch, or SIGBUS).
        unsafe { MmapOptions::new().map_copy_read_only(file) }.map(Self)
    }

    /// Tells the kernel that the map is about to be read from front to back.
    pub(crate) fn advise_sequential(&self) {
        // Only a hint: a kernel that refuses it reads no less correctly.
        let _ = self.0.advise(memmap2::Advice::Sequential);
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
