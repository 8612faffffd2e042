//! What a table's content hashes to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shape::{BLOCK_ROWS, Shape};
use crate::tree;

/// BLAKE3 of a table's shape, dtype and rows as served: equal versions mean equal answers.
///
/// Rows are hashed in blocks of [`BLOCK_ROWS`](crate::BLOCK_ROWS), and the version is the top of a
/// tree of these hashes, so that whoever loads a table can check it on all its threads, in any order,
/// and whoever changes some rows hashes only these again. It goes with every answer, so that a client never combines shares of different tables. The
/// name, the build's origin and the layout on disk do not enter it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version([u8; 32]);

impl Version {
    /// The 32 bytes, as they travel on the wire.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Version {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

impl FromStr for Version {
    type Err = MalformedVersion;

    fn from_str(text: &str) -> Result<Self, MalformedVersion> {
        match blake3::Hash::from_hex(text) {
            Ok(hash) => Ok(Self(*hash.as_bytes())),
            Err(_) => Err(MalformedVersion { byte_count: text.len() }),
        }
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Text that is no [`Version`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a table version is 64 hexadecimal digits; got {byte_count} bytes of other text")]
#[non_exhaustive]
pub struct MalformedVersion {
    /// How long the text was, in bytes.
    pub byte_count: usize,
}

/// The hash of a block of rows.
pub(crate) type BlockHash = [u8; 32];

/// How a table's content is hashed into its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashing {
    /// As bundles of format 1 were: the hash of the hashes of blocks.
    Blocks,
    /// A [`tree`](crate::tree), of which a change rehashes only a part.
    Tree,
}

/// Hashes blocks of [`BLOCK_ROWS`] rows, each by itself: in any order, on any thread.
#[derive(Clone)]
pub(crate) struct BlockHasher(Option<Box<blake3::Hasher>>);

impl BlockHasher {
    pub(crate) fn new(hashing: Hashing) -> Self {
        Self(match hashing {
            Hashing::Blocks => {
                Some(Box::new(blake3::Hasher::new_derive_key("hushtable table block v1")))
            }
            Hashing::Tree => None,
        })
    }

    /// The hash of a whole block's rows as served; what is under it in a tree goes to `leaves`.
    pub(crate) fn hash(&self, served: &[u8], leaves: &mut Vec<u8>) -> BlockHash {
        match &self.0 {
            Some(hasher) => *hasher.clone().update(served).finalize().as_bytes(),
            None => tree::hash_block(served, leaves),
        }
    }
}

/// Puts a table's shape into a hash.
pub(crate) fn push_shape(hasher: &mut blake3::Hasher, shape: Shape) {
    let name = shape.dtype().name().as_bytes();
    hasher.update(&shape.rows().to_le_bytes());
    hasher.update(&(shape.dim() as u64).to_le_bytes());
    // The name is length-prefixed, so that no two headers run into each other or the hashes.
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name);
}

/// Hashes the hashes of all blocks, in order, into a [`Version`].
pub(crate) struct VersionHasher {
    shape: Shape,
    hashing: Hashing,
    blocks: Vec<u8>,
}

impl VersionHasher {
    pub(crate) fn new(shape: Shape, hashing: Hashing) -> Self {
        Self { shape, hashing, blocks: Vec::with_capacity(shape.blocks() * tree::HASH_BYTES) }
    }

    /// Takes the next block's hash.
    pub(crate) fn push(&mut self, block: &BlockHash) {
        self.blocks.extend_from_slice(block);
    }

