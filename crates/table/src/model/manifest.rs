//! `model.json`: which tables a model has, and which feature reads which.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::{LISTED_MAX, ModelError};
use super::places;
use crate::dtype::DType;
use crate::error::Error;
use crate::shape::Shape;
use crate::version::Version;

/// The model format that this crate writes, and the newest that it reads.
pub const MODEL_FORMAT_VERSION: u64 = 1;
/// The most features of a model, and so the most tables.
pub const FEATURE_COUNT_MAX: usize = 1_024;
/// The most ids that one inference has for one feature.
pub const IDS_MAX: usize = 65_536;
/// The most ids that one inference has for all features together.
pub const IDS_SUM_MAX: usize = 1 << 20;
/// The most bytes of a name.
pub const NAME_BYTES_MAX: usize = 128;
/// The most bytes of a manifest; a full one has under 800 KiB.
pub const MODEL_JSON_BYTES_MAX: usize = 1 << 20;

const FORMAT: &str = "hushtable-model";
const TEXT_CLIPPED: usize = 160;

/// What a model does with the rows of one feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::exhaustive_enums, reason = "the poolings that the file format has")]
pub enum Pooling {
    /// It adds them up.
    #[default]
    Sum,
    /// It takes their mean.
    Mean,
    /// It takes them one by one.
    None,
}

impl Pooling {
    /// Every pooling.
    pub const ALL: [Self; 3] = [Self::Sum, Self::Mean, Self::None];

    /// The name in files and on the command line: `sum`, `mean` or `none`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Pooling {
    type Err = ModelError;

    fn from_str(name: &str) -> Result<Self, ModelError> {
        let known = Self::ALL.into_iter().find(|pooling| pooling.name() == name);
        known.ok_or(ModelError::Value { key: "pooling", expected: "sum, mean or none" })
    }
}

/// One input of the model that reads rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// Its table's index in [`ModelManifest::tables`]; several features may read one table.
    pub table: usize,
    /// What the model does with the rows.
    pub pooling: Pooling,
    /// The most ids of one inference, 1 to [`IDS_MAX`]: every request is padded to it.
    pub max_ids: usize,
}

/// A table of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct TableRef {
    /// Its name, and its folder's.
    pub name: String,
    /// What its content hashes to.
    pub version: Version,
    /// Rows, dim and dtype.
    pub shape: Shape,
    /// The version of its layout, if it has one.
    pub layout: Option<Version>,
}

/// The tensors of the checkpoint that are no tables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct DenseRef {
    /// BLAKE3 of the file's bytes.
    pub blake3: [u8; 32],
    /// How many bytes it has.
    pub bytes: u64,
}

impl DenseRef {
    /// The file's name in the model's folder.
    pub const FILE: &'static str = places::DENSE;
}

/// A model's parts, to be checked into a [`ModelManifest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ModelSpec {
    /// The model's name.
    pub name: String,
    /// Its tables, at most [`FEATURE_COUNT_MAX`]; none only beside a dense part.
    pub tables: Vec<TableRef>,
    /// Its features, in the order in which requests hold them.
    pub features: Vec<Feature>,
    /// The rest of the checkpoint, if it was kept.
    pub dense: Option<DenseRef>,
}

/// Which tables a model has, and which feature reads which; always within the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelManifest {
    spec: ModelSpec,
    version: Version,
}

impl ModelManifest {
    /// Checks a model's parts.
    ///
    /// # Errors
    /// [`ModelError`] names the table or the feature that cannot be.
    pub fn new(spec: ModelSpec) -> Result<Self, ModelError> {
        check_name("model", &spec.name)?;
        let (table_count, feature_count) = (spec.tables.len(), spec.features.len());
        let least = if spec.dense.is_some() { 0 } else { 1 };
        if !(least..=FEATURE_COUNT_MAX).contains(&feature_count) {
            return Err(ModelError::FeatureCount { count: feature_count });
        }
        check_names("table", spec.tables.iter().map(|table| &table.name))?;
        check_names("feature", spec.features.iter().map(|feature| &feature.name))?;
        let mut is_read = vec![false; table_count];
        let mut sum = 0;
        for feature in &spec.features {
            let Some(is_read) = is_read.get_mut(feature.table) else {
                let expected = "a table of the model";
                return Err(ModelError::Value { key: "features' table", expected });
            };
            *is_read = true;
            let max_ids = feature.max_ids as u64;
            if !(1..=IDS_MAX).contains(&feature.max_ids) {
                return Err(ModelError::MaxIds { feature: feature.name.clone(), max_ids });
            }
            sum += max_ids;
        }
        if sum > IDS_SUM_MAX as u64 {
            return Err(ModelError::MaxIdsSum { sum });
        }
        if let Some(table) = is_read.iter().position(|is_read| !is_read) {
            return Err(ModelError::UnusedTable { table: spec.tables[table].name.clone() });
        }
        let json = document(&spec).to_bytes();
        Ok(Self { spec, version: hash(&json) })
    }

