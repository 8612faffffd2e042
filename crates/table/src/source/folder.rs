//! Folders of files: shards named by an index, shards that say themselves what they hold, arrays,
//! and table bundles.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::checkpoint::{Found, Place, StoredPiece};
use super::files::Files;
use super::safetensors;
use super::tensor::Entry;
use super::{SourceError, npy, torch};
use crate::bundle;
use crate::error::Error;
use crate::within::{self, LeadsOut};

/// How an index of shards ends.
pub(super) const INDEX: &str = ".index.json";

const INDEX_BYTES_MAX: u64 = 16 << 20;
const FILE_COUNT_MAX: usize = 65_536;
const PATH_BYTES_MAX: usize = 1_024;
/// What some editors put before UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";
const TENSOR_COUNT_MAX: usize = 65_536;

/// Where torch's writer of distributed safetensors files says which piece a file holds.
const SHARDING: &str = "DCP_SHARDING_INFO";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Sharding {
    saved_offsets: Vec<u64>,
}

/// The files and folders in a folder that are not hidden, sorted by name.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(Error::io("list", folder))?.file_name();
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        if names.len() == FILE_COUNT_MAX {
            let source = SourceError::TooManyTensors { tensor_count_max: FILE_COUNT_MAX };
            return Err(Error::Source { path: folder.to_owned(), source });
        }
        names.push(name.to_owned());
    }
    names.sort();
    Ok(names)
}

/// The file of a checkpoint in `folder` that an index of it names. A link of the hub's cache leads to where its files
/// are, so that links are followed.
pub(super) fn beside(folder: &Path, file: &str) -> Result<PathBuf, SourceError> {
    within::join(folder, file).map_err(|LeadsOut { path }| SourceError::Index {
        reason: format!("{path:?} is no file beside it"),
    })
}

/// Lists the tensors of the shards that an index names.
pub(super) fn read_index(path: &Path, files: &mut Files) -> Result<Vec<Found>, Error> {
    let wrong = |source| Error::Source { path: path.to_owned(), source };
    let byte_count = path.metadata().map_err(Error::io("open", path))?.len();
    if byte_count > INDEX_BYTES_MAX {
        let reason = format!("it has {byte_count} bytes, over {INDEX_BYTES_MAX}");
        return Err(wrong(SourceError::Index { reason }));
    }
    let text = fs::read(path).map_err(Error::io("read", path))?;
    let index: Index = serde_json::from_slice(text.strip_prefix(MARK).unwrap_or(&text))
        .map_err(|error| wrong(SourceError::Index { reason: error.to_string() }))?;
    if index.weight_map.len() > TENSOR_COUNT_MAX {
        let tensor_count_max = TENSOR_COUNT_MAX;
        return Err(wrong(SourceError::TooManyTensors { tensor_count_max }));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, file) in &index.weight_map {
        // Shards may lie in folders beside the index: each step of the way is a name in the checkpoint.
        if file.len() > PATH_BYTES_MAX {
            let reason = format!("it names a file of over {PATH_BYTES_MAX} bytes");
            return Err(wrong(SourceError::Index { reason }));
        }
        beside(folder, file).map_err(wrong)?;
        shards.entry(file).or_default().push(tensor);
    }
    let mut found = Vec::new();
    for (shard, tensors) in shards {
        let file = files.push(beside(folder, shard).map_err(wrong)?);
        let opened = files.open(file)?;
        let entries = match Path::new(shard).extension().and_then(|it| it.to_str()) {
            Some("bin" | "pt" | "pth") => torch::read_entries(&opened),
            _ => safetensors::read_entries(&opened),
        };
        let entries = entries
            .map_err(|source| Error::Source { path: files.path(file).to_owned(), source })?;
        let mut entries: HashMap<String, Entry> =
            entries.into_iter().map(|entry| (entry.info.name.clone(), entry)).collect();
        for tensor in tensors {
            let Some(entry) = entries.remove(tensor) else {
                let tensor: String = tensor.chars().take(256).collect();
                let reason = format!("{shard:?} holds no tensor {tensor:?}");
                return Err(wrong(SourceError::Index { reason }));
            };
            found.push(Found::whole(file, entry));
        }
    }
    Ok(found)
}

