//! A table that can be read: an opened bundle, or one in memory.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::build::write_table;
use crate::bundle::{self, Bundle};
use crate::codec::{count_nonfinite, encode_rows_from};
use crate::dtype::DType;
use crate::error::{CodecError, Error, RowsError};
use crate::header::{DATA_OFFSET, scales_bytes};
use crate::layout::{Layout, LayoutError};
use crate::manifest::{Manifest, ManifestSpec, check_name};
use crate::mapping::Mapping;
use crate::patch::Patch;
use crate::shape::Shape;
use crate::sums;
use crate::system::FileExt;
use crate::tree::Geometry;
use crate::version::{ContentHasher, Hashing, Version};

/// A table that can be read: an opened bundle, or one in memory.
///
/// Rows are read as *served*: little-endian, row-major; a row with scales is its scales and then
/// its codes.
#[derive(Clone)]
pub struct Table {
    manifest: Manifest,
    path: Option<PathBuf>,
    // Shared, so that a clone costs nothing.
    storage: Arc<Storage>,
    layout: Option<Arc<Layout>>,
    patch: Option<Arc<Patch>>,
}

enum Storage {
    /// `rows.safetensors`, header included, `rows.sums` and `rows.tree`.
    Mapped {
        rows: Mapping,
        sums: Mapping,
        tree: Option<Mapping>,
        /// The file of the rows, where single rows here and there are to be read.
        file: Option<File>,
    },
    /// The rows as served.
    Memory(Vec<u8>),
}

