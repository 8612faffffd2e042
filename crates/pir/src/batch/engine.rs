//! The batch backend for processors.

use std::hint::black_box;
use std::ops::Range;

use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_table::Table;
use hushtable_table::layout::{Layout, Part};
use zerocopy::IntoBytes;

use super::request::word;
use super::{BatchBackend, BatchKeys, Geometry, PartGeometry, PartRows};
use crate::dpf::{Key, Side};
use crate::kernel::{Kernel, LANES, Planes};
use crate::pass::{Pass, leaf_bytes};
use crate::threads::Sharing;
use crate::{EngineSpec, Error, TableShape, Threads};

/// A layout's bins in memory and the threads that answer requests from them.
///
/// A batch goes through the bins one after the other: every request's keys for a bin are one matrix
/// product with its rows, so that a bin is read once for all of them.
pub struct BatchEngine {
    geometry: Geometry,
    parts: Vec<BinPlanes>,
    kernel: Kernel,
    platform: Platform,
    threads: Threads,
    batch_requests_max: usize,
    /// Most keys of one request for one bin.
    queries_max: usize,
}

/// Bins of a part that lie in memory: all, but for a shard.
struct BinPlanes {
    bins: Range<usize>,
    /// None where there are no bins.
    planes: Option<Planes>,
}

/// Keys of one product; more gain little.
const PRODUCT_KEYS_MAX: usize = 256;
/// Requests of a pass by default.
const BATCH_REQUESTS_MAX: usize = 64;
/// Bins of up to so many leaves are expanded whole, larger ones as they are multiplied.
const EXPANDED_LEAVES_MAX: usize = 16;
/// 256 KiB of leaves at once.
const EXPANDED_WORDS_MAX: usize = 1 << 14;

impl BatchEngine {
    /// Loads the bins of `layout` with the rows of `table`, and checks each row against its sum as
    /// it is loaded. A caller who does not trust the sums checks the table's content besides, as
    /// [`CpuEngine::from_table`](crate::CpuEngine::from_table) does.
    ///
    /// # Errors
    /// [`Error::LayoutTable`] for another version of the table than the layout's,
    /// [`Error::Table`] where it cannot be read, [`Error::Damaged`] for a row that is not what its
    /// sum says, [`Error::Memory`], [`Error::Threads`].
    pub fn from_table(table: &Table, layout: &Layout, spec: &EngineSpec) -> Result<Self, Error> {
        Self::from_bins(table, layout, &all_bins(layout), spec)
    }

    /// As [`from_table`](Self::from_table), but loads of each part a range of its bins alone: what a
    /// shard has. The entries of other bins in an answer are zeros, so that the answers of shards
    /// that have all bins between them add up to a whole engine's.
    ///
    /// # Errors
    /// As [`from_table`](Self::from_table), and [`Error::BinRange`] for ranges that are not one for
    /// each part, of bins that it has.
    pub fn from_bins(
        table: &Table,
        layout: &Layout,
        bins: &[Range<usize>],
        spec: &EngineSpec,
    ) -> Result<Self, Error> {
        if layout.table_version() != table.version() {
            return Err(Error::LayoutTable {
                expected: table.version(),
                found: layout.table_version(),
            });
        }
        let row_bytes = table.row_bytes();
        let rows = table.checked_rows().map_err(Error::of_table)?;
        Self::load(layout, bins, spec, |id, row| {
            debug_assert_eq!(row.len(), row_bytes);
            rows.copy_rows(id, row).map_err(Error::of_table)
        })
    }

    /// Loads the bins of `layout` with rows that `copy(id, row)` writes.
    ///
    /// # Errors
    /// As [`from_table`](Self::from_table), and those of `copy`.
    pub fn new(
        layout: &Layout,
        spec: &EngineSpec,
        copy: impl Fn(u64, &mut [u8]) -> Result<(), Error> + Send + Sync,
    ) -> Result<Self, Error> {
        Self::load(layout, &all_bins(layout), spec, copy)
    }

    fn load(
        layout: &Layout,
        bins: &[Range<usize>],
        spec: &EngineSpec,
        copy: impl Fn(u64, &mut [u8]) -> Result<(), Error> + Send + Sync,
    ) -> Result<Self, Error> {
        let threads = spec.threads()?;
        let geometry = Geometry::new(layout);
        geometry.check_bins(bins)?;
        let parts = layout
            .parts()
            .zip(geometry.parts())
            .zip(bins)
            .map(|((part, shape), bins)| {
                threads.run(|| load_part(layout, part, shape, bins.clone(), &copy))
            })
            .collect::<Result<_, _>>()?;
        let batch_requests_max = match spec.batch_keys_max {
            0 => BATCH_REQUESTS_MAX,
            keys => keys,
        };
        let (kernel, platform) = (Kernel::new(spec.platform), spec.platform);
        let queries_max = geometry.parts().iter().map(|part| part.queries).max().unwrap_or(1);
        Ok(Self { geometry, parts, kernel, platform, threads, batch_requests_max, queries_max })
    }

