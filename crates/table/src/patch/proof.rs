//! The version that comes of changed rows, through the tree of hashes.

use crate::bundle;
use crate::error::{Error, RowsError};
use crate::patch::{Patch, PatchError};
use crate::shape::BLOCK_ROWS;
use crate::table::Table;
use crate::tree::{self, FANOUT, Geometry, HASH_BYTES, LEAF_BYTES};
use crate::version::{BlockHash, Version};

/// Leaves that are read at a time: what they take stays in the second-level cache.
const LEAVES_AT_ONCE: usize = 512;

/// The version of the rows below `table`'s patch with those of `patch` laid over. Checks what it reads: the
/// leaves around the changed rows, and every hash on the way from them to the version below.
pub(super) fn next_version(table: &Table, patch: &Patch) -> Result<Version, Error> {
    let Some(stored) = table.tree_mapping() else {
        return Err(Error::Patch { path: super::path_of(table), source: PatchError::NoTree });
    };
    let shape = table.shape();
    let geometry = Geometry::new(shape);
    let broken = || table.rows_error(bundle::TREE, RowsError::Tree);

    // Leaves, and the leaves' hashes of the blocks that they lie in.
    let touched = touched_leaves(&geometry, patch);
    let mut leaves = Vec::with_capacity(touched.len());
    for touched in touched.chunks(LEAVES_AT_ONCE) {
        new_leaves(table, patch, &geometry, touched, &stored[tree::MARK.len()..], &mut leaves)?;
    }
    let mut blocks: Vec<usize> = touched.iter().map(|leaf| leaf / geometry.block_leaves).collect();
    blocks.dedup();
    let leaves_of = |block: usize| {
        let first = block * geometry.block_leaves;
        let count = geometry.block_leaves.min(geometry.leaves - first);
        &stored[tree::MARK.len() + first * HASH_BYTES..][..count * HASH_BYTES]
    };
    let old: Vec<&[u8]> = blocks.iter().map(|&block| leaves_of(block)).collect();
    let level = &stored[geometry.level_offset(0)..];
    check_level(&tree::hash_blocks(&old), &blocks, level).ok_or_else(broken)?;
    let mut new: Vec<Vec<u8>> = old.iter().map(|leaves| leaves.to_vec()).collect();
    let mut block = 0;
    for (&leaf, hash) in touched.iter().zip(&leaves) {
        while blocks[block] < leaf / geometry.block_leaves {
            block += 1;
        }
        new[block][leaf % geometry.block_leaves * HASH_BYTES..][..HASH_BYTES].copy_from_slice(hash);
    }
    let new: Vec<&[u8]> = new.iter().map(|leaves| &leaves[..]).collect();
    let mut hashes = tree::hash_blocks(&new);

    // From the blocks to the top.
    let mut places = blocks;
    for (level, &width) in geometry.levels[..geometry.levels.len() - 1].iter().enumerate() {
        let below = &stored[geometry.level_offset(level)..][..width * HASH_BYTES];
        let mut parents: Vec<usize> = places.iter().map(|place| place / FANOUT).collect();
        parents.dedup();
        let under = |&parent: &usize| {
            let start = parent * FANOUT * HASH_BYTES;
            &below[start..below.len().min(start + FANOUT * HASH_BYTES)]
        };
        let old: Vec<&[u8]> = parents.iter().map(under).collect();
        let above = &stored[geometry.level_offset(level + 1)..];
        check_level(&tree::hash_nodes(&old), &parents, above).ok_or_else(broken)?;
        let mut new: Vec<Vec<u8>> = old.iter().map(|below| below.to_vec()).collect();
        let mut parent = 0;
        for (place, hash) in places.iter().zip(&hashes) {
            while parents[parent] < place / FANOUT {
                parent += 1;
            }
            new[parent][place % FANOUT * HASH_BYTES..][..HASH_BYTES].copy_from_slice(hash);
        }
        let new: Vec<&[u8]> = new.iter().map(|below| &below[..]).collect();
        hashes = tree::hash_nodes(&new);
        places = parents;
    }
    let top = &stored[geometry.level_offset(geometry.levels.len() - 1)..][..HASH_BYTES];
    if tree::hash_root(shape, top) != patch.base() {
        return Err(broken());
    }
    match stored.is_lost() {
        true => Err(table.rows_error(bundle::TREE, RowsError::Lost)),
        false => Ok(tree::hash_root(shape, &hashes[0])),
    }
}

/// Whether hashes are those that a level has at their places.
fn check_level(hashes: &[BlockHash], places: &[usize], level: &[u8]) -> Option<()> {
    let stored = level.as_chunks::<HASH_BYTES>().0;
    hashes.iter().zip(places).all(|(hash, &place)| stored.get(place) == Some(hash)).then_some(())
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

/// Appends the hashes of leaves with the changed rows in them, having checked those without.
fn new_leaves(
    table: &Table,
    patch: &Patch,
    geometry: &Geometry,
    touched: &[usize],
    stored: &[u8],
    hashes: &mut Vec<BlockHash>,
) -> Result<(), Error> {
    let shape = table.shape();
    let row_bytes = shape.row_bytes();
    // The rows that a leaf lies in, before and after, and the bytes of them that are the leaf.
    let (mut old, mut new, mut spans) = (Vec::new(), Vec::new(), Vec::new());
    for &leaf in touched {
        let block = leaf / geometry.block_leaves;
        let start = leaf % geometry.block_leaves * LEAF_BYTES;
        let block_rows = (shape.rows() as usize - block * BLOCK_ROWS).min(BLOCK_ROWS);
        let end = (start + LEAF_BYTES).min(block_rows * row_bytes);
        let (first, last) = (start / row_bytes, end.div_ceil(row_bytes));
        let row = (block * BLOCK_ROWS + first) as u64;
        let at = old.len();
        old.resize(at + (last - first) * row_bytes, 0);
        table.copy_base_rows(row, &mut old[at..])?;
        new.extend_from_slice(&old[at..]);
        patch.lay_over(row, &mut new[at..]);
        let skip = at + start - first * row_bytes;
        spans.push((row, skip..skip + end - start));
    }
    let pieces: Vec<&[u8]> = spans.iter().map(|(_, span)| &old[span.clone()]).collect();
    let stored = stored.as_chunks::<HASH_BYTES>().0;
    let found = tree::hash_leaves(&pieces);
    for ((hash, &leaf), &(row, _)) in found.iter().zip(touched).zip(&spans) {
        if stored.get(leaf) != Some(hash) {
            return Err(table.rows_error(bundle::ROWS, RowsError::Row { row }));
        }
    }
    let pieces: Vec<&[u8]> = spans.iter().map(|(_, span)| &new[span.clone()]).collect();
    hashes.extend(tree::hash_leaves(&pieces));
    Ok(())
}
