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
        // SAFETY: the map is read-only, and nothing of ours ever writes to a bundle or a finished
        // prepared file in place: a build writes new files aside and swaps the names, so a mapped
        // file keeps its bytes until the last map of it goes. (`Prepared::open` looks whether a
        // file is finished before it maps it.) What is left is another program that writes to or
        // truncates the file in spite of that. We only ever read plain bytes out of the map, for
        // which every bit pattern is valid, and `Table::open` and `Prepared::open` say what such
        // a program causes (wrong bytes, which the versions catch, or SIGBUS).
        unsafe { MmapOptions::new().map_copy_read_only(file) }.map(Self)
    }

    /// Tells the kernel that the map is about to be read from front to back.
    pub(crate) fn advise_sequential(&self) {
        // Only a hint: a kernel that refuses it reads no less correctly.
        let _ = self.0.advise(memmap2::Advice::Sequential);
    }

    /// Tells the kernel to read the file ahead of its use.
    pub(crate) fn advise_will_need(&self) {
        // Only a hint, as above.
        let _ = self.0.advise(memmap2::Advice::WillNeed);
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
