//! A tensor that lies in one or several files, read as if its values lay in order in one.
//!
//! The tensor is seen as rows of bytes, and each piece of it as a rectangle of these: large tables
//! are saved cut by rows, or by columns, over the processes that trained them.

use std::io;
use std::sync::Arc;

use super::SourceError;
use super::files::{FileId, Files};
use super::read_at::ReadAt;
use super::tensor::{Entry, strides_in_order};

/// The most pieces of one tensor.
pub(super) const PIECE_COUNT_MAX: usize = 16_384;

/// What of a tensor that does not lie row by row is read into memory to put it in order.
const GATHERED_BYTES_MAX: u64 = 64 << 20;

/// A piece of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) file: FileId,
    /// Where in the file, of which shape, and how its values lie there.
    pub(super) entry: Entry,
    /// Where in the tensor, an index a dimension.
    pub(super) offsets: Vec<u64>,
}

/// A tensor's bytes in order.
#[derive(Debug)]
pub(crate) enum Joined {
    /// Read from files.
    Files { files: Arc<Files>, rows: u64, row_bytes: u64, blocks: Vec<Block> },
    /// Put in order in memory.
    Memory(Vec<u8>),
}

/// Columns `column` to `column + width`, in bytes, of rows `row` to `row + rows`.
#[derive(Debug)]
pub(crate) struct Block {
    file: FileId,
    offset: u64,
    stride: u64,
    row: u64,
    rows: u64,
    column: u64,
    width: u64,
}

impl Joined {
    /// Joins the pieces of the tensor of this name and shape.
    ///
    /// # Errors
    /// [`SourceError`] unless the pieces are within their files, cover the tensor, and each value
    /// once.
    pub(super) fn new(
        files: Arc<Files>,
        name: &str,
        shape: &[u64],
        value_bytes: u64,
        pieces: &[Piece],
    ) -> Result<Self, SourceError> {
        let uncovered = || SourceError::Pieces { name: name.to_owned() };
        let wide = |sizes: &[u64]| {
            sizes.iter().try_fold(value_bytes, |product, size| product.checked_mul(*size))
        };
        let total = wide(shape).ok_or_else(uncovered)?;
        if let [piece] = pieces
            && piece.entry.info.shape == shape
            && total > 0
        {
            return Self::of_one(files, name, total, value_bytes, piece);
        }
        // Rank 1 is a column of values; rank 0 has one piece, which is all of it.
        let (rows, row_bytes) = match shape {
            [] => (1, value_bytes),
            [rows, inner @ ..] => (*rows, wide(inner).ok_or_else(uncovered)?),
        };
        // A row is read at once.
        if row_bytes > GATHERED_BYTES_MAX {
            return Err(uncovered());
        }
        let mut blocks = Vec::new();
        let mut covered: u64 = 0;
        for piece in pieces {
            let block = block_of(name, shape, value_bytes, piece)?;
            covered = covered.saturating_add(block.rows.saturating_mul(block.width));
            blocks.push(block);
        }
        blocks.retain(|block| block.rows > 0 && block.width > 0);
        blocks.sort_by_key(|block| (block.row, block.column));
        if covered != total || overlap(&blocks) {
            return Err(uncovered());
        }
        Ok(Self::Files { files, rows, row_bytes, blocks })
    }

    /// A tensor in one piece.
    fn of_one(
        files: Arc<Files>,
        name: &str,
        total: u64,
        value_bytes: u64,
        piece: &Piece,
    ) -> Result<Self, SourceError> {
        let Entry { info, offset, byte_count, strides, .. } = &piece.entry;
        let spans = info.shape.iter().zip(strides);
        let last = spans.clone().fold(0_u128, |last, (size, stride)| {
            last.saturating_add(u128::from(size - 1).saturating_mul(u128::from(*stride)))
        });
        let span = (last.saturating_add(1)).saturating_mul(u128::from(value_bytes));
        if span > u128::from(*byte_count) {
            let expected = u128::from(*offset).saturating_add(span);
            let expected = u64::try_from(expected).unwrap_or(u64::MAX);
            return Err(SourceError::Truncated { expected, found: offset + byte_count });
        }
        let in_order = spans
            .zip(strides_in_order(&info.shape))
            .all(|((size, stride), expected)| *size == 1 || *stride == expected);
        if in_order {
            let block = Block {
                file: piece.file,
                offset: *offset,
                stride: value_bytes,
                row: 0,
                rows: total / value_bytes,
                column: 0,
                width: value_bytes,
            };
            let (rows, row_bytes) = (block.rows, value_bytes);
            return Ok(Self::Files { files, rows, row_bytes, blocks: vec![block] });
        }
        if span > u128::from(GATHERED_BYTES_MAX) || total > GATHERED_BYTES_MAX {
            return Err(SourceError::Strides { name: name.to_owned() });
        }
        let file = files.open(piece.file).map_err(|error| SourceError::Piece {
            path: files.path(piece.file).to_owned(),
            reason: error.to_string(),
        })?;
        let stored = file.read_vec(*offset, span as u64)?;
        Ok(Self::Memory(gather(&stored, &info.shape, strides, value_bytes as usize)))
    }

    /// Whether `offset` and a count of bytes can be read at once: the bytes of whole rows.
    pub(crate) fn row_bytes(&self) -> u64 {
        match self {
            Self::Files { row_bytes, .. } => *row_bytes,
            Self::Memory(_) => 1,
        }
    }
}

