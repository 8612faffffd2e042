//! A checkpoint of `torch.distributed.checkpoint`: a folder with a pickle, `.metadata`, that says
//! which tensors there are, how each is cut, and where each piece is in the `.distcp` files.
//!
//! Every piece is what `torch.save` writes for one tensor, at an offset of a file. Nothing in the
//! pickle is executed. Classes: torch's `distributed/checkpoint/metadata.py` and `filesystem.py`.

use std::collections::HashMap;
use std::path::Path;

use super::SourceError;
use super::checkpoint::{Found, Place, StoredPiece};
use super::files::{Files, Window};
use super::folder;
use super::joined::PIECE_COUNT_MAX;
use super::pickle::{PICKLE_BYTES_MAX, Pickle, PickleError, Value, ValueId};
use super::read_at::ReadAt;
use super::tensor::{Entry, Kind, TensorInfo};
use super::torch;
use super::vocabulary::{Class, Global, Vocabulary};

/// The file that makes a folder a distributed checkpoint.
pub(super) const METADATA: &str = ".metadata";

const TENSOR_COUNT_MAX: usize = 65_536;
const NAME_BYTES_MAX: usize = 1_024;

/// What is wrong with a distributed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DistributedError {
    /// The metadata does not hold what it should.
    #[error(
        ".metadata is malformed: {expected} expected; the checkpoint is damaged or of another \
         torch: load it with torch.distributed.checkpoint and save model.state_dict() with torch.save"
    )]
    Metadata {
        /// What should stand there.
        expected: &'static str,
    },
    /// No file is said to hold a piece.
    #[error(
        ".metadata names no file for a piece of tensor {name:?}; the checkpoint is damaged, fetch it \
         again"
    )]
    MissingPiece {
        /// The tensor.
        name: String,
    },
    /// A piece was stored compressed or encrypted.
    #[error(
        "a piece of tensor {name:?} was stored through an extension (it is compressed or encrypted); \
         save the checkpoint without storage extensions"
    )]
    Transformed {
        /// The tensor.
        name: String,
    },
    /// A file holds another piece than the metadata says.
    #[error(
        "a piece of tensor {name:?} is not the one that .metadata describes; the checkpoint is \
         damaged, fetch it again"
    )]
    WrongPiece {
        /// The tensor.
        name: String,
    },
}

/// A piece's file, offset and length.
struct Location<'a> {
    file: &'a str,
    offset: u64,
    byte_count: u64,
    transformed: bool,
}

/// Lists the tensors of the checkpoint in `folder` from its metadata.
pub(super) fn read_metadata(
    bytes: &[u8],
    folder: &Path,
    files: &mut Files,
) -> Result<Vec<Found>, SourceError> {
    if bytes.len() as u64 > PICKLE_BYTES_MAX {
        return Err(PickleError::TooLarge { limit: PICKLE_BYTES_MAX, unit: "bytes" }.into());
    }
    let pickle = Pickle::parse_with(Vocabulary::Distributed, bytes)?;
    let root = pickle.root();
    let field = |name| pickle.field(Class::Metadata, root, name);
    let tensors = field("state_dict_metadata").and_then(|id| entries(&pickle, id));
    let tensors = tensors.ok_or_else(|| wrong("a dict of tensors"))?;
    let stored = field("storage_data").and_then(|id| entries(&pickle, id));
    let stored = stored.ok_or_else(|| wrong("a dict of storage places"))?;

    let mut locations = HashMap::new();
    for (index, info) in stored {
        let name = pickle.field(Class::Index, *index, "fqn").and_then(|id| pickle.text(id));
        let name = name.ok_or_else(|| wrong("a tensor's name"))?;
        // What is no tensor (a number, a string) has no offset.
        let offset = pickle.field(Class::Index, *index, "offset").and_then(|id| pickle.sizes(id));
        let location = location(&pickle, *info).ok_or_else(|| wrong("a storage place"))?;
        locations.insert((name, offset), location);
    }
    let mut ids = HashMap::new();
    let mut found = Vec::new();
    for (name, tensor) in tensors {
        let name = pickle.text(*name).ok_or_else(|| wrong("a tensor's name"))?;
        if matches!(pickle.value(*tensor), Value::Record(Class::BytesStorage, _)) {
            continue;
        }
        if found.len() == TENSOR_COUNT_MAX || name.len() > NAME_BYTES_MAX {
            return Err(SourceError::TooManyTensors { tensor_count_max: TENSOR_COUNT_MAX });
        }
        let (info, kind, chunks) = tensor_of(&pickle, name, *tensor)?;
        let mut pieces = Vec::new();
        for chunk in chunks {
            let sizes = |field| {
                let id = pickle.field(Class::ChunkStorage, *chunk, field);
                id.and_then(|id| pickle.sizes(id)).ok_or_else(|| wrong("a piece's place and shape"))
            };
            let (offsets, shape) = (sizes("offsets")?, sizes("sizes")?);
            let location = locations.get(&(name, Some(offsets.clone())));
            let location =
                location.ok_or_else(|| DistributedError::MissingPiece { name: name.to_owned() })?;
            if location.transformed {
                return Err(DistributedError::Transformed { name: name.to_owned() }.into());
            }
            let file = match ids.get(location.file) {
                Some(file) => *file,
                None => {
                    let file = files.push(folder::beside(folder, location.file)?);
                    ids.insert(location.file, file);
                    file
                }
            };
            let (offset, byte_count) = (location.offset, location.byte_count);
            let place = Place::Item { offset, byte_count, shape };
            pieces.push(StoredPiece { file, offsets, place });
        }
        found.push(Found { info, kind, pieces });
    }
    Ok(found)
}

