//! Pages in a file on an SSD.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use super::pread::Threads;
use super::run::{check_write, count};
#[cfg(target_os = "linux")]
use super::uring::Ring;
use super::{Counters, DiskError, PAGE_BYTES, Pages, Run, Store, elapsed_us};

/// Most pages of a file: its length is a signed 64-bit number of bytes.
const PAGES_MAX: u64 = i64::MAX as u64 / PAGE_BYTES as u64;

/// How a file's pages are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// What carries the requests.
    pub io: IoKind,
    /// Whether the system's page cache is passed by.
    pub direct: Direct,
    /// Most runs in flight, 1 to 4,096.
    pub depth: usize,
}

impl Default for FileSpec {
    /// What the system has, at the depth past which this project's disks gained nothing.
    fn default() -> FileSpec {
        FileSpec { io: IoKind::Auto, direct: Direct::Auto, depth: 64 }
    }
}

/// What carries requests to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoKind {
    /// io_uring where the system lets this process have it, else threads.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Threads that call pread and pwrite; works everywhere.
    Pread,
}

/// Whether the system's page cache is passed by (O_DIRECT). With the cache, pages are copied once
/// more, take memory twice, and what counts as a disk's read may be none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where the file system can, else a warning in the log.
    #[default]
    Auto,
    /// Always, or an error.
    On,
    /// Never.
    Off,
}

/// A store in a file, locked against other processes while it is open.
#[derive(Debug)]
pub struct FileStore {
    file: File,
    /// The file opened once more, to hold the lock alone. A ring's registered file is closed some
    /// time after the ring is, even when the process was killed; until then it would stay locked.
    _lock: Locked,
    path: PathBuf,
    pages: u64,
    engine: Engine,
    direct: bool,
    poisoned: bool,
    counters: Counters,
}

#[derive(Debug)]
enum Engine {
    #[cfg(target_os = "linux")]
    Ring(Box<Ring>),
    Threads(Threads),
}

/// Why an engine stopped: at which run, and what the system said. An unexpected end of file is the
/// engine's word for a read that got nothing.
#[derive(Debug)]
pub(super) struct Failure {
    pub run: Run,
    pub source: io::Error,
}

impl FileStore {
    /// Makes a file of `pages` pages of zeros, readable by its owner alone. Its space is reserved,
    /// so that a full disk is seen now and not in the middle of a round.
    ///
    /// # Errors
    ///
    /// A file that is there already, too little space ([`DiskError::Full`]), a size that no file has,
    /// a `spec` that cannot be had, or what the system says. No file is left behind then.
    pub fn create(path: &Path, pages: u64, spec: FileSpec) -> Result<FileStore, DiskError> {
        if pages == 0 || pages > PAGES_MAX {
            return Err(DiskError::Size { pages });
        }
        let file = create_new(path)?;
        let store = lock(file, path).and_then(|file| {
            reserve(&file, path, pages * PAGE_BYTES as u64)?;
            file.sync_all().map_err(io_error("sync", path))?;
            sync_folder_of(path)?;
            FileStore::assemble(file, path, pages, spec)
        });
        if store.is_err() {
            // Ours, made a moment ago; the error that matters is the first.
            let _ = fs::remove_file(path);
        }
        store
    }

    /// Opens the file that [`create`](FileStore::create) made.
    ///
    /// # Errors
    ///
    /// A missing file, one in use by another process, what is no store, a `spec` that cannot be had,
    /// or what the system says.
    pub fn open(path: &Path, spec: FileSpec) -> Result<FileStore, DiskError> {
        let metadata = fs::metadata(path).map_err(missing_or("look at", path))?;
        let bytes = metadata.len();
        let whole = bytes > 0 && bytes.is_multiple_of(PAGE_BYTES as u64);
        if !metadata.is_file() || !whole {
            let regular = metadata.is_file();
            return Err(DiskError::NotPages { path: path.to_owned(), regular, bytes });
        }
        let file = lock(open(path)?, path)?;
        FileStore::assemble(file, path, bytes / PAGE_BYTES as u64, spec)
    }

    /// Whether io_uring carries the requests (else threads do).
    pub fn uses_uring(&self) -> bool {
        match self.engine {
            #[cfg(target_os = "linux")]
            Engine::Ring(_) => true,
            Engine::Threads(_) => false,
        }
    }

