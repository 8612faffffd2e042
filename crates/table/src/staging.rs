//! A folder that is written aside and takes its place in one step.
//!
//! The files go to a hidden folder next to the target, are flushed to the disk, and then the two
//! folders swap names (`RENAME_EXCHANGE`): at every instant the target is the whole old bundle or
//! the whole new one. A writer holds a lock on its hidden folder, which the system drops when the
//! process dies, however it dies; the next build at that path removes the unlocked ones.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use rustix::fs::{CWD, RenameFlags};
#[cfg(unix)]
use rustix::io::Errno;

use crate::bundle::FILES;
use crate::error::Error;
use crate::system::MetadataExt;

/// A hidden folder beside `target`, removed when dropped unless committed.
pub(crate) struct Staging {
    /// Where the bundle is to stand; never a symbolic link.
    target: PathBuf,
    /// The folder that is written meanwhile.
    path: PathBuf,
    /// Holds the lock that says that this build lives.
    _lock: File,
}

impl Staging {
    /// Makes the hidden folder for a bundle at `out`, and removes what killed builds left.
    pub(crate) fn new(out: &Path) -> Result<Self, Error> {
        Self::replacing(out, &|target| check_entries(target, &|name| FILES.contains(&name)))
    }

    /// As [`new`](Self::new), for a folder of another kind: `check` refuses to replace what is not.
    pub(crate) fn replacing(
        out: &Path,
        check: &dyn Fn(&Path) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let target = resolve(out).map_err(Error::io("follow the link", out))?;
        check(&target)?;
        let name = target.file_name().ok_or_else(|| Error::Unnamed { path: out.to_owned() })?;
        let (parent, mut prefix) = (parent_of(&target), OsString::from("."));
        prefix.push(name);
        prefix.push(".building-");
        remove_leftovers(parent, &prefix);
        let (path, lock) = make_locked_folder(parent, &prefix)?;
        Ok(Self { target, path, _lock: lock })
    }

    /// Makes a new file in the folder.
    pub(crate) fn create_file(&self, name: &str) -> Result<File, Error> {
        let path = self.path.join(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        file.map_err(Error::io("create", path))
    }

    /// The path of a file in the folder, for error messages.
    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder that is written meanwhile.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the folder in its place. Its files must have been synchronised.
    pub(crate) fn commit(self) -> Result<(), Error> {
        let sync = |path: &Path| sync_folder(path).map_err(Error::io("synchronise", path));
        sync(&self.path)?;
        self.swap()?;
        sync(parent_of(&self.target))
        // Dropping self removes the old bundle, which now has the hidden name.
    }

    #[cfg(not(unix))]
    fn swap(&self) -> Result<(), Error> {
        let (path, source) = (self.target.clone(), io::ErrorKind::Unsupported.into());
        Err(Error::CannotSwap { path, source })
    }

    #[cfg(unix)]
    fn swap(&self) -> Result<(), Error> {
        // Another build may put a bundle here, or someone remove it, between the two calls.
        const ATTEMPT_COUNT_MAX: usize = 16;
        let rename = |flags| rustix::fs::renameat_with(CWD, &self.path, CWD, &self.target, flags);
        let mut last = Errno::EXIST;
        for _ in 0..ATTEMPT_COUNT_MAX {
            match rename(RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {}
                // File systems without the flags say INVAL. With nothing in the way, a plain
                // rename is as good: it refuses to replace a folder that is not empty.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    match fs::rename(&self.path, &self.target) {
                        Ok(()) => return Ok(()),
                        Err(error) if is_in_the_way(&error) => {}
                        Err(error) => {
                            return Err(Error::io("rename the build to", &self.target)(error));
                        }
                    }
                }
                Err(errno) => {
                    return Err(Error::io("rename the build to", &self.target)(errno.into()));
                }
            }
            match rename(RenameFlags::EXCHANGE) {
                Ok(()) => return Ok(()),
                Err(Errno::NOENT) => last = Errno::NOENT,
                Err(errno @ (Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::XDEV)) => {
                    let path = self.target.clone();
                    return Err(Error::CannotSwap { path, source: errno.into() });
                }
                Err(errno) => return Err(Error::io("replace", &self.target)(errno.into())),
            }
        }
        Err(Error::io("replace", &self.target)(last.into()))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        remove_folder(&self.path);
    }
}

/// What a plain rename says when a folder that is not empty has the name (POSIX allows either).
#[cfg(unix)]
fn is_in_the_way(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}

/// Follows a symbolic link, so that what is behind it is replaced and not the link.
pub(crate) fn resolve(out: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(out) {
        Ok(metadata) if metadata.is_symlink() => fs::canonicalize(out),
        _ => Ok(out.to_owned()),
    }
}

