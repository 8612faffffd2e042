//! The paper's ways to expand keys (Lam et al., §III-C), each a launch or several that write all
//! shares of a batch to device memory; and the frontier, from which other kernels go on.

use std::sync::Arc;

use hushtable_prg::PrgKind;

use crate::listed::Listed;
use crate::{
    Arg, Buffer, Device, DeviceKeys, Error, KeyKind, Launch, ModuleSpec, PrgTuning, Stream, alloc,
};

/// How a batch of keys is expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExpandStrategy {
    /// §III-C1, the base: every thread goes from the root to each of its leaves. A block a key where
    /// there are keys enough for all multiprocessors, else as many more as they have room for: the
    /// shortest way for one key.
    BlockPerKey,
    /// §III-C2: all nodes of a level from all of the one above, in device memory: 24 bytes a leaf and
    /// key, for as many keys at a time as [`Expander::with_node_bytes_max`] lets.
    LevelByLevel,
    /// §III-C3: breadth first to `k` nodes a key, from each of which a thread goes depth first.
    Hybrid {
        /// The expansion factor: rounded up to a power of two, and cut to the leaves.
        k: u32,
    },
}

/// The leaves below one node: those that a part of a table needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Subtree {
    /// Levels between the root and the node.
    pub level: u32,
    /// The node's number in its level, from the left.
    pub index: u32,
}

impl Subtree {
    /// The whole tree.
    pub const WHOLE: Self = Self { level: 0, index: 0 };

    /// Levels between the node and the leaves of keys of `kind`; leaves that hold rows, which are the
    /// first ones.
    fn shape(self, kind: KeyKind) -> Result<(u32, u32), Error> {
        let depth = kind.domain.depth();
        let height = depth.checked_sub(self.level);
        let first = height.map(|height| u64::from(self.index) << height);
        match (height, first) {
            (Some(height), Some(first)) if first < kind.domain.leaf_count() => {
                let leaves = (kind.domain.leaf_count() - first).min(1 << height);
                // At most 2^28: 2^32 rows, of which a leaf has at least 16.
                Ok((height, leaves as u32))
            }
            _ => Err(Error::Geometry {
                reason: format!(
                    "no leaf with rows is below node {} of level {}: the tree has {depth} levels and \
                     {} leaves",
                    self.index,
                    self.level,
                    kind.domain.leaf_count()
                ),
            }),
        }
    }
}

/// Expands keys on a device.
#[derive(Clone)]
pub struct Expander {
    device: Arc<dyn Device>,
    tuning: PrgTuning,
    node_bytes_max: usize,
    keys_per_launch: u32,
}

/// Threads of a block: four warps, one for each scheduler of a multiprocessor.
const THREADS: u32 = 128;
const WARP: u32 = 32;
/// Levels that a block goes breadth first: 16 KB of nodes in shared memory.
const BREADTH_MAX: u32 = 10;
/// Blocks that a multiprocessor should have: 16 warps hide what each waits for.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 4;
/// Keys of a launch where they are blocks along y, of which a grid has at most 65,535.
const KEYS_PER_LAUNCH: u32 = 32_768;
/// log2 of the largest factor that [`Expander::strategy`] gives.
const HYBRID_MAX: u32 = 20;
const NODE_BYTES: usize = 16;
const LEAF_BYTES: usize = 64;
/// Nodes of a level that one launch works on: its threads are numbered by 32 bits.
const NODES_PER_LAUNCH: u32 = 1 << 31;

impl Expander {
    /// An expander whose [`ExpandStrategy::LevelByLevel`] takes at most an eighth of the device's
    /// memory.
    pub fn new(device: Arc<dyn Device>) -> Self {
        let node_bytes_max = (device.facts().memory_bytes / 8) as usize;
        let tuning = PrgTuning::default();
        Self { device, tuning, node_bytes_max, keys_per_launch: KEYS_PER_LAUNCH }
    }

