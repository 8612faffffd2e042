//! Reads every byte of a bundle and says which rows are damaged.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;

use crate::bundle::{self, Bundle};
use crate::error::Error;
use crate::header::{DATA_OFFSET, encode_header};
use crate::sums;
use crate::table::Table;
use crate::tree;
use crate::version::ContentHasher;

/// How many damages a [`Report`] lists; it counts all of them.
const DAMAGED_LISTED_MAX: usize = 16;

/// What [`verify`] found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// How many rows were read.
    pub rows: u64,
    /// Whether every byte is as it was built.
    pub ok: bool,
    /// The first damages, at most 16, in row order.
    pub damaged: Vec<Damage>,
    /// How many damages there are in all.
    pub damaged_count: u64,
}

/// One damaged place of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub file: &'static str,
    /// The row; `None` when it is the file's header, or when no row can be named.
    pub row: Option<u64>,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.row {
            Some(row) => write!(f, "{}: row {row} is damaged", self.file),
            None => write!(f, "{}: damaged outside any single row", self.file),
        }
    }
}

/// Reads every byte of the bundle at `path` and checks it against the manifest.
///
/// A flipped bit in `rows.safetensors` or `rows.sums` is reported with its row. `progress` is
/// called with the rows done and the rows there are, about once a MiB.
///
/// # Errors
/// As [`Table::open`]: what makes a bundle impossible to open (a missing or truncated file, a
/// damaged manifest) is an error; damage to bytes that open does not read is in the [`Report`].
pub fn verify(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Error> {
    let bundle = Bundle::open(path)?;
    let table = Table::map(path, &bundle)?;
    let shape = table.shape();
    let sums_path = path.join(bundle::SUMS);
    let mut findings = Findings::default();

    if let Some((mapping, _)) = table.mappings() {
        mapping.advise_sequential();
        // Open reads the header's meaning, which the padding is no part of.
        if mapping[..DATA_OFFSET] != encode_header(shape) {
            findings.header = true;
        }
    }

    let hashing = bundle.manifest.hashing();
    // The rows that were built whole, which the sums and the tree are of, and those with the patch.
    let mut content = ContentHasher::new(shape, hashing);
    let mut patched = table.patch().map(|_| ContentHasher::new(shape, hashing));
    let tree = table.tree_mapping().map(|tree| &tree[..]);
    let (mut tree_at, mut is_tree_whole) = (tree::MARK.len(), true);
    let mut check_tree = |hashes: &[u8]| {
        let end = tree_at + hashes.len();
        is_tree_whole &= tree.is_none_or(|tree| tree.get(tree_at..end) == Some(hashes));
        tree_at = end;
        is_tree_whole
    };
    let mut row_sums = blake3::Hasher::new();
    let mut sums_file =
        SumsReader::new(&bundle.sums, &mut row_sums).map_err(Error::io("read", &sums_path))?;
    let (mut served, mut computed) = (Vec::new(), Vec::new());
    progress(0, shape.rows());
    for (first, count) in shape.chunks() {
        served.resize(count * shape.row_bytes(), 0);
        table.copy_base_rows(first, &mut served)?;
        content.update(&served);
        check_tree(&content.take_leaves());
        computed.clear();
        sums::append_sums(shape, &served, &mut computed);
        let stored =
            sums_file.next(computed.len(), &mut row_sums).map_err(Error::io("read", &sums_path))?;
        if stored != computed {
            let pairs = stored.chunks_exact(4).zip(computed.chunks_exact(4));
            for (row, (stored, computed)) in (first..).zip(pairs) {
                if stored != computed {
                    findings.push_row(row);
                }
            }
        }
        if let (Some(patched), Some(patch)) = (&mut patched, table.patch()) {
            patch.lay_over(first, &mut served);
            patched.update(&served);
            patched.take_leaves();
        }
        progress(first + count as u64, shape.rows());
    }

    let (leaves, levels, found) = content.finish_levels();
    let is_tree_ok = std::iter::once(&leaves).chain(&levels).all(|hashes| check_tree(hashes));
    let rows_ok = found == table.base_version();
    findings.tree = rows_ok && !is_tree_ok;
    findings.patch = rows_ok && patched.is_some_and(|patched| patched.finish() != table.version());
    let sums_ok = row_sums.finalize().as_bytes() == bundle.manifest.row_sums();
    Ok(findings.into_report(shape.rows(), rows_ok, sums_ok))
}

/// The damages found so far.
#[derive(Default)]
struct Findings {
    header: bool,
    tree: bool,
    patch: bool,
    /// Rows that do not match their sums: the first of them, and how many.
    rows: Vec<u64>,
    row_count: u64,
}

impl Findings {
    fn push_row(&mut self, row: u64) {
        if self.rows.len() < DAMAGED_LISTED_MAX {
            self.rows.push(row);
        }
        self.row_count += 1;
    }

    /// Says which file each mismatch is the damage of.
    fn into_report(self, rows: u64, rows_ok: bool, sums_ok: bool) -> Report {
        let mut damaged = Vec::new();
        let mut damaged_count = 0;
        let mut push = |file, row| {
            damaged_count += 1;
            damaged.push(Damage { file, row });
        };
        if self.header {
            push(bundle::ROWS, None);
        }
        if self.tree {
            push(bundle::TREE, None);
        }
        if self.patch {
            push(bundle::PATCH, None);
        }
        // With no mismatched row to name: rows in the wrong place, or a damaged mark.
        if !rows_ok && self.rows.is_empty() {
            push(bundle::ROWS, None);
        }
        if !sums_ok && (!rows_ok || self.rows.is_empty()) {
            push(bundle::SUMS, None);
        }
        // A row and its sum that disagree: the file that the manifest disowns is the damaged one.
        // With both disowned, the row cannot be trusted, whichever of the two it is.
        let file = if rows_ok { bundle::SUMS } else { bundle::ROWS };
        damaged.extend(self.rows.iter().map(|row| Damage { file, row: Some(*row) }));
        damaged_count += self.row_count;
        damaged.truncate(DAMAGED_LISTED_MAX);
        Report { rows, ok: damaged_count == 0, damaged, damaged_count }
    }
}

/// Reads `rows.sums` in step with the rows.
struct SumsReader<'a> {
    file: io::BufReader<&'a File>,
    buffer: Vec<u8>,
}

impl<'a> SumsReader<'a> {
    fn new(file: &'a File, hasher: &mut blake3::Hasher) -> io::Result<Self> {
        let mut reader = Self { file: io::BufReader::new(file), buffer: Vec::new() };
        reader.next(sums::MARK.len(), hasher)?;
        Ok(reader)
    }

    fn next(&mut self, byte_count: usize, hasher: &mut blake3::Hasher) -> io::Result<&[u8]> {
        self.buffer.resize(byte_count, 0);
        self.file.read_exact(&mut self.buffer)?;
        hasher.update(&self.buffer);
        Ok(&self.buffer)
    }
}
