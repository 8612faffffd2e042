//! Files of `torch.save`: a zip archive with a pickle, and one entry a storage.

use std::collections::HashSet;

use super::SourceError;
use super::pickle::{PICKLE_BYTES_MAX, Pickle, PickleError, TensorValue, Value, ValueId};
use super::read_at::ReadAt;
use super::tensor::{Entry, Kind, TensorInfo};
use super::zip::Archive;

/// Bounds what a file of shared keys and tensors can make us list.
const TENSOR_COUNT_MAX: usize = 65_536;
const NAME_BYTES_MAX: usize = 1_024;
const DEPTH_MAX: usize = 16;

/// What is wrong with a torch file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TorchError {
    /// The file was saved on a big-endian machine.
    #[error(
        "the file was saved on a big-endian machine; load it in torch there or here, and save it again here"
    )]
    BigEndian,
    /// Dicts are nested deeper, or names are longer, than any model's.
    #[error(
        "the file's dicts are nested over {DEPTH_MAX} deep or make names over {NAME_BYTES_MAX} bytes; save model.state_dict()"
    )]
    Depth,
    /// The format of torch before 1.6.
    #[error(
        "this is a torch file of the format before 1.6; convert it once: torch.save(torch.load(path, weights_only=True), path)"
    )]
    Legacy,
    /// The pickle refers to a storage that is not in the archive.
    #[error("the archive has no storage {key:?}; the file is damaged, fetch it again")]
    MissingStorage {
        /// Its name, cut to 64 characters.
        key: String,
    },
    /// No zip archive at all.
    #[error(
        "this is not a torch file (a zip archive); write it with torch.save(model.state_dict(), path)"
    )]
    NotAZip,
    /// A zip archive, but not one that torch.save wrote.
    #[error("the archive has no data.pkl, so it is not of torch.save")]
    NoPickle,
    /// A TorchScript program.
    #[error(
        "this is a TorchScript program, not a state dict; load it with torch.jit.load and save model.state_dict()"
    )]
    TorchScript,
}

/// Lists the tensors of a torch file.
pub(super) fn read_entries(file: &impl ReadAt) -> Result<Vec<Entry>, SourceError> {
    let magic = file.read_vec(0, file.size().min(2))?;
    match magic[..] {
        [b'P', b'K'] => {}
        // A pickle of protocol 2 or later.
        [0x80, _] => return Err(TorchError::Legacy.into()),
        _ => return Err(TorchError::NotAZip.into()),
    }
    let archive = Archive::read(file)?;
    let root = archive_root(&archive)?;
    if let Some((offset, byte_count)) = archive.locate(file, &format!("{root}/byteorder"))?
        && file.read_vec(offset, byte_count.min(16))? != b"little"
    {
        return Err(TorchError::BigEndian.into());
    }
    let Some((offset, byte_count)) = archive.locate(file, &format!("{root}/data.pkl"))? else {
        return Err(TorchError::NoPickle.into());
    };
    if byte_count > PICKLE_BYTES_MAX {
        return Err(PickleError::TooLarge { limit: PICKLE_BYTES_MAX, unit: "bytes" }.into());
    }
    let bytes = file.read_vec(offset, byte_count)?;
    let pickle = Pickle::parse(&bytes)?;

    let mut found = Found { pickle: &pickle, visited: HashSet::new(), tensors: Vec::new() };
    found.visit("", pickle.root(), 0)?;
    let tensors = found.tensors;
    tensors
        .into_iter()
        .map(|(name, tensor)| locate(file, &archive, root, &pickle, name, tensor))
        .collect()
}

/// The folder that all entries of the archive are in.
fn archive_root(archive: &Archive) -> Result<&str, TorchError> {
    let roots = archive.names().filter_map(|name| name.strip_suffix("/data.pkl"));
    let root = roots.filter(|root| !root.contains('/')).min().ok_or(TorchError::NoPickle)?;
    let script = |name: &str| {
        name.strip_prefix(root)
            .is_some_and(|rest| rest.starts_with("/code/") || rest == "/constants.pkl")
    };
    if archive.names().any(script) { Err(TorchError::TorchScript) } else { Ok(root) }
}

/// The tensors of a pickle, by the path of keys that leads to them.
struct Found<'a, 'b> {
    pickle: &'b Pickle<'a>,
    /// Dicts that were visited: a pickle can make one its own member.
    visited: HashSet<ValueId>,
    tensors: Vec<(String, &'b TensorValue)>,
}

impl Found<'_, '_> {
    fn visit(&mut self, path: &str, id: ValueId, depth: usize) -> Result<(), SourceError> {
        match self.pickle.value(id) {
            Value::Tensor(tensor) => {
                if self.tensors.len() == TENSOR_COUNT_MAX {
                    let tensor_count_max = TENSOR_COUNT_MAX;
                    return Err(SourceError::TooManyTensors { tensor_count_max });
                }
                self.tensors.push((path.to_owned(), tensor));
            }
            Value::Dict(entries) if self.visited.insert(id) => {
                if depth == DEPTH_MAX {
                    return Err(TorchError::Depth.into());
                }
                for (key, value) in entries {
                    if !matches!(self.pickle.value(*value), Value::Dict(_) | Value::Tensor(_)) {
                        continue;
                    }
                    // Keys that are no text (an optimizer's state has numbers) name no table.
                    let Some(key) = self.pickle.text(*key) else { continue };
                    if path.len() + 1 + key.len() > NAME_BYTES_MAX {
                        return Err(TorchError::Depth.into());
                    }
                    match path {
                        "" => self.visit(key, *value, depth + 1)?,
                        _ => self.visit(&format!("{path}.{key}"), *value, depth + 1)?,
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Where a tensor's values are in the file.
fn locate(
    file: &impl ReadAt,
    archive: &Archive,
    root: &str,
    pickle: &Pickle<'_>,
    name: String,
    tensor: &TensorValue,
) -> Result<Entry, SourceError> {
    let storage_type = tensor.storage.storage_type;
    let element = storage_type.element();
    let info = TensorInfo {
        name,
        shape: tensor.sizes.clone(),
        dtype: storage_type.name().to_owned(),
        element,
    };
    let entry = Entry {
        info,
        offset: 0,
        byte_count: 0,
        strides: tensor.strides.clone(),
        kind: Kind::of_torch(storage_type.name()),
    };
    let Some(kind) = entry.kind else {
        // Listed, but never read; its storage may be of any kind.
        return Ok(entry);
    };
    let key = pickle.text(tensor.storage.key).unwrap_or_default();
    let Some((offset, byte_count)) = archive.locate(file, &format!("{root}/data/{key}"))? else {
        return Err(TorchError::MissingStorage { key: key.chars().take(64).collect() }.into());
    };
    let start = tensor.offset.saturating_mul(kind.value_bytes);
    if start > byte_count {
        let expected = offset.saturating_add(start);
        return Err(SourceError::Truncated { expected, found: offset + byte_count });
    }
    Ok(Entry { offset: offset + start, byte_count: byte_count - start, ..entry })
}