    /// The same with other kernels.
    #[must_use]
    pub fn with_tuning(self, tuning: PrgTuning) -> Self {
        Self { tuning, ..self }
    }

    /// The same with another bound on the nodes of [`ExpandStrategy::LevelByLevel`]; one key's are
    /// taken even if they are more.
    #[must_use]
    pub fn with_node_bytes_max(self, node_bytes_max: usize) -> Self {
        Self { node_bytes_max, ..self }
    }

    /// Bytes of the shares of `keys` keys: each key has 2^height leaves of 64 bytes.
    ///
    /// # Errors
    /// [`Error::Geometry`] for a subtree that the tree does not have.
    pub fn share_bytes(kind: KeyKind, keys: u32, subtree: Subtree) -> Result<usize, Error> {
        let (height, _) = subtree.shape(kind)?;
        Ok((keys as usize * LEAF_BYTES) << height)
    }

    /// Writes the shares of all keys below a node to `shares`: `[key][leaf][16 words]`, leaves from
    /// left to right and padded to a power of two. Those that hold no row are left as they are.
    ///
    /// A leaf is 512 bits as [`expand_leaves`](hushtable_pir::dpf::expand_leaves) has them, but for
    /// the right side's negation in the additive groups, which is left to whoever adds shares up.
    ///
    /// # Errors
    /// [`Error::Geometry`] for a subtree that the tree does not have or a buffer that is too short,
    /// [`Error::DeviceMemory`] for the nodes of a level; the device's.
    pub fn expand(
        &self,
        stream: Stream,
        keys: &DeviceKeys,
        strategy: ExpandStrategy,
        subtree: Subtree,
        shares: &Buffer,
    ) -> Result<(), Error> {
        let (height, leaves) = subtree.shape(keys.kind())?;
        has_room("shares", shares, Self::share_bytes(keys.kind(), keys.count(), subtree)?)?;
        let work = Work { expander: self, stream, keys, subtree, height, leaves, shares };
        match strategy {
            ExpandStrategy::BlockPerKey => work.block_per_key(),
            ExpandStrategy::LevelByLevel => work.level_by_level(),
            ExpandStrategy::Hybrid { k } => work.hybrid(k),
        }
    }

    /// Writes the nodes of level `top` of all keys to `nodes`: `[key][2^top]`, 16 bytes each, from
    /// left to right.
    ///
    /// # Errors
    /// [`Error::Geometry`] for a level that the tree does not have or a buffer that is too short; the
    /// device's.
    pub fn frontier(
        &self,
        stream: Stream,
        keys: &DeviceKeys,
        top: u32,
        nodes: &Buffer,
    ) -> Result<(), Error> {
        let depth = keys.kind().domain.depth();
        if top > depth {
            return Err(Error::Geometry {
                reason: format!("a frontier at level {top} of a tree of {depth} levels"),
            });
        }
        has_room("nodes", nodes, (keys.count() as usize * NODE_BYTES) << top)?;
        let kernel = self.kernel(keys, "expand_frontier")?;
        for chunk in chunks(keys.count(), self.keys_per_launch) {
            let (split, breadth) = self.split(chunk.count, top);
            let launch = Launch {
                blocks: (1 << split, chunk.count),
                threads: block_threads(1 << breadth),
                shared_bytes: self.shared_bytes(keys, breadth),
                is_cooperative: false,
            };
            let arguments = [
                chunk.keys(keys),
                key_words(keys),
                Arg::U32(split),
                Arg::U32(breadth),
                nodes.at((chunk.first as usize * NODE_BYTES) << top),
            ];
            // SAFETY: a kernel of this crate with what it takes, of buffers sized for these keys and this
            // subtree.
            unsafe { self.device.launch(stream, kernel, launch, &arguments) }?;
        }
        Ok(())
    }

