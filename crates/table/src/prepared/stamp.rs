//! When a file was last written to, as the system says.

use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::system::{self, MetadataExt};

/// What the system says of a file whenever its bytes change: its length, and when its bytes and its
/// entry were last changed, in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    file_bytes: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

/// The change of a file between two stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// Its entry: a name, its rights, or the times themselves. The bytes may be others too, if
    /// somebody wrote them and set the time back.
    Entry,
    /// Its bytes.
    Bytes,
}

impl Stamp {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            file_bytes: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// A stamp that any later write changes.
    ///
    /// The system's clock for files moves in ticks, so a file that was written to in this tick could
    /// be so again without a trace: the tick is waited for. And a page that another process has
    /// mapped and written to can be written again unseen until it is on the disk: so it is brought
    /// there. (On a file system that keeps no disk, such as tmpfs, that does not help.)
    pub(super) fn settled(file: &File) -> io::Result<Self> {
        // What cannot be synchronised, on a file system that is mounted read-only say, is not
        // written to either.
        let _ = system::sync_bytes(file);
        let started = Instant::now();
        loop {
            let stamp = Self::of(file)?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let (seconds, nanoseconds) = stamp.changed;
            let changed = Duration::new(
                u64::try_from(seconds).unwrap_or(0),
                u32::try_from(nanoseconds).unwrap_or(0),
            );
            // A clock that is behind the file's, another machine's, is not waited for.
            let is_old = now.checked_sub(changed).is_some_and(|age| age > TICKS);
            if is_old || started.elapsed() > WAIT_MAX {
                return Ok(stamp);
            }
            thread::sleep(TICKS / 4);
        }
    }

    /// What happened until `now`.
    pub(super) fn until(&self, now: &Self) -> Change {
        if (self.file_bytes, self.written) != (now.file_bytes, now.written) {
            Change::Bytes
        } else if self.changed != now.changed {
            Change::Entry
        } else {
            Change::Nothing
        }
    }
}

/// A few of the slowest kernel's ticks, which are 10 ms.
const TICKS: Duration = Duration::from_millis(40);
const WAIT_MAX: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn every_way_to_change_a_file_shows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![1; 10_000]).unwrap();
        let open = || fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let file = open();
        let after = |act: &dyn Fn()| {
            let before = Stamp::settled(&file).unwrap();
            assert_eq!(before.until(&Stamp::of(&file).unwrap()), Change::Nothing);
            act();
            before.until(&Stamp::of(&file).unwrap())
        };
        // The same byte again is a write too.
        assert_eq!(after(&|| open().write_all_at(&[1], 5_000).unwrap()), Change::Bytes);
        assert_eq!(after(&|| open().write_all(&[2; 10]).unwrap()), Change::Bytes);
        assert_eq!(after(&|| open().set_len(9_000).unwrap()), Change::Bytes);
        assert_eq!(
            after(&|| fs::hard_link(&path, folder.path().join("link")).unwrap()),
            Change::Entry
        );
        let set_back = || {
            let written = file.metadata().unwrap().modified().unwrap();
            let other = open();
            other.write_all_at(&[3], 0).unwrap();
            other.set_modified(written).unwrap();
        };
        assert_eq!(after(&set_back), Change::Entry);
        let replace = || {
            fs::write(folder.path().join("new"), [0; 3]).unwrap();
            fs::rename(folder.path().join("new"), &path).unwrap();
        };
        assert_eq!(after(&replace), Change::Entry);
    }
}
