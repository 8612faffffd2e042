//! The launches of a part's bins, and the sizes of what they read and write.

use hushtable_pir::batch::{Geometry, PartGeometry};
use hushtable_pir::dpf::Side;
use hushtable_prg::PrgKind;

use super::LEAF_BYTES;
use crate::listed::Listed;
use crate::{DeviceFacts, Launch, ModuleSpec, PrgTuning};

/// Bytes that a lane reads at once.
pub(super) const VECTOR_BYTES: usize = 16;
/// Rows of a turn: a leaf's rows are a multiple of them.
pub(super) const GROUP_ROWS: usize = 16;
/// Keys of a warp that bins.cu is compiled for.
pub(super) const FORMS: [u32; 3] = [1, 4, 8];
const WARP: u32 = 32;
const WARPS: u32 = 8;
/// Blocks of a multiprocessor that bins.cu is compiled for.
const BLOCKS: u32 = 2;
/// Threads of a block of `expand_trees`, and those that keep a multiprocessor busy.
const TREE_THREADS: u32 = 128;
const TREE_THREADS_BUSY: u32 = 512;
/// Blocks along y that a grid has at most.
const KEY_BLOCKS_MAX: usize = 65_535;

/// Vectors of a stored row.
pub(super) fn vectors(part: &PartGeometry) -> u32 {
    part.entry_bytes.div_ceil(VECTOR_BYTES) as u32
}

/// Bytes of a part's stored rows.
pub(super) fn table_bytes(part: &PartGeometry) -> usize {
    part.bins * part.bin_rows() * vectors(part) as usize * VECTOR_BYTES
}

/// Bytes of a request's keys of a part on the device.
pub(super) fn key_bytes(part: &PartGeometry, side: Side) -> usize {
    part.keys() * part.device_key_bytes(side)
}

/// Bytes of a request's sums of a part.
pub(super) fn part_sum_bytes(part: &PartGeometry) -> usize {
    part.keys() * vectors(part) as usize * VECTOR_BYTES
}

/// Bytes of a request's sums.
pub(super) fn sum_bytes(geometry: &Geometry) -> usize {
    geometry.parts().iter().map(part_sum_bytes).sum()
}

/// Bytes that a request takes of device memory: its keys, its sums, and the shares of the part that
/// has most.
pub(super) fn request_bytes(geometry: &Geometry, side: Side) -> usize {
    let parts = geometry.parts();
    let keys: usize = parts.iter().map(|part| key_bytes(part, side)).sum();
    let shares = |part: &PartGeometry| part.keys() * part.leaf_count * LEAF_BYTES;
    keys + sum_bytes(geometry) + parts.iter().map(shares).max().unwrap_or(0)
}

/// Most requests of a pass: keys of a bin that a grid has blocks for, and keys of a part and their
/// pieces that 32 bits number.
pub(super) fn requests_max(geometry: &Geometry) -> usize {
    let most = |part: &PartGeometry| {
        let by_grid = KEY_BLOCKS_MAX / part.queries;
        let threads = part.keys() * part.leaf_count.next_power_of_two();
        by_grid.min(i32::MAX as usize / threads)
    };
    geometry.parts().iter().map(most).min().unwrap_or(1).max(1)
}

/// A launch of `expand_trees`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreePlan {
    pub launch: Launch,
    /// The level from whose nodes threads go depth first.
    pub split: u32,
    /// Nodes of it that have leaves below them.
    pub pieces: u32,
}

impl TreePlan {
    /// The expansion of `keys` keys: from the root where those keep the device busy, so that no node
    /// is expanded twice, else from as many of a key's nodes as do.
    pub(super) fn new(
        part: &PartGeometry,
        keys: usize,
        tuning: PrgTuning,
        prg: PrgKind,
        facts: &DeviceFacts,
    ) -> Self {
        let (depth, keys) = (part.depth() as u32, keys as u32);
        let wanted = (facts.multiprocessors * TREE_THREADS_BUSY).div_ceil(keys);
        let split = wanted.next_power_of_two().trailing_zeros().min(depth);
        let pieces = (part.leaf_count as u32).div_ceil(1 << (depth - split));
        let launch = Launch {
            blocks: ((keys * pieces).div_ceil(TREE_THREADS), 1),
            threads: TREE_THREADS,
            shared_bytes: tuning.shared_bytes(prg),
            is_cooperative: false,
        };
        Self { launch, split, pieces }
    }
}

/// A launch of `multiply_bins`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProductPlan {
    pub launch: Launch,
    pub form: u32,
    pub chunks: u32,
    pub strips: u32,
    pub width: u32,
    pub query_warps: u32,
}

/// Keys of a warp, of so many keys a bin.
pub(super) fn form_of(keys: u32) -> u32 {
    match keys {
        1 => 1,
        2..=4 => 4,
        _ => 8,
    }
}

/// The product of a part's bins with the keys of `requests` requests.
pub(super) fn product(part: &PartGeometry, requests: usize, facts: &DeviceFacts) -> ProductPlan {
    let keys = (requests * part.queries) as u32;
    let form = form_of(keys);
    let key_warps = keys.div_ceil(form);
    let query_warps = key_warps.next_power_of_two().min(WARPS);
    let y = key_warps.div_ceil(query_warps);
    let vectors = vectors(part);
    let strips = vectors.div_ceil(WARP);
    let width = vectors.min(WARP).next_power_of_two().trailing_zeros();
    // Lanes and warps of a block that have other rows of the same keys.
    let rows_at_once = (WARPS / query_warps) * (WARP >> width);
    let groups = (part.bin_rows() / GROUP_ROWS) as u32;
    let others = part.bins as u32 * strips * y;
    let wanted = (facts.multiprocessors * BLOCKS).div_ceil(others);
    let chunks = wanted.clamp(1, groups.div_ceil(rows_at_once));
    let launch = Launch {
        blocks: (part.bins as u32 * chunks * strips, y),
        threads: WARPS * WARP,
        shared_bytes: 0,
        is_cooperative: false,
    };
    ProductPlan { launch, form, chunks, strips, width, query_warps }
}

pub(super) fn product_module(form: u32) -> ModuleSpec {
    ModuleSpec { source: "bins.cu", defines: vec![("QUERIES", form)] }
}

/// All modules of this folder that expand.rs does not list.
pub(crate) fn modules() -> impl Iterator<Item = Listed> {
    FORMS
        .into_iter()
        .map(|form| Listed { spec: product_module(form), spill_free: &["multiply_bins"] })
}
