//! How a table is served to inferences that read many rows at once.
//!
//! A [`Layout`] cuts a table into up to two parts, *hot* (the rows most read) and *full* (every
//! row), each part into bins, and fixes how many rows every inference asks each bin for (Lam et
//! al., "GPU-based Private Information Retrieval for On-Device Machine Learning Inference", §IV).
//! What an inference sends is thus the same whatever its ids are; ids that do not fit are dropped,
//! and a [`Planner`] decides which. A [`Profile`] learns from a trace which rows are hot, which
//! are read together, and what of a layout is best learned from that.

mod error;
mod file;
mod part;
mod permutation;
mod plan;
mod profile;

use serde::{Deserialize, Serialize};

use crate::shape::Shape;
use crate::version::Version;

pub use error::LayoutError;
pub(crate) use file::LAYOUT_JSON_BYTES_MAX;
pub use part::{LEAF_ROWS_MAX, Part, PartName, PartSpec, Place};
pub use permutation::Permutation;
pub use plan::{Found, Plan, Planner, simulate};
pub use profile::{Profile, Trace};

/// Which ids go first where not all of a bag's fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::exhaustive_enums, reason = "the rules that the file format has")]
pub enum DropRule {
    /// Ids that the bag holds most often; among equals, hot ones by how much they are read; then
    /// the earliest.
    #[default]
    MostFrequent,
    /// The earliest.
    Earliest,
    /// At random.
    Random,
}

/// A layout, as read from a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct LayoutSpec {
    /// The hot part.
    pub hot: Option<PartSpec>,
    /// The full part.
    pub full: Option<PartSpec>,
    /// Most ids of one bag, 1 to 65,536.
    pub ids_max: u32,
    /// Which ids go first.
    #[serde(default)]
    pub drop: DropRule,
    /// What the permutations are made from, as 64 hexadecimal digits.
    #[serde(with = "seed_text")]
    pub seed: [u8; 32],
}

/// The part of a layout that was learned from a trace.
///
/// Lists are row ids, in the order in which a part stores its rows. A row that has fewer companions
/// than the part stores is listed as its own companion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "three lists")]
pub struct LayoutMap {
    /// The hot rows: `hot.rows` of them.
    pub hot_ids: Vec<u32>,
    /// Their companions: `hot.rows × hot.companions`.
    pub hot_companions: Vec<u32>,
    /// Every row's companions: `full.rows × full.companions`.
    pub full_companions: Vec<u32>,
}

/// A checked layout of one version of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    spec: LayoutSpec,
    map: LayoutMap,
    table_version: Version,
    rows: u64,
    row_bytes: usize,
    hot: Option<Part>,
    full: Option<Part>,
    version: Version,
}

/// The layout format that this crate writes, and the newest that it reads.
pub const LAYOUT_FORMAT_VERSION: u64 = 1;

const IDS_MAX: u64 = 65_536;

impl Layout {
    /// Checks a layout for the table of `shape` and `table_version`.
    ///
    /// # Errors
    /// [`LayoutError`] names the field or list that cannot be.
    pub fn new(
        spec: LayoutSpec,
        map: LayoutMap,
        shape: Shape,
        table_version: Version,
    ) -> Result<Self, LayoutError> {
        Self::for_rows(spec, map, shape.rows(), shape.row_bytes(), table_version)
    }

    fn for_rows(
        spec: LayoutSpec,
        map: LayoutMap,
        rows: u64,
        row_bytes: usize,
        table_version: Version,
    ) -> Result<Self, LayoutError> {
        let check = |field, value: u64, max: u64| match (1..=max).contains(&value) {
            true => Ok(()),
            false => Err(LayoutError::Range { part: "layout", field, value, min: 1, max }),
        };
        check("ids_max", spec.ids_max.into(), IDS_MAX)?;
        // Ids have 32 bits, and engines mark empty places by the last.
        check("rows", rows, (1 << 32) - 1)?;
        check("row_bytes", row_bytes as u64, crate::ROW_BYTES_MAX as u64)?;
        let part = |name, spec: Option<PartSpec>, seed| {
            spec.map(|spec| Part::new(name, spec, rows, row_bytes, seed)).transpose()
        };
        let hot = part(PartName::Hot, spec.hot, &spec.seed)?;
        let full = part(PartName::Full, spec.full, &spec.seed)?;
        let keys: u64 = hot.iter().chain(&full).map(|part| part.keys() as u64).sum();
        if keys == 0 {
            return Err(LayoutError::NoParts);
        }
        check("keys of all parts", keys, part::KEYS_MAX)?;
        check_map(&map, hot.as_ref(), full.as_ref(), rows)?;
        let version = file::hash(&spec, &map, rows, row_bytes, table_version);
        Ok(Self { spec, map, table_version, rows, row_bytes, hot, full, version })
    }