    /// Bytes that the stored bins occupy.
    pub fn resident_bytes(&self) -> usize {
        let planes = self.parts.iter().filter_map(|part| part.planes.as_ref());
        planes.map(Planes::resident_bytes).sum()
    }

    /// Threads that answer.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// The entries of each bin of a part that is here: for every request its keys' in order.
    fn answer_part(
        &self,
        number: usize,
        starts: Start,
        prg: Prg,
        requests: &[&BatchKeys],
        sharing: Sharing,
    ) -> Vec<Vec<u8>> {
        let part = &self.geometry.parts()[number];
        let BinPlanes { bins: own, planes: Some(planes) } = &self.parts[number] else {
            return Vec::new();
        };
        if part.leaf_count <= EXPANDED_LEAVES_MAX {
            let own = (own.clone(), planes);
            return self.answer_small_bins(part, own, starts, prg, requests, sharing);
        }
        // Bins are shared out over the threads; where there are too few, their subtrees are.
        let threads = sharing.threads;
        let threads_a_bin = if own.len() < 2 * threads { threads } else { 1 };
        let answer = |number: usize| {
            let blocks = number * part.leaf_count..(number + 1) * part.leaf_count;
            let bin = own.start + number;
            let pass = Pass::new(planes, self.kernel, blocks, threads_a_bin);
            let keys: Vec<Key> = requests
                .iter()
                .flat_map(|request| {
                    (bin * part.queries..(bin + 1) * part.queries).map(|key| {
                        let at = starts.byte + key * part.key_bytes(request.side());
                        request.key(part, at, starts.key + key)
                    })
                })
                .collect();
            let product = |keys: &[Key]| {
                let keys: Vec<&Key> = keys.iter().collect();
                let subtrees = pass.subtree_count();
                let share = subtrees.div_ceil(threads_a_bin);
                let sums = sharing.map(subtrees.div_ceil(share), |number| {
                    let first = number * share;
                    pass.sums(prg, &keys, first..(first + share).min(subtrees))
                });
                let sums = sums.into_iter().reduce(|mut sums, others| {
                    sums.iter_mut().zip(&others).for_each(|(sum, other)| *sum ^= other);
                    sums
                });
                pass.answers(&sums.unwrap_or_default(), keys.len())
            };
            let mut answers = Vec::with_capacity(keys.len() * part.entry_bytes);
            keys.chunks(PRODUCT_KEYS_MAX).for_each(|keys| answers.extend(product(keys)));
            answers
        };
        sharing.map(own.len(), answer)
    }

    /// [`answer_part`](Self::answer_part) for bins whose keys are expanded whole, a few bins' keys of
    /// all requests at a time, so that their leaves stay in cache until they are multiplied.
    fn answer_small_bins(
        &self,
        part: &PartGeometry,
        (own, planes): (Range<usize>, &Planes),
        starts: Start,
        prg: Prg,
        requests: &[&BatchKeys],
        sharing: Sharing,
    ) -> Vec<Vec<u8>> {
        // Words of one key's leaves, and of one bin's.
        let stride = 4 * part.leaf_count;
        let bin_words = requests.len() * part.queries * stride;
        let bins_at_once = (EXPANDED_WORDS_MAX / bin_words).clamp(1, own.len());
        let answer = |number: usize| {
            let first_bin = own.start + number * bins_at_once;
            let bins = first_bin..(first_bin + bins_at_once).min(own.end);
            let keys = bins.start * part.queries..bins.end * part.queries;
            let leaves: Vec<Vec<u128>> = requests
                .iter()
                .map(|request| leaves(part, starts, keys.clone(), prg, request))
                .collect();
            let answer_bin = |bin: usize| {
                let stored = bin - own.start;
                let blocks = stored * part.leaf_count..(stored + 1) * part.leaf_count;
                let pass = Pass::new(planes, self.kernel, blocks, 1);
                let count = requests.len() * part.queries;
                let mut answers = Vec::with_capacity(count * part.entry_bytes);
                for first in (0..count).step_by(PRODUCT_KEYS_MAX) {
                    let keys = PRODUCT_KEYS_MAX.min(count - first);
                    let sums = pass.sums_of_shares(keys, |i, leaf| {
                        let (request, query) =
                            ((first + i) / part.queries, (first + i) % part.queries);
                        let key = (bin - first_bin) * part.queries + query;
                        leaf_bytes(&leaves[request][key * stride + 4 * leaf..][..4])
                    });
                    answers.extend(pass.answers(&sums, keys));
                }
                answers
            };
            bins.map(answer_bin).collect::<Vec<_>>()
        };
        let bins = sharing.map(own.len().div_ceil(bins_at_once), answer);
        bins.into_iter().flatten().collect()
    }

