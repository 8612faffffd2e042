//! The paper's steps, each one change from the step before, so that the ratio of two is that of what
//! changed (Lam et al., §III-C, Figure 9 and Table IV).
//!
//! A block has one key in all steps but the last, and generator, leaves, K and the product's loop are
//! the same in all. From step to step:
//!
//! | strategy | what changes |
//! |---|---|
//! | `block-per-key` | the base: each leaf from the root; shares go through memory to the product |
//! | `level-by-level` | no node twice: a level at a time, its nodes in device memory |
//! | `hybrid:K` | nodes stay in shared memory: K at a time, depth first |
//! | `fused:K` | shares stay in shared memory: K leaves are multiplied where they are made |
//! | `cooperative` | a key has as many blocks as fill the device |
//!
//! What a server takes for the same names may differ in more: it spreads few keys over the device,
//! and multiplies shares from memory by another kernel.

use hushtable_pir::TableShape;
use hushtable_pir::dpf::{Domain, Group};

use crate::loaded::Loaded;
use crate::pass::Pass;
use crate::plan::{self, PAPER_THREADS};
use crate::store::Store;
use crate::{Arg, Buffer, DeviceKeys, Error, KeyKind, Launch, ModuleSpec, Strategy};

/// That an engine answers by the paper's steps alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Ablation {
    /// Whether a batch whose nodes and shares do not fit the device is answered in smaller batches,
    /// one after the other, and not refused.
    pub streams: bool,
}

/// Nodes at a time where a step names no K; their number is that of the product's rows at a time too.
const K: u32 = 128;
/// Rows of a leaf of words: of which a tree with a leaf a row has one.
const WORD_ROWS: u64 = 16;
/// Fewest rows of a table that has a leaf for each row: the product takes 64 at a time.
const ROWS_LEAST: u64 = 64;
const NODE_BYTES: u64 = 16;

/// The domain of keys of a table of `shape` whose trees have a leaf for each row, as the paper's: the
/// key of row i is that of row 16 i of this domain, in Z_2^32.
///
/// # Errors
/// [`Error::Geometry`] for fewer than 64 rows; [`Error::Pir`] for more than the trees have leaves.
pub fn row_domain(shape: TableShape) -> Result<Domain, Error> {
    if shape.rows() < ROWS_LEAST {
        let reason = format!("{} rows with a leaf each: {ROWS_LEAST} at least", shape.rows());
        return Err(Error::Geometry { reason });
    }
    Ok(Domain::new(shape.rows() * WORD_ROWS, Group::Z32)?)
}

/// The row's number in [`row_domain`].
pub fn row_index(row: u64) -> u64 {
    row * WORD_ROWS
}

/// Whether keys of a kind have a leaf for each row of the table.
pub(crate) fn has_row_leaves(shape: TableShape, kind: KeyKind) -> bool {
    kind.domain.rows() != shape.rows() && Ok(kind.domain) == row_domain(shape)
}

/// Bytes of device memory that a batch takes beside the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needs {
    /// Of the nodes of two levels.
    pub node_bytes: u64,
    /// Of the shares that the product reads.
    pub share_bytes: u64,
}

impl Needs {
    /// What `keys` keys of a kind take by a step's strategy.
    pub(crate) fn new(shape: TableShape, kind: KeyKind, strategy: Strategy, keys: u64) -> Self {
        let leaves = keys << kind.domain.depth();
        let leaf_bytes = if has_row_leaves(shape, kind) { 4 } else { 64 };
        let is_fused = matches!(strategy, Strategy::Fused { .. } | Strategy::Cooperative);
        Self {
            node_bytes: match strategy {
                Strategy::LevelByLevel => NODE_BYTES * (leaves + leaves.div_ceil(2)),
                _ => 0,
            },
            share_bytes: if is_fused { 0 } else { leaf_bytes * leaves },
        }
    }

    /// All of them.
    pub fn bytes(self) -> u64 {
        self.node_bytes + self.share_bytes
    }
}