    /// Reads a manifest from the bytes of its file.
    ///
    /// # Errors
    /// [`ModelError`] for anything but the very bytes that [`to_json`](Self::to_json) writes for a
    /// model within the limits.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ModelError> {
        if bytes.len() > MODEL_JSON_BYTES_MAX {
            return Err(ModelError::TooLarge);
        }
        let json = |source| ModelError::Json { source };
        // The format and its version come first: what follows may mean something else in others.
        let head: Head = serde_json::from_slice(bytes).map_err(json)?;
        if head.format.as_deref() != Some(FORMAT) {
            return Err(ModelError::Format);
        }
        match head.format_version {
            Some(MODEL_FORMAT_VERSION) => {}
            Some(found) if found > MODEL_FORMAT_VERSION => {
                return Err(ModelError::FutureVersion { found, newest: MODEL_FORMAT_VERSION });
            }
            _ => return Err(ModelError::Value { key: "format_version", expected: "1 or more" }),
        }
        let found: Document = serde_json::from_slice(bytes).map_err(json)?;
        let stated = found.checksum.clone();
        let found = found.sealed();
        if found.checksum != stated {
            return Err(ModelError::Checksum);
        }
        let manifest = Self::new(found.to_spec()?)?;
        // The version is of the bytes: another spelling of the same model must not be another.
        match manifest.to_json() == bytes {
            true => Ok(manifest),
            false => Err(ModelError::Form),
        }
    }

    /// Reads the manifest of the model at `path`: its folder, or the manifest file itself.
    ///
    /// # Errors
    /// [`Error::NotAModel`] for a folder without one; [`Error::Model`] and [`Error::Io`], each
    /// with the path.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let is_folder = path.is_dir();
        let file = if is_folder { path.join(places::MANIFEST) } else { path.to_owned() };
        let opened = match File::open(&file) {
            Ok(opened) => opened,
            Err(error) if is_folder && error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::NotAModel { path: path.to_owned() });
            }
            Err(error) => return Err(Error::io("open", file)(error)),
        };
        let mut bytes = Vec::new();
        // One byte past the limit is enough for the parser to say that there is too much.
        let limit = MODEL_JSON_BYTES_MAX as u64 + 1;
        opened.take(limit).read_to_end(&mut bytes).map_err(Error::io("read", &file))?;
        Self::from_json(&bytes).map_err(Error::model(file))
    }

    /// The bytes of the file: indented JSON with a newline at its end, the same for the same model.
    pub fn to_json(&self) -> Vec<u8> {
        document(&self.spec).to_bytes()
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// BLAKE3 of the manifest's bytes: equal versions mean the same features over the same rows.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The features, in the order in which requests hold them.
    pub fn features(&self) -> &[Feature] {
        &self.spec.features
    }

    /// The tables.
    pub fn tables(&self) -> &[TableRef] {
        &self.spec.tables
    }

    /// The index of the feature of this name.
    pub fn feature(&self, name: &str) -> Option<usize> {
        self.spec.features.iter().position(|feature| feature.name == name)
    }

    /// The index of the table of this name.
    pub fn table(&self, name: &str) -> Option<usize> {
        self.spec.tables.iter().position(|table| table.name == name)
    }

    /// As [`feature`](Self::feature).
    ///
    /// # Errors
    /// [`ModelError::UnknownFeature`] lists those there are.
    pub fn find_feature(&self, name: &str) -> Result<usize, ModelError> {
        self.feature(name).ok_or_else(|| {
            let names = self.spec.features.iter().map(|feature| feature.name.clone());
            ModelError::UnknownFeature {
                feature: name.chars().take(TEXT_CLIPPED).collect(),
                features: names.take(LISTED_MAX).collect(),
                feature_count: self.spec.features.len(),
            }
        })
    }

    /// As [`table`](Self::table).
    ///
    /// # Errors
    /// [`ModelError::UnknownTable`] lists those there are.
    pub fn find_table(&self, name: &str) -> Result<usize, ModelError> {
        self.table(name).ok_or_else(|| {
            let names = self.spec.tables.iter().map(|table| table.name.clone());
            ModelError::UnknownTable {
                table: name.chars().take(TEXT_CLIPPED).collect(),
                tables: names.take(LISTED_MAX).collect(),
                table_count: self.spec.tables.len(),
            }
        })
    }

    /// The rest of the checkpoint, if it was kept.
    pub fn dense(&self) -> Option<&DenseRef> {
        self.spec.dense.as_ref()
    }

    /// The parts that the manifest was made of.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }
}

/// What comes first in every format version.
#[derive(Deserialize)]
struct Head {
    format: Option<String>,
    format_version: Option<u64>,
}