    /// The way that should end first: the one whose longest sequence of generator calls on a
    /// scheduler is shortest. Few keys of a small tree go from the root, others hybrid. It counts
    /// calls and knows nothing of the device but its multiprocessors: a measurement may know better.
    ///
    /// # Errors
    /// [`Error::Geometry`] for a subtree that the tree does not have.
    pub fn strategy(
        &self,
        kind: KeyKind,
        keys: u32,
        subtree: Subtree,
    ) -> Result<ExpandStrategy, Error> {
        let (height, leaves) = subtree.shape(kind)?;
        // Four schedulers a multiprocessor, each of which runs a warp's call at a time.
        let schedulers = u64::from(4 * self.device.facts().multiprocessors);
        let calls = |warps: u64| warps.div_ceil(schedulers);
        let (keys_wide, level) = (u64::from(keys), u64::from(subtree.level));
        let warps = keys_wide * u64::from(leaves.div_ceil(WARP));
        let mut best =
            (calls(warps) * (level + u64::from(height) + 1), ExpandStrategy::BlockPerKey);
        for log_k in WARP.trailing_zeros()..=height.min(HYBRID_MAX) {
            let (split, breadth) = self.split(keys, log_k);
            let blocks = keys_wide << split;
            let walk = calls(blocks) * (level + u64::from(split));
            let broad: u64 = (0..breadth).map(|l| calls(blocks * ((1u64 << l).div_ceil(32)))).sum();
            // As many inner nodes as leaves, but for one.
            let deep = calls(blocks << breadth >> 5) * ((2 << (height - log_k)) - 1);
            if walk + broad + deep < best.0 {
                best = (walk + broad + deep, ExpandStrategy::Hybrid { k: 1 << log_k });
            }
        }
        Ok(best.1)
    }

    fn kernel(&self, keys: &DeviceKeys, name: &'static str) -> Result<crate::Kernel, Error> {
        self.device.kernel(&module(keys.kind().prg, self.tuning), name)
    }

    fn shared_bytes(&self, keys: &DeviceKeys, breadth: u32) -> u32 {
        self.tuning.shared_bytes(keys.kind().prg) + ((NODE_BYTES as u32) << breadth)
    }

    /// How `levels` levels are shared between blocks and what goes on in one: so many blocks that
    /// `keys` keys fill the device, but none with less than a warp's nodes where that can be.
    fn split(&self, keys: u32, levels: u32) -> (u32, u32) {
        let wanted = self.blocks_wanted().div_ceil(keys).next_power_of_two().trailing_zeros();
        let most = levels - levels.min(WARP.trailing_zeros());
        let split = wanted.min(most).max(levels.saturating_sub(BREADTH_MAX));
        (split, levels - split)
    }

    fn blocks_wanted(&self) -> u32 {
        BLOCKS_PER_MULTIPROCESSOR * self.device.facts().multiprocessors
    }
}

/// The module of a generator's strategies.
pub(crate) fn module(prg: PrgKind, tuning: PrgTuning) -> ModuleSpec {
    ModuleSpec { source: "expand.cu", defines: tuning.defines(prg) }
}

/// All modules of this file, and of the generators' known answers.
pub(crate) fn modules() -> impl Iterator<Item = Listed> {
    let strategies = PrgTuning::all().map(|(prg, tuning)| Listed {
        spec: module(prg, tuning),
        spill_free: &[
            "expand_from_root",
            "start_levels",
            "expand_level",
            "convert_level",
            "expand_hybrid",
            "expand_frontier",
            "expand_trees",
        ],
    });
    let checks = PrgTuning::all().map(|(prg, tuning)| Listed {
        spec: ModuleSpec { source: "prg_check.cu", defines: tuning.defines(prg) },
        spill_free: &["check_prg"],
    });
    strategies.chain(checks)
}

/// One call of [`Expander::expand`].
struct Work<'a> {
    expander: &'a Expander,
    stream: Stream,
    keys: &'a DeviceKeys,
    subtree: Subtree,
    height: u32,
    leaves: u32,
    shares: &'a Buffer,
}

