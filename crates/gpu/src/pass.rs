//! One pass over the table for keys of one kind: what is launched, and on what.

use std::fmt;

use hushtable_pir::dpf::{Group, Key};

use crate::clock::Clock;
use crate::lane::Lane;
use crate::layout::least_part_blocks;
use crate::loaded::Loaded;
use crate::plan::{self, PAPER_THREADS, WalkPlan, WalkSpec};
use crate::store::{Part, Store};
use crate::{
    Arg, DeviceFacts, DeviceKeys, Error, ExpandStrategy, KeyKind, Launch, Strategy, Subtree, keys,
};

/// Keys up to which a scan of the table, once for all, is the way for bytes too: its dot products keep
/// up with the memory, and `tensor` would leave most of a block's warps without keys.
const SCAN_KEYS_MAX: u32 = 32;
/// Keys up to which each thread goes down from the root: the shortest way, though nodes are expanded
/// again and again.
const ROOT_KEYS_MAX: u32 = 4;
/// Nodes of a key from which threads go depth first, where it is left to the engine: leaves of 2^20
/// rows are 2^11 in bits and 2^14 in bytes.
const EXPANSION: u32 = 1024;
const NODE_BYTES: usize = 16;
const LEAF_BYTES: usize = 64;
/// Bytes that `multiply` may read past the last key's shares: a tree may have fewer leaves than the
/// table leaf of words that is read.
const SHARE_SLACK_BYTES: usize = 256;
const FINISH_THREADS: u32 = 256;
/// Blocks of a multiprocessor that wait for each other.
const COOPERATIVE_BLOCKS_MAX: u32 = 2;

/// How a pass goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Shares of a part, then its product.
    Product(ExpandStrategy),
    /// `tensor`.
    Tensor,
    /// `fragments`, then `tensor_fragments` a strip.
    Fragments,
    /// `fused`, by its expansion factor.
    Fused(u32),
    /// `cooperative`, a launch a key.
    Cooperative,
    /// A step of the paper's ablation.
    Step(Strategy),
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product(ExpandStrategy::BlockPerKey) => f.write_str("block-per-key, product"),
            Self::Product(ExpandStrategy::LevelByLevel) => f.write_str("level-by-level, product"),
            Self::Product(ExpandStrategy::Hybrid { k }) => write!(f, "hybrid:{k}, product"),
            Self::Tensor => f.write_str("tensor"),
            Self::Fragments => f.write_str("tensor by fragments"),
            Self::Fused(k) => write!(f, "fused:{k}"),
            Self::Cooperative => f.write_str("cooperative"),
            Self::Step(strategy) => write!(f, "the paper's {strategy}"),
        }
    }
}

impl Route {
    /// The route of a pass of `keys` keys.
    pub(crate) fn new(loaded: &Loaded, kind: KeyKind, keys: u32) -> Self {
        if loaded.ablation.is_some() {
            return Self::Step(loaded.strategy);
        }
        let is_resident = matches!(loaded.store, Store::Resident(_));
        let is_bytes = kind.domain.group() == Group::Z8;
        match loaded.strategy {
            Strategy::Tensor if is_bytes => Self::tensor(loaded, kind, keys),
            Strategy::Fused { k } if is_resident => Self::Fused(k),
            Strategy::Cooperative if is_resident && fits_cooperative(loaded, kind) => {
                Self::Cooperative
            }
            Strategy::Auto if is_bytes && keys > SCAN_KEYS_MAX => Self::tensor(loaded, kind, keys),
            other => Self::Product(other.expand().unwrap_or(match keys {
                ..=ROOT_KEYS_MAX => ExpandStrategy::BlockPerKey,
                _ => ExpandStrategy::Hybrid { k: EXPANSION },
            })),
        }
    }

    fn tensor(loaded: &Loaded, kind: KeyKind, keys: u32) -> Self {
        // In several strips leaves would be expanded for each.
        match walk_plan(loaded, kind, keys, loaded.layout.blocks(), true, None) {
            Some(_) if loaded.layout.strips() == 1 => Self::Tensor,
            _ => Self::Fragments,
        }
    }
}

fn fits_cooperative(loaded: &Loaded, kind: KeyKind) -> bool {
    let leaves = 1usize << kind.domain.depth();
    leaves * LEAF_BYTES <= loaded.work_bytes_max && leaves * 2 * NODE_BYTES <= loaded.work_bytes_max
}

