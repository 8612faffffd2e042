//! The files of a folder, and the order in which they come and go.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hushtable_mpc::fill_random;
use zeroize::Zeroizing;

use super::identity::{Identity, identity};
use super::sealed::{Contents, KEY_FILE_BYTES_MAX, Seals, check_of, id_file};
use super::spec::{Cause, Listed, StoreError};

/// A folder that this process holds the lock of.
pub(super) struct Folder {
    path: PathBuf,
    /// Open, to make changes of names durable.
    handle: File,
    lock: File,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = failed(path);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(&failed)?;
        let lock_path = path.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&lock_path).map_err(self::failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked { folder: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(self::failed(&lock_path)(source)),
        }
        let handle = File::open(path).map_err(&failed)?;
        Ok(Self { path: path.to_owned(), handle, lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The lock's file, as a process has it that is forked now.
    #[cfg(test)]
    pub(super) fn inherit(&self) -> File {
        self.lock.try_clone().unwrap()
    }

    /// That the folder was made with this key; a new folder is from now on.
    pub(super) fn check_key(&self, key: &[u8; 32], key_path: &Path) -> Result<(), StoreError> {
        let path = self.path.join("check");
        match fs::read(&path) {
            Ok(found) if found == check_of(key) => Ok(()),
            // A folder that its maker did not finish has an empty one, or none.
            Ok(found) if !found.is_empty() => {
                Err(StoreError::WrongKey { folder: self.path.clone(), key: key_path.to_owned() })
            }
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed(&path)(source)),
            _ => self.replace("check", |_| Ok(check_of(key).to_vec())),
        }
    }

    /// The folder's id, and whether it has been this folder's; a folder that is new, or a copy, gets one of its own.
    pub(super) fn identify(&self, key: &[u8; 32]) -> Result<([u8; 16], bool), StoreError> {
        let path = self.path.join("id");
        match File::open(&path) {
            Ok(file) => {
                let own = identity(&file).map_err(failed(&path))?;
                let mut bytes = Vec::new();
                file.take(64).read_to_end(&mut bytes).map_err(failed(&path))?;
                if let Some(id) = bytes.first_chunk::<16>()
                    && bytes == id_file(key, id, &own)
                {
                    return Ok((*id, true));
                }
            }
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&path)(source));
            }
            Err(_) => {}
        }
        let mut id = [0; 16];
        fill_random(&mut id)?;
        self.replace("id", |file| Ok(id_file(key, &id, &file).to_vec()))?;
        Ok((id, false))
    }

    /// Makes a file for all records at once, so that a full disk is found out early.
    pub(super) fn create_data(&self, id: &[u8; 16], bytes: u64) -> Result<File, StoreError> {
        let path = self.data(id);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(failed(&path))?;
        file.set_len(bytes).map_err(failed(&path))?;
        Ok(file)
    }

    /// A precompute's data, and how many bytes there are.
    pub(super) fn open_data(&self, id: &[u8; 16]) -> Result<(File, u64), StoreError> {
        let path = self.data(id);
        let opened = File::open(&path).and_then(|file| {
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        });
        opened.map_err(failed(&path))
    }

    /// Puts a precompute's key in place: it may be taken from now on.
    pub(super) fn commit(
        &self,
        id: &[u8; 16],
        key_file: impl FnOnce(Identity) -> Result<Vec<u8>, StoreError>,
    ) -> Result<(), StoreError> {
        self.replace(&format!("{}.key", name(id)), key_file)
    }

    /// A precompute's key and what it is of, and its number in the ledger.
    ///
    /// # Errors
    /// [`StoreError`]; within, what is wrong with the file.
    pub(super) fn contents(
        &self,
        seals: &Seals,
        id: &[u8; 16],
    ) -> Result<Result<(Contents, u64), Cause>, StoreError> {
        let path = self.key(id);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Err(Cause::Damaged("its key's file is gone")));
            }
            Err(source) => return Err(failed(&path)(source)),
        };
        let own = identity(&file).map_err(failed(&path))?;
        let mut bytes = Vec::new();
        let most = KEY_FILE_BYTES_MAX as u64 + 1;
        file.take(most).read_to_end(&mut bytes).map_err(failed(&path))?;
        if bytes.len() as u64 == most {
            return Ok(Err(Cause::Damaged("its key's file is too long")));
        }
        Ok(Contents::of_file(seals, *id, &bytes, &own))
    }

    /// Deletes precomputes' keys, durably: nothing can use them from now on.
    pub(super) fn delete_keys(&self, ids: &[[u8; 16]]) -> Result<(), StoreError> {
        ids.iter().try_for_each(|id| remove(&self.key(id)))?;
        self.sync()
    }

    /// Deletes a precompute's data, which are nothing without its key.
    pub(super) fn delete_data(&self, id: &[u8; 16]) -> Result<(), StoreError> {
        remove(&self.data(id))
    }

    /// Deletes a precompute.
    pub(super) fn delete(&self, id: &[u8; 16]) -> Result<(), StoreError> {
        self.delete_keys(&[*id])?;
        self.delete_data(id)
    }

    /// All that was committed, and what is wrong with each.
    pub(super) fn survey(&self, seals: &Seals) -> Result<Vec<Surveyed>, StoreError> {
        let ids = ids_of(&self.names()?, ".key");
        ids.into_iter().map(|id| Ok((id, self.check(seals, &id)?))).collect()
    }

    /// Deletes these, and what interrupted processes left.
    pub(super) fn sweep(&self, dropped: impl Iterator<Item = [u8; 16]>) -> Result<(), StoreError> {
        for id in dropped {
            self.delete(&id)?;
        }
        let names = self.names()?;
        let keys: HashSet<_> = ids_of(&names, ".key").into_iter().collect();
        // Of precomputes that were not committed, or that were taken.
        for id in ids_of(&names, ".data").iter().filter(|id| !keys.contains(*id)) {
            self.delete_data(id)?;
        }
        for name in names.iter().filter_map(|name| name.strip_suffix(".new")) {
            let is_own = ["check", "id"].contains(&name)
                || name.strip_suffix(".key").and_then(id_of).is_some();
            if is_own {
                remove(&self.path.join(format!("{name}.new")))?;
            }
        }
        self.sync()
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed(&self.path))? {
            let entry = entry.map_err(failed(&self.path))?;
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    /// One precompute as it is in the folder, and its number in the ledger; within, what is wrong with it.
    fn check(
        &self,
        seals: &Seals,
        id: &[u8; 16],
    ) -> Result<Result<(Listed, u64), Cause>, StoreError> {
        let (contents, number) = match self.contents(seals, id)? {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        match fs::metadata(self.data(id)) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Err(DATA_GONE));
            }
            Err(source) => return Err(failed(&self.data(id))(source)),
            Ok(found) if found.len() != contents.data_bytes() => {
                return Ok(Err(DATA_LENGTH));
            }
            Ok(_) => {}
        }
        let path = self.key(id);
        let made = fs::metadata(&path).and_then(|found| found.modified());
        let made = made.map_err(failed(&path))?;
        Ok(Ok((Listed { head: contents.head, bytes: contents.bytes(), made }, number)))
    }

    /// A file of this name with the bytes that are made for its identity, or as it was: never a part of it.
    fn replace(
        &self,
        name: &str,
        bytes: impl FnOnce(Identity) -> Result<Vec<u8>, StoreError>,
    ) -> Result<(), StoreError> {
        let path = self.path.join(format!("{name}.new"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed(&path))?;
        let bytes = bytes(identity(&file).map_err(failed(&path))?)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed(&path))?;
        fs::rename(&path, self.path.join(name)).map_err(failed(&path))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.handle.sync_all().map_err(failed(&self.path))
    }

    fn key(&self, id: &[u8; 16]) -> PathBuf {
        self.path.join(format!("{}.key", name(id)))
    }

    pub(super) fn data(&self, id: &[u8; 16]) -> PathBuf {
        self.path.join(format!("{}.data", name(id)))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Closing it is not enough: a process that was forked meanwhile, by this program to run
        // another say, has the lock as well until it starts that one.
        let _ = self.lock.unlock();
    }
}

