//! How much of what each launch does: grids, shared memory, and which modules they are of.

use hushtable_pir::dpf::Group;
use hushtable_prg::PrgKind;

use crate::layout::Layout;
use crate::listed::Listed;
use crate::prg::PrgTuning;
use crate::{DeviceFacts, Launch, ModuleSpec};

/// Keys of a warp's left-hand side.
pub(crate) const WARP_KEYS: u32 = 16;
const WARP: u32 = 32;
/// Threads of the paper's kernels.
pub(crate) const PAPER_THREADS: u32 = 256;
/// Warps of a block that has keys for as many: `__launch_bounds__` of the kernels.
const WARPS_MAX: u32 = 8;
const NODE_BYTES: u32 = 16;
const LEVEL_BYTES: u32 = 32;
const LEAF_BYTES: u32 = 64;
/// Tiles of a strip: 128 accumulators a lane.
const TILES_MAX: u32 = 32;
const TILES_MAX_SMALL: u32 = 16;
/// Shared memory that a strip of [`TILES_MAX`] tiles takes: two steps and 8 KB of corrections.
const SHARED_LARGE: u32 = 2 * 2048 * TILES_MAX + (8 << 10);

/// Most tiles of a strip on a device.
pub(crate) fn tiles_max(facts: &DeviceFacts) -> u32 {
    if facts.shared_bytes_max >= SHARED_LARGE { TILES_MAX } else { TILES_MAX_SMALL }
}

/// A launch of `tensor` or `fragments`: blocks of up to 8 warps of 16 keys, each of which goes over
/// some of the table's units, which are the walks of 2^height steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalkPlan {
    pub launch: Launch,
    /// Levels that a lane walks.
    pub height: u32,
    /// Units that the superblocks make.
    pub units: u32,
}

/// A walk over the keys' trees, as an engine asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkSpec {
    pub keys: u32,
    /// Superblocks.
    pub blocks: u32,
    /// Levels of the tree.
    pub depth: u32,
    /// Bytes of shared memory beside the walk's.
    pub shared_bytes: u32,
    /// Blocks that a multiprocessor runs at once.
    pub resident: u32,
    /// Bytes that the nodes above the walks may take; the highest walk may take more.
    pub node_bytes_max: u64,
    /// The walk's levels, if they are decided.
    pub height: Option<u32>,
}

/// `walk_shared` of tensor.cu: a stack of `height` nodes for each of a lane's two keys, the
/// corrections of `height` levels and of a leaf for each key.
fn walk_bytes(height: u32, warps: u32) -> u32 {
    let keys = warps * WARP_KEYS;
    height * 2 * warps * WARP * NODE_BYTES + keys * (height * LEVEL_BYTES + LEAF_BYTES)
}

fn warps_of(keys: u32) -> u32 {
    keys.div_ceil(WARP_KEYS).min(WARPS_MAX)
}

/// The keys that a launch has room for, with those that only fill a block: buffers are for these.
pub(crate) fn padded_keys(keys: u32) -> u32 {
    keys.next_multiple_of(warps_of(keys) * WARP_KEYS)
}

/// The walk that ends first by a count of generator calls, of those whose shared memory fits; none if
/// no walk's does.
pub(crate) fn walk(spec: WalkSpec, layout: &Layout, facts: &DeviceFacts) -> Option<WalkPlan> {
    let warps = warps_of(spec.keys);
    let groups = spec.keys.div_ceil(warps * WARP_KEYS);
    let slots = facts.multiprocessors * spec.resident;
    let mut best: Option<(u64, WalkPlan)> = None;
    for height in (0..=layout.height()).rev() {
        let shared_bytes = spec.shared_bytes + walk_bytes(height, warps);
        let is_other = spec.height.is_some_and(|decided| decided != height);
        let node_bytes = (u64::from(spec.keys) * u64::from(NODE_BYTES)) << (spec.depth - height);
        let is_large = best.is_some() && node_bytes > spec.node_bytes_max;
        if shared_bytes > facts.shared_bytes_max || is_other || is_large {
            continue;
        }
        let units = spec.blocks << (layout.height() - height);
        // Above the walks, two calls a node, on whatever is there of the device.
        let nodes = u64::from(spec.keys) << (spec.depth - height + 1);
        let frontier = nodes / u64::from(facts.multiprocessors * WARPS_MAX * 2 * WARP);
        for waves in 1..=4 {
            let chunks = (waves * slots / groups).clamp(1, units);
            let waves = u64::from(groups) * u64::from(chunks);
            let waves = waves.div_ceil(u64::from(slots));
            // Two calls a leaf; adding to the sums in memory takes about as long as 16.
            let block = (u64::from(units.div_ceil(chunks)) << (height + 1)) + 16;
            let cost = waves * block + frontier;
            if best.is_none_or(|(least, _)| cost < least) {
                let launch = Launch {
                    blocks: (chunks, groups),
                    threads: warps * WARP,
                    shared_bytes,
                    is_cooperative: false,
                };
                best = Some((cost, WalkPlan { launch, height, units }));
            }
        }
    }
    best.map(|(_, plan)| plan)
}

