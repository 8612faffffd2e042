//! The VTree: the valid bits of a tree's buckets in memory, sealed in groups (FEDORA 4.4, optimization 2,
//! and 5.2), so that taking a block out of a bucket writes nothing to the disk.
//!
//! Bucket b of level l has `words_per_bucket` words. A *group* holds the words of a small subtree (a root
//! of more than two children is one by itself), and
//! for each group below it that group's counter of writes; it is sealed by AEGIS-256 under a nonce made
//! of its number and its own counter. So a group and its tag fit each other in one version only, the
//! version is written in the group above, and the root group's is beside the key: whoever changes,
//! moves or replays a group is found out by the path that opens it (FEDORA figure 6).
//!
//! Which path is read or written is public; the words are not, and nothing here looks at them. How
//! many levels a group spans is chosen to make a path cheap: AEGIS-256 spends some 23 rounds on a group
//! before and after its first 16 bytes, so groups of about 250 bytes cost least.

use hushtable_prg::{EntropyError, valgrind};
use thiserror::Error;

use crate::seal::{Forged, Key, TAG_BYTES, group_nonce};
use crate::shape::Shape;

/// The most levels of a tree.
pub const LEVELS_MAX: u32 = 32;
/// The most words of a bucket.
pub const WORDS_MAX: usize = 32;
/// The most bytes of a group, unsealed.
const GROUP_BYTES: usize = 512;

/// Why a VTree cannot be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VtreeError {
    /// No such tree.
    #[error(
        "a VTree of {levels} levels and {words_per_bucket} words a bucket: it has 1 to {LEVELS_MAX} levels \
         and 1 to {WORDS_MAX} words"
    )]
    Shape {
        /// Levels asked for.
        levels: u32,
        /// Words a bucket asked for.
        words_per_bucket: usize,
    },
    /// The memory is not there.
    #[error(
        "a VTree of {levels} levels takes {bytes} bytes of memory, which could not be had: use a smaller table"
    )]
    Memory {
        /// Levels asked for.
        levels: u32,
        /// Bytes that they take.
        bytes: u128,
    },
    /// No entropy for the key.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

/// Groups of one height: the subtrees whose roots are at `first_level`.
#[derive(Clone, Copy)]
struct Layer {
    first_level: u32,
    height: u32,
    /// Number of the layer's first group, over all layers.
    first_group: u64,
    /// Where that group begins.
    first_byte: usize,
    text_bytes: usize,
    /// Where a group's counters begin: its end where there is no group below.
    counters_at: usize,
}

impl Layer {
    fn stride(&self) -> usize {
        self.text_bytes + TAG_BYTES
    }
}

/// Bytes of words and of counters of a group.
fn group_bytes(height: u32, words_per_bucket: usize, inner: bool) -> (usize, usize) {
    let nodes = (1 << height) - 1;
    (nodes * words_per_bucket * 8, if inner { 8 << height } else { 0 })
}

/// The heights of the groups of a path, root first. A root of more than two children is a group of its
/// own.
fn heights(shape: Shape, words_per_bucket: usize) -> Vec<u32> {
    match shape.fan() {
        2 => binary_heights(shape.levels(), words_per_bucket),
        _ => {
            let mut heights = vec![1];
            heights.extend(binary_heights(shape.levels() - 1, words_per_bucket));
            heights
        }
    }
}

/// The heights of the groups of a binary tree's path, root first, that cost the fewest rounds of
/// AEGIS-256.
fn binary_heights(levels: u32, words_per_bucket: usize) -> Vec<u32> {
    // best[n]: cost and first height of the cheapest groups for the lowest n levels.
    let mut best = vec![(0usize, 0u32); levels as usize + 1];
    for n in 1..=levels {
        best[n as usize] = (1..=n.min(8))
            .filter_map(|height| {
                let (words, counters) = group_bytes(height, words_per_bucket, height < n);
                // 16 rounds to begin, 7 to end, and about as long as 10 to copy and call.
                let cost = best[(n - height) as usize].0 + 33 + (words + counters).div_ceil(16);
                (height == 1 || words + counters <= GROUP_BYTES).then_some((cost, height))
            })
            .min()
            .unwrap_or((0, 1));
    }
    let mut left = levels;
    let mut heights = Vec::new();
    while left > 0 {
        let height = best[left as usize].1;
        heights.push(height);
        left -= height;
    }
    heights
}

/// Valid bits of a tree, sealed in memory. See the [module](self).
pub struct Vtree {
    shape: Shape,
    words_per_bucket: usize,
    layers: Vec<Layer>,
    key: Key,
    root_counter: u64,
    sealed: Vec<u8>,
    /// The groups of one path, open, each with room for [`Vtree::room`] bytes.
    open: Vec<u8>,
    counters: Vec<u64>,
    path: Vec<u64>,
    room: usize,
}

