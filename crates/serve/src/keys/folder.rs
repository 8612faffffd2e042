//! Keys in files: `HEX.keys` in a folder, named by what they hash to.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hushtable_pir::onion::KeyId;
use hushtable_table::Version;

use crate::peer::random_u64;

/// A folder of keys. One server at a time may use it.
pub(super) struct Folder {
    path: PathBuf,
}

/// A file of keys found at the start.
pub(super) struct Found {
    pub id: KeyId,
    pub bytes: usize,
    pub modified: SystemTime,
}

/// A file that is written whole but not yet under its name: dropped, it is removed again.
pub(super) struct Aside {
    path: PathBuf,
}

impl Folder {
    /// Opens the folder, or makes it for this user only. What was left of writes that a crash
    /// interrupted is removed, and so are files of keys that cannot be: empty, or of more than
    /// `file_bytes_max` bytes. Returns what there is, used longest ago first, as far as the files'
    /// times tell.
    pub fn open(path: &Path, file_bytes_max: usize) -> io::Result<(Self, Vec<Found>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Some(file) = entry.file_name().to_str().and_then(Name::parse) else { continue };
            let facts = match entry.metadata() {
                Ok(facts) if facts.is_file() => facts,
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            match (file, usize::try_from(facts.len())) {
                (Name::Keys(id), Ok(bytes)) if (1..=file_bytes_max).contains(&bytes) => {
                    found.push(Found { id, bytes, modified: facts.modified()? });
                }
                (Name::Keys(_), _) => {
                    tracing::warn!(
                        bytes = facts.len(),
                        "a file of keys of no possible size is dropped"
                    );
                    fs::remove_file(entry.path())?;
                }
                (Name::Aside, _) => fs::remove_file(entry.path())?,
            }
        }
        found.sort_by_key(|found| (found.modified, found.id));
        Ok((Self { path: path.to_owned() }, found))
    }

    /// Writes keys to disk, all but the name.
    pub fn write(&self, id: &KeyId, bytes: &[u8]) -> io::Result<Aside> {
        let random = random_u64().map_err(io::Error::other)?;
        let aside = Aside { path: self.path.join(format!("{id}{SUFFIX}.{random:016x}{ASIDE}")) };
        let mut file = File::create_new(&aside.path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(aside)
    }

    /// Gives keys their name.
    pub fn name(&self, id: &KeyId, aside: Aside) -> io::Result<()> {
        // The name taken, there is nothing left to remove.
        fs::rename(&aside.path, self.of(id))
    }

    /// Makes names outlast a loss of power.
    pub fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Reads keys, no more than `bytes_max` and one byte of them.
    pub fn read(&self, id: &KeyId, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(bytes_max);
        File::open(self.of(id))?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Notes that keys were used.
    pub fn touch(&self, id: &KeyId, now: SystemTime) -> io::Result<()> {
        File::open(self.of(id))?.set_modified(now)
    }

    pub fn remove(&self, id: &KeyId) -> io::Result<()> {
        match fs::remove_file(self.of(id)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn of(&self, id: &KeyId) -> PathBuf {
        self.path.join(format!("{id}{SUFFIX}"))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Mostly it has its name by now. If it stays, the next start removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// What a name in the folder stands for.
enum Name {
    Keys(KeyId),
    Aside,
}

impl Name {
    /// `None` for a file that is none of the store's.
    fn parse(name: &str) -> Option<Self> {
        let hex = name.get(..HEX_DIGITS)?;
        let is_lower = hex.bytes().all(|digit| !digit.is_ascii_uppercase());
        // An id is written as a version is.
        let id = hex.parse::<Version>().ok().filter(|_| is_lower)?;
        match name.get(HEX_DIGITS..)?.strip_prefix(SUFFIX)? {
            "" => Some(Self::Keys(KeyId::from(*id.as_bytes()))),
            rest => rest.ends_with(ASIDE).then_some(Self::Aside),
        }
    }
}

const HEX_DIGITS: usize = 64;
const SUFFIX: &str = ".keys";
const ASIDE: &str = ".aside";