/// The tensor that `torch.save` wrote at a place of a file.
pub(super) fn read_item(
    file: &impl ReadAt,
    offset: u64,
    byte_count: u64,
    name: &str,
    shape: &[u64],
) -> Result<Entry, SourceError> {
    let window = Window::new(file, offset, byte_count)?;
    let mut entries = torch::read_entries(&window)?;
    match (entries.pop(), entries.is_empty()) {
        (Some(mut entry), true) if entry.info.shape == shape => {
            entry.offset += offset;
            Ok(entry)
        }
        _ => Err(DistributedError::WrongPiece { name: name.to_owned() }.into()),
    }
}

fn wrong(expected: &'static str) -> SourceError {
    DistributedError::Metadata { expected }.into()
}

fn entries<'b>(pickle: &'b Pickle<'_>, id: ValueId) -> Option<&'b [(ValueId, ValueId)]> {
    match pickle.value(id) {
        Value::Dict(entries) => Some(entries),
        _ => None,
    }
}

fn location<'a>(pickle: &Pickle<'a>, id: ValueId) -> Option<Location<'a>> {
    let field = |name| pickle.field(Class::StorageInfo, id, name);
    let number = |name| match pickle.value(field(name)?) {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let transforms = field("transform_descriptors").map(|id| pickle.value(id));
    Some(Location {
        file: pickle.text(field("relative_path")?)?,
        offset: number("offset")?,
        byte_count: number("length")?,
        transformed: matches!(transforms, Some(Value::List(it)) if !it.is_empty())
            || matches!(transforms, Some(Value::Tuple(it)) if !it.is_empty()),
    })
}

/// A tensor's name, shape and dtype, and its pieces.
fn tensor_of<'b>(
    pickle: &'b Pickle<'_>,
    name: &str,
    id: ValueId,
) -> Result<(TensorInfo, Option<Kind>, &'b [ValueId]), SourceError> {
    let field = |name| pickle.field(Class::TensorStorage, id, name);
    let shape = field("size").and_then(|id| pickle.sizes(id));
    let shape = shape.ok_or_else(|| wrong("a tensor's size"))?;
    let Some(Value::List(chunks)) = field("chunks").map(|id| pickle.value(id)) else {
        return Err(wrong("a list of pieces"));
    };
    if chunks.len() > PIECE_COUNT_MAX {
        return Err(SourceError::Pieces { name: name.to_owned() });
    }
    // The properties are a tuple that begins with the dtype.
    let dtype = field("properties").and_then(|id| match pickle.value(id) {
        Value::Record(Class::TensorProperties, Some(state)) => match pickle.value(*state) {
            Value::Tuple(state) => match pickle.value(*state.first()?) {
                Value::Global(Global::DType(dtype)) => Some(*dtype),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let dtype = dtype.ok_or_else(|| wrong("a tensor's dtype"))?;
    let (name, element) = (name.to_owned(), dtype.element());
    let info = TensorInfo { name, shape, dtype: dtype.name().to_owned(), element };
    Ok((info, Kind::of_torch(dtype.name()), chunks))
}