    /// Whether the page cache is passed by.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn assemble(
        locked: Locked,
        path: &Path,
        pages: u64,
        spec: FileSpec,
    ) -> Result<FileStore, DiskError> {
        let file = open(path)?;
        let direct = match spec.direct {
            Direct::Off => false,
            Direct::On | Direct::Auto => match pass_cache_by(&file) {
                Ok(()) => true,
                Err(source) if spec.direct == Direct::On => {
                    return Err(DiskError::NoDirect { path: path.to_owned(), source });
                }
                Err(source) => {
                    tracing::warn!(
                        path = %path.display(), %source,
                        "no direct I/O here: pages go through the system's cache"
                    );
                    false
                }
            },
        };
        let engine = Engine::new(&file, spec)?;
        let path = path.to_owned();
        let counters = Counters::default();
        Ok(FileStore {
            file,
            _lock: locked,
            path,
            pages,
            engine,
            direct,
            poisoned: false,
            counters,
        })
    }

    fn read_error(&self, failure: Failure) -> DiskError {
        match failure.source.kind() {
            ErrorKind::UnexpectedEof => {
                DiskError::Short { path: self.path.clone(), page: failure.run.first_page }
            }
            _ => io_error("read", &self.path)(failure.source),
        }
    }

    fn check_sound(&self) -> Result<(), DiskError> {
        match self.poisoned {
            true => Err(DiskError::Poisoned { path: self.path.clone() }),
            false => Ok(()),
        }
    }
}

impl Store for FileStore {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn read(&mut self, runs: &[Run], into: &mut Pages) -> Result<(), DiskError> {
        let start = Instant::now();
        into.resize(count(runs, self.pages)?);
        let outcome = match &mut self.engine {
            #[cfg(target_os = "linux")]
            Engine::Ring(ring) => ring.read(runs, into.bytes_mut()),
            Engine::Threads(threads) => threads.read(&self.file, runs, into.bytes_mut()),
        };
        self.counters.read_us += elapsed_us(start);
        outcome.map_err(|failure| self.read_error(failure))?;
        self.counters.reads += runs.len() as u64;
        self.counters.read_bytes += into.bytes().len() as u64;
        Ok(())
    }

    fn read_each(
        &mut self,
        runs: &[Run],
        each: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<(), DiskError> {
        let start = Instant::now();
        let pages = count(runs, self.pages)?;
        let outcome = match &mut self.engine {
            #[cfg(target_os = "linux")]
            Engine::Ring(ring) => ring.read_each(runs, each),
            Engine::Threads(threads) => threads.read_each(&self.file, runs, each),
        };
        self.counters.read_us += elapsed_us(start);
        outcome.map_err(|failure| self.read_error(failure))?;
        self.counters.reads += runs.len() as u64;
        self.counters.read_bytes += pages as u64 * PAGE_BYTES as u64;
        Ok(())
    }

    fn write(&mut self, runs: &[Run], from: &Pages) -> Result<(), DiskError> {
        let start = Instant::now();
        self.check_sound()?;
        check_write(runs, from, self.pages)?;
        let outcome = match &mut self.engine {
            #[cfg(target_os = "linux")]
            Engine::Ring(ring) => ring.write(runs, from.bytes()),
            Engine::Threads(threads) => threads.write(&self.file, runs, from.bytes()),
        };
        self.counters.write_us += elapsed_us(start);
        outcome.map_err(|failure| {
            write_error(&self.file, "write", &self.path, failure.run.bytes() as u64, failure.source)
        })?;
        self.counters.writes += runs.len() as u64;
        self.counters.written_bytes += from.bytes().len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        let start = Instant::now();
        self.check_sound()?;
        let outcome = self.file.sync_data();
        self.counters.write_us += elapsed_us(start);
        self.poisoned = outcome.is_err();
        outcome.map_err(io_error("sync", &self.path))?;
        self.counters.syncs += 1;
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

impl Engine {
    fn new(file: &File, spec: FileSpec) -> Result<Engine, DiskError> {
        let depth = spec.depth.clamp(1, 4096);
        #[cfg(target_os = "linux")]
        if spec.io != IoKind::Pread {
            match Ring::new(file, depth) {
                Ok(ring) => return Ok(Engine::Ring(Box::new(ring))),
                Err(source) if spec.io == IoKind::Uring => {
                    return Err(DiskError::NoUring { source });
                }
                Err(source) => {
                    tracing::warn!(%source, "no io_uring here: threads read and write instead");
                }
            }
        }
        #[cfg(not(target_os = "linux"))]
        if spec.io == IoKind::Uring {
            let _ = file;
            return Err(DiskError::NoUring { source: ErrorKind::Unsupported.into() });
        }
        Ok(Engine::Threads(Threads::new(depth)))
    }
}

/// Makes a file that is not there, readable by its owner alone.
pub(crate) fn create_new(path: &Path) -> Result<File, DiskError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => DiskError::Exists { path: path.to_owned() },
        _ => io_error("create", path)(source),
    })
}

