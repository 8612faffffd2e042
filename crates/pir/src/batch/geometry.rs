//! The sizes of a layout's requests, answers and work.

use std::ops::Range;

use hushtable_table::Version;
use hushtable_table::layout::{Layout, Part};

use crate::Error;
use crate::divisor::Divisor;
use crate::dpf::{Domain, Group, Side};

/// The bins of a layout: what a server needs to know of it, and what fixes the wire's sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    version: Version,
    parts: Vec<PartGeometry>,
}

/// The bins of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartGeometry {
    /// Bins.
    pub bins: usize,
    /// Keys to each bin.
    pub queries: usize,
    /// Leaves of a bin.
    pub leaf_count: usize,
    /// Rows of a leaf, a multiple of 16, at most 512.
    pub leaf_rows: usize,
    /// Bytes of a stored row: one of the table's and its companions.
    pub entry_bytes: usize,
    /// What a row of a bin is divided by for its leaf.
    by_leaf: Divisor,
}

/// What one inference costs by a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Costs {
    /// Keys to each server.
    pub keys: u64,
    /// Bytes of the message to the left server, its gRPC frame included.
    pub up_left_bytes: u64,
    /// The same to the right server.
    pub up_right_bytes: u64,
    /// The same from each server.
    pub down_bytes: u64,
    /// All four messages.
    pub comm_bytes: u64,
    /// Rows that keys expand over, on one server.
    pub expanded_rows: u64,
    /// Calls of a pseudorandom function as Lam et al. count them (§III-C): two for each row that a
    /// key expands over.
    pub prf_calls: u64,
    /// 128-bit blocks of a pseudorandom function that the right server really computes: none for
    /// bins of one leaf.
    pub prf_blocks: u64,
    /// Bytes that keys multiply with, on one server: rows × bytes of an entry, for each key.
    pub product_bytes: u64,
    /// Bytes of the table that one server stores for the layout.
    pub stored_bytes: u64,
    /// Bytes that a client keeps of the layout.
    pub map_bytes: u64,
}

/// The header of a request: format, side, generator, zero, and the seed.
pub(super) const HEADER_BYTES: usize = 20;

impl PartGeometry {
    fn new(part: &Part, row_bytes: usize) -> Self {
        Self {
            bins: part.bins(),
            queries: part.queries(),
            leaf_count: part.leaf_count(),
            leaf_rows: part.leaf_rows(),
            entry_bytes: row_bytes * part.entry_rows(),
            by_leaf: Divisor::new(part.leaf_rows() as u64),
        }
    }

    /// Keys of a request for this part.
    pub fn keys(&self) -> usize {
        self.bins * self.queries
    }

    /// Stored rows of a bin.
    pub fn bin_rows(&self) -> usize {
        self.leaf_count.saturating_mul(self.leaf_rows)
    }

    /// Levels of a key's tree.
    pub fn depth(&self) -> usize {
        self.leaf_count.next_power_of_two().trailing_zeros() as usize
    }

    /// Bytes of one key in a request to `side`, the seed it shares with the others aside.
    pub fn key_bytes(&self, side: Side) -> usize {
        match (self.depth(), side) {
            (0, Side::Left) => 0,
            (depth, _) => 16 * depth + depth.div_ceil(8) + self.leaf_rows / 8,
        }
    }

    /// Whether a key of a request to `side` is its shares themselves, and no seed of a tree: right's
    /// of a bin of one leaf is.
    pub fn has_shares(&self, side: Side) -> bool {
        self.leaf_count == 1 && side == Side::Right
    }

    /// Bytes of one key in a request to `side` as a device has it: 80 and 32 a level, or 64 of shares.
    pub fn device_key_bytes(&self, side: Side) -> usize {
        if self.has_shares(side) { 64 } else { 80 + 32 * self.depth() }
    }

    /// The domain of a key: its leaves, as if each had 512 rows.
    pub(super) fn domain(&self) -> Domain {
        let rows = self.leaf_count as u64 * Group::Bits.rows_per_leaf();
        Domain::new(rows, Group::Bits).expect("a layout's bin has at most 2^32 rows")
    }

    /// Where in its domain a bin's row lies; in constant time, as the row is the client's secret.
    pub(super) fn index(&self, offset: u32) -> u64 {
        let (leaf, row) = self.by_leaf.divide(offset.into());
        leaf * Group::Bits.rows_per_leaf() + row
    }
}