/// Keys of a pass, of a batch of `keys`: all, or as many as fit where the ablation streams.
pub(crate) fn pass_keys(
    loaded: &Loaded,
    ablation: Ablation,
    kind: KeyKind,
    keys: usize,
) -> Result<usize, Error> {
    let shape = loaded.layout.shape();
    let strategy = loaded.strategy;
    if matches!(strategy, Strategy::Auto | Strategy::Tensor) {
        let reason = format!(
            "{strategy} is no step of the paper's: block-per-key, level-by-level, hybrid:K, fused:K \
             and cooperative are"
        );
        return Err(Error::Geometry { reason });
    }
    if !matches!(loaded.store, Store::Resident(_)) {
        let reason = "the paper's steps are of tables in device memory: this one is streamed";
        return Err(Error::Geometry { reason: reason.to_owned() });
    }
    let needs = |keys: usize| Needs::new(shape, kind, strategy, keys as u64).bytes();
    let free = loaded.work_bytes_all;
    if needs(keys) <= free {
        return Ok(keys);
    }
    // Two passes may be at work at once.
    let fitting = (free / 2 / needs(1)) as usize;
    if ablation.streams && fitting > 0 {
        return Ok(fitting);
    }
    let Needs { node_bytes, share_bytes } = Needs::new(shape, kind, strategy, keys as u64);
    Err(Error::Geometry {
        reason: format!(
            "{strategy} takes {} bytes of device memory beside the table for {keys} keys \
             ({node_bytes} of nodes, {share_bytes} of shares), and {free} are free: ask for at most \
             {fitting} keys at a time, which streaming does",
            needs(keys)
        ),
    })
}

/// The module of `source` (`ablation.cu` or `fused.cu`) for a kind of keys.
fn module(loaded: &Loaded, kind: KeyKind, source: &'static str) -> ModuleSpec {
    let (group, tiles) = (kind.domain.group(), loaded.layout.tiles());
    let mut module = plan::paper_module(source, kind.prg, loaded.tuning, group, tiles);
    if has_row_leaves(loaded.layout.shape(), kind) {
        module.defines.push(("ROW_LEAVES", 1));
    }
    module
}