impl Work<'_> {
    fn block_per_key(&self) -> Result<(), Error> {
        let device = &self.expander.device;
        let kernel = self.expander.kernel(self.keys, "expand_from_root")?;
        for chunk in chunks(self.keys.count(), self.expander.keys_per_launch) {
            // Single warps where whole blocks would leave multiprocessors without any.
            let all = u64::from(self.leaves) * u64::from(chunk.count);
            let scarce = all < u64::from(THREADS * device.facts().multiprocessors);
            let threads = if scarce { WARP } else { block_threads(self.leaves) };
            let blocks = self.expander.blocks_wanted() * (THREADS / threads);
            let blocks = blocks.div_ceil(chunk.count).min(self.leaves.div_ceil(threads));
            let launch = Launch {
                blocks: (blocks, chunk.count),
                threads,
                shared_bytes: self.expander.tuning.shared_bytes(self.keys.kind().prg),
                is_cooperative: false,
            };
            let [index, leaves, group, shares, share_leaves] = self.tail(&chunk);
            let arguments = [
                chunk.keys(self.keys),
                key_words(self.keys),
                Arg::U32(self.keys.kind().domain.depth()),
                Arg::U32(self.subtree.level),
                index,
                leaves,
                group,
                shares,
                share_leaves,
            ];
            // SAFETY: a kernel of this crate with what it takes, of buffers sized for these keys and this
            // subtree.
            unsafe { device.launch(self.stream, kernel, launch, &arguments) }?;
        }
        Ok(())
    }

    fn hybrid(&self, k: u32) -> Result<(), Error> {
        let kernel = self.expander.kernel(self.keys, "expand_hybrid")?;
        let levels = k.max(1).checked_next_power_of_two().map_or(32, u32::trailing_zeros);
        let levels = levels.min(self.height);
        for chunk in chunks(self.keys.count(), self.expander.keys_per_launch) {
            let (split, breadth) = self.expander.split(chunk.count, levels);
            let launch = Launch {
                // Blocks without a row are none.
                blocks: (self.leaves.div_ceil(1 << (self.height - split)), chunk.count),
                threads: block_threads(1 << breadth),
                shared_bytes: self.expander.shared_bytes(self.keys, breadth),
                is_cooperative: false,
            };
            let [index, leaves, group, shares, share_leaves] = self.tail(&chunk);
            let arguments = [
                chunk.keys(self.keys),
                key_words(self.keys),
                Arg::U32(self.keys.kind().domain.depth()),
                Arg::U32(self.subtree.level),
                index,
                Arg::U32(split),
                Arg::U32(breadth),
                leaves,
                group,
                shares,
                share_leaves,
            ];
            // SAFETY: a kernel of this crate with what it takes, of buffers sized for these keys and this
            // subtree.
            unsafe { self.expander.device.launch(self.stream, kernel, launch, &arguments) }?;
        }
        Ok(())
    }

    fn level_by_level(&self) -> Result<(), Error> {
        let Self { expander, stream, keys, subtree, height, leaves, .. } = *self;
        let device = &expander.device;
        let [start, expand, convert] = [
            expander.kernel(keys, "start_levels")?,
            expander.kernel(keys, "expand_level")?,
            expander.kernel(keys, "convert_level")?,
        ];
        // The last level's nodes go to one buffer, those of the level before to the other.
        let strides = [leaves, leaves.div_ceil(2)];
        let node_bytes = strides.map(|stride| stride as usize * NODE_BYTES);
        let fitting = expander.node_bytes_max / (node_bytes[0] + node_bytes[1]);
        let chunk_keys = (fitting.clamp(1, keys.count() as usize) as u32)
            .min((NODES_PER_LAUNCH / leaves).max(1));
        let buffers = [
            alloc(device, chunk_keys as usize * node_bytes[0])?,
            alloc(device, chunk_keys as usize * node_bytes[1])?,
        ];
        let flat = |threads: u32| Launch {
            blocks: (threads.div_ceil(THREADS), 1),
            threads: THREADS,
            shared_bytes: expander.tuning.shared_bytes(keys.kind().prg),
            is_cooperative: false,
        };
        let expand_chunk = |chunk: Chunk| {
            let of = |level: u32| ((height - level) % 2) as usize;
            let common = [chunk.keys(keys), key_words(keys), Arg::U32(chunk.count)];
            let [index, leaves_word, group, shares, share_leaves] = self.tail(&chunk);
            let [a, b, c] = common;
            let arguments = [
                a,
                b,
                c,
                Arg::U32(subtree.level),
                index,
                buffers[of(0)].at(0),
                Arg::U32(strides[of(0)]),
            ];
            // SAFETY: a kernel of this crate with what it takes, of buffers sized for these keys and this
            // subtree.
            unsafe { device.launch(stream, start, flat(chunk.count), &arguments) }?;
            for level in 0..height {
                let width = leaves.div_ceil(1 << (height - level));
                let (from, to) = (of(level), of(level + 1));
                let arguments = [
                    a,
                    b,
                    c,
                    Arg::U32(subtree.level + level),
                    Arg::U32(width),
                    buffers[from].at(0),
                    Arg::U32(strides[from]),
                    buffers[to].at(0),
                    Arg::U32(strides[to]),
                ];
                // SAFETY: a kernel of this crate with what it takes, of buffers sized for these keys and this
                // subtree.
                unsafe { device.launch(stream, expand, flat(chunk.count * width), &arguments) }?;
            }
            let depth = Arg::U32(keys.kind().domain.depth());
            let nodes = buffers[0].at(0);
            let stride = Arg::U32(strides[0]);
            let arguments =
                [a, b, c, depth, leaves_word, group, nodes, stride, shares, share_leaves];
            // SAFETY: a kernel of this crate with what it takes, of buffers sized for these keys and this
            // subtree.
            unsafe { device.launch(stream, convert, flat(chunk.count * leaves), &arguments) }
        };
        let outcome = chunks(keys.count(), chunk_keys).try_for_each(expand_chunk);
        // The nodes go now: whoever takes their memory next must not read them, and nothing may be
        // working on them.
        let wiped = buffers.each_ref().map(|nodes| device.clear(stream, nodes, 0, nodes.bytes()));
        let settled = device.synchronize(stream);
        outcome.and(wiped.into_iter().collect::<Result<(), Error>>()).and(settled)
    }

    /// The subtree's index, its leaves, the group, and where a chunk's shares go.
    fn tail(&self, chunk: &Chunk) -> [Arg; 5] {
        [
            Arg::U32(self.subtree.index),
            Arg::U32(self.leaves),
            Arg::U32(u32::from(self.keys.kind().domain.group().id())),
            self.shares.at((chunk.first as usize * LEAF_BYTES) << self.height),
            Arg::U32(1 << self.height),
        ]
    }
}

/// Some keys of a batch.
struct Chunk {
    first: u32,
    count: u32,
}

impl Chunk {
    /// Where their words begin.
    fn keys(&self, keys: &DeviceKeys) -> Arg {
        keys.words().at(4 * keys.kind().key_words() * self.first as usize)
    }
}

fn chunks(count: u32, most: u32) -> impl Iterator<Item = Chunk> {
    (0..count.div_ceil(most)).map(move |chunk| {
        let first = chunk * most;
        Chunk { first, count: most.min(count - first) }
    })
}

fn key_words(keys: &DeviceKeys) -> Arg {
    Arg::U32(keys.kind().key_words() as u32)
}

/// Whole warps for so many pieces of work, at most [`THREADS`].
fn block_threads(pieces: u32) -> u32 {
    pieces.next_multiple_of(WARP).min(THREADS)
}

fn has_room(what: &str, buffer: &Buffer, needed: usize) -> Result<(), Error> {
    if buffer.bytes() >= needed {
        return Ok(());
    }
    Err(Error::Geometry {
        reason: format!("the {what} take {needed} bytes, the buffer has {}", buffer.bytes()),
    })
}

#[cfg(test)]
mod tests;
