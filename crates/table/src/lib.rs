//! The table bundle: embedding rows, their manifest, and how to read, check and write them.
//!
//! A bundle is a folder of four files, and up to three more:
//!
//! | file | what it holds |
//! |---|---|
//! | `manifest.json` | name, format version, shape, BLAKE3 of the content and of `rows.sums`, a checksum of itself |
//! | `rows.safetensors` | tensor `weight`, and of rows with scales a tensor `scale`; any safetensors reader opens it |
//! | `rows.sums` | one CRC-32 a row, so that damage is pinned to a row |
//! | `rows.tree` | the tree of hashes that the content's BLAKE3 is the top of |
//! | `rows.patch` | where there is one, the rows that a [`patch`] changed |
//! | `layout.json`, `layout.map` | where there is one, the [`layout`] by which many rows are read at once |
//!
//! [`build`] makes one from a safetensors, NumPy or torch file without holding the table in
//! memory; [`Table::open`] maps one; [`Table::reading`] checks all rows as an engine loads them;
//! [`verify`] reads every byte and names the damaged rows. A
//! build is atomic: killed at any point, the bundle that stood before still stands.
//!
//! A [`model`] bundle holds a model's tables, says which feature reads which, and keeps the rest of
//! the checkpoint.
//!
//! What an engine derives from a table once, and then only maps, is a [`prepared`] file.
//!
//! ```
//! use hushtable_table::{DType, Table, decode_rows};
//!
//! let table = Table::from_weight("films", 2, 3, DType::F16, &[0.5, 1.0, -2.0, 0.0, 4.0, 8.0])?;
//! let mut served = vec![0; table.row_bytes()];
//! table.copy_rows(1, &mut served)?;
//! let mut values = [0.0; 3];
//! decode_rows(DType::F16, 3, &served, &mut values)?;
//! assert_eq!(values, [0.0, 4.0, 8.0]);
//! # Ok::<(), hushtable_table::Error>(())
//! ```

// The one exception is `mapping`, which wraps the memory map, catches the faults of files that were
// cut short, and says why that is sound.
#![deny(unsafe_code)]

mod build;
mod bundle;
mod codec;
mod dtype;
mod error;
mod header;
pub mod layout;
mod listed;
mod manifest;
#[cfg(unix)]
mod mapping;
#[cfg(not(unix))]
#[path = "unmapped.rs"]
mod mapping;
pub mod model;
mod names;
mod parts;
pub mod patch;
pub mod prepared;
mod range;
mod reading;
mod shape;
mod source;
mod staging;
mod sums;
mod system;
mod table;
mod tree;
mod verify;
mod version;
pub mod within;
mod writer;

pub use build::{BuildSpec, build};
pub use codec::{decode_rows, encode_rows};
pub use dtype::{DType, Group, UnknownDType};
pub use error::{CodecError, Error, HeaderError, ManifestError, RowsError};
pub use listed::unlisted;
pub use manifest::{FORMAT_VERSION, Manifest};
pub use names::repeated_name;
pub use patch::{Patch, PatchError};
pub use range::RangeReading;
pub use reading::{CheckedRows, Reading};
pub use shape::{BLOCK_ROWS, ROW_BYTES_MAX, ROWS_MAX, Shape, ShapeError};
pub use source::{Checkpoint, CheckpointFormat, DistributedError, scan_checkpoint};
pub use source::{Element, NpyError, PickleError, Source, SourceError, SourceFormat, TensorInfo};
pub use source::{TorchError, ZipError, scan};
pub use table::Table;
pub use verify::{Damage, Report, verify};
pub use version::{MalformedVersion, Version};