/// Puts values in order that lie in `stored` by `strides`; the caller has checked their span.
fn gather(stored: &[u8], shape: &[u64], strides: &[u64], value_bytes: usize) -> Vec<u8> {
    let count: u64 = shape.iter().product();
    let mut out = Vec::with_capacity(count as usize * value_bytes);
    let mut index = vec![0_u64; shape.len()];
    let mut at = 0_u64;
    for _ in 0..count {
        let start = at as usize * value_bytes;
        out.extend_from_slice(&stored[start..start + value_bytes]);
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            at += strides[dim];
            if index[dim] < shape[dim] {
                break;
            }
            at -= index[dim] * strides[dim];
            index[dim] = 0;
        }
    }
    out
}

/// The rectangle that a piece is of the tensor.
fn block_of(
    name: &str,
    shape: &[u64],
    value_bytes: u64,
    piece: &Piece,
) -> Result<Block, SourceError> {
    let Entry { info, offset, byte_count, strides, .. } = &piece.entry;
    let uncovered = || SourceError::Pieces { name: name.to_owned() };
    let sizes = &info.shape;
    let fits = sizes.len() == shape.len()
        && piece.offsets.len() == shape.len()
        && strides.len() == shape.len();
    if !fits || shape.is_empty() {
        return Err(uncovered());
    }
    for (dim, size) in shape.iter().enumerate() {
        let end = piece.offsets[dim].checked_add(sizes[dim]).ok_or_else(uncovered)?;
        // Beyond the second dimension a cut piece is no rectangle of rows.
        if end > *size || (dim > 1 && sizes[dim] != *size) {
            return Err(uncovered());
        }
    }
    let strided = || SourceError::Strides { name: name.to_owned() };
    for (dim, expected) in strides_in_order(sizes).into_iter().enumerate().skip(1) {
        if sizes[dim] > 1 && strides[dim] != expected {
            return Err(strided());
        }
    }
    // The whole tensor's bytes fit 64 bits, and so do those of what is inside of it.
    let inner: u64 = shape.iter().skip(2).product::<u64>() * value_bytes;
    let (column, width) = match shape.len() {
        1 => (0, value_bytes),
        _ => (piece.offsets[1] * inner, sizes[1] * inner),
    };
    let rows = sizes[0];
    let stride = if rows <= 1 { width } else { strides[0].saturating_mul(value_bytes) };
    if stride < width {
        return Err(strided());
    }
    let span = match rows {
        0 => 0,
        _ => (rows - 1).saturating_mul(stride).saturating_add(width),
    };
    if span > *byte_count {
        let expected = offset.saturating_add(span);
        return Err(SourceError::Truncated { expected, found: offset + byte_count });
    }
    Ok(Block {
        file: piece.file,
        offset: *offset,
        stride,
        row: piece.offsets[0],
        rows,
        column,
        width,
    })
}

/// Whether any two of these blocks, sorted by row, share a byte.
fn overlap(blocks: &[Block]) -> bool {
    blocks.iter().enumerate().any(|(i, block)| {
        let below = blocks[i + 1..].iter().take_while(|other| other.row < block.row + block.rows);
        below.into_iter().any(|other| {
            other.column < block.column + block.width && block.column < other.column + other.width
        })
    })
}

impl ReadAt for Joined {
    fn size(&self) -> u64 {
        match self {
            Self::Files { rows, row_bytes, .. } => rows * row_bytes,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `out`, which is whole rows, from the row that starts at `offset`.
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let (files, row_bytes, blocks) = match self {
            Self::Memory(bytes) => return bytes.as_slice().read_exact_at(out, offset),
            Self::Files { files, row_bytes, blocks, .. } => (files, *row_bytes, blocks),
        };
        if offset.saturating_add(out.len() as u64) > self.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_whole = |bytes: u64| row_bytes > 0 && bytes.is_multiple_of(row_bytes);
        if !is_whole(offset) || !is_whole(out.len() as u64) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no whole rows"));
        }
        let (first, count) = (offset / row_bytes, out.len() as u64 / row_bytes);
        let mut scratch = Vec::new();
        for block in blocks.iter().take_while(|block| block.row < first + count) {
            let start = block.row.max(first);
            let end = (block.row + block.rows).min(first + count);
            if start >= end {
                continue;
            }
            let file = files.open(block.file).map_err(io::Error::other)?;
            let named = |error: io::Error| {
                let path = files.path(block.file).display();
                io::Error::new(error.kind(), format!("{path}: {error}"))
            };
            let at = block.offset + (start - block.row) * block.stride;
            let rows = (end - start) as usize;
            let (width, stride) = (block.width as usize, block.stride as usize);
            let place = ((start - first) * row_bytes + block.column) as usize;
            if width as u64 == row_bytes && width == stride {
                file.read_exact_at(&mut out[place..place + rows * width], at).map_err(named)?;
                continue;
            }
            // Rows that lie close together are read at once; what is between them is dropped.
            let at_once = if stride <= 4 * width { rows } else { 1 };
            for row in (0..rows).step_by(at_once) {
                let count = at_once.min(rows - row);
                scratch.resize((count - 1) * stride + width, 0);
                file.read_exact_at(&mut scratch, at + row as u64 * block.stride).map_err(named)?;
                for (i, values) in scratch.chunks(stride).enumerate() {
                    let place = place + (row + i) * row_bytes as usize;
                    out[place..place + width].copy_from_slice(&values[..width]);
                }
            }
        }
        Ok(())
    }
}
