//! The files of a folder, and the order in which they come and go.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hushtable_mpc::fill_random;
use zeroize::Zeroizing;

use super::sealed::{Contents, KEY_FILE_BYTES_MAX, check_of};
use super::spec::{Dropped, Listed, StoreError};

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
            _ => self.replace("check", &check_of(key)),
        }
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
    pub(super) fn commit(&self, id: &[u8; 16], key_file: &[u8]) -> Result<(), StoreError> {
        self.replace(&format!("{}.key", name(id)), key_file)
    }

    /// A precompute's key and what it is of.
    ///
    /// # Errors
    /// [`StoreError`]; within, what is wrong with the file.
    pub(super) fn contents(
        &self,
        store_key: &[u8; 32],
        id: &[u8; 16],
    ) -> Result<Result<Contents, &'static str>, StoreError> {
        let path = self.key(id);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Err("its key's file is gone"));
            }
            Err(source) => return Err(failed(&path)(source)),
        };
        let mut bytes = Vec::new();
        let most = KEY_FILE_BYTES_MAX as u64 + 1;
        file.take(most).read_to_end(&mut bytes).map_err(failed(&path))?;
        if bytes.len() as u64 == most {
            return Ok(Err("its key's file is too long"));
        }
        Ok(Contents::of_file(store_key, *id, &bytes))
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

    /// Deletes what interrupted processes left, and what is damaged. Gives what is whole, oldest first,
    /// and what was damaged.
    pub(super) fn sweep(
        &self,
        store_key: &[u8; 32],
    ) -> Result<(Vec<Listed>, Vec<Dropped>), StoreError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed(&self.path))? {
            let entry = entry.map_err(failed(&self.path))?;
            if let Some(name) = entry.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        let ids = |ending: &str| -> Vec<[u8; 16]> {
            names.iter().filter_map(|name| id_of(name.strip_suffix(ending)?)).collect()
        };
        let (mut ready, mut dropped) = (Vec::new(), Vec::new());
        let keys = ids(".key");
        for id in &keys {
            match self.check(store_key, id)? {
                Ok(listed) => ready.push(listed),
                Err(why) => {
                    self.delete(id)?;
                    dropped.push(Dropped { name: name(id), why: why.to_owned() });
                }
            }
        }
        // Of precomputes that were not committed, or that were taken.
        for id in ids(".data").iter().filter(|id| !keys.contains(id)) {
            self.delete_data(id)?;
        }
        for name in names.iter().filter(|name| name.ends_with(".new")) {
            if name == "check.new" || name.strip_suffix(".key.new").and_then(id_of).is_some() {
                remove(&self.path.join(name))?;
            }
        }
        self.sync()?;
        ready.sort_by_key(|listed| (listed.made, listed.head.id));
        Ok((ready, dropped))
    }

    /// One precompute as it is in the folder; within, what is wrong with it.
    fn check(
        &self,
        store_key: &[u8; 32],
        id: &[u8; 16],
    ) -> Result<Result<Listed, &'static str>, StoreError> {
        let contents = match self.contents(store_key, id)? {
            Ok(contents) => contents,
            Err(why) => return Ok(Err(why)),
        };
        match fs::metadata(self.data(id)) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Err("its data are gone"));
            }
            Err(source) => return Err(failed(&self.data(id))(source)),
            Ok(found) if found.len() != contents.data_bytes() => {
                return Ok(Err("its data were cut or have grown"));
            }
            Ok(_) => {}
        }
        let path = self.key(id);
        let made = fs::metadata(&path).and_then(|found| found.modified());
        let made = made.map_err(failed(&path))?;
        Ok(Ok(Listed { head: contents.head, bytes: contents.bytes(), made }))
    }

    /// A file of this name with these bytes, or as it was: never a part of it.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path.join(format!("{name}.new"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed(&path))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed(&path))?;
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
            match fs::remove_file(&new) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&new)(source));
                }
                _ => {}
            }
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let mut file = options.open(&new).map_err(failed(&new))?;
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
