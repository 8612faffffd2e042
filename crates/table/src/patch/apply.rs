//! Makes the bundle of the next version.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::bundle::{self, Bundle};
use crate::codec::count_nonfinite;
use crate::error::Error;
use crate::manifest::{Manifest, ManifestSpec};
use crate::patch::{Patch, PatchError};
use crate::shape::BLOCK_ROWS;
use crate::staging::Staging;
use crate::system::MetadataExt;
use crate::table::Table;

/// Gives rows of the bundle at `base` new bytes, as served, and makes a bundle of the next version at `out`.
///
/// The bundle at `base` stays as it is (`out` may be `base`: then it is replaced in one step). The
/// rows that stay are shared by links where the file system has them, and copied where it has not.
/// A layout goes along, as one of the next version.
///
/// # Errors
/// As [`Patch::new`] and [`Table::open`], and [`Error::Occupied`] or [`Error::Io`] for a path that cannot be
/// written. On any error, what stood at `out` stands.
pub fn patch(base: &Path, ids: &[u64], rows: &[u8], out: &Path) -> Result<Manifest, Error> {
    let bundle = Bundle::open(base)?;
    let table = Table::map_with_file(base, &bundle)?;
    let (patch, below) = Patch::with_rows_below(&table, ids, rows)?;
    write(base, &bundle, &table, &patch, &below, out)
}

/// As [`patch`], with the rows of a patch that was made before, maybe elsewhere.
///
/// # Errors
/// As [`patch`], and [`Error::Patch`] for one of another version, or whose rows make another version than it says.
pub fn patch_with(base: &Path, patch: &Patch, out: &Path) -> Result<Manifest, Error> {
    let bundle = Bundle::open(base)?;
    let table = Table::map_with_file(base, &bundle)?;
    let broken = |source| Error::Patch { path: base.to_owned(), source };
    let expected = patch.base();
    if patch.shape() != table.shape()
        || ![table.version(), table.base_version()].contains(&expected)
    {
        return Err(broken(PatchError::Base { expected, found: table.version() }));
    }
    let (found, below) = super::proof::next_version(&table, patch)?;
    if found != patch.next() {
        return Err(broken(PatchError::Next { expected: patch.next(), found }));
    }
    write(base, &bundle, &table, patch, &below, out)
}

/// As [`patch_with`], with the patch in a file: the `rows.patch` of a patched bundle.
///
/// # Errors
/// As [`patch_with`], and [`Error::Patch`] or [`Error::Io`] for a file that is no patch.
pub fn patch_from(base: &Path, file: &Path, out: &Path) -> Result<Manifest, Error> {
    let open = File::open(file).map_err(Error::io("open", file))?;
    let bytes = bundle::read_patch_file(file, &open)?;
    let broken = |source| Error::Patch { path: file.to_owned(), source };
    patch_with(base, &Patch::from_bytes(&bytes).map_err(broken)?, out)
}

/// Makes a bundle at `out` that holds what `next` holds, as a patch of the bundle at `base`: of the rows that
/// differ, all of which are read.
///
/// # Errors
/// As [`patch`]: [`PatchError::Empty`] where no row differs and [`PatchError::TooMany`] where more do than a patch
/// holds; and [`PatchError::Shapes`] for tables of two shapes.
pub fn follow(base: &Path, next: &Table, out: &Path) -> Result<Manifest, Error> {
    let bundle = Bundle::open(base)?;
    let table = Table::map_with_file(base, &bundle)?;
    let shape = table.shape();
    let broken = |source| Error::Patch { path: base.to_owned(), source };
    if next.shape() != shape {
        return Err(broken(PatchError::Shapes { expected: shape, found: next.shape() }));
    }
    let (row_bytes, max) = (shape.row_bytes(), super::rows_max(shape.rows()));
    let (before, after) = (table.checked_rows()?, next.checked_rows()?);
    let (mut old, mut new) = (Vec::new(), Vec::new());
    let (mut ids, mut rows) = (Vec::new(), Vec::new());
    for first in (0..shape.rows()).step_by(BLOCK_ROWS) {
        let count = (shape.rows() - first).min(BLOCK_ROWS as u64) as usize;
        old.resize(count * row_bytes, 0);
        new.resize(count * row_bytes, 0);
        before.copy_rows(first, &mut old)?;
        after.copy_rows(first, &mut new)?;
        let pairs = old.chunks_exact(row_bytes).zip(new.chunks_exact(row_bytes));
        for (id, (_, new)) in (first..).zip(pairs).filter(|(_, (old, new))| old != new) {
            ids.push(id);
            rows.extend_from_slice(new);
        }
        if ids.len() as u64 > max {
            return Err(broken(PatchError::TooMany { found: ids.len() as u64, max }));
        }
    }
    let (patch, below) = Patch::with_rows_below(&table, &ids, &rows)?;
    if patch.next() != next.version() {
        let (expected, found) = (next.version(), patch.next());
        return Err(broken(PatchError::Next { expected, found }));
    }
    write(base, &bundle, &table, &patch, &below, out)
}

