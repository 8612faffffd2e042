//! A checkpoint: the tensors of a model, in one file, in several, or in a folder of tables.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{FileId, Files, open_file};
use super::joined::{Joined, Piece};
use super::read_at::ReadAt;
use super::tensor::{
    Element, Entry, Kind, Tensor, TensorInfo, scales_among, scales_of, strides_in_order,
};
use super::{SourceError, distributed, folder, npy, npz, safetensors, torch};
use crate::dtype::DType;
use crate::error::Error;
use crate::table::Table;

/// What kind of files a [`Checkpoint`] is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointFormat {
    /// A folder of `torch.distributed.checkpoint`.
    Distributed,
    /// A folder of `.npy` files, of table bundles, or of both.
    Folder,
    /// One `.npy` file.
    Npy,
    /// One `.npz` file.
    Npz,
    /// One safetensors file, or several.
    Safetensors,
    /// One file of `torch.save`.
    Torch,
}

impl CheckpointFormat {
    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Distributed => "torch distributed checkpoint",
            Self::Folder => "folder of tables",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Safetensors => "safetensors",
            Self::Torch => "torch",
        }
    }
}

/// The tensors of a model, wherever they lie; none is read yet.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    format: CheckpointFormat,
    files: Arc<Files>,
    tensors: Vec<Stored>,
}

/// A tensor of a checkpoint.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) info: TensorInfo,
    /// How a safetensors file keeps its values, if it does.
    pub(crate) kind: Option<Kind>,
    pub(crate) content: Content,
}

/// Where a tensor's values are.
#[derive(Debug)]
pub(crate) enum Content {
    Pieces(Vec<StoredPiece>),
    /// A table bundle, of this dtype.
    Bundle(PathBuf, DType),
}

/// A tensor as a reader of files found it.
pub(super) struct Found {
    pub(super) info: TensorInfo,
    pub(super) kind: Option<Kind>,
    pub(super) pieces: Vec<StoredPiece>,
}

/// A piece of a tensor, in one file.
#[derive(Debug)]
pub(crate) struct StoredPiece {
    pub(super) file: FileId,
    /// Where in the tensor, an index a dimension.
    pub(super) offsets: Vec<u64>,
    pub(super) place: Place,
}

/// Where in its file a piece is.
#[derive(Debug)]
pub(super) enum Place {
    /// Its values are there.
    Values(Entry),
    /// A file of `torch.save` is there, which holds them.
    Item { offset: u64, byte_count: u64, shape: Vec<u64> },
}

impl Found {
    /// A tensor that is whole in one file.
    pub(super) fn whole(file: FileId, entry: Entry) -> Self {
        let offsets = vec![0; entry.info.shape.len()];
        let (info, kind) = (entry.info.clone(), entry.kind);
        Self {
            info,
            kind,
            pieces: vec![StoredPiece { file, offsets, place: Place::Values(entry) }],
        }
    }
}