/// The launch of `tensor_fragments`, whose blocks have as many keys as blocks of `fragments`.
pub(crate) fn fragments_launch(
    keys: u32,
    steps: u32,
    layout: &Layout,
    facts: &DeviceFacts,
) -> Launch {
    let warps = warps_of(keys);
    let groups = keys.div_ceil(warps * WARP_KEYS);
    let chunks = (facts.multiprocessors / groups).clamp(1, steps);
    Launch {
        blocks: (chunks, groups),
        threads: warps * WARP,
        shared_bytes: 2 * layout.step_bytes() as u32,
        is_cooperative: false,
    }
}

/// A launch of `multiply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProductPlan {
    pub launch: Launch,
    pub query_warps: u32,
    form: ProductForm,
}

/// The form of the product that multiply.cu is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProductForm {
    queries: u32,
    pairs: u32,
    lines: u32,
}

impl ProductForm {
    fn new(keys: u32, group: Group, tiles: u32) -> Self {
        let pairs = tiles.div_ceil(2).next_power_of_two();
        match (keys, group) {
            // A scan: four 16-byte loads a lane on their way while four are multiplied, or two, where
            // their shares, eight words a load and row octet, would not stay in registers beside.
            (1, Group::Z32) => Self { queries: 1, pairs: 1, lines: 2 },
            (1, _) => Self { queries: 1, pairs: 1, lines: 4 },
            // More keys' shares would not stay in registers.
            (_, Group::Z32) => Self { queries: 4, pairs: pairs.min(2), lines: 1 },
            (..=4, _) => Self { queries: 4, pairs: pairs.min(4), lines: 1 },
            _ => Self { queries: 8, pairs: pairs.min(4), lines: 1 },
        }
    }
}

/// Blocks of a multiprocessor that multiply.cu is compiled for.
fn product_blocks(queries: u32, group: Group) -> u32 {
    match (queries, group) {
        (1, Group::Z32) => 3,
        (1, _) => 4,
        _ => 2,
    }
}

/// A product of `keys` keys' shares with `steps` steps.
pub(crate) fn product(
    keys: u32,
    group: Group,
    steps: u32,
    layout: &Layout,
    facts: &DeviceFacts,
) -> ProductPlan {
    let form = ProductForm::new(keys, group, layout.tiles());
    let query_groups = keys.div_ceil(form.queries);
    let query_warps = query_groups.next_power_of_two().min(WARPS_MAX);
    let table_warps = WARPS_MAX / query_warps;
    let y = query_groups.div_ceil(query_warps);
    // A row of places: warps that together read all of a step.
    let places = layout.strips() * layout.tiles().div_ceil(2).div_ceil(form.pairs);
    let wanted = (facts.multiprocessors * product_blocks(form.queries, group)).div_ceil(y);
    let least = places.div_ceil(table_warps);
    let most = (u64::from(places) * u64::from(steps)).div_ceil(u64::from(table_warps));
    let x = u64::from(wanted.max(least)).min(most) as u32;
    let launch = Launch {
        blocks: (x, y),
        threads: WARPS_MAX * WARP,
        shared_bytes: 0,
        is_cooperative: false,
    };
    ProductPlan { launch, query_warps, form }
}

/// Largest expansion factor of `fused`: 256 threads go over 512 leaves twice.
const LOG_K_MAX: u32 = 9;

