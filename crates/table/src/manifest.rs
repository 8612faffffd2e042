//! `manifest.json`: what a bundle holds.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::dtype::{DType, NAMES};
use crate::error::{Error, ManifestError};
use crate::shape::Shape;
use crate::version::{Hashing, Version};

/// The bundle format that this crate writes, and the newest that it reads.
///
/// Format 1 hashed its content in blocks, format 2 hashes it as a tree and keeps that.
pub const FORMAT_VERSION: u64 = 2;

/// The most bytes of a manifest file; a full one is under 6 KiB.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 65_536;

const FORMAT: &str = "hushtable-table";
const NAME_BYTES_MAX: usize = 128;
const CREATED_FROM_BYTES_MAX: usize = 4_096;

/// What a bundle holds; always within the limits of [`Shape`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    name: String,
    shape: Shape,
    content: Version,
    row_sums: [u8; 32],
    nonfinite_count: u64,
    created_from: String,
    format_version: u64,
    /// BLAKE3 of the whole `rows.patch`, where some rows are in that.
    patch: Option<[u8; 32]>,
}

/// The fields of a [`Manifest`] that a writer has gathered.
pub(crate) struct ManifestSpec {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) content: Version,
    pub(crate) row_sums: [u8; 32],
    pub(crate) nonfinite_count: u64,
    pub(crate) created_from: String,
    pub(crate) patch: Option<[u8; 32]>,
}

/// The entries as they stand in the file.
#[derive(Serialize, Deserialize)]
struct Document {
    name: String,
    format: String,
    format_version: u64,
    rows: u64,
    dim: u64,
    dtype: DType,
    row_bytes: u64,
    content_blake3: String,
    row_sums_blake3: String,
    nonfinite_count: u64,
    created_from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_blake3: Option<String>,
    checksum: String,
}

const KEYS: [&str; 12] = [
    "name",
    "format",
    "format_version",
    "rows",
    "dim",
    "dtype",
    "row_bytes",
    "content_blake3",
    "row_sums_blake3",
    "nonfinite_count",
    "created_from",
    "checksum",
];

/// The entry of a bundle with changed rows.
const PATCH: &str = "patch_blake3";

