//! A bundle's folder and the files in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, RowsError};
use crate::header;
use crate::layout::{LAYOUT_JSON_BYTES_MAX, Layout};
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::patch::{self, Patch, PatchError};
use crate::system::{self, FileExt, MetadataExt};
use crate::version::Hashing;
use crate::{sums, tree};

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const ROWS: &str = "rows.safetensors";
pub(crate) const SUMS: &str = "rows.sums";
/// What the version is the top of; bundles of format 1 have none.
pub(crate) const TREE: &str = "rows.tree";
/// Rows that were changed since the others were written.
pub(crate) const PATCH: &str = "rows.patch";
/// A bundle has both of these or neither.
pub(crate) const LAYOUT: &str = "layout.json";
pub(crate) const LAYOUT_MAP: &str = "layout.map";

/// Every file of a bundle; a folder with any other is not one.
pub(crate) const FILES: [&str; 7] = [MANIFEST, ROWS, SUMS, TREE, PATCH, LAYOUT, LAYOUT_MAP];

/// The files of a bundle whose manifest, sizes and headers agree.
pub(crate) struct Bundle {
    pub(crate) manifest: Manifest,
    pub(crate) rows: File,
    pub(crate) sums: File,
    /// None in format 1.
    pub(crate) tree: Option<File>,
    pub(crate) layout: Option<Arc<Layout>>,
    pub(crate) patch: Option<Arc<Patch>>,
}

impl Bundle {
    /// Opens the bundle at `path`.
    ///
    /// All files come from one folder, held open, even if a build swaps the path meanwhile.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // A swap can only make a file vanish if the folder that we hold was replaced and removed;
        // then the path names another folder. Each round needs one more whole build to finish.
        const ATTEMPT_COUNT_MAX: usize = 16;
        let mut attempt_count = 1;
        loop {
            let folder = open_folder(path)?;
            match Self::open_in(path, &folder) {
                Err(Error::MissingFile { .. } | Error::NotABundle { .. })
                    if attempt_count < ATTEMPT_COUNT_MAX && was_replaced(path, &folder) =>
                {
                    attempt_count += 1;
                }
                result => return result,
            }
        }
    }

    fn open_in(path: &Path, folder: &File) -> Result<Self, Error> {
        let manifest_file = open_file(path, folder, MANIFEST).map_err(|error| match error {
            Error::MissingFile { path, .. } => Error::NotABundle { path },
            other => other,
        })?;
        let manifest = read_manifest(path, &manifest_file)?;
        let shape = manifest.shape();

        let rows = open_file(path, folder, ROWS)?;
        let (size, head) = read_head(path, &rows, ROWS, header::DATA_OFFSET)?;
        header::check_header(shape, &head, size)
            .map_err(|source| Error::Rows { path: path.join(ROWS), source })?;

        let sums = open_file(path, folder, SUMS)?;
        let (size, head) = read_head(path, &sums, SUMS, sums::MARK.len())?;
        sums::check_sums(shape, &head, size)
            .map_err(|source| Error::Rows { path: path.join(SUMS), source })?;

        let layout = read_layout(path, folder, &manifest)?;
        let tree = match manifest.hashing() {
            Hashing::Blocks => None,
            Hashing::Tree => {
                let file = open_file(path, folder, TREE)?;
                let (found, head) = read_head(path, &file, TREE, tree::MARK.len())?;
                let expected = tree::Geometry::new(shape).file_bytes();
                let broken = |source| Err(Error::Rows { path: path.join(TREE), source });
                match (found == expected, head == tree::MARK) {
                    (false, _) => return broken(RowsError::FileSize { expected, found }),
                    (true, false) => return broken(RowsError::Tree),
                    (true, true) => Some(file),
                }
            }
        };
        let patch = read_patch(path, folder, &manifest)?;
        Ok(Self { manifest, rows, sums, tree, layout, patch })
    }
}

/// Opens the folder itself, as a handle that survives a rename.
fn open_folder(path: &Path) -> Result<File, Error> {
    system::open_folder(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => Error::NotABundle { path: path.to_owned() },
        _ => Error::io("open", path)(error),
    })
}