/// The walk of `blocks` superblocks for `tensor` (`is_fused`) or `fragments`.
fn walk_plan(
    loaded: &Loaded,
    kind: KeyKind,
    keys: u32,
    blocks: u32,
    is_fused: bool,
    height: Option<u32>,
) -> Option<WalkPlan> {
    let prg_bytes = loaded.tuning.shared_bytes(kind.prg);
    let step_bytes = if is_fused { 2 * loaded.layout.step_bytes() as u32 } else { 0 };
    let spec = WalkSpec {
        keys,
        blocks,
        depth: kind.domain.depth(),
        shared_bytes: prg_bytes + step_bytes,
        // The kernels' __launch_bounds__.
        resident: if is_fused { 1 } else { 2 },
        node_bytes_max: loaded.work_bytes_max as u64,
        height,
    };
    plan::walk(spec, &loaded.layout, loaded.device.facts())
}

/// A pass in a lane.
pub(crate) struct Pass<'a> {
    pub loaded: &'a Loaded,
    pub kind: KeyKind,
    pub lane: &'a mut Lane,
}

impl Pass<'_> {
    /// Most keys of a kind that a pass has memory for.
    pub(crate) fn keys_max(loaded: &Loaded, kind: KeyKind) -> usize {
        let layout = &loaded.layout;
        // Words, sums and answers, and the least part's shares, or all of a frontier.
        let beside = 4 * kind.key_words() + 4 * layout.columns() + layout.shape().row_bytes();
        let rows = (layout.block_rows() as usize) << least_part_blocks(layout).ilog2();
        let shares = rows / kind.domain.group().rows_per_leaf() as usize * LEAF_BYTES;
        let nodes = NODE_BYTES << kind.domain.depth().saturating_sub(layout.height());
        let group_nodes = if kind.domain.group() == Group::Z8 { nodes } else { 0 };
        loaded.work_bytes_max / beside.max(shares).max(group_nodes)
    }

    /// Puts all of a pass in the lane's stream. After an error the lane is as before.
    pub(crate) fn issue(mut self, chosen: &[&Key], clock: Option<&mut Clock>) -> Result<(), Error> {
        let outcome = self.launch(chosen, clock);
        if outcome.is_err() {
            // What was put in the stream may still read the host's keys. What else fails here is of no
            // more interest than what failed first.
            let _ = self.loaded.device.synchronize(self.lane.stream);
            let _ = self.wipe();
        }
        outcome
    }

    fn launch(&mut self, chosen: &[&Key], clock: Option<&mut Clock>) -> Result<(), Error> {
        let Self { loaded, kind, .. } = *self;
        let device = &loaded.device;
        let bytes = 4 * kind.key_words() * chosen.len();
        let staged = self.lane.keys_out.of(device, bytes)?;
        keys::pack(chosen, staged);
        let began = clock.as_ref().map(|_| device.record(self.lane.stream)).transpose()?;
        let words = self.lane.keys.take(device, bytes)?;
        let outcome = device.copy_in(self.lane.stream, &words, 0, staged);
        let keys = DeviceKeys::from_words(kind, chosen.len(), words)?;
        let outcome = outcome.and_then(|()| self.multiply(&keys)).and_then(|()| self.finish(&keys));
        self.lane.keys.put(keys.into_words());
        outcome?;
        match (clock, began) {
            (Some(clock), Some(began)) => clock.ended(device, self.lane.stream, began),
            _ => Ok(()),
        }
    }

    /// Waits for an issued pass of `count` keys and hands over its answers, by their numbers.
    pub(crate) fn collect(
        mut self,
        count: usize,
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        let Self { loaded, ref mut lane, .. } = self;
        let row_bytes = loaded.layout.shape().row_bytes();
        let staged = lane.answers_in.of(&loaded.device, count * row_bytes)?;
        let outcome = match lane.answers.buffer() {
            Some(answers) => loaded.device.copy_out(lane.stream, staged, answers, 0),
            None => Err(Error::Geometry { reason: "a pass that nobody issued".to_owned() }),
        };
        if outcome.is_ok() {
            staged.chunks_exact(row_bytes).enumerate().for_each(|(index, row)| take(index, row));
        } else {
            let _ = loaded.device.synchronize(lane.stream);
        }
        // The answers do not wait for this: the lane's next pass does, by the stream's order.
        outcome.and(self.wipe())
    }

    /// Wipes what the lane has of keys, which nothing may still be copied from.
    fn wipe(&mut self) -> Result<(), Error> {
        self.lane.keys_out.wipe();
        self.lane.wipe(&self.loaded.device)
    }

    /// Clears the sums and adds all products to them.
    fn multiply(&mut self, keys: &DeviceKeys) -> Result<(), Error> {
        let loaded = self.loaded;
        let bytes = 4 * loaded.layout.columns() * keys.count() as usize;
        let sums = self.lane.sums.of(&loaded.device, bytes)?;
        loaded.device.clear(self.lane.stream, sums, 0, bytes)?;
        match Route::new(loaded, self.kind, keys.count()) {
            Route::Product(strategy) => self.product(keys, strategy),
            Route::Tensor => self.tensor(keys),
            Route::Fragments => self.fragments(keys),
            Route::Fused(k) => self.fused(keys, k),
            Route::Cooperative => self.cooperative(keys),
            Route::Step(strategy) => self.step(keys, strategy),
        }
    }

    fn finish(&mut self, keys: &DeviceKeys) -> Result<(), Error> {
        let loaded = self.loaded;
        let row_bytes = loaded.layout.shape().row_bytes();
        let bytes = row_bytes * keys.count() as usize;
        let answers = self.lane.answers.of(&loaded.device, bytes)?.at(0);
        let group = self.kind.domain.group();
        let kernel = loaded.device.kernel(&plan::finish_module(group), "finish")?;
        let launch = Launch {
            blocks: (bytes.div_ceil(FINISH_THREADS as usize) as u32, 1),
            threads: FINISH_THREADS,
            shared_bytes: 0,
            is_cooperative: false,
        };
        let arguments = [
            self.sums(0)?,
            keys.words().at(0),
            answers,
            Arg::U32(keys.count()),
            Arg::U32(self.kind.key_words() as u32),
            Arg::U32(loaded.layout.columns() as u32),
            Arg::U32(row_bytes as u32),
        ];
        // SAFETY: a kernel of this crate with what it takes, of buffers that `plan` sized for this pass
        // and that the lane or the store keeps until the stream is through.
        unsafe { loaded.device.launch(self.lane.stream, kernel, launch, &arguments) }
    }

    /// Where key `key`'s sums are.
    pub(crate) fn sums(&mut self, key: u32) -> Result<Arg, Error> {
        let bytes = 4 * self.loaded.layout.columns() * key as usize;
        Ok(self.lane.sums.of(&self.loaded.device, bytes)?.at(bytes))
    }

    /// Superblocks of a part, so that what a pass keeps of each superblock, `block_bytes`, fits.
    fn part_blocks(&self, block_bytes: usize) -> u32 {
        let layout = &self.loaded.layout;
        let fitting = (self.loaded.work_bytes_max / block_bytes).checked_ilog2().unwrap_or(0);
        let most = self.loaded.store.part_blocks(layout).next_power_of_two();
        (1 << fitting.min(31)).min(most).max(least_part_blocks(layout))
    }

    fn product(&mut self, keys: &DeviceKeys, strategy: ExpandStrategy) -> Result<(), Error> {
        let Self { loaded, kind, ref mut lane, .. } = *self;
        let (device, layout) = (&loaded.device, &loaded.layout);
        let (group, depth) = (kind.domain.group(), kind.domain.depth());
        let count = keys.count();
        let leaf_rows = group.rows_per_leaf();
        let block_bytes = (layout.block_rows() / leaf_rows).max(1) as usize * LEAF_BYTES;
        let part_blocks = Pass { loaded, kind, lane }.part_blocks(block_bytes * count as usize);
        // The levels below the node whose leaves a part's rows are.
        let part_leaves = u64::from(part_blocks) * layout.block_rows() / leaf_rows;
        let level = depth - depth.min(part_leaves.ilog2());
        let share_words = 16u64 << (depth - level);
        let table_leaves = ((leaf_rows << (depth - level)) / 64).max(1);
        let bytes = 4 * share_words as usize * count as usize;
        let stream = lane.stream;
        let sums = lane.sums.of(device, 0)?.at(0);
        let shares = lane.shares.of(device, bytes + SHARE_SLACK_BYTES)?;
        loaded.store.each_part(device, stream, layout, part_blocks, |part| {
            let subtree = match level {
                0 => Subtree::WHOLE,
                _ => Subtree { level, index: part.first / part_blocks },
            };
            loaded.expander.expand(stream, keys, strategy, subtree, shares)?;
            let steps = part.blocks << layout.height();
            let plan = plan::product(count, group, steps, layout, device.facts());
            let kernel = device.kernel(&plan.module(group, layout.tiles()), "multiply")?;
            let arguments = [
                part.table,
                shares.at(0),
                sums,
                Arg::U64(share_words),
                Arg::U32(count),
                Arg::U32(table_leaves as u32),
                Arg::U32(layout.height()),
                Arg::U32(layout.strips()),
                // The shares are of the part.
                Arg::U32(if level == 0 { part.first } else { 0 }),
                Arg::U32(steps),
                Arg::U32(plan.query_warps),
            ];
            // SAFETY: a kernel of this crate with what it takes, of buffers that `plan` sized for this pass
            // and that the lane or the store keeps until the stream is through.
            unsafe { device.launch(stream, kernel, plan.launch, &arguments) }
        })
    }

    /// Plans the walk of `blocks` superblocks and fills the lane's frontier for it.
    fn frontier(
        &mut self,
        keys: &DeviceKeys,
        blocks: u32,
        is_fused: bool,
    ) -> Result<(u32, Arg), Error> {
        let loaded = self.loaded;
        let height = self.walk(keys, blocks, is_fused, None)?.height;
        let top = self.kind.domain.depth() - height;
        let bytes = (keys.count() as usize * NODE_BYTES) << top;
        let nodes = self.lane.nodes.of(&loaded.device, bytes)?;
        loaded.expander.frontier(self.lane.stream, keys, top, nodes)?;
        Ok((height, nodes.at(0)))
    }

    fn walk(
        &self,
        keys: &DeviceKeys,
        blocks: u32,
        is_fused: bool,
        height: Option<u32>,
    ) -> Result<WalkPlan, Error> {
        let plan = walk_plan(self.loaded, self.kind, keys.count(), blocks, is_fused, height);
        plan.ok_or_else(|| {
            let DeviceFacts { name, shared_bytes_max, .. } = self.loaded.device.facts();
            let reason = format!(
                "a block of {name} has {shared_bytes_max} bytes of shared memory, too few for {} \
                 keys of {}: choose another generator, or another strategy than tensor",
                keys.count(),
                self.kind.prg
            );
            Error::Geometry { reason }
        })
    }

    /// What `tensor` and `fragments` are told of the batch and the table.
    fn walk_arguments(&self, keys: &DeviceKeys, part: &Part, plan: &WalkPlan) -> [Arg; 7] {
        [
            Arg::U32(keys.count()),
            Arg::U32(self.kind.key_words() as u32),
            Arg::U32(self.kind.domain.depth()),
            Arg::U32(plan.height),
            Arg::U32(self.loaded.layout.height()),
            Arg::U32(part.first),
            Arg::U32(plan.units),
        ]
    }

    fn tensor(&mut self, keys: &DeviceKeys) -> Result<(), Error> {
        let loaded = self.loaded;
        let (device, layout) = (&loaded.device, &loaded.layout);
        let part_blocks = loaded.store.part_blocks(layout);
        let (height, nodes) = self.frontier(keys, part_blocks.min(layout.blocks()), true)?;
        let sums = self.sums(0)?;
        let module = plan::tensor_module(self.kind.prg, loaded.tuning, layout.tiles(), true);
        let kernel = device.kernel(&module, "tensor")?;
        let stream = self.lane.stream;
        loaded.store.each_part(device, stream, layout, part_blocks, |part| {
            let plan = self.walk(keys, part.blocks, true, Some(height))?;
            let mut arguments = vec![part.table, nodes, keys.words().at(0), sums];
            arguments.extend(self.walk_arguments(keys, &part, &plan));
            // SAFETY: a kernel of this crate with what it takes, of buffers that `plan` sized for this pass
            // and that the lane or the store keeps until the stream is through.
            unsafe { device.launch(stream, kernel, plan.launch, &arguments) }
        })
    }

    fn fragments(&mut self, keys: &DeviceKeys) -> Result<(), Error> {
        let loaded = self.loaded;
        let (device, layout) = (&loaded.device, &loaded.layout);
        let rows = plan::padded_keys(keys.count()) as usize;
        // A byte a row and key.
        let block_bytes = rows * layout.block_rows() as usize;
        let part_blocks = self.part_blocks(block_bytes);
        let blocks = part_blocks.min(layout.blocks());
        let (height, nodes) = self.frontier(keys, blocks, false)?;
        let sums = self.sums(0)?;
        let fragments = self.lane.shares.of(device, blocks as usize * block_bytes)?.at(0);
        let module = plan::tensor_module(self.kind.prg, loaded.tuning, layout.tiles(), false);
        let expand = device.kernel(&module, "fragments")?;
        let multiply = device.kernel(&module, "tensor_fragments")?;
        let stream = self.lane.stream;
        loaded.store.each_part(device, stream, layout, part_blocks, |part| {
            let plan = self.walk(keys, part.blocks, false, Some(height))?;
            let mut arguments = vec![fragments, nodes, keys.words().at(0)];
            arguments.extend(self.walk_arguments(keys, &part, &plan));
            // SAFETY: a kernel of this crate with what it takes, of buffers that `plan` sized for this pass
            // and that the lane or the store keeps until the stream is through.
            unsafe { device.launch(stream, expand, plan.launch, &arguments) }?;
            let steps = part.blocks << layout.height();
            let launch = plan::fragments_launch(keys.count(), steps, layout, device.facts());
            for strip in 0..layout.strips() {
                let arguments = [
                    part.table,
                    fragments,
                    sums,
                    Arg::U32(keys.count()),
                    Arg::U32(layout.height()),
                    Arg::U32(layout.strips()),
                    Arg::U32(strip),
                    Arg::U32(steps),
                ];
                // SAFETY: a kernel of this crate with what it takes, of buffers that `plan` sized for this pass
                // and that the lane or the store keeps until the stream is through.
                unsafe { device.launch(stream, multiply, launch, &arguments) }?;
            }
            Ok(())
        })
    }

    fn fused(&mut self, keys: &DeviceKeys, k: u32) -> Result<(), Error> {
        let loaded = self.loaded;
        let KeyKind { domain, prg } = self.kind;
        let prg_bytes = loaded.tuning.shared_bytes(prg);
        let (log_k, shared_bytes) =
            plan::fused(k, domain.depth(), prg_bytes, loaded.device.facts());
        // A block a key.
        self.fused_below(keys, 0, log_k, shared_bytes)
    }

    fn cooperative(&mut self, keys: &DeviceKeys) -> Result<(), Error> {
        let loaded = self.loaded;
        let (device, layout) = (&loaded.device, &loaded.layout);
        let KeyKind { domain, prg } = self.kind;
        let depth = domain.depth();
        let module = plan::paper_module(
            "cooperative.cu",
            prg,
            loaded.tuning,
            domain.group(),
            layout.tiles(),
        );
        let kernel = device.kernel(&module, "cooperative")?;
        let shared_bytes = loaded.tuning.shared_bytes(prg);
        let resident = device.blocks_per_multiprocessor(kernel, PAPER_THREADS, shared_bytes)?;
        let blocks = device.facts().multiprocessors * resident.clamp(1, COOPERATIVE_BLOCKS_MAX);
        let launch = Launch {
            blocks: (blocks, 1),
            threads: PAPER_THREADS,
            shared_bytes,
            is_cooperative: true,
        };
        let top = depth.min((blocks * PAPER_THREADS).ilog2());
        let level_bytes = NODE_BYTES << depth;
        let table_leaves = ((domain.group().rows_per_leaf() << depth) / 64).max(1);
        let (stream, lane) = (self.lane.stream, &mut *self.lane);
        let nodes = lane.nodes.of(device, 2 * level_bytes)?;
        let shares = lane.shares.of(device, (LEAF_BYTES << depth) + SHARE_SLACK_BYTES)?;
        let barrier = lane.barrier.of(device, 4)?;
        let sums = lane.sums.of(device, 0)?;
        loaded.store.each_part(device, stream, layout, layout.blocks(), |part| {
            for key in 0..keys.count() as usize {
                device.clear(stream, barrier, 0, 4)?;
                let arguments = [
                    part.table,
                    keys.words().at(4 * self.kind.key_words() * key),
                    nodes.at(0),
                    nodes.at(level_bytes),
                    shares.at(0),
                    sums.at(4 * layout.columns() * key),
                    barrier.at(0),
                    Arg::U32(depth),
                    Arg::U32(top),
                    Arg::U32(layout.height()),
                    Arg::U32(layout.strips()),
                    Arg::U32(table_leaves as u32),
                    Arg::U32(part.blocks << layout.height()),
                ];
                // SAFETY: a kernel of this crate with what it takes, of buffers that `plan` sized for this pass
                // and that the lane or the store keeps until the stream is through.
                unsafe { device.launch(stream, kernel, launch, &arguments) }?;
            }
            Ok(())
        })
    }
}