    /// The version, and the levels of the tree from the blocks up, where it is one.
    pub(crate) fn finish_levels(self) -> (Vec<Vec<u8>>, Version) {
        match self.hashing {
            Hashing::Tree => tree::upper_levels(self.shape, self.blocks),
            Hashing::Blocks => {
                let mut hasher = blake3::Hasher::new_derive_key("hushtable table content v2");
                push_shape(&mut hasher, self.shape);
                let version = hasher.update(&self.blocks).finalize();
                (Vec::new(), Version(*version.as_bytes()))
            }
        }
    }
}

/// Hashes rows as served, in order and in pieces of any length, into a [`Version`].
pub(crate) struct ContentHasher {
    version: VersionHasher,
    hasher: BlockHasher,
    /// What there is of a block that is not whole.
    block: Vec<u8>,
    block_bytes: usize,
    leaves: Vec<u8>,
}

impl ContentHasher {
    pub(crate) fn new(shape: Shape, hashing: Hashing) -> Self {
        Self {
            version: VersionHasher::new(shape, hashing),
            hasher: BlockHasher::new(hashing),
            block: Vec::new(),
            block_bytes: BLOCK_ROWS * shape.row_bytes(),
            leaves: Vec::new(),
        }
    }

    pub(crate) fn update(&mut self, mut served: &[u8]) {
        if !self.block.is_empty() {
            let (now, later) =
                served.split_at(served.len().min(self.block_bytes - self.block.len()));
            self.block.extend_from_slice(now);
            served = later;
            if self.block.len() < self.block_bytes {
                return;
            }
            self.version.push(&self.hasher.hash(&self.block, &mut self.leaves));
            self.block.clear();
        }
        let blocks = served.chunks_exact(self.block_bytes);
        self.block.extend_from_slice(blocks.remainder());
        for block in blocks {
            self.version.push(&self.hasher.hash(block, &mut self.leaves));
        }
    }

    /// The hashes of the leaves that are whole since the last call; none where there is no tree.
    pub(crate) fn take_leaves(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.leaves)
    }

    pub(crate) fn finish(self) -> Version {
        self.finish_levels().2
    }

    /// The last leaves, the levels above them, and the version.
    pub(crate) fn finish_levels(mut self) -> (Vec<u8>, Vec<Vec<u8>>, Version) {
        if !self.block.is_empty() {
            self.version.push(&self.hasher.hash(&self.block, &mut self.leaves));
        }
        let (levels, version) = self.version.finish_levels();
        (self.leaves, levels, version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn shape_and_dtype_enter_the_hash() {
        let of = |rows, dim, dtype| {
            let mut hasher =
                ContentHasher::new(Shape::new(rows, dim, dtype).unwrap(), Hashing::Tree);
            hasher.update(&[7; 16]);
            hasher.finish()
        };
        let versions = [
            of(2, 4, DType::F16),
            of(4, 2, DType::F16),
            of(2, 4, DType::Bf16),
            of(2, 2, DType::F32),
            of(1, 4, DType::F32),
        ];
        for (i, left) in versions.iter().enumerate() {
            for right in &versions[i + 1..] {
                assert_ne!(left, right);
            }
        }
    }

    #[test]
    fn blocks_hash_alike_whole_and_in_pieces() {
        for rows in [1, 511, 512, 513, 1024, 1500] {
            let shape = Shape::new(rows, 3, DType::F16).unwrap();
            let served: Vec<u8> =
                (0..shape.content_bytes()).map(|i| ((i * 31) >> 3) as u8).collect();
            for hashing in [Hashing::Blocks, Hashing::Tree] {
                let mut version = VersionHasher::new(shape, hashing);
                let blocks = BlockHasher::new(hashing);
                for block in served.chunks(BLOCK_ROWS * shape.row_bytes()) {
                    version.push(&blocks.hash(block, &mut Vec::new()));
                }
                let version = version.finish_levels().1;
                for piece in [1, 100, 6 * 512, 6 * 700, usize::MAX] {
                    let mut pieces = ContentHasher::new(shape, hashing);
                    served.chunks(piece.min(served.len())).for_each(|piece| pieces.update(piece));
                    assert_eq!(pieces.finish(), version, "{rows} rows by {piece}");
                }
            }
        }
    }

    #[test]
    fn text_round_trips_and_rejects_what_is_not_hex() {
        let version = Version::from([0xab; 32]);
        assert_eq!(version.to_string(), "ab".repeat(32));
        assert_eq!(version.to_string().parse(), Ok(version));
        assert_eq!("xyz".parse::<Version>(), Err(MalformedVersion { byte_count: 3 }));
        assert!("zz".repeat(32).parse::<Version>().is_err());
    }
}
