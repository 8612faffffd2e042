//! One part of a layout: which rows it stores, in how many bins, and what each inference asks.

use serde::{Deserialize, Serialize};

use super::{LayoutError, Permutation};

/// One part of a layout, as read from a file.
///
/// Every inference asks each of the `bins` for `queries` rows, whatever its ids are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct PartSpec {
    /// Rows it covers: of the hot part those most read, of the full part all.
    pub rows: u64,
    /// Bins that the rows are cut into, 1 to `rows`.
    pub bins: u32,
    /// Rows that each inference asks each bin for, 1 to 4,096.
    pub queries: u32,
    /// Bins that each row is stored in, 1 to 3. With 1 this is partial batch retrieval (Lam et
    /// al., §IV-A); with 3 a cuckoo batch code (Angel et al., IEEE S&P 2018), which loses nothing
    /// where there are 1.5 bins an id.
    #[serde(default = "one")]
    pub hashes: u32,
    /// Other rows stored beside each row (Lam et al., §IV-B2), 0 to 64. Each costs a row's bytes in
    /// every answer and in the server's work.
    #[serde(default)]
    pub companions: u32,
}

fn one() -> u32 {
    1
}

/// Which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::exhaustive_enums, reason = "a layout has these two")]
pub enum PartName {
    /// The rows that are read most.
    Hot,
    /// Every row.
    Full,
}

impl PartName {
    /// `hot` or `full`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Full => "full",
        }
    }
}

/// A checked part.
///
/// A bin is stored as `leaf_count` leaves of `leaf_rows` rows, the last ones empty: a leaf is what
/// one block of a key's expansion covers, at most 512 rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    name: PartName,
    spec: PartSpec,
    /// Rows of one hash's slice of a bin.
    slice_rows: u64,
    leaf_count: u64,
    leaf_rows: u64,
    /// None where rows lie in the order that the map gives.
    permutations: Vec<Permutation>,
}

/// Rows that one block of a key's expansion covers at most.
pub const LEAF_ROWS_MAX: u64 = 512;
/// Leaves hold a multiple of this many rows.
const LEAF_ROWS_STEP: u64 = 16;
const QUERIES_MAX: u32 = 4_096;
const HASHES_MAX: u32 = 3;
const COMPANIONS_MAX: u32 = 64;
/// Most keys of one inference, all parts together.
pub(crate) const KEYS_MAX: u64 = 65_536;

/// Where a row is stored in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "two numbers")]
pub struct Place {
    /// Which bin.
    pub bin: u32,
    /// Which of the bin's rows.
    pub offset: u32,
}

impl Part {
    pub(crate) fn new(
        name: PartName,
        spec: PartSpec,
        table_rows: u64,
        row_bytes: usize,
        seed: &[u8; 32],
    ) -> Result<Self, LayoutError> {
        let part = name.name();
        let within = |field, value: u64, min: u64, max: u64| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(LayoutError::Range { part, field, value, min, max }),
        };
        match name {
            PartName::Hot => within("rows", spec.rows, 1, table_rows)?,
            PartName::Full => within("rows", spec.rows, table_rows, table_rows)?,
        }
        within("bins", spec.bins.into(), 1, spec.rows.min(KEYS_MAX))?;
        within("queries", spec.queries.into(), 1, QUERIES_MAX.into())?;
        within("hashes", spec.hashes.into(), 1, HASHES_MAX.into())?;
        within("companions", spec.companions.into(), 0, COMPANIONS_MAX.into())?;
        let entry_bytes = row_bytes * (1 + spec.companions as usize);
        if entry_bytes > crate::ROW_BYTES_MAX {
            let row_bytes_max = crate::ROW_BYTES_MAX;
            return Err(LayoutError::EntryBytes { part, entry_bytes, row_bytes_max });
        }
        let slice_rows = spec.rows.div_ceil(spec.bins.into());
        let bin_rows = slice_rows * u64::from(spec.hashes);
        // A bin's rows are numbered by 32 bits, like a table's.
        within("rows of a bin", bin_rows, 1, 1 << 32)?;
        let leaf_count = bin_rows.div_ceil(LEAF_ROWS_MAX);
        let leaf_rows = bin_rows.div_ceil(leaf_count).next_multiple_of(LEAF_ROWS_STEP);
        let permutations = match (name, spec.hashes) {
            (PartName::Hot, 1) => Vec::new(),
            (_, hashes) => (0..hashes)
                .map(|hash| {
                    Permutation::new(spec.rows, seed, format!("{} {hash}", name.name()).as_bytes())
                })
                .collect(),
        };
        Ok(Self { name, spec, slice_rows, leaf_count, leaf_rows, permutations })
    }

    /// Which part it is.
    pub fn name(&self) -> PartName {
        self.name
    }

    /// The spec it was made from.
    pub fn spec(&self) -> PartSpec {
        self.spec
    }

    /// Bins.
    pub fn bins(&self) -> usize {
        self.spec.bins as usize
    }

    /// Keys that every inference sends to each bin.
    pub fn queries(&self) -> usize {
        self.spec.queries as usize
    }

    /// Keys that every inference sends.
    pub fn keys(&self) -> usize {
        self.bins() * self.queries()
    }

    /// Rows stored together: one and its companions.
    pub fn entry_rows(&self) -> usize {
        1 + self.spec.companions as usize
    }

    /// Leaves of a bin.
    pub fn leaf_count(&self) -> usize {
        self.leaf_count as usize
    }

    /// Rows of a leaf, a multiple of 16, at most [`LEAF_ROWS_MAX`].
    pub fn leaf_rows(&self) -> usize {
        self.leaf_rows as usize
    }

    /// Stored rows of a bin, those at its end that are empty included.
    pub fn bin_rows(&self) -> u64 {
        self.leaf_count * self.leaf_rows
    }

    /// Stored rows of all bins.
    pub fn stored_rows(&self) -> u64 {
        self.bin_rows() * u64::from(self.spec.bins)
    }

    /// The places of row number `index` of this part (of the hot part: its index in the map), one
    /// for each hash.
    ///
    /// # Panics
    /// Unless `index` is below the part's rows.
    pub fn places(&self, index: u64) -> impl Iterator<Item = Place> + '_ {
        assert!(index < self.spec.rows, "row {index} of a part with {}", self.spec.rows);
        (0..u64::from(self.spec.hashes)).map(move |hash| {
            let at = match self.permutations.get(hash as usize) {
                Some(permutation) => permutation.apply(index),
                None => index,
            };
            let offset = hash * self.slice_rows + at % self.slice_rows;
            Place { bin: (at / self.slice_rows) as u32, offset: offset as u32 }
        })
    }
}
