//! Files to build a table from.

mod checkpoint;
mod distributed;
mod files;
mod folder;
mod joined;
mod npy;
mod npz;
mod pickle;
mod read_at;
mod safetensors;
mod tensor;
mod torch;
mod vocabulary;
mod zip;

use std::path::{Path, PathBuf};

pub use self::checkpoint::{Checkpoint, CheckpointFormat, scan_checkpoint};
pub(crate) use self::checkpoint::{Content, Stored};
pub use self::distributed::DistributedError;
use self::files::open_file;
pub use self::npy::NpyError;
pub use self::pickle::PickleError;
pub(crate) use self::read_at::ReadAt;
use self::read_at::SizedFile;
pub(crate) use self::tensor::Tensor;
pub use self::tensor::{Element, TensorInfo};
use self::tensor::{Entry, is_scale_name, scales_among, scales_of, select};
pub use self::torch::TorchError;
pub use self::zip::ZipError;
use crate::error::Error;

/// A file to build a table from, and the tensor in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A NumPy array: format 1 to 3, little-endian f2, f4 or f8, C order, two dimensions.
    Npy {
        /// The file.
        path: PathBuf,
    },
    /// NumPy's archive of arrays, uncompressed.
    Npz {
        /// The file.
        path: PathBuf,
        /// The array's name; may be left out if only one array could be a table.
        key: Option<String>,
    },
    /// A safetensors file.
    Safetensors {
        /// The file.
        path: PathBuf,
        /// The tensor's name; may be left out if only one tensor could be a table.
        key: Option<String>,
    },
    /// A file of `torch.save`: a state dict, a checkpoint of nested dicts, or one tensor.
    ///
    /// Nothing in the file is executed: its pickle may name tensors, their storages and
    /// `OrderedDict`, and is refused if it names anything else.
    Torch {
        /// The file.
        path: PathBuf,
        /// The tensor's name, with dots between nested dicts' keys; may be left out if only one
        /// tensor could be a table.
        key: Option<String>,
    },
}

/// The format of a [`Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceFormat {
    /// NumPy's `.npy`.
    Npy,
    /// NumPy's `.npz`.
    Npz,
    /// safetensors.
    Safetensors,
    /// `torch.save`'s zip.
    Torch,
}

