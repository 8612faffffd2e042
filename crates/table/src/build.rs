//! From a file of tensors to a bundle, a chunk of rows at a time.

use std::path::Path;

use crate::codec::{decode_rows, encode_rows_from};
use crate::dtype::DType;
use crate::error::Error;
use crate::manifest::{Manifest, check_name};
use crate::shape::{BLOCK_ROWS, Shape};
use crate::source::{ReadAt, Source, Tensor};
use crate::table::Table;
use crate::writer::BundleWriter;

/// A table to build; [`build`] checks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written out by callers, with ..Default::default()")]
pub struct BuildSpec {
    /// The table's name: 1 to 128 bytes without control characters.
    pub name: String,
    /// How to store values; `None` keeps the source's type (float64 becomes f32).
    pub dtype: Option<DType>,
    /// What the manifest says the table was built from, cut to 4,096 bytes; `None` for the
    /// source's file name and key.
    pub created_from: Option<String>,
}

/// Builds a bundle at `out` from a tensor in a file.
///
/// Memory stays at a few MiB whatever the table's size. `progress` is called with the rows done
/// and the rows there are: first with 0, then after each chunk of about 1 MiB.
///
/// The bundle takes its place in one step, flushed to the disk first; an older bundle stands until
/// then and is then replaced, and a process that has it open keeps reading it. Of several builds
/// at one path at a time, the last to finish stays. A file or a folder that is not a bundle is not
/// replaced. What a killed build left behind, the next build at that path removes.
///
/// NaN and infinities are kept as they are in f32, f16 and bf16, and counted in the manifest.
///
/// # Errors
/// [`Error::Name`] and [`Error::Shape`] for what is outside the limits; [`Error::Source`] for a
/// file that cannot be read as a table; [`Error::Codec`] for a value that the dtype cannot hold;
/// [`Error::Occupied`], [`Error::Unnamed`], [`Error::CannotSwap`] and [`Error::Io`] for a path
/// that cannot be written. On any error, the old bundle stands.
pub fn build(
    source: &Source,
    spec: &BuildSpec,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Manifest, Error> {
    check_name(&spec.name)?;
    let tensor = source.open()?;
    let own = tensor.dtype().unwrap_or(tensor.element().dtype());
    let dtype = spec.dtype.unwrap_or(own);
    let shape = Shape::new(tensor.rows(), tensor.dim(), dtype)?;
    let origin = spec.created_from.clone().unwrap_or_else(|| source.origin(tensor.name()));
    build_tensor(&tensor, shape, &spec.name, &origin, out, progress)
}

/// Builds a bundle of a tensor whose rows and dim are those of `shape`.
pub(crate) fn build_tensor<R: ReadAt>(
    tensor: &Tensor<R>,
    shape: Shape,
    name: &str,
    origin: &str,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Manifest, Error> {
    let keeps_bytes = tensor.element().is_stored_as(shape.dtype());
    let keeps_codes = tensor.keeps_codes(shape.dtype());
    let mut writer = BundleWriter::new(out, shape)?;

    let (mut raw, mut values, mut served) = (Vec::new(), Vec::new(), Vec::new());
    progress(0, shape.rows());
    for (first, count) in shape.chunks() {
        tensor.read_rows(first, count, &mut raw)?;
        if keeps_bytes {
            writer.push(&raw)?;
        } else if keeps_codes {
            tensor.serve_codes(first, &raw, &mut served)?;
            writer.push(&served)?;
        } else {
            tensor.convert(first, &raw, &mut values)?;
            served.resize(count * shape.row_bytes(), 0);
            encode_rows_from(first, shape.dtype(), shape.dim(), &values, &mut served)?;
            writer.push(&served)?;
        }
        progress(first + count as u64, shape.rows());
    }
    writer.finish(name, origin, None)
}

/// Writes a table as a bundle of this name and dtype at `out`, its rows checked; with its layout,
/// which is of the very rows, only where the dtype stays.
pub(crate) fn convert_table(
    table: &Table,
    name: &str,
    dtype: DType,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Manifest, Error> {
    let from = table.shape();
    let shape = Shape::new(from.rows(), from.dim(), dtype)?;
    let mut writer = BundleWriter::new(out, shape)?;
    // Checked: rows that were damaged would get a version that says they are as they should be.
    let reading = table.reading()?;
    let (mut values, mut served, mut converted) = (Vec::new(), Vec::new(), Vec::new());
    let step = from.rows_per_chunk().next_multiple_of(BLOCK_ROWS);
    progress(0, shape.rows());
    for first in (0..from.rows()).step_by(step) {
        let count = (from.rows() - first).min(step as u64) as usize;
        served.resize(count * from.row_bytes(), 0);
        reading.copy_rows(first, &mut served)?;
        if dtype == from.dtype() {
            writer.push(&served)?;
        } else {
            values.resize(count * from.dim(), 0.0);
            decode_rows(from.dtype(), from.dim(), &served, &mut values)?;
            converted.resize(count * shape.row_bytes(), 0);
            encode_rows_from(first, dtype, shape.dim(), &values, &mut converted)?;
            writer.push(&converted)?;
        }
        progress(first + count as u64, shape.rows());
    }
    reading.finish()?;
    let layout = table.layout().filter(|_| dtype == from.dtype()).map(|layout| &**layout);
    writer.finish(name, table.manifest().created_from(), layout)
}

/// Writes an opened or in-memory table as a bundle at `out`.
pub(crate) fn write_table(table: &Table, out: &Path) -> Result<(), Error> {
    let dtype = table.shape().dtype();
    convert_table(table, table.name(), dtype, out, &mut |_, _| {}).map(|_| ())
}