impl Manifest {
    /// Reads a manifest from the bytes of its file.
    ///
    /// # Errors
    /// [`ManifestError`] for anything but a whole, unedited manifest of a known format version
    /// with a shape within the limits.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(ManifestError::TooLarge {
                byte_count: bytes.len() as u64,
                byte_count_max: MANIFEST_BYTES_MAX,
            });
        }
        let entries: Map<String, Value> =
            serde_json::from_slice(bytes).map_err(|source| ManifestError::Json { source })?;
        let entries = Entries(entries);
        // The format and its version come first: what follows may mean something else in others.
        if entries.text("format").is_ok_and(|format| format != FORMAT) || !entries.has("format") {
            return Err(ManifestError::Format);
        }
        let format_version = entries.number("format_version")?;
        if format_version > FORMAT_VERSION {
            return Err(ManifestError::FutureVersion {
                found: format_version,
                newest: FORMAT_VERSION,
            });
        }
        if format_version == 0 {
            return Err(ManifestError::Value { key: "format_version", expected: "1 or more" });
        }
        let is_known = |key: &str| KEYS.contains(&key) || (key == PATCH && format_version > 1);
        if let Some(key) = entries.0.keys().find(|key| !is_known(key)) {
            return Err(ManifestError::UnknownKey { key: key.chars().take(64).collect() });
        }

        let dtype = entries
            .text("dtype")?
            .parse()
            .map_err(|_| ManifestError::Value { key: "dtype", expected: NAMES })?;
        let dim = usize::try_from(entries.number("dim")?).unwrap_or(usize::MAX);
        let shape = Shape::new(entries.number("rows")?, dim, dtype)?;
        let (expected, found) = (shape.row_bytes() as u64, entries.number("row_bytes")?);
        if expected != found {
            return Err(ManifestError::RowBytes { expected, found });
        }
        let name = entries.text("name")?;
        if check_name(name).is_err() {
            return Err(ManifestError::Value {
                key: "name",
                expected: "1 to 128 bytes without control characters",
            });
        }
        let created_from = entries.text("created_from")?;
        if clip_created_from(created_from) != created_from {
            return Err(ManifestError::Value {
                key: "created_from",
                expected: "at most 4096 bytes without control characters",
            });
        }
        let manifest = Self {
            name: name.to_owned(),
            shape,
            content: Version::from(entries.hash("content_blake3")?),
            row_sums: entries.hash("row_sums_blake3")?,
            nonfinite_count: entries.number("nonfinite_count")?,
            created_from: created_from.to_owned(),
            format_version,
            patch: entries.has(PATCH).then(|| entries.hash(PATCH)).transpose()?,
        };
        if entries.hash("checksum")? != *manifest.checksum().as_bytes() {
            return Err(ManifestError::Checksum);
        }
        Ok(manifest)
    }

    /// The text of the file: indented JSON with a newline at its end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.document())
            .expect("a struct of strings and numbers is always representable as JSON");
        text.push('\n');
        text
    }

    /// Makes a manifest of what a writer has gathered.
    pub(crate) fn new(spec: ManifestSpec) -> Self {
        let ManifestSpec { name, shape, content, row_sums, nonfinite_count, created_from, patch } =
            spec;
        let format_version = FORMAT_VERSION;
        Self {
            name,
            shape,
            content,
            row_sums,
            nonfinite_count,
            created_from,
            format_version,
            patch,
        }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Rows, dim and dtype.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// What the content hashes to.
    pub fn version(&self) -> Version {
        self.content
    }

    /// How many values of the table are NaN or infinite: 0 in a healthy one.
    pub fn nonfinite_count(&self) -> u64 {
        self.nonfinite_count
    }

    /// What the table was built from: a file's name and the key in it, or `memory`.
    pub fn created_from(&self) -> &str {
        &self.created_from
    }

    /// BLAKE3 of the whole `rows.sums` file.
    pub(crate) fn row_sums(&self) -> &[u8; 32] {
        &self.row_sums
    }

    /// BLAKE3 of the whole `rows.patch`, where there is one.
    pub fn patch(&self) -> Option<&[u8; 32]> {
        self.patch.as_ref()
    }

    /// How the content is hashed.
    pub(crate) fn hashing(&self) -> Hashing {
        match self.format_version {
            1 => Hashing::Blocks,
            _ => Hashing::Tree,
        }
    }

    /// BLAKE3 of every entry but itself, so that a flipped bit or an edit is noticed at open.
    fn checksum(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_derive_key("hushtable table manifest v1");
        // Each entry has its length before it: no two manifests give the same bytes.
        let mut entry = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        entry(self.name.as_bytes());
        entry(&self.format_version.to_le_bytes());
        entry(&self.shape.rows().to_le_bytes());
        entry(&(self.shape.dim() as u64).to_le_bytes());
        entry(self.shape.dtype().name().as_bytes());
        entry(self.content.as_bytes());
        entry(&self.row_sums);
        entry(&self.nonfinite_count.to_le_bytes());
        entry(self.created_from.as_bytes());
        if let Some(patch) = &self.patch {
            entry(patch);
        }
        hasher.finalize()
    }

    fn document(&self) -> Document {
        Document {
            name: self.name.clone(),
            format: FORMAT.to_owned(),
            format_version: self.format_version,
            rows: self.shape.rows(),
            dim: self.shape.dim() as u64,
            dtype: self.shape.dtype(),
            row_bytes: self.shape.row_bytes() as u64,
            content_blake3: self.content.to_string(),
            row_sums_blake3: blake3::Hash::from_bytes(self.row_sums).to_string(),
            nonfinite_count: self.nonfinite_count,
            created_from: self.created_from.clone(),
            patch_blake3: self.patch.map(|hash| blake3::Hash::from_bytes(hash).to_string()),
            checksum: self.checksum().to_string(),
        }
    }
}

impl Serialize for Manifest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.document().serialize(serializer)
    }
}

/// The entries of a manifest that is being read.
struct Entries(Map<String, Value>);

impl Entries {
    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn value(&self, key: &'static str) -> Result<&Value, ManifestError> {
        self.0.get(key).ok_or(ManifestError::MissingKey { key })
    }

    fn text(&self, key: &'static str) -> Result<&str, ManifestError> {
        self.value(key)?.as_str().ok_or(ManifestError::Value { key, expected: "a string" })
    }

    fn number(&self, key: &'static str) -> Result<u64, ManifestError> {
        let wrong = ManifestError::Value { key, expected: "a whole number from 0 to 2^64 - 1" };
        self.value(key)?.as_u64().ok_or(wrong)
    }

    fn hash(&self, key: &'static str) -> Result<[u8; 32], ManifestError> {
        match blake3::Hash::from_hex(self.text(key)?) {
            Ok(hash) => Ok(*hash.as_bytes()),
            Err(_) => Err(ManifestError::Value { key, expected: "64 hexadecimal digits" }),
        }
    }
}

/// Checks a table's name: 1 to 128 bytes, no control characters.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let control = name.chars().any(char::is_control);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || control {
        return Err(Error::Name { byte_count: name.len(), control });
    }
    Ok(())
}

