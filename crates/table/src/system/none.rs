//! No files.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// As Unix has it.
pub(crate) trait FileExt {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        unsupported()
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        unsupported()
    }
}

/// As Unix has it; there are no values to ask.
pub(crate) trait MetadataExt {
    fn dev(&self) -> u64 {
        0
    }

    fn ino(&self) -> u64 {
        0
    }

    fn mtime(&self) -> i64 {
        0
    }

    fn mtime_nsec(&self) -> i64 {
        0
    }

    fn ctime(&self) -> i64 {
        0
    }

    fn ctime_nsec(&self) -> i64 {
        0
    }
}

impl MetadataExt for Metadata {}

pub(crate) fn open(_: &Path) -> io::Result<File> {
    unsupported()
}

pub(crate) fn open_in(_: &File, _: &str) -> io::Result<File> {
    unsupported()
}

pub(crate) fn open_folder(_: &Path) -> io::Result<File> {
    unsupported()
}

pub(crate) fn nonblocking(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

pub(crate) fn sync_bytes(_: &File) -> io::Result<()> {
    unsupported()
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}