impl Vtree {
    /// A tree of this shape, whose words `fill(level, index, words)` gives:
    /// it is called once for each bucket, in an order that depends on the shape alone. `key` is not
    /// used itself but for deriving a fresh one, so building twice from one key is safe.
    ///
    /// # Errors
    /// A shape out of bounds, too little memory, or no entropy.
    pub fn build(
        shape: Shape,
        words_per_bucket: usize,
        key: &Key,
        mut fill: impl FnMut(u32, u64, &mut [u64]),
    ) -> Result<Self, VtreeError> {
        let levels = shape.levels();
        if levels > LEVELS_MAX || !(1..=WORDS_MAX).contains(&words_per_bucket) {
            return Err(VtreeError::Shape { levels, words_per_bucket });
        }
        let mut layers = Vec::new();
        let (mut first_level, mut first_group, mut bytes) = (0, 0, 0u128);
        for height in heights(shape, words_per_bucket) {
            let inner = first_level + height < levels;
            let (counters_at, counter_bytes) = group_bytes(height, words_per_bucket, inner);
            let counter_bytes = match first_level {
                0 if inner => 8 * shape.nodes(height) as usize,
                _ => counter_bytes,
            };
            let text_bytes = counters_at + counter_bytes;
            let layer = Layer {
                first_level,
                height,
                first_group,
                first_byte: bytes as usize,
                text_bytes,
                counters_at,
            };
            layers.push(layer);
            bytes += layer.stride() as u128 * u128::from(shape.nodes(first_level));
            first_group += shape.nodes(first_level);
            first_level += height;
        }
        let mut sealed = Vec::new();
        usize::try_from(bytes)
            .ok()
            .and_then(|bytes| sealed.try_reserve_exact(bytes).ok())
            .ok_or(VtreeError::Memory { levels, bytes })?;
        let key = key.fresh("hushtable oram vtree")?;
        let mut words = vec![0; words_per_bucket];
        for layer in &layers {
            for group in 0..shape.nodes(layer.first_level) {
                let at = sealed.len();
                sealed.resize(at + layer.stride(), 0);
                let (text, tag) = sealed[at..].split_at_mut(layer.text_bytes);
                let mut slots = text.chunks_exact_mut(8);
                for depth in 0..layer.height {
                    for node in 0..1u64 << depth {
                        words.fill(0);
                        fill(layer.first_level + depth, (group << depth) + node, &mut words);
                        for (word, slot) in words.iter().zip(&mut slots) {
                            slot.copy_from_slice(&word.to_le_bytes());
                        }
                    }
                }
                let nonce = group_nonce(layer.first_group + group, 0);
                tag.copy_from_slice(&key.seal_in_place(&nonce, b"", text));
            }
        }
        let room = layers.iter().map(|layer| layer.text_bytes).max().unwrap_or(0);
        Ok(Self {
            shape,
            words_per_bucket,
            open: vec![0; room * layers.len()],
            counters: vec![0; layers.len()],
            path: vec![0; levels as usize * words_per_bucket],
            layers,
            key,
            root_counter: 0,
            sealed,
            room,
        })
    }

    /// Levels of the tree.
    pub fn levels(&self) -> u32 {
        self.shape.levels()
    }

    /// Words of a bucket.
    pub fn words_per_bucket(&self) -> usize {
        self.words_per_bucket
    }

    /// Words of a path: those of its buckets.
    pub fn path_words(&self) -> usize {
        self.levels() as usize * self.words_per_bucket
    }

    /// Bytes of memory that the sealed groups take.
    pub fn memory_bytes(&self) -> usize {
        self.sealed.len()
    }

    /// Where the group of layer `layer` on the path to `leaf` is: its number, and its bytes.
    fn group(&self, layer: &Layer, leaf: u64) -> (u64, std::ops::Range<usize>) {
        let index = self.shape.ancestor(leaf, layer.first_level);
        let at = layer.first_byte + index as usize * layer.stride();
        (layer.first_group + index, at..at + layer.stride())
    }

    /// Opens the groups of the path to `leaf` into `self.open`, and their counters into `self.counters`.
    fn open_path(&mut self, leaf: u64) -> Result<(), Forged> {
        assert!(leaf < self.shape.leaves(), "leaf {leaf} of {}", self.shape.leaves());
        let mut counter = self.root_counter;
        for (which, layer) in self.layers.iter().enumerate() {
            let (number, range) = self.group(layer, leaf);
            let (sealed, tag) = self.sealed[range].split_at(layer.text_bytes);
            let text = &mut self.open[which * self.room..][..layer.text_bytes];
            text.copy_from_slice(sealed);
            let tag = tag.try_into().map_err(|_| Forged)?;
            self.key.open_in_place(&group_nonce(number, counter), b"", text, tag)?;
            self.counters[which] = counter;
            if let Some(at) = child(self.shape, layer, leaf) {
                counter = u64::from_le_bytes(word(text, at));
                // How often a group was written is as public as the paths are.
                valgrind::declassify(&mut counter);
            }
        }
        Ok(())
    }