    /// The same layout for another version of the table: the places of rows stay, and what is stored
    /// there is the other version's, so that it is another layout to a client.
    ///
    /// # Errors
    /// [`LayoutError`] for a table of another shape.
    pub fn for_version(&self, shape: Shape, version: Version) -> Result<Self, LayoutError> {
        Self::new(self.spec.clone(), self.map.clone(), shape, version)
    }

    /// Checks that the layout is for the table of `shape` and `version`.
    ///
    /// # Errors
    /// [`LayoutError::OtherTable`].
    pub fn check_table(&self, shape: Shape, version: Version) -> Result<(), LayoutError> {
        let same = self.table_version == version
            && (self.rows, self.row_bytes) == (shape.rows(), shape.row_bytes());
        match same {
            true => Ok(()),
            false => Err(LayoutError::OtherTable { expected: version, found: self.table_version }),
        }
    }

    /// The spec it was made from.
    pub fn spec(&self) -> &LayoutSpec {
        &self.spec
    }

    /// What was learned from a trace.
    pub fn map(&self) -> &LayoutMap {
        &self.map
    }

    /// What the layout hashes to, the table's version included: equal versions mean that the same
    /// requests have the same answers.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The table that it lays out.
    pub fn table_version(&self) -> Version {
        self.table_version
    }

    /// Rows of the table.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of one of the table's rows.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// The hot part.
    pub fn hot(&self) -> Option<&Part> {
        self.hot.as_ref()
    }

    /// The full part.
    pub fn full(&self) -> Option<&Part> {
        self.full.as_ref()
    }

    /// The parts in the order of their keys in a request: hot, then full.
    pub fn parts(&self) -> impl Iterator<Item = &Part> + '_ {
        self.hot.iter().chain(&self.full)
    }

    /// Keys of a request.
    pub fn keys(&self) -> usize {
        self.parts().map(Part::keys).sum()
    }

    /// Most ids of one bag.
    pub fn ids_max(&self) -> usize {
        self.spec.ids_max as usize
    }

    /// The ids stored in row number `index` of `part`: its own, then its companions.
    ///
    /// # Panics
    /// Unless `index` is below the part's rows.
    pub fn entry_ids<'a>(&'a self, part: &Part, index: u64) -> impl Iterator<Item = u64> + 'a {
        let (own, companions) = match part.name() {
            PartName::Hot => {
                (u64::from(self.map.hot_ids[index as usize]), &self.map.hot_companions)
            }
            PartName::Full => (index, &self.map.full_companions),
        };
        let count = part.spec().companions as usize;
        let companions = &companions[index as usize * count..][..count];
        std::iter::once(own).chain(companions.iter().map(|&id| u64::from(id)))
    }
}

fn check_map(
    map: &LayoutMap,
    hot: Option<&Part>,
    full: Option<&Part>,
    rows: u64,
) -> Result<(), LayoutError> {
    let counts = |part: Option<&Part>| {
        part.map_or((0, 0), |part| {
            (part.spec().rows, part.spec().rows * u64::from(part.spec().companions))
        })
    };
    let lists = [
        ("hot ids", &map.hot_ids, counts(hot).0),
        ("hot companions", &map.hot_companions, counts(hot).1),
        ("full companions", &map.full_companions, counts(full).1),
    ];
    for (list, ids, expected) in lists {
        if ids.len() as u64 != expected {
            return Err(LayoutError::MapLength { list, expected, found: ids.len() as u64 });
        }
        if let Some(&id) = ids.iter().find(|&&id| u64::from(id) >= rows) {
            let fault = "that the table does not have";
            return Err(LayoutError::MapId { id: id.into(), fault });
        }
    }
    let mut sorted = map.hot_ids.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(LayoutError::MapId { id: pair[0].into(), fault: "twice" }),
        None => Ok(()),
    }
}

/// A seed as 64 hexadecimal digits.
mod seed_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(seed: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&blake3::Hash::from_bytes(*seed).to_hex())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        match blake3::Hash::from_hex(&text) {
            Ok(seed) => Ok(*seed.as_bytes()),
            Err(_) => Err(D::Error::custom("a seed is 64 hexadecimal digits")),
        }
    }
}