impl Checkpoint {
    /// Opens a checkpoint and lists its tensors.
    ///
    /// A file is read by its extension: `.pt`, `.pth`, `.bin` (torch), `.safetensors`, `.npz`,
    /// `.npy`, or `.index.json` for shards. A folder is a distributed checkpoint of torch
    /// (`.metadata`), shards with or without an index, or a folder of `.npy` files and of table
    /// bundles. Nothing of it is executed.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Source`], with the file that is at fault.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut files = Files::default();
        let (format, tensors) = match path.is_dir() {
            true => open_folder(path, &mut files)?,
            false => open_one(path, &mut files)?,
        };
        let mut names = HashSet::new();
        if let Some(twice) = tensors.iter().find(|tensor| !names.insert(&tensor.info.name)) {
            let source = SourceError::RepeatedName { name: twice.info.name.clone() };
            return Err(Error::Source { path: path.to_owned(), source });
        }
        Ok(Self { path: path.to_owned(), format, files: Arc::new(files), tensors })
    }

    /// What it is made of.
    pub fn format(&self) -> CheckpointFormat {
        self.format
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its tensors, in the order of the files.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter().map(|tensor| &tensor.info)
    }

    /// The names of the tensors that are scales of others.
    pub(crate) fn scales(&self) -> HashSet<String> {
        scales_among(self.tensors.iter().map(|tensor| &tensor.info))
    }

    pub(crate) fn stored(&self) -> &[Stored] {
        &self.tensors
    }

    /// How many bytes a tensor has in order.
    ///
    /// # Errors
    /// [`SourceError::Element`] for a type that is not kept, [`SourceError::Pieces`] for a size
    /// beyond 64 bits.
    pub(crate) fn size_of(&self, stored: &Stored) -> Result<u64, Error> {
        let name = stored.info.name.clone();
        let size = match stored.kind {
            Some(kind) => stored
                .info
                .shape
                .iter()
                .try_fold(kind.value_bytes, |bytes, size| bytes.checked_mul(*size))
                .ok_or(SourceError::Pieces { name }),
            None => Err(SourceError::Element { name, dtype: stored.info.dtype.clone() }),
        };
        size.map_err(|source| Error::Source { path: self.path.clone(), source })
    }

    /// A tensor's bytes in order, [`size_of`](Self::size_of) of them.
    pub(crate) fn join(&self, stored: &Stored) -> Result<Joined, Error> {
        let wrong = |source| Error::Source { path: self.path.clone(), source };
        let name = &stored.info.name;
        let (Some(kind), Content::Pieces(pieces)) = (stored.kind, &stored.content) else {
            let (name, dtype) = (name.clone(), stored.info.dtype.clone());
            return Err(wrong(SourceError::Element { name, dtype }));
        };
        let mut placed = Vec::new();
        for piece in pieces {
            let entry = match &piece.place {
                Place::Values(entry) => entry.clone(),
                Place::Item { offset, byte_count, shape } => {
                    let file = self.files.open(piece.file)?;
                    let read = distributed::read_item(&file, *offset, *byte_count, name, shape);
                    read.map_err(|source| Error::Source {
                        path: self.files.path(piece.file).to_owned(),
                        source,
                    })?
                }
            };
            if entry.kind != Some(kind) {
                return Err(wrong(SourceError::Pieces { name: name.clone() }));
            }
            placed.push(Piece { file: piece.file, entry, offsets: piece.offsets.clone() });
        }
        Joined::new(self.files.clone(), name, &stored.info.shape, kind.value_bytes, &placed)
            .map_err(wrong)
    }

    /// A two-dimensional float tensor, as a table is built from.
    pub(crate) fn table(&self, stored: &Stored) -> Result<Tensor<Joined>, Error> {
        let wrong = |source| Error::Source { path: self.path.clone(), source };
        let (joined, entry) = self.whole(stored)?;
        let place = scales_of(&stored.info, self.tensors.iter().map(|tensor| &tensor.info))
            .map_err(wrong)?;
        let tensor = Tensor::new(joined, &self.path, entry).map_err(wrong)?;
        let Some(stored) = place.map(|place| &self.tensors[place]) else { return Ok(tensor) };
        let (joined, entry) = self.whole(stored)?;
        tensor.with_scales(joined, entry).map_err(wrong)
    }

    /// A tensor's pieces as one, and where its numbers are in that.
    fn whole(&self, stored: &Stored) -> Result<(Joined, Entry), Error> {
        let joined = self.join(stored)?;
        let entry = Entry {
            offset: 0,
            byte_count: joined.size(),
            strides: strides_in_order(&stored.info.shape),
            kind: stored.kind,
            info: stored.info.clone(),
        };
        Ok((joined, entry))
    }
}

/// Lists the tensors in the bytes of a checkpoint's one file, or of the metadata of a distributed
/// one.
///
/// This is what [`Checkpoint::open`] does with a file; memory is bounded by a small multiple of its
/// header, and that by 16 MiB.
///
/// # Errors
/// [`SourceError`] says what is wrong; [`SourceError::EmptyFolder`] for a format of folders.
pub fn scan_checkpoint(
    format: CheckpointFormat,
    bytes: &[u8],
) -> Result<Vec<TensorInfo>, SourceError> {
    let entries = match format {
        CheckpointFormat::Distributed => {
            let mut files = Files::default();
            let found = distributed::read_metadata(bytes, Path::new("checkpoint"), &mut files)?;
            return Ok(found.into_iter().map(|found| found.info).collect());
        }
        CheckpointFormat::Folder => return Err(SourceError::EmptyFolder),
        CheckpointFormat::Npy => npy::read_array(&bytes).map(|(entry, _)| vec![entry])?,
        CheckpointFormat::Npz => npz::read_entries(&bytes)?,
        CheckpointFormat::Safetensors => safetensors::read_entries(&bytes)?,
        CheckpointFormat::Torch => torch::read_entries(&bytes)?,
    };
    Ok(entries.into_iter().map(|entry| entry.info).collect())
}