/// Opens a file to read and write.
pub(crate) fn open(path: &Path) -> Result<File, DiskError> {
    OpenOptions::new().read(true).write(true).open(path).map_err(missing_or("open", path))
}

/// A file that this process has taken; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Locked(File);

/// Takes the file for this process; the system gives it back when the process ends, however it ends.
pub(crate) fn lock(file: File, path: &Path) -> Result<Locked, DiskError> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Locked(file)),
        Err(Errno::WOULDBLOCK) => Err(DiskError::Busy { path: path.to_owned() }),
        Err(errno) => Err(io_error("lock", path)(errno.into())),
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing would do, were it not for children that are just being started: until they have
        // become another program they hold the file too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Makes the names in `path`'s folder durable.
pub(crate) fn sync_folder_of(path: &Path) -> Result<(), DiskError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(io_error("sync", folder))
}

/// Says what was tried, and on which file.
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DiskError {
    move |source| DiskError::Io { action, path: path.to_owned(), source }
}

/// As [`io_error`], but a file that is not there has an error of its own.
pub(crate) fn missing_or(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DiskError {
    move |source| match source.kind() {
        ErrorKind::NotFound => DiskError::Missing { path: path.to_owned() },
        _ => io_error(action, path)(source),
    }
}

/// As [`io_error`], but a full disk has an error of its own.
pub(crate) fn write_error(
    file: &File,
    action: &'static str,
    path: &Path,
    wanted_bytes: u64,
    source: io::Error,
) -> DiskError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            let available_bytes = available_bytes(file).unwrap_or(0);
            DiskError::Full { path, wanted_bytes, available_bytes }
        }
        _ => DiskError::Io { action, path, source },
    }
}

fn available_bytes(file: &File) -> io::Result<u64> {
    let system = rustix::fs::fstatvfs(file)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Reserves `bytes` of disk for a new file.
pub(super) fn reserve(file: &File, path: &Path, bytes: u64) -> Result<(), DiskError> {
    // Asked first: reserving takes all there is before it fails, from everyone on the disk.
    let available_bytes = available_bytes(file).map_err(io_error("ask the free space of", path))?;
    if available_bytes < bytes {
        return Err(DiskError::Full {
            path: path.to_owned(),
            wanted_bytes: bytes,
            available_bytes,
        });
    }
    loop {
        return match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP) => {
                tracing::warn!(
                    path = %path.display(),
                    "space cannot be reserved here: the disk may turn out full in a later round"
                );
                file.set_len(bytes).map_err(io_error("lengthen", path))
            }
            Err(errno) => Err(write_error(file, "reserve space for", path, bytes, errno.into())),
        };
    }
}

/// Reserves disk for the first `bytes` bytes of `file` without making it longer, so that writing
/// them cannot find the disk full. Where the file system cannot reserve, nothing is.
pub(crate) fn reserve_ahead(file: &File, path: &Path, bytes: u64) -> Result<(), DiskError> {
    loop {
        return match fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(write_error(file, "reserve space for", path, bytes, errno.into())),
        };
    }
}

/// Puts the file at `from` in the place of that at `to`. With `keep`, and where the file system can do
/// that, what was at `to` is at `from` then, with its space; else it is gone. Whether it was kept.
pub(crate) fn exchange(from: &Path, to: &Path, keep: bool) -> Result<bool, DiskError> {
    #[cfg(target_os = "linux")]
    if keep {
        use rustix::fs::{CWD, RenameFlags, renameat_with};

        match renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE) {
            Ok(()) => return Ok(true),
            // Not here.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(io_error("replace", to)(errno.into())),
        }
    }
    let _ = keep;
    fs::rename(from, to).map_err(io_error("replace", to))?;
    Ok(false)
}

/// Turns the page cache off for `file`, and reads its first page to see that pages are aligned
/// enough for it.
#[cfg(target_os = "linux")]
fn pass_cache_by(file: &File) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::DIRECT)?;
    let probed = file.read_exact_at(Pages::with_count(1).bytes_mut(), 0);
    if probed.is_err() {
        fcntl_setfl(file, flags)?;
    }
    probed
}

#[cfg(not(target_os = "linux"))]
fn pass_cache_by(_file: &File) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