    /// One generator's requests.
    fn answer_all(
        &self,
        prg: PrgKind,
        requests: &[&BatchKeys],
        sharing: Sharing,
    ) -> Vec<Vec<Vec<u8>>> {
        let prg = Prg::new(prg, self.platform);
        let mut starts = Start { byte: super::geometry::HEADER_BYTES, key: 0 };
        let side = requests.first().map_or(Side::Left, |request| request.side());
        let parts = self.geometry.parts().iter().enumerate();
        parts
            .map(|(number, part)| {
                let answers = self.answer_part(number, starts, prg, requests, sharing);
                starts.byte += part.keys() * part.key_bytes(side);
                starts.key += part.keys();
                answers
            })
            .collect()
    }
}

/// Where a part's keys start in a request.
#[derive(Clone, Copy)]
struct Start {
    byte: usize,
    key: usize,
}

/// The leaves of a request's `keys` of a part, key after key: four words each, of which a bin uses
/// its leaves' rows.
///
/// All keys go down a level together: their trees are too narrow to fill a pipeline one by one.
fn leaves(
    part: &PartGeometry,
    start: Start,
    keys: Range<usize>,
    prg: Prg,
    request: &BatchKeys,
) -> Vec<u128> {
    let key_bytes = part.key_bytes(request.side());
    let bytes = request.key_bytes(start.byte + keys.start * key_bytes, keys.len() * key_bytes);
    let leaf_bytes = part.leaf_rows / 8;
    let mut leaves = vec![0; 4 * part.leaf_count * keys.len()];
    if part.leaf_count == 1 && request.side() == Side::Right {
        // They were sent.
        for (leaf, bytes) in leaves.chunks_exact_mut(4).zip(bytes.chunks_exact(leaf_bytes)) {
            leaf.as_mut_bytes()[..leaf_bytes].copy_from_slice(bytes);
        }
        return leaves;
    }
    let mut nodes: Vec<u128> = keys.clone().map(|key| request.root(start.key + key)).collect();
    if part.leaf_count == 1 {
        prg.convert(&nodes, &[0; 4], &mut leaves);
        return leaves;
    }
    let depth = part.depth();
    let (side, right_bits_at) = (u128::from(request.side().id()), 16 * depth);
    nodes.iter_mut().for_each(|node| *node |= side);
    for level in 0..depth {
        // Nodes past the last leaf are not expanded.
        let (width, next) = (width(part, level), width(part, level + 1));
        let mut children = vec![0; 2 * nodes.len()];
        prg.expand(&nodes, &[0; 2], &mut children);
        let trees = bytes.chunks_exact(key_bytes).zip(nodes.chunks_exact(width));
        for ((key, nodes), children) in trees.zip(children.chunks_exact_mut(2 * width)) {
            let left = word(&key[16 * level..]);
            let right_bit = key[right_bits_at + level / 8] >> (level % 8) & 1;
            let right = left & !1 | u128::from(right_bit);
            for (node, children) in nodes.iter().zip(children.chunks_exact_mut(2)) {
                // Opaque to the compiler, which could otherwise branch on the bit.
                let mask = black_box(node & 1).wrapping_neg();
                children[0] ^= left & mask;
                children[1] ^= right & mask;
            }
        }
        nodes = match next == 2 * width {
            true => children,
            false => {
                let mut kept = Vec::with_capacity(next * keys.len());
                let children = children.chunks_exact(2 * width);
                children.for_each(|children| kept.extend_from_slice(&children[..next]));
                kept
            }
        };
    }
    prg.convert(&nodes, &[0; 4], &mut leaves);
    let corrections = bytes.chunks_exact(key_bytes).map(|key| &key[key_bytes - leaf_bytes..]);
    let keys =
        leaves.chunks_exact_mut(4 * part.leaf_count).zip(nodes.chunks_exact(part.leaf_count));
    for ((leaves, nodes), bytes) in keys.zip(corrections) {
        let mut correction = [0u128; 4];
        correction.as_mut_bytes()[..leaf_bytes].copy_from_slice(bytes);
        for (leaf, node) in leaves.chunks_exact_mut(4).zip(nodes) {
            let mask = black_box(node & 1).wrapping_neg();
            leaf.iter_mut().zip(correction).for_each(|(word, fix)| *word ^= fix & mask);
        }
    }
    leaves
}