/// Makes a description of where a table came from fit for a manifest, which is printed: at most
/// 4,096 bytes, and U+FFFD for control characters (a file's name may hold a terminal's commands).
pub(crate) fn clip_created_from(text: &str) -> String {
    let mut clipped = text.replace(char::is_control, "\u{fffd}");
    clipped.truncate(clipped.floor_char_boundary(CREATED_FROM_BYTES_MAX));
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest::new(ManifestSpec {
            name: "films".to_owned(),
            shape: Shape::new(1_000, 64, DType::Int8).unwrap(),
            content: Version::from([3; 32]),
            row_sums: [4; 32],
            nonfinite_count: 0,
            created_from: "films.npy".to_owned(),
            patch: None,
        })
    }

    /// The manifest with one entry replaced, or added.
    fn edited(key: &str, value: Value) -> Vec<u8> {
        let mut entries: Map<String, Value> = serde_json::from_str(&manifest().to_json()).unwrap();
        entries.insert(key.to_owned(), value);
        serde_json::to_vec(&entries).unwrap()
    }

    #[test]
    fn text_round_trips() {
        assert_eq!(Manifest::from_json(manifest().to_json().as_bytes()).unwrap(), manifest());
    }

    #[test]
    fn every_entry_is_needed_and_covered() {
        let entries: Map<String, Value> = serde_json::from_str(&manifest().to_json()).unwrap();
        assert_eq!(entries.len(), KEYS.len());
        for key in KEYS {
            let mut fewer = entries.clone();
            fewer.remove(key).unwrap();
            assert!(Manifest::from_json(&serde_json::to_vec(&fewer).unwrap()).is_err(), "{key}");
        }
        for (key, value) in [
            ("name", Value::from("films2")),
            ("rows", Value::from(999)),
            ("content_blake3", Value::from("00".repeat(32))),
            ("row_sums_blake3", Value::from("00".repeat(32))),
            ("nonfinite_count", Value::from(1)),
            ("created_from", Value::from("other.npy")),
            ("checksum", Value::from("00".repeat(32))),
        ] {
            let error = Manifest::from_json(&edited(key, value)).unwrap_err();
            assert!(matches!(error, ManifestError::Checksum), "{key}: {error}");
        }
    }

    #[test]
    fn each_fault_has_its_own_error() {
        let error = |key, value| Manifest::from_json(&edited(key, value)).unwrap_err();
        assert!(matches!(error("format", Value::from("zip")), ManifestError::Format));
        assert!(matches!(
            error("format_version", Value::from(3)),
            ManifestError::FutureVersion { found: 3, newest: 2 }
        ));
        assert!(matches!(
            error("format_version", Value::from(0)),
            ManifestError::Value { key: "format_version", .. }
        ));
        assert!(matches!(
            error("colour", Value::from("red")),
            ManifestError::UnknownKey { key } if key == "colour"
        ));
        assert!(matches!(
            error("rows", Value::from(1_u64 << 60)),
            ManifestError::Shape(crate::ShapeError::Rows { rows }) if rows == 1 << 60
        ));
        assert!(matches!(error("rows", Value::from(0)), ManifestError::Shape(_)));
        assert!(matches!(error("rows", Value::from(-1)), ManifestError::Value { key: "rows", .. }));
        assert!(matches!(error("rows", Value::from(1.5)), ManifestError::Value { .. }));
        assert!(matches!(error("dim", Value::from(u64::MAX)), ManifestError::Shape(_)));
        assert!(matches!(
            error("dim", Value::from(65)),
            ManifestError::RowBytes { expected: 69, found: 68 }
        ));
        assert!(matches!(
            error("dtype", Value::from("f8")),
            ManifestError::Value { key: "dtype", .. }
        ));
        assert!(matches!(error("name", Value::from("")), ManifestError::Value { key: "name", .. }));
        assert!(matches!(error("name", Value::from("a\nb")), ManifestError::Value { .. }));
        assert!(matches!(
            error("created_from", Value::from("\u{1b}[2J")),
            ManifestError::Value { key: "created_from", .. }
        ));
        assert!(matches!(
            error("checksum", Value::from("0x")),
            ManifestError::Value { key: "checksum", .. }
        ));
        assert!(matches!(Manifest::from_json(b"[]"), Err(ManifestError::Json { .. })));
        assert!(matches!(Manifest::from_json(b"{}"), Err(ManifestError::Format)));
        assert!(matches!(
            Manifest::from_json(&[b' '; 70_000]),
            Err(ManifestError::TooLarge { byte_count: 70_000, .. })
        ));
    }

    #[test]
    fn a_newer_format_is_named_before_its_unknown_entries() {
        let mut entries: Map<String, Value> = serde_json::from_str(&manifest().to_json()).unwrap();
        entries.insert("format_version".to_owned(), Value::from(7));
        entries.insert("layout".to_owned(), Value::from("hot"));
        let error = Manifest::from_json(&serde_json::to_vec(&entries).unwrap()).unwrap_err();
        assert!(matches!(error, ManifestError::FutureVersion { found: 7, .. }), "{error}");
    }

    #[test]
    fn created_from_is_cut_at_a_character_and_stripped_of_controls() {
        assert_eq!(clip_created_from("a\u{1b}[2J.npy"), "a\u{fffd}[2J.npy");
        assert_eq!(clip_created_from(&"\0".repeat(4_000)).len(), 4_095);
        let clipped = clip_created_from(&"é".repeat(4_000));
        assert_eq!(clipped.len(), 4_096);
        assert_eq!(clip_created_from(&format!("a{}", "é".repeat(4_000))).len(), 4_095);
    }
}