/// The entries as they stand in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    format_version: u64,
    name: String,
    tables: Vec<TableEntry>,
    features: Vec<FeatureEntry>,
    dense: Option<DenseEntry>,
    /// BLAKE3 of the file as it is with an empty checksum: a flipped bit is noticed at open.
    checksum: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableEntry {
    name: String,
    version: Version,
    rows: u64,
    dim: u64,
    dtype: DType,
    layout: Option<Version>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FeatureEntry {
    name: String,
    table: String,
    pooling: Pooling,
    max_ids: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DenseEntry {
    file: String,
    bytes: u64,
    blake3: Version,
}

fn document(spec: &ModelSpec) -> Document {
    let tables = spec.tables.iter().map(|table| TableEntry {
        name: table.name.clone(),
        version: table.version,
        rows: table.shape.rows(),
        dim: table.shape.dim() as u64,
        dtype: table.shape.dtype(),
        layout: table.layout,
    });
    let features = spec.features.iter().map(|feature| FeatureEntry {
        name: feature.name.clone(),
        table: spec.tables[feature.table].name.clone(),
        pooling: feature.pooling,
        max_ids: feature.max_ids as u64,
    });
    let dense = spec.dense.as_ref().map(|dense| DenseEntry {
        file: DenseRef::FILE.to_owned(),
        bytes: dense.bytes,
        blake3: dense.blake3.into(),
    });
    let document = Document {
        format: FORMAT.to_owned(),
        format_version: MODEL_FORMAT_VERSION,
        name: spec.name.clone(),
        tables: tables.collect(),
        features: features.collect(),
        dense,
        checksum: String::new(),
    };
    document.sealed()
}

impl Document {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .expect("a struct of strings and numbers is always representable as JSON");
        bytes.push(b'\n');
        bytes
    }

    /// The document with the checksum that belongs to its other entries.
    fn sealed(mut self) -> Self {
        self.checksum.clear();
        self.checksum = hash(&self.to_bytes()).to_string();
        self
    }

    /// The model's parts; the tables' names become indices.
    fn to_spec(&self) -> Result<ModelSpec, ModelError> {
        // Bounded before the names are looked up, which is a product of both counts.
        for count in [self.tables.len(), self.features.len()] {
            if count > FEATURE_COUNT_MAX {
                return Err(ModelError::FeatureCount { count });
            }
        }
        let tables = self.tables.iter().map(|table| {
            let dim = usize::try_from(table.dim).unwrap_or(usize::MAX);
            let shape = Shape::new(table.rows, dim, table.dtype)
                .map_err(|source| ModelError::Shape { table: clip(&table.name), source })?;
            let (version, layout) = (table.version, table.layout);
            Ok(TableRef { name: table.name.clone(), version, shape, layout })
        });
        let features = self.features.iter().map(|feature| {
            let mut tables = self.tables.iter();
            let table = tables.position(|table| table.name == feature.table);
            Ok(Feature {
                name: feature.name.clone(),
                table: table.ok_or_else(|| ModelError::UnknownTable {
                    table: clip(&feature.table),
                    tables: self.tables.iter().take(LISTED_MAX).map(|it| clip(&it.name)).collect(),
                    table_count: self.tables.len(),
                })?,
                pooling: feature.pooling,
                max_ids: usize::try_from(feature.max_ids).unwrap_or(usize::MAX),
            })
        });
        let dense = match &self.dense {
            Some(dense) if dense.file != DenseRef::FILE => {
                let expected = "a file named dense.safetensors";
                return Err(ModelError::Value { key: "dense", expected });
            }
            Some(dense) => Some(DenseRef { blake3: *dense.blake3.as_bytes(), bytes: dense.bytes }),
            None => None,
        };
        Ok(ModelSpec {
            name: self.name.clone(),
            tables: tables.collect::<Result<_, ModelError>>()?,
            features: features.collect::<Result<_, ModelError>>()?,
            dense,
        })
    }
}

fn hash(bytes: &[u8]) -> Version {
    Version::from(*blake3::hash(bytes).as_bytes())
}

pub(super) fn clip(name: &str) -> String {
    name.chars().take(TEXT_CLIPPED).collect()
}

/// Checks a name: it becomes a folder's, is typed on command lines, and is printed.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), ModelError> {
    let is_first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_rest = |byte: u8| is_first(byte) || byte == b'-' || byte == b'.';
    let is_good = name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(is_first)
        && name.bytes().all(is_rest);
    match is_good {
        true => Ok(()),
        false => Err(ModelError::Name { what, name: clip(name) }),
    }
}

fn check_names<'a>(
    what: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), ModelError> {
    let mut seen = HashSet::new();
    for name in names {
        check_name(what, name)?;
        if !seen.insert(name) {
            return Err(ModelError::Twice { what, name: name.clone() });
        }
    }
    Ok(())
}