fn open_file(path: &Path, folder: &File, name: &'static str) -> Result<File, Error> {
    let file = system::open_in(folder, name).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::MissingFile { path: path.to_owned(), file: name },
        _ => Error::io("open", path.join(name))(error),
    })?;
    let metadata = file.metadata().map_err(Error::io("read the size of", path.join(name)))?;
    if !metadata.is_file() {
        return Err(Error::Rows { path: path.join(name), source: RowsError::NotAFile });
    }
    Ok(file)
}

fn read_manifest(path: &Path, file: &File) -> Result<Manifest, Error> {
    let path = path.join(MANIFEST);
    let mut bytes = Vec::new();
    // One byte past the limit is enough for the parser to say that there is too much.
    file.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Error::io("read", &path))?;
    Manifest::from_json(&bytes).map_err(|source| Error::Manifest { path, source })
}

/// The layout, if the bundle has one.
fn read_layout(
    path: &Path,
    folder: &File,
    manifest: &Manifest,
) -> Result<Option<Arc<Layout>>, Error> {
    let json_file = match open_file(path, folder, LAYOUT) {
        Ok(file) => file,
        Err(Error::MissingFile { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut json = Vec::new();
    let limit = LAYOUT_JSON_BYTES_MAX + 1;
    json_file.take(limit).read_to_end(&mut json).map_err(Error::io("read", path.join(LAYOUT)))?;
    let mut map_file = open_file(path, folder, LAYOUT_MAP)?;
    let mut map = Vec::new();
    map_file.read_to_end(&mut map).map_err(Error::io("read", path.join(LAYOUT_MAP)))?;
    let layout = Layout::from_files(&json, &map)
        .and_then(|layout| {
            layout.check_table(manifest.shape(), manifest.version()).map(|()| layout)
        })
        .map_err(|source| Error::Layout { path: path.join(LAYOUT), source })?;
    Ok(Some(Arc::new(layout)))
}

/// The changed rows, if the manifest says that there are.
fn read_patch(
    path: &Path,
    folder: &File,
    manifest: &Manifest,
) -> Result<Option<Arc<Patch>>, Error> {
    let Some(expected) = manifest.patch() else { return Ok(None) };
    let file = open_file(path, folder, PATCH)?;
    let path = path.join(PATCH);
    let bytes = read_patch_file(&path, &file)?;
    let broken = |source| Error::Patch { path: path.clone(), source };
    if blake3::hash(&bytes) != *expected {
        return Err(broken(PatchError::Checksum));
    }
    let patch = Patch::from_bytes(&bytes).map_err(broken)?;
    match patch.shape() == manifest.shape() && patch.next() == manifest.version() {
        true => Ok(Some(Arc::new(patch))),
        false => Err(broken(PatchError::Checksum)),
    }
}

/// All bytes of a patch's file, which is not larger than one can be.
pub(crate) fn read_patch_file(path: &Path, file: &File) -> Result<Vec<u8>, Error> {
    let size = file.metadata().map_err(Error::io("read the size of", path))?.len();
    if size > patch::FILE_BYTES_MAX {
        let (path, bytes) = (path.to_owned(), size);
        return Err(Error::Patch { path, source: PatchError::TooLarge { bytes } });
    }
    let mut bytes = Vec::new();
    file.take(patch::FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    Ok(bytes)
}

/// The size of a file and its first `count` bytes (fewer if it is shorter).
fn read_head(path: &Path, file: &File, name: &str, count: usize) -> Result<(u64, Vec<u8>), Error> {
    let read = || -> io::Result<(u64, Vec<u8>)> {
        let size = file.metadata()?.len();
        let mut head = vec![0; usize::try_from(size).unwrap_or(count).min(count)];
        file.read_exact_at(&mut head, 0)?;
        Ok((size, head))
    };
    read().map_err(Error::io("read", path.join(name)))
}

/// Whether `path` now names another folder than the one that was opened.
fn was_replaced(path: &Path, folder: &File) -> bool {
    match (path.metadata(), folder.metadata()) {
        (Ok(now), Ok(then)) => (now.dev(), now.ino()) != (then.dev(), then.ino()),
        _ => false,
    }
}
