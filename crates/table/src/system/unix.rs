//! The system's own calls.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
pub(crate) use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

// NONBLOCK: to open a pipe must not wait for its other end. Plain files ignore it.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Opens what may be a plain file for reading, and does not wait where it is none.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    Ok(rustix::fs::open(path, READ, Mode::empty())?.into())
}

/// As [`open`], by its name in a folder.
pub(crate) fn open_in(folder: &File, name: &str) -> io::Result<File> {
    Ok(rustix::fs::openat(folder, name, READ, Mode::empty())?.into())
}

/// Opens a folder itself, as a handle that survives a rename.
pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Has `options` not wait where what is opened is a pipe.
pub(crate) fn nonblocking(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(OFlags::NONBLOCK.bits() as i32)
}

/// Brings a file's bytes to the disk.
pub(crate) fn sync_bytes(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}