/// Nodes of a key's tree at `level` that have one of the bin's leaves below them.
fn width(part: &PartGeometry, level: usize) -> usize {
    part.leaf_count.div_ceil(1 << (part.depth() - level))
}

/// Puts a part's rows and their companions where its keys look for them.
fn load_part(
    layout: &Layout,
    part: &Part,
    shape: &PartGeometry,
    bins: Range<usize>,
    copy: impl Fn(u64, &mut [u8]) -> Result<(), Error> + Send + Sync,
) -> Result<BinPlanes, Error> {
    if bins.is_empty() {
        return Ok(BinPlanes { bins, planes: None });
    }
    let rows = PartRows::new(layout, part, shape);
    let before = (bins.start * shape.bin_rows()) as u64;
    let count = bins.len() * shape.bin_rows();
    let planes_shape = TableShape::new(count as u64, shape.entry_bytes)?;
    let planes = Planes::new(planes_shape, shape.leaf_rows, |first, bytes| {
        rows.copy(before + first, bytes, &copy)
    })?;
    Ok(BinPlanes { bins, planes: Some(planes) })
}

fn all_bins(layout: &Layout) -> Vec<Range<usize>> {
    layout.parts().map(|part| 0..part.bins()).collect()
}

impl BatchBackend for BatchEngine {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn answer(&self, requests: &[BatchKeys], answers: &mut [u8]) -> Result<(), Error> {
        let requests: Vec<&BatchKeys> = requests.iter().collect();
        self.answer_each(&requests, answers)
    }

    fn answer_each(&self, requests: &[&BatchKeys], answers: &mut [u8]) -> Result<(), Error> {
        let answer_bytes = self.geometry.answer_bytes();
        let expected = requests.len() * answer_bytes;
        if answers.len() != expected {
            return Err(Error::AnswerBytes { expected, found: answers.len() });
        }
        let kind = |request: &BatchKeys| (request.prg(), request.side());
        for prg in PrgKind::ALL {
            for side in Side::BOTH {
                let numbers: Vec<usize> =
                    (0..requests.len()).filter(|&i| kind(requests[i]) == (prg, side)).collect();
                if numbers.is_empty() {
                    continue;
                }
                let chosen: Vec<&BatchKeys> = numbers.iter().map(|&i| requests[i]).collect();
                let keys = chosen.len().saturating_mul(self.queries_max);
                let cost = self.resident_bytes().saturating_mul(keys.div_ceil(LANES));
                self.threads.run_if_worth(cost, |sharing| {
                    let parts = self.answer_all(prg, &chosen, sharing);
                    for (number, &i) in numbers.iter().enumerate() {
                        let answer = &mut answers[i * answer_bytes..][..answer_bytes];
                        self.gather(&parts, number, answer);
                    }
                });
            }
        }
        Ok(())
    }

    fn batch_requests_best(&self) -> usize {
        self.batch_requests_max
    }

    fn description(&self) -> String {
        format!(
            "cpu, {}, {} thread(s), {} bins, {:.1} MiB resident",
            self.kernel.name(),
            self.threads(),
            self.parts.iter().map(|part| part.bins.len()).sum::<usize>(),
            self.resident_bytes() as f64 / f64::from(1 << 20)
        )
    }
}

impl BatchEngine {
    /// Collects request `number`'s entries out of the bins' answers.
    fn gather(&self, parts: &[Vec<Vec<u8>>], number: usize, answer: &mut [u8]) {
        let mut rest = answer;
        let stored = self.parts.iter().zip(self.geometry.parts());
        for (bins, (stored, part)) in parts.iter().zip(stored) {
            let bin_bytes = part.queries * part.entry_bytes;
            let (all, after) = rest.split_at_mut(part.bins * bin_bytes);
            rest = after;
            all.fill(0);
            let own = &mut all[stored.bins.start * bin_bytes..stored.bins.end * bin_bytes];
            for (entries, bin) in own.chunks_exact_mut(bin_bytes).zip(bins) {
                entries.copy_from_slice(&bin[number * bin_bytes..][..bin_bytes]);
            }
        }
    }
}
