//! What can go wrong with a store, and what to do about it.

use std::io;
use std::path::PathBuf;

/// What can go wrong with a store, or with a file beside it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// Another process has the file open.
    #[error("{} is in use by another process; stop that one first", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// A file that was to be made is there.
    #[error("{} is there already and is not overwritten; open it, or remove it first", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The disk, or the user's quota of it, has too little space.
    #[error(
        "{} needs {wanted_bytes} bytes, of which the disk has {available_bytes}; free some space, \
         or choose another disk", path.display()
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        wanted_bytes: u64,
        /// What the file system gives this user.
        available_bytes: u64,
    },
    /// The system refused a file operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A planned fault: this operation, and all after it, fail.
    #[error("killed at I/O operation {operation}, as planned")]
    Killed {
        /// Which operation, from 0.
        operation: u64,
    },
    /// There is not as much to write as the runs take.
    #[error("the runs take {runs_pages} pages; {given_pages} are given")]
    Length {
        /// Pages of the runs.
        runs_pages: usize,
        /// Pages in the buffer.
        given_pages: usize,
    },
    /// The file is not there.
    #[error(
        "{} is not there: it was removed, or this is another place. If the controller was there, \
         `hushtable train recover FOLDER` says what is left", path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file system cannot pass its cache by, which was asked for.
    #[error("{}: the file system has no direct I/O ({source}); choose another, or allow cached I/O", path.display())]
    NoDirect {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel has no io_uring, or does not let this process use it.
    #[error("io_uring is not to be had ({source}); allow it, or choose `pread`")]
    NoUring {
        /// What the system said.
        source: io::Error,
    },
    /// What is at the path cannot be a store.
    #[error(
        "{} is no store: a regular file of one or more whole pages of 4096 bytes was expected, \
         this {}", path.display(), if *.regular { format!("has {bytes} bytes") } else { "is no regular file".to_owned() }
    )]
    NotPages {
        /// The path.
        path: PathBuf,
        /// Whether it is a regular file.
        regular: bool,
        /// How long it is.
        bytes: u64,
    },
    /// Pages that the store does not have.
    #[error("{pages} pages from page {first_page} on are not all within the store's {store_pages}")]
    OutOfRange {
        /// First page of the run.
        first_page: u64,
        /// Pages of the run.
        pages: u32,
        /// Pages of the store.
        store_pages: u64,
    },
    /// One page is to be written twice at once.
    #[error("page {page} is written twice in one call; which of the two would stay is not defined")]
    Overlap {
        /// The page.
        page: u64,
    },
    /// An earlier sync failed.
    #[error(
        "{}: an earlier sync failed, so what was written since may be lost; no more is written. \
         Close the store, see to the disk, and open it again", path.display()
    )]
    Poisoned {
        /// The file.
        path: PathBuf,
    },
    /// The file ends before what was read: it was cut while it was open.
    #[error(
        "{} ends before page {page}, which it had when it was opened. Stop, see to the disk, \
         and run `hushtable train recover FOLDER`", path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// The first page that is not whole.
        page: u64,
    },
    /// A store without pages, or with more than a file can have.
    #[error("a store has 1 to 2^51 pages, not {pages}")]
    Size {
        /// What was asked for.
        pages: u64,
    },
}