impl Pass<'_> {
    /// Adds all products to the sums by a step.
    pub(crate) fn step(&mut self, keys: &DeviceKeys, strategy: Strategy) -> Result<(), Error> {
        let loaded = self.loaded;
        let depth = self.kind.domain.depth();
        let k = match strategy {
            Strategy::Hybrid { k } | Strategy::Fused { k } => k,
            _ => K,
        };
        let prg_bytes = loaded.tuning.shared_bytes(self.kind.prg);
        // A chunk is 64 rows at least, by eight of which the product goes.
        let least = if has_row_leaves(loaded.layout.shape(), self.kind) { 64 } else { 2 };
        let (log_k, shared_bytes) =
            plan::fused(k.max(least), depth, prg_bytes, loaded.device.facts());
        match strategy {
            Strategy::Fused { .. } => self.fused_below(keys, 0, log_k, shared_bytes),
            Strategy::Cooperative => {
                let wanted = (2 * loaded.device.facts().multiprocessors).div_ceil(keys.count());
                let root = wanted.next_power_of_two().trailing_zeros();
                let root = root.min(depth.saturating_sub(log_k));
                self.fused_below(keys, root, log_k, shared_bytes)
            }
            _ => {
                let needs =
                    Needs::new(loaded.layout.shape(), self.kind, strategy, u64::from(keys.count()));
                let shares = self.lane.shares.take(&loaded.device, needs.share_bytes as usize)?;
                let outcome = self
                    .expand_step(keys, strategy, log_k, shared_bytes, &shares)
                    .and_then(|()| self.multiply_step(keys, log_k, &shares));
                self.lane.shares.put(shares);
                outcome
            }
        }
    }

    fn expand_step(
        &mut self,
        keys: &DeviceKeys,
        strategy: Strategy,
        log_k: u32,
        shared_bytes: u32,
        shares: &Buffer,
    ) -> Result<(), Error> {
        let loaded = self.loaded;
        let (device, depth) = (&loaded.device, self.kind.domain.depth());
        let module = module(loaded, self.kind, "ablation.cu");
        let prg_bytes = loaded.tuning.shared_bytes(self.kind.prg);
        let (words, key_words) = (keys.words().at(0), Arg::U32(self.kind.key_words() as u32));
        let (name, shared_bytes, arguments) = match strategy {
            Strategy::LevelByLevel => {
                let leaves = (keys.count() as usize) << depth;
                let last = NODE_BYTES as usize * leaves;
                let nodes = self.lane.nodes.of(device, last + last.div_ceil(2))?;
                let arguments = vec![
                    words,
                    shares.at(0),
                    nodes.at(0),
                    nodes.at(last),
                    key_words,
                    Arg::U32(depth),
                ];
                ("step_by_levels", prg_bytes, arguments)
            }
            Strategy::Hybrid { .. } => {
                let arguments =
                    vec![words, shares.at(0), key_words, Arg::U32(depth), Arg::U32(log_k)];
                ("step_by_chunks", shared_bytes, arguments)
            }
            _ => {
                let arguments = vec![words, shares.at(0), key_words, Arg::U32(depth)];
                ("step_from_root", prg_bytes, arguments)
            }
        };
        let kernel = device.kernel(&module, name)?;
        let launch = Launch {
            blocks: (keys.count(), 1),
            threads: PAPER_THREADS,
            shared_bytes,
            is_cooperative: false,
        };
        // SAFETY: a kernel of this crate with what it takes: these keys' words, and buffers that have
        // a share of each leaf and, level by level, its node and half as many.
        unsafe { device.launch(self.lane.stream, kernel, launch, &arguments) }
    }

    fn multiply_step(
        &mut self,
        keys: &DeviceKeys,
        log_k: u32,
        shares: &Buffer,
    ) -> Result<(), Error> {
        let loaded = self.loaded;
        let (device, layout) = (&loaded.device, &loaded.layout);
        let depth = self.kind.domain.depth();
        let kernel = device.kernel(&module(loaded, self.kind, "ablation.cu"), "step_multiply")?;
        let leaf_bytes = if has_row_leaves(layout.shape(), self.kind) { 4 } else { 64 };
        let launch = Launch {
            blocks: (keys.count(), layout.strips()),
            threads: PAPER_THREADS,
            shared_bytes: leaf_bytes << log_k,
            is_cooperative: false,
        };
        let sums = self.sums(0)?;
        let stream = self.lane.stream;
        loaded.store.each_part(device, stream, layout, layout.blocks(), |part| {
            let arguments = [
                part.table,
                shares.at(0),
                sums,
                Arg::U32(depth),
                Arg::U32(log_k),
                Arg::U32(layout.height()),
                Arg::U32(layout.strips()),
                Arg::U32(part.blocks << layout.height()),
            ];
            // SAFETY: a kernel of this crate with what it takes: the whole table, a share of each
            // leaf of these keys, and their sums.
            unsafe { device.launch(stream, kernel, launch, &arguments) }
        })
    }

    /// `fused`, with 2^root blocks a key.
    pub(crate) fn fused_below(
        &mut self,
        keys: &DeviceKeys,
        root: u32,
        log_k: u32,
        shared_bytes: u32,
    ) -> Result<(), Error> {
        let loaded = self.loaded;
        let (device, layout) = (&loaded.device, &loaded.layout);
        let kernel = device.kernel(&module(loaded, self.kind, "fused.cu"), "fused")?;
        let sums = self.sums(0)?;
        let launch = Launch {
            blocks: (keys.count(), layout.strips() << root),
            threads: PAPER_THREADS,
            shared_bytes,
            is_cooperative: false,
        };
        let stream = self.lane.stream;
        loaded.store.each_part(device, stream, layout, layout.blocks(), |part| {
            let arguments = [
                part.table,
                keys.words().at(0),
                sums,
                Arg::U32(self.kind.key_words() as u32),
                Arg::U32(self.kind.domain.depth()),
                Arg::U32(root),
                Arg::U32(log_k),
                Arg::U32(layout.height()),
                Arg::U32(layout.strips()),
                Arg::U32(part.blocks << layout.height()),
            ];
            // SAFETY: a kernel of this crate with what it takes, of buffers that `plan` sized for this
            // pass and that the lane or the store keeps until the stream is through.
            unsafe { device.launch(stream, kernel, launch, &arguments) }
        })
    }
}
