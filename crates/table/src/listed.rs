//! Which files a bundle has: what else lies in its folder is none of it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::bundle;
use crate::error::Error;
use crate::model::{ModelManifest, places};

/// The first file in the folder of a bundle, of a table or a model, that no bundle of its manifest has, relative to the
/// folder; None where all are the bundle's.
///
/// # Errors
/// [`Error::Io`] for a folder that cannot be read; those of a model's manifest.
pub fn unlisted(folder: &Path) -> Result<Option<PathBuf>, Error> {
    let mut listed = HashSet::new();
    if folder.join(places::MANIFEST).is_file() {
        let manifest = ModelManifest::read(folder)?;
        let own = [places::MANIFEST, places::DENSE, places::SHARDS, places::SHARDS_ONION];
        listed.extend(own.map(PathBuf::from));
        for table in manifest.tables() {
            let place = places::table(&table.name);
            listed.extend(bundle::FILES.map(|file| place.join(file)));
            listed.insert(places::prepared(&table.name));
        }
    } else {
        listed.extend(bundle::FILES.map(PathBuf::from));
    }
    let mut files = Vec::new();
    list(folder, Path::new(""), &mut files).map_err(Error::io("read", folder))?;
    files.sort();
    Ok(files.into_iter().find(|file| !listed.contains(file) && !is_plan(file)))
}

fn is_plan(file: &Path) -> bool {
    let is_of = |scheme: &&str| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.ends_with(&places::plan_ending(scheme))
    };
    file.parent() == Some(Path::new(places::PLANS)) && places::PLAN_SCHEMES.iter().any(is_of)
}

fn list(folder: &Path, within: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder.join(within))? {
        let entry = entry?;
        let path = within.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => list(folder, &path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