/// log2 of the expansion factor of `fused`, and the shared memory that it takes; a smaller factor
/// than asked for where that does not fit.
pub(crate) fn fused(k: u32, depth: u32, prg_bytes: u32, facts: &DeviceFacts) -> (u32, u32) {
    let asked = k.max(2).checked_next_power_of_two().map_or(LOG_K_MAX, u32::trailing_zeros);
    let bytes = |log_k: u32| {
        let stacks = depth.saturating_sub(log_k);
        prg_bytes
            + ((2 * NODE_BYTES + LEAF_BYTES) << log_k)
            + ((stacks * NODE_BYTES) << (log_k - 1))
    };
    let fitting =
        (1..=asked.min(LOG_K_MAX)).rev().find(|log_k| bytes(*log_k) <= facts.shared_bytes_max);
    let log_k = fitting.unwrap_or(1);
    (log_k, bytes(log_k))
}

fn group_define(group: Group) -> (&'static str, u32) {
    ("GROUP_ID", u32::from(group.id()))
}

pub(crate) fn tensor_module(
    prg: PrgKind,
    tuning: PrgTuning,
    tiles: u32,
    fused: bool,
) -> ModuleSpec {
    let mut defines = tuning.defines(prg);
    defines.extend([("TILES", tiles), ("FUSED", u32::from(fused))]);
    ModuleSpec { source: "tensor.cu", defines }
}

impl ProductPlan {
    pub(crate) fn module(&self, group: Group, tiles: u32) -> ModuleSpec {
        let ProductForm { queries, pairs, lines } = self.form;
        let defines = vec![
            group_define(group),
            ("TILES", tiles),
            ("QUERIES", queries),
            ("PAIRS", pairs),
            ("LINES", lines),
        ];
        ModuleSpec { source: "multiply.cu", defines }
    }
}

/// The module of `fused` or `cooperative`.
pub(crate) fn paper_module(
    source: &'static str,
    prg: PrgKind,
    tuning: PrgTuning,
    group: Group,
    tiles: u32,
) -> ModuleSpec {
    let mut defines = tuning.defines(prg);
    defines.extend([group_define(group), ("TILES", tiles)]);
    ModuleSpec { source, defines }
}

pub(crate) fn finish_module(group: Group) -> ModuleSpec {
    ModuleSpec { source: "finish.cu", defines: vec![group_define(group)] }
}