impl From<Found> for Stored {
    fn from(found: Found) -> Self {
        let Found { info, kind, pieces } = found;
        Self { info, kind, content: Content::Pieces(pieces) }
    }
}

fn stored(found: Vec<Found>) -> Vec<Stored> {
    found.into_iter().map(Stored::from).collect()
}

/// A checkpoint that is one file, or the index of several.
fn open_one(path: &Path, files: &mut Files) -> Result<(CheckpointFormat, Vec<Stored>), Error> {
    if path.to_string_lossy().ends_with(folder::INDEX) {
        let found = folder::read_index(path, files)?;
        return Ok((CheckpointFormat::Safetensors, stored(found)));
    }
    let extension = path.extension().map(|it| it.to_string_lossy().to_lowercase());
    let wrong = |source| Error::Source { path: path.to_owned(), source };
    let format = match extension.as_deref() {
        Some("npy") => CheckpointFormat::Npy,
        Some("npz") => CheckpointFormat::Npz,
        Some("safetensors") => CheckpointFormat::Safetensors,
        Some("pt" | "pth" | "bin" | "ckpt") => CheckpointFormat::Torch,
        _ => {
            let extension = extension.unwrap_or_default().chars().take(32).collect();
            return Err(wrong(SourceError::CheckpointExtension { extension }));
        }
    };
    let file = open_file(path)?;
    let entries = match format {
        CheckpointFormat::Npy => npy::read_array(&file).map(|(mut entry, _)| {
            folder::file_name(&path.with_extension("")).clone_into(&mut entry.info.name);
            vec![entry]
        }),
        CheckpointFormat::Npz => npz::read_entries(&file),
        CheckpointFormat::Torch => torch::read_entries(&file),
        _ => safetensors::read_entries(&file),
    };
    let id = files.push(path.to_owned());
    let found = entries.map_err(wrong)?.into_iter().map(|entry| Found::whole(id, entry));
    Ok((format, stored(found.collect())))
}

fn open_folder(path: &Path, files: &mut Files) -> Result<(CheckpointFormat, Vec<Stored>), Error> {
    let wrong = |source| Error::Source { path: path.to_owned(), source };
    let metadata = path.join(distributed::METADATA);
    if metadata.is_file() {
        let file = open_file(&metadata)?;
        let found = file
            .read_vec(0, file.size().min(super::pickle::PICKLE_BYTES_MAX + 1))
            .and_then(|bytes| distributed::read_metadata(&bytes, path, files))
            .map_err(|source| Error::Source { path: metadata.clone(), source })?;
        return Ok((CheckpointFormat::Distributed, stored(found)));
    }
    let names = folder::names(path)?;
    let ending = |end: &str| -> Vec<String> {
        names.iter().filter(|name| name.ends_with(end)).cloned().collect()
    };
    if let [index] = &ending(folder::INDEX)[..] {
        let found = folder::read_index(&path.join(index), files)?;
        return Ok((CheckpointFormat::Safetensors, stored(found)));
    }
    let shards = ending(".safetensors");
    // A table bundle has one of these too, but is one table.
    if !shards.is_empty() && !folder::is_bundle(path) {
        let found = folder::read_shards(path, &shards, files)?;
        return Ok((CheckpointFormat::Safetensors, stored(found)));
    }
    let mut tensors = stored(folder::read_arrays(path, &ending(".npy"), files)?);
    for name in &names {
        if folder::is_bundle(&path.join(name)) {
            tensors.push(bundle_tensor(name, &path.join(name))?);
        }
    }
    tensors.sort_by(|a, b| a.info.name.cmp(&b.info.name));
    match tensors.is_empty() {
        false => Ok((CheckpointFormat::Folder, tensors)),
        true => Err(wrong(SourceError::EmptyFolder)),
    }
}

/// A table bundle as a tensor of a checkpoint.
fn bundle_tensor(name: &str, path: &Path) -> Result<Stored, Error> {
    let table = Table::open(path)?;
    let shape = table.shape();
    let element = match shape.dtype() {
        DType::Bf16 => Element::Bf16,
        DType::F16 => Element::F16,
        _ => Element::F32,
    };
    let info = TensorInfo {
        name: name.to_owned(),
        shape: vec![shape.rows(), shape.dim() as u64],
        dtype: shape.dtype().name().to_owned(),
        element: Some(element),
    };
    Ok(Stored { info, kind: None, content: Content::Bundle(path.to_owned(), shape.dtype()) })
}