/// The folder that `target` stands in.
pub(crate) fn parent_of(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Refuses to replace anything but nothing, or a folder of entries that are `ours`.
pub(crate) fn check_entries(target: &Path, ours: &dyn Fn(&str) -> bool) -> Result<(), Error> {
    let occupied = |entry: &OsStr| Error::Occupied {
        path: target.to_owned(),
        entry: entry.to_string_lossy().chars().take(64).collect(),
    };
    let entries = match fs::read_dir(target) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(occupied(OsStr::new("a file")));
        }
        Err(error) => return Err(Error::io("list", target)(error)),
    };
    for entry in entries {
        let name = entry.map_err(Error::io("list", target))?.file_name();
        if !name.to_str().is_some_and(ours) {
            return Err(occupied(&name));
        }
    }
    Ok(())
}

/// Makes a folder that no other build can take for a leftover.
fn make_locked_folder(parent: &Path, prefix: &OsStr) -> Result<(PathBuf, File), Error> {
    // Each failure needs another build that sweeps in the instant between mkdir and lock.
    const ATTEMPT_COUNT_MAX: usize = 64;
    for _ in 0..ATTEMPT_COUNT_MAX {
        // Random, so that a name is never used twice: what we once made by a name, we may remove
        // by it. (Process ids repeat, even at one time across containers.)
        let nonce = RandomState::new().build_hasher().finish();
        let mut name = prefix.to_owned();
        name.push(format!("{nonce:016x}"));
        let path = parent.join(name);
        match DirBuilder::new().create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(Error::io("create", path)(error)),
        }
        let lock = match File::open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::io("open", path)(error)),
        };
        match lock.try_lock() {
            Ok(()) if still_names(&path, &lock) => return Ok((path, lock)),
            // Another build is removing it as a leftover.
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            // A file system without locks: others cannot lock it either, so none removes it.
            Err(TryLockError::Error(_)) => return Ok((path, lock)),
        }
    }
    let error = io::Error::new(io::ErrorKind::ResourceBusy, "too many builds at once");
    Err(Error::io("create a folder in", parent)(error))
}

/// Whether `path` still names the file or folder that `handle` has open.
pub(crate) fn still_names(path: &Path, handle: &File) -> bool {
    match (fs::symlink_metadata(path), handle.metadata()) {
        (Ok(now), Ok(then)) => (now.dev(), now.ino()) == (then.dev(), then.ino()),
        _ => false,
    }
}

/// Removes the hidden folders of builds that are dead. One that cannot be removed stays.
fn remove_leftovers(parent: &Path, prefix: &OsStr) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
            continue;
        }
        let path = entry.path();
        let Ok(folder) = File::open(&path) else { continue };
        // A living build holds the lock; while we hold it, none can take the folder for its own.
        if folder.try_lock().is_ok() && still_names(&path, &folder) {
            remove_folder(&path);
        }
    }
}

/// Removes a folder. One that cannot be removed now, the next build at its target removes.
fn remove_folder(path: &Path) {
    // Another build may be removing it too, so that files vanish under either of us.
    const ATTEMPT_COUNT_MAX: usize = 8;
    for _ in 0..ATTEMPT_COUNT_MAX {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound || path.exists() => {}
            _ => return,
        }
    }
}

/// Brings the names in a folder to the disk.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|folder| folder.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_abandoned_build_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let staging = Staging::new(&folder.path().join("t")).unwrap();
        staging.create_file("manifest.json").unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        drop(staging);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn leftovers_go_and_living_builds_stay() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t");
        let living = Staging::new(&target).unwrap();
        let dead = folder.path().join(".t.building-1-0");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("rows.safetensors"), "half").unwrap();
        let neighbour = folder.path().join(".tt.building-1-0");
        fs::create_dir(&neighbour).unwrap();

        let second = Staging::new(&target).unwrap();
        assert!(!dead.exists());
        assert!(neighbour.exists(), "the leftover of another target is not ours to remove");
        assert!(living.path.exists());
        living.commit().unwrap();
        second.commit().unwrap();
        assert_eq!(names(folder.path()), [".tt.building-1-0", "t"]);
    }

    #[test]
    fn only_bundles_and_empty_folders_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t");
        fs::create_dir(&target).unwrap();
        Staging::new(&target).unwrap().commit().unwrap();
        fs::write(target.join("thesis.tex"), "").unwrap();
        assert!(matches!(
            Staging::new(&target),
            Err(Error::Occupied { entry, .. }) if entry == "thesis.tex"
        ));
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(matches!(Staging::new(&file), Err(Error::Occupied { .. })));
        assert!(matches!(
            Staging::new(Path::new("/")),
            Err(Error::Occupied { .. } | Error::Unnamed { .. })
        ));
        assert!(matches!(
            Staging::new(&folder.path().join("no/such")),
            Err(Error::Io { action: "create", .. })
        ));
    }

    #[test]
    fn a_link_keeps_pointing_at_the_bundle() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("v1"), folder.path().join("current"));
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink("v1", &link).unwrap();
        let staging = Staging::new(&link).unwrap();
        staging.create_file("manifest.json").unwrap();
        staging.commit().unwrap();
        assert!(target.join("manifest.json").exists());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(folder.path()), ["current", "v1"]);
    }
}