impl Source {
    /// Chooses the format by the file's extension: `.npy`, `.npz`, `.safetensors`, `.pt`, `.pth`, `.bin`, `.ckpt`.
    ///
    /// # Errors
    /// [`Error::Source`] with [`SourceError::Extension`] for any other, and with
    /// [`SourceError::KeyOfArray`] for a key into a `.npy` file.
    pub fn from_path(path: impl Into<PathBuf>, key: Option<String>) -> Result<Self, Error> {
        let path = path.into();
        let extension = path.extension().map(|it| it.to_string_lossy().to_lowercase());
        match extension.as_deref() {
            Some("npy") if key.is_some() => {
                Err(Error::Source { path, source: SourceError::KeyOfArray })
            }
            Some("npy") => Ok(Self::Npy { path }),
            Some("npz") => Ok(Self::Npz { path, key }),
            Some("safetensors") => Ok(Self::Safetensors { path, key }),
            Some("pt" | "pth" | "bin" | "ckpt") => Ok(Self::Torch { path, key }),
            _ => {
                let extension = extension.unwrap_or_default().chars().take(32).collect();
                Err(Error::Source { path, source: SourceError::Extension { extension } })
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Npy { path }
            | Self::Npz { path, .. }
            | Self::Safetensors { path, .. }
            | Self::Torch { path, .. } => path,
        }
    }

    /// The format.
    pub fn format(&self) -> SourceFormat {
        match self {
            Self::Npy { .. } => SourceFormat::Npy,
            Self::Npz { .. } => SourceFormat::Npz,
            Self::Safetensors { .. } => SourceFormat::Safetensors,
            Self::Torch { .. } => SourceFormat::Torch,
        }
    }

    /// Lists the file's tensors, in the order of the file.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Source`].
    pub fn tensors(&self) -> Result<Vec<TensorInfo>, Error> {
        let file = open_file(self.path())?;
        let entries = self.read_entries(&file)?;
        Ok(entries.into_iter().map(|entry| entry.info).collect())
    }

    /// Finds the tensor to build from.
    pub(crate) fn open(&self) -> Result<Tensor<SizedFile>, Error> {
        let file = open_file(self.path())?;
        let mut entries = self.read_entries(&file)?;
        let key = match self {
            Self::Npy { .. } => None,
            Self::Npz { key, .. } | Self::Safetensors { key, .. } | Self::Torch { key, .. } => {
                key.as_deref()
            }
        };
        let wrong = |source| Error::Source { path: self.path().to_owned(), source };
        let infos = || entries.iter().map(|entry| &entry.info);
        let names = scales_among(infos());
        let scales: Vec<Entry> =
            entries.iter().filter(|entry| is_scale_name(&entry.info.name)).cloned().collect();
        if key.is_none() {
            entries.retain(|entry| !names.contains(&entry.info.name));
        }
        let entry = select(entries, key).map_err(wrong)?;
        let place =
            scales_of(&entry.info, scales.iter().map(|entry| &entry.info)).map_err(wrong)?;
        let tensor = Tensor::new(file, self.path(), entry).map_err(wrong)?;
        match place.and_then(|place| scales.into_iter().nth(place)) {
            Some(scales) => tensor.with_scales(open_file(self.path())?, scales).map_err(wrong),
            None => Ok(tensor),
        }
    }

    /// What a manifest says of a table built from this: the file's name, and the tensor's.
    pub(crate) fn origin(&self, tensor_name: &str) -> String {
        let file = self.path().file_name().unwrap_or_default().to_string_lossy();
        match tensor_name {
            "" => file.into_owned(),
            name => format!("{file}#{name}"),
        }
    }

    fn read_entries(&self, file: &SizedFile) -> Result<Vec<Entry>, Error> {
        entries(self.format(), file)
            .map_err(|source| Error::Source { path: self.path().to_owned(), source })
    }
}

/// Lists the tensors in the bytes of a file.
///
/// This is what [`Source::tensors`] does with a file; memory is bounded by a small multiple of
/// the file's header, and that by 16 MiB.
///
/// # Errors
/// [`SourceError`] says what is wrong with the file.
pub fn scan(format: SourceFormat, bytes: &[u8]) -> Result<Vec<TensorInfo>, SourceError> {
    Ok(entries(format, &bytes)?.into_iter().map(|entry| entry.info).collect())
}

fn entries(format: SourceFormat, file: &impl ReadAt) -> Result<Vec<Entry>, SourceError> {
    match format {
        SourceFormat::Npy => npy::read_entry(file).map(|entry| vec![entry]),
        SourceFormat::Npz => npz::read_entries(file),
        SourceFormat::Safetensors => safetensors::read_entries(file),
        SourceFormat::Torch => torch::read_entries(file),
    }
}

/// What is wrong with a file to build from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No key was given and several tensors could be the table.
    #[error("{candidate_count} tensors could be the table; choose one with a key: {candidates:?}")]
    AmbiguousKey {
        /// The first of their names.
        candidates: Vec<String>,
        /// How many there are.
        candidate_count: usize,
    },
    /// The tensor has scales of blocks of rows and columns.
    #[error(
        "tensor {name:?} has the scales of blocks {scale:?}, and a table has scales of rows or of groups \
         of their values; save the tensor dequantised, as bfloat16"
    )]
    BlockScales {
        /// Its name.
        name: String,
        /// Theirs.
        scale: String,
    },
    /// The tensor's values are not floats that a table is made of.
    #[error(
        "tensor {name:?} holds {dtype} values; a table is built from f16, bf16, f32, f64, f8_e4m3 or f8_e5m2"
    )]
    Element {
        /// Its name.
        name: String,
        /// What it holds.
        dtype: String,
    },
    /// The extension of a checkpoint says nothing about the format.
    #[error(
        "the extension {extension:?} is none of .pt, .pth, .bin, .ckpt, .safetensors, .index.json, \
         .npz, .npy, and this is no folder; rename the file or convert it"
    )]
    CheckpointExtension {
        /// The extension, lowercase, cut to 32 characters.
        extension: String,
    },
    /// A distributed checkpoint's metadata says what cannot be.
    #[error(transparent)]
    Distributed(#[from] DistributedError),
    /// Two files of a checkpoint hold a tensor of one name.
    #[error(
        "tensor {name:?} is in two files, {first} and {second}, which do not say that they hold \
         pieces of it; keep one of them in the folder"
    )]
    DuplicateTensor {
        /// Its name.
        name: String,
        /// The first file.
        first: String,
        /// The second.
        second: String,
    },
    /// The folder holds nothing that a checkpoint is made of.
    #[error(
        "the folder is no checkpoint: it has neither a .metadata (torch.distributed.checkpoint), nor \
         .safetensors or .npy files, nor table bundles"
    )]
    EmptyFolder,
    /// The extension says nothing about the format.
    #[error(
        "the extension {extension:?} is none of .safetensors, .npy, .npz, .pt, .pth, .bin, .ckpt; rename the file \
         or convert it"
    )]
    Extension {
        /// The extension, lowercase, cut to 32 characters.
        extension: String,
    },
    /// An index of shards is malformed, or names what it must not.
    #[error("the index of shards is malformed: {reason}; fetch it again")]
    Index {
        /// What is wrong.
        reason: String,
    },
    /// A key was given for a file that holds one array.
    #[error("a .npy file holds one array and takes no key; leave it out")]
    KeyOfArray,
    /// No tensor has the key's name.
    #[error("no tensor is named {key:?}; {candidate_count} could be a table: {candidates:?}")]
    MissingKey {
        /// The key as given.
        key: String,
        /// The first names of tensors that could be the table.
        candidates: Vec<String>,
        /// How many there are.
        candidate_count: usize,
    },
    /// No tensor of the file could be a table.
    #[error(
        "none of the {tensor_count} tensors is a table: two dimensions of f16, bf16, f32 or f64 values"
    )]
    NoTable {
        /// How many tensors there are.
        tensor_count: usize,
    },
    /// Not a plain file.
    #[error("this is a folder, pipe or device, not a plain file")]
    NotAFile,
    /// A `.npy` file is malformed, or of a form that is not supported.
    #[error(transparent)]
    Npy(#[from] NpyError),
    /// A file that holds a piece of a tensor cannot be read.
    #[error("{reason} ({})", path.display())]
    Piece {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The pieces of a tensor are not all of it, or overlap, or are cut in a way that is not read.
    #[error(
        "the pieces of tensor {name:?} are not the whole of it, once, cut by rows or columns; the \
         checkpoint is damaged or incomplete: fetch it again, or save it from one process"
    )]
    Pieces {
        /// Its name.
        name: String,
    },
    /// A torch file's pickle is malformed, or asks for more than tensors.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// The tensor has not two dimensions.
    #[error("tensor {name:?} has shape {shape:?}; a table has two dimensions, rows and values")]
    Rank {
        /// Its name.
        name: String,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// Two tensors of a checkpoint come to one name.
    #[error(
        "two tensors are named {name:?}, and either could be meant; save one state dict: \
         torch.save(model.state_dict(), path)"
    )]
    RepeatedName {
        /// The name.
        name: String,
    },
    /// The system could not read the file.
    #[error("cannot read {byte_count} bytes at {offset}: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// How much.
        byte_count: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The scales of a tensor of 8-bit floats are of no shape that a table has.
    #[error(
        "the scales {scale:?} of tensor {name:?} have shape {shape:?}; a table has one for the tensor, one for \
         each row, or in each row one for 32, 64 or 128 values: save the tensor dequantised, as bfloat16"
    )]
    Scales {
        /// The tensor's name.
        name: String,
        /// Theirs.
        scale: String,
        /// Their shape.
        shape: Vec<u64>,
    },
    /// A safetensors header is malformed.
    #[error("the safetensors header is malformed: {source}")]
    SafetensorsHeader {
        /// What the parser said.
        source: serde_json::Error,
    },
    /// A safetensors header has an impossible or excessive length.
    #[error(
        "the safetensors header says it is {byte_count} bytes long; this file allows {byte_count_max}"
    )]
    SafetensorsHeaderLength {
        /// What the file says.
        byte_count: u64,
        /// The rest of the file, and at most 16 MiB.
        byte_count_max: u64,
    },
    /// The values are not laid out row after row.
    #[error(
        "tensor {name:?} is not laid out row by row (it was transposed or expanded); save tensor.contiguous()"
    )]
    Strides {
        /// Its name.
        name: String,
    },
    /// More tensors than any model has.
    #[error("the file has over {tensor_count_max} tensors")]
    TooManyTensors {
        /// The limit.
        tensor_count_max: usize,
    },
    /// A torch file is no zip, or lacks a part.
    #[error(transparent)]
    Torch(#[from] TorchError),
    /// The file ends before its tensors do.
    #[error(
        "the file has {found} bytes where its header needs {expected}; it is truncated or damaged, fetch it again"
    )]
    Truncated {
        /// Bytes that the header needs.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A zip archive is malformed.
    #[error(transparent)]
    Zip(#[from] ZipError),
}
