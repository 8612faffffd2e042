//! The version that comes of changed rows, through the tree of hashes.

use crate::bundle;
use crate::error::{Error, RowsError};
use crate::parts::in_parts;
use crate::patch::{Patch, PatchError};
use crate::shape::BLOCK_ROWS;
use crate::table::Table;
use crate::tree::{self, FANOUT, Geometry, HASH_BYTES, LEAF_BYTES};
use crate::version::{BlockHash, Version};

/// Leaves that are read at a time: what they take stays in the second-level cache.
const LEAVES_AT_ONCE: usize = 128;
/// Fewer leaves, or nodes with something below them, than these are hashed in less time than a thread takes to start.
const LEAVES_LEAST: usize = 128;
const FAMILIES_LEAST: usize = 256;

/// A place in a level of the tree, and the hash that it gets.
type Changed = (usize, BlockHash);

/// The version of the rows below `table`'s patch with those of `patch` laid over. Checks what it reads: the
/// leaves around the changed rows, and every hash on the way from them to the version below.
///
/// With it come the rows that change, as they are below.
pub(super) fn next_version(table: &Table, patch: &Patch) -> Result<(Version, Vec<u8>), Error> {
    let Some(stored) = table.tree_mapping() else {
        return Err(Error::Patch { path: super::path_of(table), source: PatchError::NoTree });
    };
    let shape = table.shape();
    let geometry = Geometry::new(shape);
    let broken = || table.rows_error(bundle::TREE, RowsError::Tree);

    let touched = touched_leaves(&geometry, patch);
    let stored_leaves = stored[tree::MARK.len()..].as_chunks::<HASH_BYTES>().0;
    let parts = in_parts(&touched, LEAVES_LEAST, |touched| {
        let mut leaves = Leaves {
            table,
            patch,
            geometry: &geometry,
            stored: stored_leaves,
            changed: Vec::with_capacity(touched.len()),
            before: Vec::with_capacity(touched.len() * shape.row_bytes()),
            rows: Vec::with_capacity(2 * LEAVES_AT_ONCE * LEAF_BYTES),
        };
        touched.chunks(LEAVES_AT_ONCE).try_for_each(|touched| leaves.read(touched))?;
        Ok::<_, Error>((leaves.changed, leaves.before))
    });
    let (mut changed, mut before) = (Vec::with_capacity(touched.len()), Vec::new());
    for part in parts {
        let part = part?;
        changed.extend(part.0);
        before.extend(part.1);
    }

    let mut below = &stored_leaves[..geometry.leaves];
    for (level, &width) in geometry.levels.iter().enumerate() {
        let above = stored[geometry.level_offset(level)..].as_chunks::<HASH_BYTES>().0;
        let step = match level {
            0 => Step { below, above, fanout: geometry.block_leaves, hash: tree::hash_blocks },
            _ => Step { below, above, fanout: FANOUT, hash: tree::hash_nodes },
        };
        changed = step.take(&changed).ok_or_else(broken)?;
        below = &above[..width];
    }
    let top = &stored[geometry.level_offset(geometry.levels.len() - 1)..][..HASH_BYTES];
    if tree::hash_root(shape, top) != patch.base() {
        return Err(broken());
    }
    match stored.is_lost() {
        true => Err(table.rows_error(bundle::TREE, RowsError::Lost)),
        false => Ok((tree::hash_root(shape, &changed[0].1), before)),
    }
}

/// From one level of the tree to the next.
struct Step<'a> {
    /// The hashes that are stored of the level below, and those of the level above, which may go on.
    below: &'a [BlockHash],
    above: &'a [BlockHash],
    /// How many of those below are under one above.
    fanout: usize,
    hash: fn(&[&[u8]]) -> Vec<BlockHash>,
}

impl Step<'_> {
    /// What changes above, of what changes below; places ascend. `None` where a stored hash above is not that of
    /// what is stored under it.
    fn take(&self, changed: &[Changed]) -> Option<Vec<Changed>> {
        let same_parent = |a: &Changed, b: &Changed| a.0 / self.fanout == b.0 / self.fanout;
        let families: Vec<&[Changed]> = changed.chunk_by(same_parent).collect();
        let parts = in_parts(&families, FAMILIES_LEAST, |families| self.take_part(families));
        Some(parts.into_iter().collect::<Option<Vec<_>>>()?.concat())
    }

    fn take_part(&self, families: &[&[Changed]]) -> Option<Vec<Changed>> {
        let parents: Vec<usize> = families.iter().map(|family| family[0].0 / self.fanout).collect();
        let under = |&parent: &usize| {
            let first = parent * self.fanout;
            &self.below[first..self.below.len().min(first + self.fanout)]
        };
        let old: Vec<&[u8]> = parents.iter().map(|it| under(it).as_flattened()).collect();
        let is_whole = |(hash, &parent): (&BlockHash, &usize)| self.above.get(parent) == Some(hash);
        if !(self.hash)(&old).iter().zip(&parents).all(is_whole) {
            return None;
        }
        let mut new = old.concat();
        let mut rest = &mut new[..];
        for ((family, parent), old) in families.iter().zip(&parents).zip(&old) {
            let (own, after) = rest.split_at_mut(old.len());
            for (place, hash) in *family {
                let at = (place - parent * self.fanout) * HASH_BYTES;
                own[at..at + HASH_BYTES].copy_from_slice(hash);
            }
            rest = after;
        }
        let mut rest = &new[..];
        let new: Vec<&[u8]> =
            old.iter().map(|old| rest.split_off(..old.len())).collect::<Option<_>>()?;
        Some(parents.into_iter().zip((self.hash)(&new)).collect())
    }
}

