//! The third content hash: a tree, so that the version of a table with some rows changed costs what
//! changed.
//!
//! Rows as served are cut into blocks of [`BLOCK_ROWS`] rows, and each block into *leaves* of 1 KiB.
//! A leaf is hashed, a block is the hash of its leaves' hashes, a node the hash of up to
//! [`FANOUT`] blocks or nodes below it, and the version the hash of the shape and the one node on
//! top. Leaf, block, node and version each have a context of their own, and the shape, from which
//! every level's width follows, enters the version: no node can stand for one of another level.
//!
//! `rows.tree` keeps the hashes of leaves, blocks and nodes. Nothing in it is trusted: what a patch
//! reads of it is checked from the leaves up to the version.

use std::sync::LazyLock;

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};
use blake3::platform::Platform;

use crate::shape::{BLOCK_ROWS, Shape};
use crate::version::{BlockHash, Version};

/// Bytes of a leaf.
pub(crate) const LEAF_BYTES: usize = 1024;
/// Blocks or nodes under a node.
pub(crate) const FANOUT: usize = 16;
/// Bytes of a hash.
pub(crate) const HASH_BYTES: usize = 32;
const GROUP_BYTES: usize = FANOUT * HASH_BYTES;

/// The first bytes of `rows.tree`.
pub(crate) const MARK: [u8; 16] = *b"hushtable-tree1\n";

/// A kind of hash: the context that keeps it apart from the others.
pub(crate) struct Kind {
    key: ContextKey,
    words: [u32; 8],
}