fn write(
    base: &Path,
    bundle: &Bundle,
    table: &Table,
    patch: &Patch,
    below: &[u8],
    out: &Path,
) -> Result<Manifest, Error> {
    let shape = table.shape();
    let staging = Staging::new(out)?;
    let files = [(bundle::ROWS, Some(&bundle.rows)), (bundle::SUMS, Some(&bundle.sums))];
    for (name, file) in files.into_iter().chain([(bundle::TREE, bundle.tree.as_ref())]) {
        let Some(file) = file else { continue };
        share(&base.join(name), file, &staging.file_path(name))?;
    }

    let nonfinite_count = count_after(table, patch, below)?;
    let write = |name: &str, bytes: &[u8]| {
        let mut file = staging.create_file(name)?;
        file.write_all(bytes)
            .and_then(|()| file.sync_all())
            .map_err(Error::io("write", staging.file_path(name)))
    };
    let bytes = patch.to_bytes();
    write(bundle::PATCH, &bytes)?;
    let manifest = Manifest::new(ManifestSpec {
        name: table.name().to_owned(),
        shape,
        content: patch.next(),
        row_sums: *table.manifest().row_sums(),
        nonfinite_count,
        created_from: table.manifest().created_from().to_owned(),
        patch: Some(*blake3::hash(&bytes).as_bytes()),
    });
    if let Some(layout) = table.layout() {
        let layout = layout
            .for_version(shape, patch.next())
            .map_err(|source| Error::Layout { path: base.join(bundle::LAYOUT), source })?;
        write(bundle::LAYOUT, layout.to_json().as_bytes())?;
        write(bundle::LAYOUT_MAP, &layout.map_bytes())?;
    }
    write(bundle::MANIFEST, manifest.to_json().as_bytes())?;
    staging.commit()?;
    Ok(manifest)
}

/// How many values are no finite number in `table` with the rows of `patch`, which are `below` without it.
fn count_after(table: &Table, patch: &Patch, below: &[u8]) -> Result<u64, Error> {
    let (shape, row_bytes) = (table.shape(), table.row_bytes());
    let count = |rows: &[u8]| count_nonfinite(shape.dtype(), shape.dim(), rows);
    // What goes, and what comes.
    let (mut old, mut less, mut more) = (below.to_vec(), 0, count(&patch.rows));
    let mut base_row = vec![0; row_bytes];
    for (id, row) in table.patch().into_iter().flat_map(|older| older.iter()) {
        match patch.ids.binary_search(&id) {
            Ok(place) => old[place * row_bytes..][..row_bytes].copy_from_slice(row),
            // A row that the older patch changes and this one does not is the base's again.
            Err(_) => {
                table.copy_scattered_rows(id, &mut base_row)?;
                (less, more) = (less + count(row), more + count(&base_row));
            }
        }
    }
    Ok((table.manifest().nonfinite_count() + more).saturating_sub(less + count(&old)))
}

/// Gives a file of a bundle, which nobody writes to any more, a second name, or copies it.
fn share(path: &Path, file: &File, to: &Path) -> Result<(), Error> {
    let is_it = || -> std::io::Result<bool> {
        let (linked, open) = (fs::symlink_metadata(to)?, file.metadata()?);
        Ok((linked.dev(), linked.ino()) == (open.dev(), open.ino()))
    };
    // The path may name another file by now, if a build has replaced the bundle.
    if fs::hard_link(path, to).is_ok() {
        if is_it().map_err(Error::io("read", to))? {
            return Ok(());
        }
        fs::remove_file(to).map_err(Error::io("remove", to))?;
    }
    let copy = || {
        // The system clones or copies within the kernel where it can.
        let mut from = file.try_clone()?;
        std::io::Seek::rewind(&mut from)?;
        let mut copy = File::create_new(to)?;
        std::io::copy(&mut from, &mut copy)?;
        copy.sync_all()
    };
    copy().map_err(Error::io("copy the rows to", to))
}