/// The leaves that hold a byte of a changed row, ascending.
fn touched_leaves(geometry: &Geometry, patch: &Patch) -> Vec<usize> {
    let row_bytes = patch.shape().row_bytes();
    let mut leaves: Vec<usize> = Vec::with_capacity(patch.ids().len());
    for &id in patch.ids() {
        let (block, row) = (id as usize / BLOCK_ROWS, id as usize % BLOCK_ROWS);
        let (start, end) = (row * row_bytes, (row + 1) * row_bytes);
        for leaf in start / LEAF_BYTES..end.div_ceil(LEAF_BYTES) {
            let leaf = block * geometry.block_leaves + leaf;
            if leaves.last() != Some(&leaf) {
                leaves.push(leaf);
            }
        }
    }
    leaves
}

/// What is read of the table on the way.
struct Leaves<'a> {
    table: &'a Table,
    patch: &'a Patch,
    geometry: &'a Geometry,
    /// Their hashes as stored.
    stored: &'a [BlockHash],
    /// Of those read: their hashes with the changed rows in them.
    changed: Vec<Changed>,
    /// The rows that change, as they are below the patch.
    before: Vec<u8>,
    /// The rows that the leaves at hand lie in.
    rows: Vec<u8>,
}

impl Leaves<'_> {
    /// Hashes leaves without the changed rows, which checks them, and with.
    fn read(&mut self, touched: &[usize]) -> Result<(), Error> {
        let shape = self.table.shape();
        let row_bytes = shape.row_bytes();
        self.rows.clear();
        // Where in them each leaf is, and its first row; where in them each changed row goes.
        let mut spans = Vec::with_capacity(touched.len());
        let mut changes = Vec::with_capacity(touched.len());
        let block_of = |leaf: &usize| leaf / self.geometry.block_leaves;
        // Leaves side by side are read together: a row may lie in many.
        for run in touched.chunk_by(|a, b| a + 1 == *b && block_of(a) == block_of(b)) {
            let block = block_of(&run[0]);
            let start = run[0] % self.geometry.block_leaves * LEAF_BYTES;
            let block_rows = (shape.rows() as usize - block * BLOCK_ROWS).min(BLOCK_ROWS);
            let end = (start + run.len() * LEAF_BYTES).min(block_rows * row_bytes);
            let (first, last) = (start / row_bytes, end.div_ceil(row_bytes));
            let row = (block * BLOCK_ROWS + first) as u64;
            let at = self.rows.len();
            self.rows.resize(at + (last - first) * row_bytes, 0);
            self.table.copy_scattered_rows(row, &mut self.rows[at..])?;
            // A row that begins before the run has been read with the leaf before.
            let begins = row + (start - first * row_bytes).div_ceil(row_bytes) as u64;
            for place in self.patch.places_in(row..row + (last - first) as u64) {
                let id = self.patch.ids()[place];
                let from = at + (id - row) as usize * row_bytes;
                if id >= begins {
                    self.before.extend_from_slice(&self.rows[from..from + row_bytes]);
                }
                changes.push((place, from));
            }
            let skip = at + start - first * row_bytes;
            let stop = skip + end - start;
            let leaves = (skip..stop).step_by(LEAF_BYTES);
            spans.extend(leaves.map(|from| (row, from..(from + LEAF_BYTES).min(stop))));
        }
        let hash = |rows: &[u8]| {
            let pieces: Vec<&[u8]> = spans.iter().map(|(_, span)| &rows[span.clone()]).collect();
            tree::hash_leaves(&pieces)
        };
        for ((hash, &leaf), &(row, _)) in hash(&self.rows).iter().zip(touched).zip(&spans) {
            if self.stored.get(leaf) != Some(hash) {
                return Err(self.table.rows_error(bundle::ROWS, RowsError::Row { row }));
            }
        }
        for (place, at) in changes {
            self.rows[at..at + row_bytes].copy_from_slice(self.patch.row(place));
        }
        self.changed.extend(touched.iter().copied().zip(hash(&self.rows)));
        Ok(())
    }
}