impl Kind {
    fn new(context: &str) -> Self {
        let key = hash_derive_key_context(context);
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(key.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self { key, words }
    }

    /// The hash of bytes of any length.
    pub(crate) fn hash(&self, bytes: &[u8]) -> BlockHash {
        *blake3::Hasher::new_from_context_key(&self.key).update(bytes).finalize().as_bytes()
    }

    /// The hashes of whole pieces of `N` bytes (a multiple of 64, at most 1,024) side by side, as
    /// [`hash`](Self::hash) gives one after the other, several at a time.
    fn hash_pieces<const N: usize>(&self, pieces: &[&[u8; N]], out: &mut [u8]) {
        // BLAKE3's flags: a piece of one chunk is the start, the end and the root of its tree.
        const CHUNK_START: u8 = 1;
        const CHUNK_END: u8 = 2;
        const ROOT: u8 = 8;
        const DERIVE_KEY_MATERIAL: u8 = 64;
        const AT_ONCE: usize = 16;
        static PLATFORM: LazyLock<Platform> = LazyLock::new(Platform::detect);
        for (pieces, out) in pieces.chunks(AT_ONCE).zip(out.chunks_mut(AT_ONCE * HASH_BYTES)) {
            PLATFORM.hash_many(
                pieces,
                &self.words,
                0,
                blake3::IncrementCounter::No,
                DERIVE_KEY_MATERIAL,
                CHUNK_START,
                CHUNK_END | ROOT,
                out,
            );
        }
    }

    /// The hashes of inputs, of which most are `N` bytes long.
    fn hash_each<const N: usize>(&self, inputs: &[&[u8]]) -> Vec<BlockHash> {
        let whole: Vec<&[u8; N]> = inputs.iter().filter_map(|&it| it.try_into().ok()).collect();
        let mut bytes = vec![0; whole.len() * HASH_BYTES];
        self.hash_pieces(&whole, &mut bytes);
        let mut whole = bytes.as_chunks::<HASH_BYTES>().0.iter();
        let one = |input: &&[u8]| match input.len() == N {
            true => *whole.next().expect("as many hashes as inputs of that length"),
            false => self.hash(input),
        };
        inputs.iter().map(one).collect()
    }
}

static LEAF: LazyLock<Kind> = LazyLock::new(|| Kind::new("hushtable table leaf v3"));
static BLOCK: LazyLock<Kind> = LazyLock::new(|| Kind::new("hushtable table block v3"));
static NODE: LazyLock<Kind> = LazyLock::new(|| Kind::new("hushtable table node v3"));

/// Appends the hashes of a block's leaves, and returns the block's.
pub(crate) fn hash_block(served: &[u8], leaves: &mut Vec<u8>) -> BlockHash {
    let start = leaves.len();
    leaves.resize(start + served.len().div_ceil(LEAF_BYTES) * HASH_BYTES, 0);
    let out = &mut leaves[start..];
    let (whole, rest) = served.as_chunks::<LEAF_BYTES>();
    let (front, back) = out.split_at_mut(whole.len() * HASH_BYTES);
    for (whole, front) in whole.chunks(FANOUT).zip(front.chunks_mut(GROUP_BYTES)) {
        let mut pieces = [&[0; LEAF_BYTES]; FANOUT];
        pieces.iter_mut().zip(whole).for_each(|(piece, whole)| *piece = whole);
        LEAF.hash_pieces(&pieces[..whole.len()], front);
    }
    if !rest.is_empty() {
        back.copy_from_slice(&LEAF.hash(rest));
    }
    BLOCK.hash(&leaves[start..])
}

/// The hashes of leaves.
pub(crate) fn hash_leaves(leaves: &[&[u8]]) -> Vec<BlockHash> {
    LEAF.hash_each::<LEAF_BYTES>(leaves)
}

/// The hashes of blocks, of their leaves' hashes.
pub(crate) fn hash_blocks(leaves: &[&[u8]]) -> Vec<BlockHash> {
    BLOCK.hash_each::<GROUP_BYTES>(leaves)
}

/// The hashes of nodes, of what is under them.
pub(crate) fn hash_nodes(below: &[&[u8]]) -> Vec<BlockHash> {
    NODE.hash_each::<GROUP_BYTES>(below)
}

/// The version of a table, of its shape and the hash on top of its tree.
pub(crate) fn hash_root(shape: Shape, top: &[u8]) -> Version {
    let mut hasher = blake3::Hasher::new_derive_key("hushtable table content v3");
    crate::version::push_shape(&mut hasher, shape);
    Version::from(*hasher.update(top).finalize().as_bytes())
}

/// Where the levels of a table's tree stand in `rows.tree`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Leaves of a whole block.
    pub(crate) block_leaves: usize,
    /// Leaves of all blocks.
    pub(crate) leaves: usize,
    /// How many hashes each level has: blocks first, one on top.
    pub(crate) levels: Vec<usize>,
}

impl Geometry {
    pub(crate) fn new(shape: Shape) -> Self {
        let block_bytes = BLOCK_ROWS * shape.row_bytes();
        let block_leaves = block_bytes.div_ceil(LEAF_BYTES);
        let last =
            (shape.content_bytes() - (shape.blocks() - 1) as u64 * block_bytes as u64) as usize;
        let leaves = (shape.blocks() - 1) * block_leaves + last.div_ceil(LEAF_BYTES);
        let mut levels = vec![shape.blocks()];
        while let Some(&width) = levels.last().filter(|&&width| width > 1) {
            levels.push(width.div_ceil(FANOUT));
        }
        Self { block_leaves, leaves, levels }
    }

    /// Bytes of the whole file.
    pub(crate) fn file_bytes(&self) -> u64 {
        (MARK.len() + (self.leaves + self.levels.iter().sum::<usize>()) * HASH_BYTES) as u64
    }

    /// Where the hashes of a level start in the file.
    pub(crate) fn level_offset(&self, level: usize) -> usize {
        MARK.len() + (self.leaves + self.levels[..level].iter().sum::<usize>()) * HASH_BYTES
    }
}