    /// The place in `open` of every word of the path to `leaf`, root first.
    fn places(&self, leaf: u64) -> impl Iterator<Item = usize> + '_ {
        self.layers.iter().enumerate().flat_map(move |(which, layer)| {
            (0..layer.height).flat_map(move |depth| {
                let index = self.shape.ancestor(leaf, layer.first_level + depth);
                let node = (1 << depth) - 1 + (index & ((1 << depth) - 1)) as usize;
                let at = which * self.room + node * self.words_per_bucket * 8;
                (0..self.words_per_bucket).map(move |w| at + 8 * w)
            })
        })
    }

    /// The words of the path to `leaf` into `words`, the root's first.
    ///
    /// # Errors
    /// [`Forged`] if a group of the path is not what was written last.
    ///
    /// # Panics
    /// If there is no such leaf, or `words` is not [`path_words`](Self::path_words) long.
    pub fn read_path(&mut self, leaf: u64, words: &mut [u64]) -> Result<(), Forged> {
        assert_eq!(words.len(), self.path_words(), "words of a path");
        self.open_path(leaf)?;
        for (word_out, at) in words.iter_mut().zip(self.places(leaf)) {
            *word_out = u64::from_le_bytes(word(&self.open, at));
        }
        Ok(())
    }

    /// Writes the words of the path to `leaf`, the root's first. [`update_path`](Self::update_path) is
    /// cheaper than a read and a write.
    ///
    /// # Errors
    /// [`Forged`] as from [`read_path`](Self::read_path); nothing is written then.
    ///
    /// # Panics
    /// As [`read_path`](Self::read_path).
    pub fn write_path(&mut self, leaf: u64, words: &[u64]) -> Result<(), Forged> {
        assert_eq!(words.len(), self.path_words(), "words of a path");
        self.update_path(leaf, |path| path.copy_from_slice(words))
    }

    /// Opens the path to `leaf`, has `change` change its words in place, the root's first, and seals it
    /// again, every group of it: what `change` does cannot be told from what is sealed. It is as well
    /// how an eviction resets the buckets that it writes.
    ///
    /// # Errors
    /// [`Forged`] as from [`read_path`](Self::read_path); `change` is not called and nothing written then.
    ///
    /// # Panics
    /// If there is no such leaf.
    pub fn update_path<R>(
        &mut self,
        leaf: u64,
        change: impl FnOnce(&mut [u64]) -> R,
    ) -> Result<R, Forged> {
        self.open_path(leaf)?;
        let mut path = std::mem::take(&mut self.path);
        for (path, at) in path.iter_mut().zip(self.places(leaf)) {
            *path = u64::from_le_bytes(word(&self.open, at));
        }
        let result = change(&mut path);
        let mut open = std::mem::take(&mut self.open);
        for (path, at) in path.iter().zip(self.places(leaf)) {
            open[at..at + 8].copy_from_slice(&path.to_le_bytes());
        }
        for which in 0..self.layers.len() {
            let layer = self.layers[which];
            if let Some(at) = child(self.shape, &layer, leaf) {
                let at = which * self.room + at;
                open[at..at + 8].copy_from_slice(&(self.counters[which + 1] + 1).to_le_bytes());
            }
            let (number, range) = self.group(&layer, leaf);
            let (sealed, tag) = self.sealed[range].split_at_mut(layer.text_bytes);
            sealed.copy_from_slice(&open[which * self.room..][..layer.text_bytes]);
            let nonce = group_nonce(number, self.counters[which] + 1);
            tag.copy_from_slice(&self.key.seal_in_place(&nonce, b"", sealed));
        }
        self.root_counter += 1;
        self.path = path;
        self.open = open;
        Ok(result)
    }
}

/// Where in a group of `layer` the counter of the next group on the path to `leaf` is.
fn child(shape: Shape, layer: &Layer, leaf: u64) -> Option<usize> {
    let next_level = layer.first_level + layer.height;
    (next_level < shape.levels()).then(|| {
        // The uppermost group has the first of all that are below it.
        let first = match layer.first_level {
            0 => 0,
            level => shape.ancestor(leaf, level) << layer.height,
        };
        let child = shape.ancestor(leaf, next_level) - first;
        layer.counters_at + 8 * child as usize
    })
}

fn word(bytes: &[u8], at: usize) -> [u8; 8] {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    word
}

#[cfg(test)]
mod tests;