impl Table {
    /// Opens the bundle at `path`, memory-mapped.
    ///
    /// Checks the manifest, the sizes and the headers, but does not read the rows: [`reading`]
    /// and [`verify`] do. The opened table stays whole when a build replaces the bundle. Do not
    /// write to a bundle's files in place: bytes under an open table would change, which only a
    /// checked reading notices; a file cut short makes the next read an error.
    ///
    /// [`reading`]: Self::reading
    /// [`verify`]: crate::verify
    ///
    /// # Errors
    /// [`Error::NotABundle`], [`Error::MissingFile`], [`Error::Manifest`], [`Error::Rows`] or
    /// [`Error::Io`], each with the path.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bundle = Bundle::open(path)?;
        match bundle.patch {
            Some(_) => Self::map_with_file(path, &bundle),
            None => Self::map(path, &bundle),
        }
    }

    /// Maps the rows of an open bundle.
    pub(crate) fn map(path: &Path, bundle: &Bundle) -> Result<Self, Error> {
        Self::map_of(path, bundle, None)
    }

    /// As [`map`](Self::map), and keeps the file open, for [`copy_scattered_rows`](Self::copy_scattered_rows). (Not of
    /// every table: a server may hold a thousand.)
    pub(crate) fn map_with_file(path: &Path, bundle: &Bundle) -> Result<Self, Error> {
        let file = bundle.rows.try_clone();
        Self::map_of(path, bundle, Some(file.map_err(Error::io("open", path.join(bundle::ROWS)))?))
    }

    fn map_of(path: &Path, bundle: &Bundle, file: Option<File>) -> Result<Self, Error> {
        let shape = bundle.manifest.shape();
        let map = |file: &File, name: &str, expected: u64| {
            let path = path.join(name);
            let mapping = Mapping::new(file).map_err(Error::io("map", &path))?;
            // The size was checked before, but the file may have been cut short since.
            let found = mapping.len() as u64;
            match found == expected {
                true => Ok(mapping),
                false => Err(Error::Rows { path, source: RowsError::FileSize { expected, found } }),
            }
        };
        let rows = map(&bundle.rows, bundle::ROWS, DATA_OFFSET as u64 + shape.content_bytes())?;
        let sums = map(&bundle.sums, bundle::SUMS, sums::file_bytes(shape))?;
        let tree_bytes = Geometry::new(shape).file_bytes();
        let tree =
            bundle.tree.as_ref().map(|tree| map(tree, bundle::TREE, tree_bytes)).transpose()?;
        Ok(Self {
            manifest: bundle.manifest.clone(),
            path: Some(path.to_owned()),
            storage: Arc::new(Storage::Mapped { rows, sums, tree, file }),
            layout: bundle.layout.clone(),
            patch: bundle.patch.clone(),
        })
    }

    /// Makes a table in memory from float32 values, row-major: `rows` × `dim` of them.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Shape`], or [`Error::Codec`] when `values` has another length,
    /// or holds one that `dtype` cannot (see [`encode_rows`](crate::encode_rows)).
    pub fn from_weight(
        name: &str,
        rows: u64,
        dim: usize,
        dtype: DType,
        values: &[f32],
    ) -> Result<Self, Error> {
        check_name(name)?;
        let shape = Shape::new(rows, dim, dtype)?;
        let expected = rows as usize * dim;
        if values.len() != expected {
            return Err(CodecError::ValueCount { expected, found: values.len() }.into());
        }
        let mut served = vec![0; shape.content_bytes() as usize];
        encode_rows_from(0, dtype, dim, values, &mut served)?;
        Self::from_served(name, shape, served)
    }

    /// Makes a table in memory from rows as served.
    ///
    /// # Errors
    /// [`Error::Name`], or [`Error::Codec`] when `served` has another length than the shape's rows.
    pub fn from_served(name: &str, shape: Shape, served: Vec<u8>) -> Result<Self, Error> {
        check_name(name)?;
        if served.len() as u64 != shape.content_bytes() {
            let (expected, found) = (shape.content_bytes() as usize, served.len());
            return Err(CodecError::ByteCount { expected, found }.into());
        }
        let mut content = ContentHasher::new(shape, Hashing::Tree);
        content.update(&served);
        let mut row_sums = blake3::Hasher::new();
        row_sums.update(&sums::MARK);
        let mut chunk_sums = Vec::new();
        for chunk in served.chunks(shape.rows_per_chunk() * shape.row_bytes()) {
            chunk_sums.clear();
            sums::append_sums(shape, chunk, &mut chunk_sums);
            row_sums.update(&chunk_sums);
        }
        let manifest = Manifest::new(ManifestSpec {
            name: name.to_owned(),
            shape,
            content: content.finish(),
            row_sums: *row_sums.finalize().as_bytes(),
            nonfinite_count: count_nonfinite(shape.dtype(), shape.dim(), &served),
            created_from: "memory".to_owned(),
            patch: None,
        });
        let storage = Arc::new(Storage::Memory(served));
        Ok(Self { manifest, path: None, storage, layout: None, patch: None })
    }

    /// Copies rows `first` .. `first` + n as served into `out`, which has n × [`row_bytes`] bytes.
    ///
    /// [`row_bytes`]: Self::row_bytes
    ///
    /// # Errors
    /// [`Error::Codec`] when `out` is no whole number of rows, [`Error::RowRange`] when the table
    /// ends before the last row asked for, [`Error::Rows`] when its file was cut short meanwhile.
    pub fn copy_rows(&self, first: u64, out: &mut [u8]) -> Result<(), Error> {
        self.copy_base_rows(first, out)?;
        if let Some(patch) = &self.patch {
            patch.lay_over(first, out);
        }
        Ok(())
    }

    /// As [`copy_rows`](Self::copy_rows), of the rows below a patch.
    pub(crate) fn copy_base_rows(&self, first: u64, out: &mut [u8]) -> Result<(), Error> {
        let shape = self.shape();
        let row_bytes = shape.row_bytes();
        if !out.len().is_multiple_of(row_bytes) {
            return Err(CodecError::PartialRow { byte_count: out.len(), row_bytes }.into());
        }
        let (count, rows) = ((out.len() / row_bytes) as u64, shape.rows());
        if first.checked_add(count).is_none_or(|end| end > rows) {
            return Err(Error::RowRange { first, count, rows });
        }
        let start = first as usize * row_bytes;
        let widths = widths(shape);
        match &*self.storage {
            Storage::Memory(served) => out.copy_from_slice(&served[start..start + out.len()]),
            Storage::Mapped { rows: file, .. } if widths.0 > 0 => {
                let (scales, codes) = file[DATA_OFFSET..].split_at(scales_bytes(shape) as usize);
                let first = first as usize;
                join(widths, &scales[widths.0 * first..], &codes[widths.1 * first..], out);
            }
            Storage::Mapped { rows: file, .. } => {
                out.copy_from_slice(&file[DATA_OFFSET + start..][..out.len()]);
            }
        }
        match &*self.storage {
            // What was read of a file that has shrunk is zeros.
            Storage::Mapped { rows, .. } if rows.is_lost() => {
                Err(self.rows_error(bundle::ROWS, RowsError::Lost))
            }
            _ => Ok(()),
        }
    }

    /// As [`copy_base_rows`](Self::copy_base_rows), of rows that lie alone: to read them from the file takes a tenth of
    /// the time of having their pages mapped.
    pub(crate) fn copy_scattered_rows(&self, first: u64, out: &mut [u8]) -> Result<(), Error> {
        let Storage::Mapped { file: Some(file), .. } = &*self.storage else {
            return self.copy_base_rows(first, out);
        };
        let shape = self.shape();
        let (row_bytes, widths) = (shape.row_bytes(), widths(shape));
        let count = out.len() / row_bytes;
        if !out.len().is_multiple_of(row_bytes) || first + count as u64 > shape.rows() {
            return self.copy_base_rows(first, out);
        }
        let read = |at: u64, out: &mut [u8]| file.read_exact_at(out, DATA_OFFSET as u64 + at);
        let mut read_rows = || match widths.0 {
            0 => read(first * row_bytes as u64, out),
            _ => {
                let (mut scales, mut codes) =
                    (vec![0; widths.0 * count], vec![0; widths.1 * count]);
                read(first * widths.0 as u64, &mut scales)?;
                read(scales_bytes(shape) + first * widths.1 as u64, &mut codes)?;
                join(widths, &scales, &codes, out);
                Ok(())
            }
        };
        read_rows().map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.rows_error(bundle::ROWS, RowsError::Lost),
            _ => Error::io("read", self.path.clone().unwrap_or_default().join(bundle::ROWS))(error),
        })
    }

    /// Writes the table as a bundle at `path`, replacing an older bundle in one step.
    ///
    /// # Errors
    /// As [`build`](crate::build), except for a source's errors.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write_table(self, path)
    }

    /// The table with `layout` in place of the one it has.
    ///
    /// # Errors
    /// [`LayoutError::OtherTable`] for a layout of another table.
    pub fn with_layout(mut self, layout: Arc<Layout>) -> Result<Self, LayoutError> {
        layout.check_table(self.shape(), self.version())?;
        self.layout = Some(layout);
        Ok(self)
    }

    /// How the table is served to inferences that read many rows, if that was decided.
    pub fn layout(&self) -> Option<&Arc<Layout>> {
        self.layout.as_ref()
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        self.manifest.name()
    }

    /// How many rows, 1 to 2^32.
    pub fn rows(&self) -> u64 {
        self.shape().rows()
    }

    /// Values a row.
    pub fn dim(&self) -> usize {
        self.shape().dim()
    }

    /// How a value is stored.
    pub fn dtype(&self) -> DType {
        self.shape().dtype()
    }

    /// Bytes of one served row, 1 to 65,536.
    pub fn row_bytes(&self) -> usize {
        self.shape().row_bytes()
    }

    /// Rows, dim and dtype.
    pub fn shape(&self) -> Shape {
        self.manifest.shape()
    }

    /// What the content hashes to, as the manifest has it.
    pub fn version(&self) -> Version {
        self.manifest.version()
    }

    /// What the bundle says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The bundle's folder, as given to [`open`](Self::open); `None` for a table in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The rows that were changed since the bundle was built whole, and the version before that.
    pub fn patch(&self) -> Option<&Arc<Patch>> {
        self.patch.as_ref()
    }

    /// Whether a row is in the patch.
    pub(crate) fn is_patched(&self, row: u64) -> bool {
        self.patch.as_ref().is_some_and(|patch| patch.ids().binary_search(&row).is_ok())
    }

    /// The bytes of `rows.safetensors` and of `rows.sums`, if the table was opened.
    pub(crate) fn mappings(&self) -> Option<(&Mapping, &Mapping)> {
        match &*self.storage {
            Storage::Mapped { rows, sums, .. } => Some((rows, sums)),
            Storage::Memory(_) => None,
        }
    }

    /// The bytes of `rows.tree`, if there is one.
    pub(crate) fn tree_mapping(&self) -> Option<&Mapping> {
        match &*self.storage {
            Storage::Mapped { tree, .. } => tree.as_ref(),
            Storage::Memory(_) => None,
        }
    }

    /// The error of a defect in the file `name` of the bundle.
    pub(crate) fn rows_error(&self, name: &str, source: RowsError) -> Error {
        let folder = self.path.clone().unwrap_or_else(|| self.name().into());
        Error::Rows { path: folder.join(name), source }
    }
}

/// Bytes of a row's scales and of its codes, which lie apart in the file.
fn widths(shape: Shape) -> (usize, usize) {
    let dtype = shape.dtype();
    (dtype.scales_bytes(shape.dim()), dtype.codes_bytes(shape.dim()))
}

/// Rows as served, of their scales and codes.
fn join(widths: (usize, usize), scales: &[u8], codes: &[u8], out: &mut [u8]) {
    let parts = scales.chunks_exact(widths.0).zip(codes.chunks_exact(widths.1));
    for (row, (scales, codes)) in out.chunks_exact_mut(widths.0 + widths.1).zip(parts) {
        row[..widths.0].copy_from_slice(scales);
        row[widths.0..].copy_from_slice(codes);
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the rows.
        f.debug_struct("Table")
            .field("manifest", &self.manifest)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
