//! Which bytes of a model's files a shard needs, and a front.

use std::ops::Range;
use std::path::PathBuf;

use super::{MapScheme, ShardMap};
use crate::bundle;
use crate::error::Error;
use crate::header::{DATA_OFFSET, scales_bytes};
use crate::model::{Model, ModelManifest, places};
use crate::shape::BLOCK_ROWS;
use crate::sums;
use crate::table::Table;
use crate::tree::Geometry;

/// Some of a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written out for whoever copies them")]
pub struct FilePiece {
    /// The file, relative to the model's folder.
    pub path: PathBuf,
    /// Bytes of the whole file: what is not copied stays a hole.
    pub file_bytes: u64,
    /// Where the bytes begin.
    pub first: u64,
    /// How many there are.
    pub bytes: u64,
}

/// A file that a copy of a model has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written out for whoever copies them")]
pub struct FileHead {
    /// The file, relative to the model's folder.
    pub path: PathBuf,
    /// How many of its first bytes the model cannot be opened without; none: all.
    pub bytes: Option<u64>,
}

impl ShardMap {
    /// Every file that each shard and front has of a model, with the bytes that it takes to open it:
    /// then [`pieces`](Self::pieces) says of what is left what is needed. Files are as long as the
    /// model's own.
    pub fn heads(&self, model: &ModelManifest) -> Vec<FileHead> {
        let mut heads = Vec::new();
        let mut push = |path: PathBuf, bytes: Option<u64>| heads.push(FileHead { path, bytes });
        push(places::MANIFEST.into(), None);
        push(self.scheme().place().into(), None);
        if model.dense().is_some() {
            push(places::DENSE.into(), Some(0));
        }
        for (table, of_model) in self.tables().iter().zip(model.tables()) {
            let folder = places::table(&of_model.name);
            push(folder.join(bundle::MANIFEST), None);
            if of_model.layout.is_some() {
                push(folder.join(bundle::LAYOUT), None);
                push(folder.join(bundle::LAYOUT_MAP), None);
            }
            if table.patch.is_some() {
                push(folder.join(bundle::PATCH), None);
            }
            push(folder.join(bundle::ROWS), Some(DATA_OFFSET as u64));
            push(folder.join(bundle::SUMS), Some(sums::MARK.len() as u64));
            push(folder.join(bundle::TREE), Some(crate::tree::MARK.len() as u64));
            if table.prepared.is_some() {
                push(places::prepared(&of_model.name), Some(0));
            }
        }
        heads
    }

    /// The bytes of the model's files that shard `shard` needs, or with none, a front, which has no
    /// rows. The small files are in it whole, so that what is copied opens as the model does.
    ///
    /// A table whose layout's bins are served is needed whole by every shard that serves some: a bin
    /// has rows from all over it. Servers that are asked alone serve no bins. Of their prepared files, what
    /// knows the columns has the bytes.
    ///
    /// # Errors
    /// [`Error::ShardMap`] for a shard that there is not; the errors of tables that do not open.
    pub fn pieces(&self, model: &Model, shard: Option<usize>) -> Result<Vec<FilePiece>, Error> {
        let mut pieces = Pieces { model, all: Vec::new() };
        if let Some(shard) = shard {
            self.shard(shard).map_err(|source| {
                let path = model.path().join(self.scheme().place());
                Error::ShardMap { path, source }
            })?;
        }
        pieces.whole(places::MANIFEST.into())?;
        pieces.whole(self.scheme().place().into())?;
        if model.manifest().dense().is_some() {
            pieces.whole(places::DENSE.into())?;
        }
        for (index, table) in self.tables().iter().enumerate() {
            let folder = places::table(&table.name);
            let opened = model.table(index)?;
            pieces.whole(folder.join(bundle::MANIFEST))?;
            if opened.layout().is_some() {
                pieces.whole(folder.join(bundle::LAYOUT))?;
                pieces.whole(folder.join(bundle::LAYOUT_MAP))?;
            }
            if opened.patch().is_some() {
                pieces.whole(folder.join(bundle::PATCH))?;
            }
            let rows = shard.and_then(|shard| self.blocks_of(shard, index));
            match self.is_whole(shard, opened.layout().is_some()) {
                true => {
                    for name in [bundle::ROWS, bundle::SUMS, bundle::TREE] {
                        pieces.whole(folder.join(name))?;
                    }
                }
                false => pieces.of_rows(&folder, &opened, rows),
            }
        }
        Ok(pieces.all)
    }

    /// The rows that a shard has of a table, in whole blocks: others cannot be checked.
    pub(super) fn blocks_of(&self, shard: usize, table: usize) -> Option<Range<u64>> {
        let rows = self.rows_of(shard, table)?;
        Some(whole_blocks(rows, self.tables()[table].rows))
    }

    /// Whether a shard has all rows of a table, for its layout.
    pub(super) fn is_whole(&self, shard: Option<usize>, has_layout: bool) -> bool {
        shard.is_some() && has_layout && self.scheme() == MapScheme::Pair
    }
}

/// The blocks of rows, of which a table has `all`, that these rows are in: what can be read and checked alone
/// ([`Table::reading_of`]).
pub fn whole_blocks(rows: Range<u64>, all: u64) -> Range<u64> {
    let block = BLOCK_ROWS as u64;
    rows.start / block * block..rows.end.next_multiple_of(block).min(all)
}

struct Pieces<'a> {
    model: &'a Model,
    all: Vec<FilePiece>,
}

impl Pieces<'_> {
    fn whole(&mut self, path: PathBuf) -> Result<(), Error> {
        let file = self.model.path().join(&path);
        let bytes = file.metadata().map_err(Error::io("read the size of", &file))?.len();
        self.all.push(FilePiece { path, file_bytes: bytes, first: 0, bytes });
        Ok(())
    }

    /// The heads of a table's large files, and of its rows those of a range.
    fn of_rows(&mut self, folder: &std::path::Path, table: &Table, rows: Option<Range<u64>>) {
        let shape = table.shape();
        let mut piece = |name: &str, file_bytes: u64, first: u64, bytes: u64| {
            let path = folder.join(name);
            self.all.push(FilePiece { path, file_bytes, first, bytes });
        };
        let rows_bytes = DATA_OFFSET as u64 + shape.content_bytes();
        piece(bundle::ROWS, rows_bytes, 0, DATA_OFFSET as u64);
        piece(bundle::SUMS, sums::file_bytes(shape), 0, sums::MARK.len() as u64);
        let tree = Geometry::new(shape);
        let tree_bytes = tree.file_bytes();
        piece(bundle::TREE, tree_bytes, 0, crate::tree::MARK.len() as u64);
        let Some(rows) = rows else { return };
        // A shard that has all rows may be served as the whole table, which is held against its leaves' hashes.
        let levels = match rows == (0..shape.rows()) {
            true => crate::tree::MARK.len() as u64,
            false => tree.level_offset(0) as u64,
        };
        piece(bundle::TREE, tree_bytes, levels, tree_bytes - levels);
        let mut range = |start: u64, width: u64| {
            let (first, count) = (rows.start, rows.end - rows.start);
            let at = DATA_OFFSET as u64 + start + first * width;
            piece(bundle::ROWS, rows_bytes, at, count * width);
        };
        let dtype = shape.dtype();
        match dtype.scales_bytes(shape.dim()) as u64 {
            0 => range(0, shape.row_bytes() as u64),
            scales => {
                range(0, scales);
                range(scales_bytes(shape), dtype.codes_bytes(shape.dim()) as u64);
            }
        }
    }
}
