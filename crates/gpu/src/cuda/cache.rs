//! Compiled modules, kept in the user's cache folder.
//!
//! A file is a line that names the format, the content's length and BLAKE3 hash, and the content. One
//! that is cut or altered is as good as none, and is written anew.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FORMAT: &[u8; 16] = b"hushtable-cubin1";
const HEADER_BYTES: usize = FORMAT.len() + 8 + blake3::OUT_LEN;

/// A folder of compiled modules.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The one in `folder`, which need not be there.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// What is stored for `key`, if it is whole.
    pub(super) fn load(&self, key: &blake3::Hash) -> Option<Vec<u8>> {
        let mut bytes = fs::read(self.path(key)).ok()?;
        let (header, content) = bytes.split_at_checked(HEADER_BYTES)?;
        (header == head(content)).then(|| bytes.split_off(HEADER_BYTES))
    }

    /// Stores what was compiled for `key`; whoever reads meanwhile finds the old or the new.
    pub(super) fn store(&self, key: &blake3::Hash, content: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&head(content))?;
        file.write_all(content)?;
        file.persist(self.path(key))?;
        Ok(())
    }

    fn path(&self, key: &blake3::Hash) -> PathBuf {
        self.folder.join(format!("{}.cubin", key.to_hex()))
    }
}

fn head(content: &[u8]) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    let (format, rest) = head.split_at_mut(FORMAT.len());
    let (length, hash) = rest.split_at_mut(8);
    format.copy_from_slice(FORMAT);
    length.copy_from_slice(&(content.len() as u64).to_le_bytes());
    hash.copy_from_slice(blake3::hash(content).as_bytes());
    head
}

/// `$XDG_CACHE_HOME/hushtable/kernels`, or under `~/.cache`; none for a user without a home.
pub fn user_folder() -> Option<PathBuf> {
    folder_of(env::var_os("XDG_CACHE_HOME").map(PathBuf::from), env::home_dir())
}

fn folder_of(xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    // The XDG base directory specification has relative paths ignored.
    let absolute = |path: &PathBuf| Path::is_absolute(path);
    let base = xdg.filter(absolute).or_else(|| Some(home.filter(absolute)?.join(".cache")))?;
    Some(base.join("hushtable/kernels"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::{Cache, HEADER_BYTES, folder_of};

    #[test]
    fn what_is_stored_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::new(folder.path().join("deep/er"));
        let (one, other) = (blake3::hash(b"1"), blake3::hash(b"2"));
        assert_eq!(cache.load(&one), None);
        cache.store(&one, b"a kernel").expect("stored");
        cache.store(&one, b"a better kernel").expect("stored again");
        assert_eq!(cache.load(&one).as_deref(), Some(&b"a better kernel"[..]));
        assert_eq!(cache.load(&other), None);
        let left: Vec<_> = fs::read_dir(folder.path().join("deep/er")).expect("there").collect();
        assert_eq!(left.len(), 1, "nothing half-written stays: {left:?}");
    }

    #[test]
    fn damage_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::new(folder.path().to_owned());
        let key = blake3::hash(b"1");
        cache.store(&key, b"content").expect("stored");
        let whole = fs::read(cache.path(&key)).expect("there");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(cache.path(&key), bytes).expect("written");
            assert_eq!(cache.load(&key), None, "byte {at} altered");
        }
        for length in [0, 3, HEADER_BYTES, whole.len() - 1] {
            fs::write(cache.path(&key), &whole[..length]).expect("written");
            assert_eq!(cache.load(&key), None, "cut to {length} bytes");
        }
        cache.store(&key, b"content").expect("stored anew");
        assert_eq!(cache.load(&key).as_deref(), Some(&b"content"[..]));
    }

    #[test]
    fn the_folder_is_the_users() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(folder_of(path("/x"), path("/home/a")), path("/x/hushtable/kernels"));
        let home = path("/home/a/.cache/hushtable/kernels");
        assert_eq!(folder_of(None, path("/home/a")), home);
        assert_eq!(folder_of(path("x"), path("/home/a")), home);
        assert_eq!(folder_of(None, None), None);
    }
}