/// Reads the store's key, or makes one.
pub(super) fn store_key(path: &Path) -> Result<Zeroizing<[u8; 32]>, StoreError> {
    let mut key = Zeroizing::new([0; 32]);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            fill_random(&mut *key)?;
            // Whole or not at all: half a key, of a process that was killed, would be refused for ever.
            let mut new = path.as_os_str().to_owned();
            new.push(format!(".{}.new", std::process::id()));
            let new = PathBuf::from(new);
            let mut file = create_private(&new)?;
            file.write_all(&*key).and_then(|()| file.sync_all()).map_err(failed(&new))?;
            // Another's that was made meanwhile stays.
            fs::hard_link(&new, path).map_err(failed(path))?;
            fs::remove_file(&new).map_err(failed(&new))?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            File::open(parent).and_then(|folder| folder.sync_all()).map_err(failed(parent))?;
            return Ok(key);
        }
        Err(source) => return Err(failed(path)(source)),
    };
    let refused = |why: String| StoreError::KeyFile { path: path.to_owned(), why };
    let found = file.metadata().map_err(failed(path))?;
    if found.len() != key.len() as u64 {
        return Err(refused(format!("it has {} bytes, not {}", found.len(), key.len())));
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!("others may use it (mode {mode:o}): run chmod 600 on it");
        return Err(refused(why));
    }
    file.read_exact(&mut *key).map_err(failed(path))?;
    Ok(key)
}

/// A new file that only its owner may use, in the place of what an earlier process left there.
pub(super) fn create_private(path: &Path) -> Result<File, StoreError> {
    remove(path)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path).map_err(failed(path))
}

pub(super) fn failed(path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { path: path.clone(), source }
}

/// Deletes a file, if there is one.
fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed(path)(source)),
        _ => Ok(()),
    }
}

/// One that was committed, and its number in the ledger; within, what is wrong with it.
pub(super) type Surveyed = ([u8; 16], Result<(Listed, u64), Cause>);

pub(super) const DATA_GONE: Cause = Cause::Damaged("its data are gone");
pub(super) const DATA_LENGTH: Cause = Cause::Damaged("its data were cut or have grown");

/// Of which precomputes there are files of this ending.
fn ids_of(names: &[String], ending: &str) -> Vec<[u8; 16]> {
    names.iter().filter_map(|name| id_of(name.strip_suffix(ending)?)).collect()
}

pub(super) fn name(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a precompute's files, without the ending; none for other files.
fn id_of(name: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    let (pairs, odd) = name.as_bytes().as_chunks::<2>();
    if pairs.len() != id.len() || !odd.is_empty() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    // Only as `name` writes it: no capitals, no signs.
    (self::name(&id) == name).then_some(id)
}
