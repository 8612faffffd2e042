//! Puts a controller that was made anew in the place of the old one, in steps that can be gone on with.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::super::{Error, file};
use crate::disk::Faults;
use crate::disk::file::sync_folder_of;

/// In a folder that was made anew, once it is whole; gone again when it is in place.
const WHOLE_FILE: &str = "recovered";

/// The files of a recovery: of the folder, and of its root counter where that is a file.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The folder that is recovered, and the counter's file.
    places: Vec<PathBuf>,
}

/// Where `path` is made anew.
pub fn recovered_place(path: &Path) -> PathBuf {
    with_ending(path, ".recovered")
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn is_there(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(file(path))
}

impl Recovered {
    /// A recovery of `folder`, whose root counter is in the file `counter`, if it is in one.
    pub fn new(folder: &Path, counter: Option<&Path>) -> Self {
        let places = [Some(folder), counter].into_iter().flatten().map(Path::to_owned);
        Self { places: places.collect() }
    }

    fn folder(&self) -> &Path {
        &self.places[0]
    }

    /// What the old folder, or the old counter, is called afterwards.
    pub fn kept_place(path: &Path) -> PathBuf {
        with_ending(path, ".before-recovery")
    }

    /// Whether a recovery was cut short behind the point from which it goes on: the new folder is whole.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn is_whole(&self) -> Result<bool, Error> {
        is_there(&recovered_place(self.folder()).join(WHOLE_FILE))
    }

    /// Removes what a recovery that was cut short has left, and checks that nothing is where this one is
    /// going to put things.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] for what an earlier recovery kept; [`Error::File`].
    pub fn prepare(&self) -> Result<(), Error> {
        for place in &self.places {
            let kept = Self::kept_place(place);
            if is_there(&kept)? {
                return Err(Error::Kept { path: kept });
            }
        }
        for place in &self.places {
            let half = recovered_place(place);
            let removed = match fs::symlink_metadata(&half) {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&half),
                Ok(_) => fs::remove_file(&half),
                Err(_) => Ok(()),
            };
            removed.map_err(file(&half))?;
        }
        Ok(())
    }

    /// Says that the new folder is whole: from here on the recovery is gone on with, not begun again.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Disk`].
    pub fn note_whole(&self, faults: &Faults) -> Result<(), Error> {
        faults.step().allow()?;
        let path = recovered_place(self.folder()).join(WHOLE_FILE);
        File::create_new(&path).and_then(|file| file.sync_all()).map_err(file(&path))?;
        Ok(sync_folder_of(&path)?)
    }
}

/// Puts the new folder and the new counter in the old ones' places, which are kept under another name. After
/// a crash in between, the old folder is whole under one of its names and the new one too, and calling this
/// again goes on.
///
/// # Errors
///
/// [`Error::File`], [`Error::Disk`].
pub fn swap(recovered: &Recovered, faults: &Faults) -> Result<(), Error> {
    // The counter last but for the folder: while the folder is away nothing can be opened in its place.
    let folder = recovered.folder();
    let rename = |from: &Path, to: &Path| {
        faults.step().allow()?;
        fs::rename(from, to).map_err(file(from))?;
        Ok::<_, Error>(sync_folder_of(to)?)
    };
    let new = recovered_place(folder);
    if is_there(&new)? && is_there(folder)? {
        rename(folder, &Recovered::kept_place(folder))?;
    }
    for counter in &recovered.places[1..] {
        let new = recovered_place(counter);
        if is_there(&new)? {
            if is_there(counter)? {
                rename(counter, &Recovered::kept_place(counter))?;
            }
            rename(&new, counter)?;
        }
    }
    if is_there(&new)? {
        rename(&new, folder)?;
    }
    let whole = folder.join(WHOLE_FILE);
    match fs::remove_file(&whole) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file(&whole)(error)),
        _ => Ok(()),
    }
}
