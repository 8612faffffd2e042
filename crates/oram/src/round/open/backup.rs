//! Copies of a controller's folder, of one moment, made while rounds go on.
//!
//! A backup is the three files of the folder as they were between two rounds, and `backup.json`, which is
//! written last and says what they are. It has neither the key nor the root counter: whoever has a backup
//! has what the folder's disk shows anyway, and it cannot be opened as a controller, but only be gone on
//! from by [`salvage`](super::salvage), with new leaves.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::{Controller, Error, JOURNAL_FILE, SPEC_FILE, TREE_FILE, file};
use crate::disk::DiskError;
use crate::disk::file::{create_new, sync_folder_of};

/// What a backup's folder has last of all.
const MANIFEST_FILE: &str = "backup.json";
/// Which is this until then: what a backup that was cut short is known by.
const HALF_FILE: &str = "backup.json.new";
/// Of a manifest.
const FORMAT: u32 = 1;
/// More than any manifest has.
const MANIFEST_BYTES_MAX: u64 = 1 << 16;

/// What a backup is of: `backup.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackupManifest {
    /// Of this file: 1.
    pub format: u32,
    /// What wrote it.
    pub software: String,
    /// The table's name.
    pub table: String,
    /// The controller's instance, 64 hexadecimal digits.
    pub instance: String,
    /// Rounds committed.
    pub rounds: u64,
    /// Rounds that were ever begun.
    pub rounds_begun: u64,
    /// The files beside it, by name.
    pub files: BTreeMap<String, BackupFile>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackupFile {
    /// How long it is.
    pub bytes: u64,
    /// BLAKE3 of its bytes, 64 hexadecimal digits.
    pub blake3: String,
}

impl BackupManifest {
    /// Reads what the backup in `folder` is of.
    ///
    /// # Errors
    ///
    /// [`Error::BackupIncomplete`] for a folder without a manifest, or with that of another version.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let incomplete = || Error::BackupIncomplete { path: folder.to_owned() };
        let file = File::open(folder.join(MANIFEST_FILE)).map_err(|_| incomplete())?;
        let mut text = String::new();
        file.take(MANIFEST_BYTES_MAX).read_to_string(&mut text).map_err(|_| incomplete())?;
        let manifest: Self = serde_json::from_str(&text).map_err(|_| incomplete())?;
        let names = [SPEC_FILE, JOURNAL_FILE, TREE_FILE];
        let has_all = names.iter().all(|&name| manifest.files.contains_key(name));
        if manifest.format == FORMAT && has_all { Ok(manifest) } else { Err(incomplete()) }
    }

    /// Holds the files in `folder` against it; `progress` is told the bytes read and all of them.
    ///
    /// # Errors
    ///
    /// [`Error::BackupDamaged`], [`Error::File`].
    pub fn verify(&self, folder: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        let all = self.files.values().map(|file| file.bytes).sum();
        let mut before = 0;
        for name in [SPEC_FILE, JOURNAL_FILE, TREE_FILE] {
            let path = folder.join(name);
            let found = hash(&path, &mut |bytes| progress(before + bytes, all))?;
            if self.files.get(name) != Some(&found) {
                return Err(Error::BackupDamaged { path });
            }
            before += found.bytes;
        }
        Ok(())
    }

    fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(MANIFEST_FILE);
        let half = folder.join(HALF_FILE);
        let text = serde_json::to_vec_pretty(self).map_err(|_| Error::Record)?;
        fs::remove_file(&half).map_err(file(&half))?;
        write_new(&half, &text)?;
        fs::rename(&half, &path).map_err(file(&path))?;
        Ok(sync_folder_of(&path)?)
    }
}

/// A backup that is being made. It goes on where this is dropped, as long as the process does.
pub struct Backup {
    folder: PathBuf,
    done: Arc<AtomicU64>,
    all: u64,
    thread: Option<JoinHandle<Result<BackupManifest, Error>>>,
}

impl Backup {
    /// Where it is made.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Work done, and all of it.
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed).min(self.all), self.all)
    }

    /// Whether [`finish`](Self::finish) need not wait.
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// The disks; [`Error::BackupCut`] where the controller ended meanwhile. What is there then is
    /// no backup.
    pub fn finish(mut self) -> Result<BackupManifest, Error> {
        let cut = || Error::BackupCut { path: self.folder.clone() };
        let thread = self.thread.take().ok_or_else(cut)?;
        thread.join().unwrap_or_else(|_| Err(cut()))
    }
}

