//! A layout's bytes: JSON that people read, and the map's ids.
//!
//! In a bundle these are two files, `layout.json` and `layout.map`; between machines one message,
//! a little-endian 32-bit length of the JSON, the JSON, and the map. The map is its three lists one
//! after the other, each id as four little-endian bytes; their lengths follow from the parts.

use serde::{Deserialize, Serialize};

use super::{LAYOUT_FORMAT_VERSION, Layout, LayoutError, LayoutMap, LayoutSpec};
use crate::version::Version;

/// The most bytes of a layout's JSON; a full one is about 1 KiB.
pub(crate) const LAYOUT_JSON_BYTES_MAX: u64 = 16_384;
const FORMAT: &str = "hushtable-layout";

/// The entries as they stand in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    format_version: u64,
    layout_version: Version,
    table_version: Version,
    rows: u64,
    row_bytes: u64,
    layout: LayoutSpec,
}

/// The fields that every format version starts with.
#[derive(Deserialize)]
struct Head {
    format: String,
    format_version: u64,
}

impl Layout {
    /// The JSON of `layout.json`.
    pub fn to_json(&self) -> String {
        let document = Document {
            format: FORMAT.to_owned(),
            format_version: LAYOUT_FORMAT_VERSION,
            layout_version: self.version,
            table_version: self.table_version,
            rows: self.rows,
            row_bytes: self.row_bytes as u64,
            layout: self.spec.clone(),
        };
        let mut text = serde_json::to_string_pretty(&document)
            .expect("a struct of strings and numbers is always representable as JSON");
        text.push('\n');
        text
    }

    /// The bytes of `layout.map`.
    pub fn map_bytes(&self) -> Vec<u8> {
        lists(&self.map).into_iter().flatten().flat_map(|id| id.to_le_bytes()).collect()
    }

    /// Bytes of the map that every client keeps.
    pub fn map_bytes_count(&self) -> usize {
        4 * lists(&self.map).into_iter().map(Vec::len).sum::<usize>()
    }

    /// Reads a layout from its two files' bytes.
    ///
    /// # Errors
    /// [`LayoutError`] for anything but a whole, unedited layout of a known format version.
    pub fn from_files(json: &[u8], map: &[u8]) -> Result<Self, LayoutError> {
        if json.len() as u64 > LAYOUT_JSON_BYTES_MAX {
            let reason = format!("its JSON has {} bytes, over {LAYOUT_JSON_BYTES_MAX}", json.len());
            return Err(LayoutError::Malformed { reason });
        }
        let malformed =
            |error: serde_json::Error| LayoutError::Malformed { reason: error.to_string() };
        let head: Head = serde_json::from_slice(json).map_err(malformed)?;
        if head.format != FORMAT || head.format_version == 0 {
            return Err(LayoutError::Malformed { reason: format!("its format is not {FORMAT}") });
        }
        if head.format_version > LAYOUT_FORMAT_VERSION {
            let (found, newest) = (head.format_version, LAYOUT_FORMAT_VERSION);
            return Err(LayoutError::FutureVersion { found, newest });
        }
        let document: Document = serde_json::from_slice(json).map_err(malformed)?;
        let row_bytes = usize::try_from(document.row_bytes).unwrap_or(usize::MAX);
        let map = split_map(&document.layout, map)?;
        let spec = document.layout;
        let layout = Self::for_rows(spec, map, document.rows, row_bytes, document.table_version)?;
        match layout.version == document.layout_version {
            true => Ok(layout),
            false => Err(LayoutError::Edited {
                expected: document.layout_version,
                found: layout.version,
            }),
        }
    }

    /// The layout as one message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let json = self.to_json();
        let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
        bytes.extend(json.as_bytes());
        bytes.extend(self.map_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// As [`from_files`](Self::from_files).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LayoutError> {
        let parts = bytes
            .split_first_chunk::<4>()
            .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
        match parts {
            Some((json, map)) => Self::from_files(json, map),
            None => Err(LayoutError::Malformed { reason: "it ends early".to_owned() }),
        }
    }
}

fn lists(map: &LayoutMap) -> [&Vec<u32>; 3] {
    [&map.hot_ids, &map.hot_companions, &map.full_companions]
}

/// Cuts a map's bytes into the lists that the parts need; memory is bounded by the bytes.
fn split_map(spec: &LayoutSpec, bytes: &[u8]) -> Result<LayoutMap, LayoutError> {
    let hot = spec.hot.map_or((0, 0), |part| (part.rows, u64::from(part.companions)));
    let full = spec.full.map_or((0, 0), |part| (part.rows, u64::from(part.companions)));
    let counts = [hot.0, hot.0.saturating_mul(hot.1), full.0.saturating_mul(full.1)];
    let expected = counts.iter().fold(0u64, |sum, &count| sum.saturating_add(count));
    if bytes.len() as u64 != expected.saturating_mul(4) {
        let found = bytes.len() as u64 / 4;
        return Err(LayoutError::MapLength { list: "ids", expected, found });
    }
    let mut ids = bytes.chunks_exact(4).map(|id| {
        let mut word = [0; 4];
        word.copy_from_slice(id);
        u32::from_le_bytes(word)
    });
    let mut take = |count: u64| ids.by_ref().take(count as usize).collect();
    Ok(LayoutMap {
        hot_ids: take(counts[0]),
        hot_companions: take(counts[1]),
        full_companions: take(counts[2]),
    })
}

/// BLAKE3 of everything that decides what a request means and what its answer is.
pub(super) fn hash(
    spec: &LayoutSpec,
    map: &LayoutMap,
    rows: u64,
    row_bytes: usize,
    table_version: Version,
) -> Version {
    let mut hasher = blake3::Hasher::new_derive_key("hushtable layout v1");
    hasher.update(table_version.as_bytes());
    hasher.update(&rows.to_le_bytes());
    hasher.update(&(row_bytes as u64).to_le_bytes());
    hasher.update(&spec.seed);
    hasher.update(&spec.ids_max.to_le_bytes());
    hasher.update(&[spec.drop as u8]);
    for part in [spec.hot, spec.full] {
        hasher.update(&[u8::from(part.is_some())]);
        if let Some(part) = part {
            hasher.update(&part.rows.to_le_bytes());
            for number in [part.bins, part.queries, part.hashes, part.companions] {
                hasher.update(&number.to_le_bytes());
            }
        }
    }
    for list in lists(map) {
        hasher.update(&(list.len() as u64).to_le_bytes());
        for chunk in list.chunks(1 << 14) {
            let bytes: Vec<u8> = chunk.iter().flat_map(|id| id.to_le_bytes()).collect();
            hasher.update(&bytes);
        }
    }
    Version::from(*hasher.finalize().as_bytes())
}