impl Geometry {
    /// The hashes in the bytes of `rows.tree` of a block's leaves.
    pub(crate) fn leaves_in<'a>(&self, tree: &'a [u8], block: usize) -> Option<&'a [u8]> {
        let first = block * self.block_leaves;
        let end = (first + self.block_leaves).min(self.leaves);
        tree.get(MARK.len() + first * HASH_BYTES..MARK.len() + end * HASH_BYTES)
    }

    /// Whether the bytes of `rows.tree` have these levels over the leaves.
    pub(crate) fn has_levels(&self, tree: &[u8], levels: &[Vec<u8>]) -> bool {
        let mut rest = tree.get(self.level_offset(0)..).unwrap_or_default();
        let is_next = |level: &Vec<u8>| match rest.split_at_checked(level.len()) {
            Some((found, after)) => {
                rest = after;
                found == level
            }
            None => false,
        };
        levels.iter().all(is_next) && rest.is_empty()
    }
}

/// The levels over the hashes of blocks, these first, and the version.
pub(crate) fn upper_levels(shape: Shape, blocks: Vec<u8>) -> (Vec<Vec<u8>>, Version) {
    let mut levels = vec![blocks];
    while let Some(below) = levels.last().filter(|level| level.len() > HASH_BYTES) {
        let groups: Vec<&[u8]> = below.chunks(GROUP_BYTES).collect();
        levels.push(hash_nodes(&groups).concat());
    }
    let version = hash_root(shape, levels.last().map_or(&[], |top| top));
    (levels, version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn many_at_a_time_are_as_one_by_one() {
        let bytes: Vec<u8> = (0..40 * LEAF_BYTES).map(|i| ((i * 7) >> 3) as u8).collect();
        for count in [1, 2, 15, 16, 17, 40] {
            let mut pieces: Vec<&[u8]> = bytes.chunks(LEAF_BYTES).take(count).collect();
            pieces[count / 2] = &bytes[..100];
            let expected: Vec<_> = pieces
                .iter()
                .map(|piece| {
                    let mut hasher = blake3::Hasher::new_derive_key("hushtable table leaf v3");
                    *hasher.update(piece).finalize().as_bytes()
                })
                .collect();
            assert_eq!(hash_leaves(&pieces), expected, "{count}");
        }
    }

    #[test]
    fn the_tree_is_what_its_page_says() {
        // Written out again, one hash at a time.
        let of = |context: &str, bytes: &[u8]| {
            *blake3::Hasher::new_derive_key(context).update(bytes).finalize().as_bytes()
        };
        for (rows, dim) in [(1, 3), (256, 16), (257, 16), (5_000, 1), (256 * 17 + 3, 5)] {
            let shape = Shape::new(rows, dim, DType::F32).unwrap();
            let served: Vec<u8> =
                (0..shape.content_bytes()).map(|i| ((i * 31) >> 3) as u8).collect();
            let (mut leaves, mut blocks) = (Vec::new(), Vec::new());
            let mut expected = Vec::new();
            for block in served.chunks(BLOCK_ROWS * shape.row_bytes()) {
                let under: Vec<u8> = block
                    .chunks(LEAF_BYTES)
                    .flat_map(|leaf| of("hushtable table leaf v3", leaf))
                    .collect();
                expected.push(of("hushtable table block v3", &under));
                blocks.extend(hash_block(block, &mut leaves));
            }
            while expected.len() > 1 {
                expected = expected
                    .chunks(16)
                    .map(|below| of("hushtable table node v3", &below.concat()))
                    .collect();
            }
            let mut head = Vec::new();
            head.extend(rows.to_le_bytes());
            head.extend((dim as u64).to_le_bytes());
            head.extend(3_u64.to_le_bytes());
            head.extend(b"f32");
            head.extend(expected[0]);
            let (levels, version) = upper_levels(shape, blocks);
            assert_eq!(version.as_bytes(), &of("hushtable table content v3", &head));
            let geometry = Geometry::new(shape);
            assert_eq!(geometry.leaves * HASH_BYTES, leaves.len());
            let widths: Vec<_> = levels.iter().map(|level| level.len() / HASH_BYTES).collect();
            assert_eq!(geometry.levels, widths);
        }
    }
}