/// Modules for every generator and group, at the widths that tell kernels apart: an odd number of
/// tiles, and all.
pub(crate) fn modules() -> Vec<Listed> {
    let tuning = PrgTuning::default();
    let listed = |spec, spill_free| Listed { spec, spill_free };
    let mut all = Vec::new();
    for prg in PrgKind::ALL {
        all.push(listed(tensor_module(prg, tuning, TILES_MAX, true), &["tensor"][..]));
    }
    let multiplied = PrgTuning { rotate_by_multiply: true, ..tuning };
    all.push(listed(tensor_module(PrgKind::ChaCha20, multiplied, TILES_MAX, true), &["tensor"]));
    for tiles in [1, 13] {
        all.push(listed(tensor_module(PrgKind::ChaCha20, tuning, tiles, true), &["tensor"]));
    }
    for (prg, tiles) in [(PrgKind::ChaCha20, TILES_MAX), (PrgKind::Aes128, 19)] {
        let names = &["fragments", "tensor_fragments"];
        all.push(listed(tensor_module(prg, tuning, tiles, false), names));
    }
    for group in Group::ALL {
        all.push(listed(finish_module(group), &["finish"]));
        for tiles in [13, TILES_MAX] {
            let mut forms: Vec<ProductForm> = Vec::new();
            for form in [1, 2, 64].map(|keys| ProductForm::new(keys, group, tiles)) {
                if forms.contains(&form) {
                    continue;
                }
                forms.push(form);
                let launch =
                    Launch { blocks: (1, 1), threads: 32, shared_bytes: 0, is_cooperative: false };
                let plan = ProductPlan { launch, query_warps: 1, form };
                all.push(listed(plan.module(group, tiles), &["multiply"]));
            }
        }
        for source in ["fused.cu", "ablation.cu", "cooperative.cu"] {
            let mut module = paper_module(source, PrgKind::ChaCha20, tuning, group, TILES_MAX);
            all.push(listed(module.clone(), &[]));
            if group == Group::Z32 && source != "cooperative.cu" {
                module.defines.push(("ROW_LEAVES", 1));
                all.push(listed(module, &[]));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushtable_pir::TableShape;

    fn facts(multiprocessors: u32, shared_bytes_max: u32) -> DeviceFacts {
        DeviceFacts {
            name: "a device".to_owned(),
            capability: (9, 0),
            multiprocessors,
            memory_bytes: 1 << 37,
            shared_bytes_max,
            driver_version: 0,
        }
    }

    fn layout(rows: u64, row_bytes: usize) -> Layout {
        Layout::new(TableShape::new(rows, row_bytes).expect("a shape"), TILES_MAX)
    }

    fn tensor(keys: u32, layout: &Layout, depth: u32, facts: &DeviceFacts) -> Option<WalkPlan> {
        let shared_bytes = 2 * layout.step_bytes() as u32;
        let spec = WalkSpec {
            keys,
            blocks: layout.blocks(),
            depth,
            shared_bytes,
            resident: 1,
            node_bytes_max: 1 << 30,
            height: None,
        };
        walk(spec, layout, facts)
    }

    #[test]
    fn the_main_case_fills_an_h200() {
        let layout = layout(1 << 20, 256);
        let plan = tensor(512, &layout, 14, &facts(132, 232_448)).expect("it fits");
        // 33 blocks by 4 are 132, with two of 64 units each, or as many smaller ones.
        assert_eq!(plan.launch.blocks, (33, 4));
        assert_eq!(plan.launch.threads, 256);
        let steps = plan.units.div_ceil(33) << plan.height;
        assert!(steps <= 128, "{plan:?}");
    }

    #[test]
    fn the_walk_is_as_high_as_the_table_lets_where_all_have_equal_work() {
        // What the tests on the shim count on.
        let layout = layout(131_070, 8);
        let plan = tensor(130, &layout, 11, &facts(4, 232_448)).expect("it fits");
        assert_eq!((plan.height, plan.launch.blocks), (6, (2, 2)));
    }

    #[test]
    fn every_batch_and_table_has_a_walk_that_fits() {
        for facts in
            [facts(132, 232_448), facts(108, 166_912), facts(1, 101_376), facts(4, 232_448)]
        {
            for rows in [1, 65, 1000, 20_000, 1 << 20, 1 << 26] {
                for row_bytes in [1, 64, 100, 256] {
                    let shape = TableShape::new(rows, row_bytes).expect("a shape");
                    let layout = Layout::new(shape, tiles_max(&facts));
                    let leaves = rows.div_ceil(64).next_power_of_two();
                    for keys in [1, 15, 16, 17, 130, 512, 4096, 100_000] {
                        let plan = tensor(keys, &layout, leaves.trailing_zeros(), &facts);
                        let plan = plan.expect("a walk");
                        let (x, y) = plan.launch.blocks;
                        assert!(x >= 1 && x <= plan.units, "{plan:?}");
                        assert!(y * (plan.launch.threads / 2) >= keys, "{plan:?}");
                        assert!(padded_keys(keys) == y * (plan.launch.threads / 2));
                        assert!(plan.launch.shared_bytes <= facts.shared_bytes_max);
                    }
                }
            }
        }
    }

    #[test]
    fn products_reach_every_step_and_key() {
        let facts = facts(132, 232_448);
        for (rows, row_bytes) in [(1, 1), (1000, 100), (4097, 600), (1 << 20, 256)] {
            let layout = layout(rows, row_bytes);
            let steps = layout.blocks() << layout.height();
            for group in Group::ALL {
                for keys in [1, 2, 4, 5, 17, 130, 512] {
                    let plan = product(keys, group, steps, &layout, &facts);
                    let form = plan.form;
                    let (x, y) = plan.launch.blocks;
                    assert!(y * plan.query_warps * form.queries >= keys);
                    let places = layout.strips() * layout.tiles().div_ceil(2).div_ceil(form.pairs);
                    assert!(x * (8 / plan.query_warps) >= places, "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn fused_takes_the_factor_that_fits() {
        let large = facts(132, 232_448);
        assert_eq!(fused(128, 14, 0, &large), (7, 128 * 96 + 7 * 64 * 16));
        assert_eq!(fused(1, 14, 0, &large).0, 1);
        assert_eq!(fused(100, 3, 0, &large).0, 7);
        assert_eq!(fused(u32::MAX, 28, 32 << 10, &large).0, 9);
        let (log_k, bytes) = fused(512, 28, 32 << 10, &facts(1, 101_376));
        assert!(log_k < 9 && bytes <= 101_376, "{log_k} {bytes}");
    }
}