impl Geometry {
    /// The geometry of `layout`.
    pub fn new(layout: &Layout) -> Self {
        let row_bytes = layout.row_bytes();
        let parts = layout.parts().map(|part| PartGeometry::new(part, row_bytes)).collect();
        Self { version: layout.version(), parts }
    }

    /// The layout's version, which goes into every answer.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The parts in the order of their keys.
    pub fn parts(&self) -> &[PartGeometry] {
        &self.parts
    }

    /// Keys of a request.
    pub fn keys(&self) -> usize {
        self.parts.iter().map(PartGeometry::keys).sum()
    }

    /// Bytes of a request to `side`.
    pub fn request_bytes(&self, side: Side) -> usize {
        let keys: usize = self.parts.iter().map(|part| part.keys() * part.key_bytes(side)).sum();
        HEADER_BYTES + keys
    }

    /// Bytes of the answer to a request.
    pub fn answer_bytes(&self) -> usize {
        // A layout that a server made up may come to 2^32.
        let of = |part: &PartGeometry| part.keys().saturating_mul(part.entry_bytes);
        self.parts.iter().map(of).fold(0, usize::saturating_add)
    }

    /// The bins of each part that shard `index` of `count` has: every bin is one shard's.
    pub fn bins_of_shard(&self, index: usize, count: usize) -> Vec<Range<usize>> {
        let cut = |bins: usize, at: usize| (bins as u128 * at as u128 / count as u128) as usize;
        let of = |part: &PartGeometry| cut(part.bins, index)..cut(part.bins, index + 1);
        self.parts.iter().map(of).collect()
    }

    /// Where the entries of such bins lie in an answer, in bytes: a range a part, in order.
    pub fn answers_of_bins(&self, bins: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut start = 0;
        let of = |(part, bins): (&PartGeometry, &Range<usize>)| {
            let bin_bytes = part.queries * part.entry_bytes;
            let own = start + bins.start * bin_bytes..start + bins.end * bin_bytes;
            start += part.bins * bin_bytes;
            own
        };
        self.parts.iter().zip(bins).map(of).collect()
    }

    pub(crate) fn check_bins(&self, bins: &[Range<usize>]) -> Result<(), Error> {
        let is_there = |(part, bins): (&PartGeometry, &Range<usize>)| {
            bins.start <= bins.end && bins.end <= part.bins
        };
        match bins.len() == self.parts.len() && self.parts.iter().zip(bins).all(is_there) {
            true => Ok(()),
            false => Err(Error::BinRange { parts: self.parts.len(), found: bins.len() }),
        }
    }

    /// What one inference costs.
    pub fn costs(&self, layout: &Layout) -> Costs {
        let wide = self.parts.iter().map(|part| {
            let PartGeometry { bins, leaf_count, entry_bytes, .. } = *part;
            [part.keys(), bins, part.bin_rows(), leaf_count, entry_bytes].map(|count| count as u64)
        });
        let sum = |of: fn([u64; 5]) -> u64| -> u64 { wide.clone().map(of).sum() };
        let up = |side| message_bytes(self.request_bytes(side), 0);
        // Two times of eight bytes and their tags.
        let down_bytes = message_bytes(self.answer_bytes(), 18);
        let (up_left_bytes, up_right_bytes) = (up(Side::Left), up(Side::Right));
        let expanded_rows = sum(|[keys, _, rows, ..]| keys * rows);
        Costs {
            keys: self.keys() as u64,
            up_left_bytes,
            up_right_bytes,
            down_bytes,
            comm_bytes: up_left_bytes + up_right_bytes + 2 * down_bytes,
            expanded_rows,
            prf_calls: 2 * expanded_rows,
            // Two blocks a node above the leaves, four a leaf.
            prf_blocks: sum(|[keys, _, _, leaves, _]| match leaves {
                1 => 0,
                leaves => keys * (2 * (leaves - 1) + 4 * leaves),
            }),
            product_bytes: sum(|[keys, _, rows, _, bytes]| keys * rows * bytes),
            stored_bytes: sum(|[_, bins, rows, _, bytes]| bins * rows * bytes),
            map_bytes: layout.map_bytes_count() as u64,
        }
    }
}

/// Bytes of a message on the wire: gRPC's frame, the version (32 bytes), one field of `bytes`, and
/// `others` (proto/hushtable/v1/lookup.proto).
fn message_bytes(bytes: usize, others: usize) -> u64 {
    let varint = (usize::BITS - bytes.max(1).leading_zeros()).div_ceil(7) as usize;
    (5 + 34 + 1 + varint + bytes + others) as u64
}