impl Controller {
    /// Begins a backup of this moment in `to`, a new folder or that of a backup that was cut short. Rounds
    /// may go on meanwhile; a thread copies.
    ///
    /// # Errors
    ///
    /// A round that is open, a backup that is being made ([`Error::Phase`]), a folder that holds something
    /// else, a disk without the space. The controller goes on in any case but that of its own disk.
    pub fn start_backup(&mut self, to: &Path) -> Result<Backup, Error> {
        self.check_idle("back up")?;
        if self.tap.is_open() {
            return Err(Error::Phase {
                call: "back up",
                phase: "being backed up",
                expected: "wait for the end of that backup",
            });
        }
        make_room(to)?;
        self.checkpoint()?;
        let spec_path = self.folder.join(SPEC_FILE);
        write_new(&to.join(SPEC_FILE), &fs::read(&spec_path).map_err(file(&spec_path))?)?;
        let journal_path = self.folder.join(JOURNAL_FILE);
        let mut journal = fs::read(&journal_path).map_err(file(&journal_path))?;
        journal.truncate(self.journal.bytes() as usize);
        write_new(&to.join(JOURNAL_FILE), &journal)?;
        let pages = self.raw.tree().pages();
        self.tap.begin(&to.join(TREE_FILE), pages)?;

        let (tap, store) = (self.tap.clone(), self.folder.join(TREE_FILE));
        let (folder, done) = (to.to_owned(), Arc::new(AtomicU64::new(0)));
        let mut manifest = BackupManifest {
            format: FORMAT,
            software: concat!("hushtable/", env!("CARGO_PKG_VERSION")).to_owned(),
            table: self.spec.name.clone(),
            instance: hex(self.journal.instance().bytes()),
            rounds: self.round,
            rounds_begun: self.begun,
            files: BTreeMap::new(),
        };
        let (told, shown) = (folder.clone(), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let copied = tap.finish(&store, pages, &|pages, _| {
                shown.store(pages, Ordering::Relaxed);
            });
            copied.map_err(|error| match error {
                DiskError::Poisoned { .. } => Error::BackupCut { path: told.clone() },
                error => error.into(),
            })?;
            // Of what is there now, not of what was meant to be.
            for name in [SPEC_FILE, JOURNAL_FILE, TREE_FILE] {
                let found = hash(&told.join(name), &mut |bytes| {
                    let read =
                        if name == TREE_FILE { bytes / crate::disk::PAGE_BYTES as u64 } else { 0 };
                    shown.store(pages + read, Ordering::Relaxed);
                })?;
                manifest.files.insert(name.to_owned(), found);
            }
            manifest.write(&told)?;
            Ok(manifest)
        });
        Ok(Backup { folder, done, all: 2 * pages, thread: Some(thread) })
    }
}

/// Makes the folder, or clears what a backup that was cut short has left in it.
fn make_room(to: &Path) -> Result<(), Error> {
    match fs::create_dir(to) {
        Ok(()) => {
            sync_folder_of(to)?;
            return write_new(&to.join(HALF_FILE), b"");
        }
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(file(to)(error));
        }
        Err(_) => {}
    }
    let ours = [SPEC_FILE, JOURNAL_FILE, TREE_FILE, HALF_FILE];
    let mut names = Vec::new();
    for entry in fs::read_dir(to).map_err(file(to))? {
        names.push(entry.map_err(file(to))?.file_name());
    }
    // A controller's own folder has the same names, but for the manifest that a backup begins with.
    let is_half = names.iter().any(|name| name == HALF_FILE);
    if !is_half || names.iter().any(|name| !ours.iter().any(|own| name == *own)) {
        return Err(Error::Exists { path: to.to_owned() });
    }
    for name in names.iter().filter(|&name| name != HALF_FILE) {
        let path = to.join(name);
        fs::remove_file(&path).map_err(file(&path))?;
    }
    Ok(())
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    use std::io::Write;

    let mut new = create_new(path)?;
    new.write_all(bytes).and_then(|()| new.sync_all()).map_err(file(path))
}

/// Reads a file through; `progress` is told the bytes read.
fn hash(path: &Path, progress: &mut dyn FnMut(u64)) -> Result<BackupFile, Error> {
    let mut from = File::open(path).map_err(file(path))?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.map_err(file(path))?,
        };
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        bytes += read as u64;
        progress(bytes);
    }
    Ok(BackupFile { bytes, blake3: hasher.finalize().to_hex().to_string() })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