/// Lists the tensors of safetensors files without an index: each whole in one file, or in pieces
/// where the files say so.
pub(super) fn read_shards(
    folder: &Path,
    names: &[String],
    files: &mut Files,
) -> Result<Vec<Found>, Error> {
    let mut order: Vec<String> = Vec::new();
    let mut pieces: HashMap<String, Vec<(Entry, StoredPiece)>> = HashMap::new();
    for name in names {
        let file = files.push(folder.join(name));
        let opened = files.open(file)?;
        let path = files.path(file).to_owned();
        let wrong = |source| Error::Source { path: path.clone(), source };
        let (entries, metadata) = safetensors::read_header(&opened).map_err(wrong)?;
        let sharding: HashMap<String, Sharding> = match metadata.get(SHARDING) {
            Some(text) => serde_json::from_str(text).map_err(|error| {
                wrong(SourceError::Index { reason: format!("{SHARDING}: {error}") })
            })?,
            None => HashMap::new(),
        };
        for entry in entries {
            let tensor = entry.info.name.clone();
            let said = sharding.get(&tensor);
            let offsets = said.map(|sharding| sharding.saved_offsets.clone());
            let others = pieces.entry(tensor.clone()).or_default();
            if others.is_empty() {
                order.push(tensor.clone());
            }
            if let (Some((_, first)), true) = (others.first(), offsets.is_none()) {
                let first = file_name(files.path(first.file));
                let second = file_name(&path);
                return Err(Error::Source {
                    path: folder.to_owned(),
                    source: SourceError::DuplicateTensor { name: tensor, first, second },
                });
            }
            let offsets = offsets.unwrap_or_else(|| vec![0; entry.info.shape.len()]);
            let place = Place::Values(entry.clone());
            others.push((entry, StoredPiece { file, offsets, place }));
        }
        if order.len() > TENSOR_COUNT_MAX {
            let tensor_count_max = TENSOR_COUNT_MAX;
            return Err(wrong(SourceError::TooManyTensors { tensor_count_max }));
        }
    }
    let join = |name: String| {
        let parts = pieces.remove(&name).unwrap_or_default();
        join_shards(folder, name, parts)
    };
    order.into_iter().map(join).collect()
}

/// One tensor of its pieces: as large as they reach.
fn join_shards(
    folder: &Path,
    name: String,
    parts: Vec<(Entry, StoredPiece)>,
) -> Result<Found, Error> {
    let wrong = || Error::Source {
        path: folder.to_owned(),
        source: SourceError::Pieces { name: name.clone() },
    };
    let (first, _) = parts.first().ok_or_else(wrong)?;
    let (mut info, kind) = (first.info.clone(), first.kind);
    info.shape.fill(0);
    for (entry, piece) in &parts {
        let shape = &entry.info.shape;
        let same = shape.len() == info.shape.len() && entry.info.dtype == info.dtype;
        if !same || piece.offsets.len() != shape.len() {
            return Err(wrong());
        }
        for (reach, (offset, size)) in info.shape.iter_mut().zip(piece.offsets.iter().zip(shape)) {
            *reach = (*reach).max(offset.checked_add(*size).ok_or_else(wrong)?);
        }
    }
    let pieces = parts.into_iter().map(|(_, piece)| piece).collect();
    Ok(Found { info, kind, pieces })
}

/// Lists the arrays of `.npy` files, by the files' names.
pub(super) fn read_arrays(
    folder: &Path,
    names: &[String],
    files: &mut Files,
) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    for name in names {
        let file = files.push(folder.join(name));
        let opened = files.open(file)?;
        let entry = npy::read_array(&opened).map_err(|source| {
            let path = files.path(file).to_owned();
            Error::Source { path, source }
        });
        let (mut entry, _) = entry?;
        name.trim_end_matches(".npy").clone_into(&mut entry.info.name);
        found.push(Found::whole(file, entry));
    }
    Ok(found)
}

/// Whether a folder is a table bundle.
pub(super) fn is_bundle(path: &Path) -> bool {
    path.join(bundle::MANIFEST).is_file()
}

/// The last part of a path, for messages.
pub(super) fn file_name(path: &Path) -> String {
    PathBuf::from(path.file_name().unwrap_or_default()).display().to_string()
}
