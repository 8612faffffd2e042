//! One tensor in a file: what it is, where it lies, and its rows.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use serde::Serialize;

use super::SourceError;
use super::read_at::ReadAt;
use crate::codec::decode_rows;
use crate::dtype::{DType, Group};
use crate::error::{CodecError, Error};

/// How many names an error lists.
const CANDIDATES_LISTED_MAX: usize = 8;

/// The floats that a table can be built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Element {
    /// bfloat16.
    Bf16,
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// Double precision; rounded to f32 on the way in.
    F64,
    /// Eight bits, four of them the exponent's; with scales beside them, or as they are.
    Fp8E4m3,
    /// Eight bits, five of them the exponent's; with scales beside them, or as they are.
    Fp8E5m2,
}

impl Element {
    /// Bytes of one value.
    pub(crate) const fn size(self) -> u64 {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Fp8E4m3 | Self::Fp8E5m2 => 1,
        }
    }

    /// The table dtype that keeps these values, as far as one does.
    pub(crate) const fn dtype(self) -> DType {
        match self {
            Self::Bf16 => DType::Bf16,
            Self::F16 => DType::F16,
            Self::F32 | Self::F64 => DType::F32,
            Self::Fp8E4m3 => DType::Fp8E4m3(Group::Row),
            Self::Fp8E5m2 => DType::Fp8E5m2(Group::Row),
        }
    }

    /// Whether a table of `dtype` holds the very bytes of the source.
    pub(crate) fn is_stored_as(self, dtype: DType) -> bool {
        self != Self::F64 && !self.is_float8() && self.dtype() == dtype
    }

    /// Whether values may have scales beside them.
    pub(crate) fn is_float8(self) -> bool {
        matches!(self, Self::Fp8E4m3 | Self::Fp8E5m2)
    }
}

/// What the scales of a tensor of 8-bit floats are called: `weight_scale`, `weight.scale` or `scale` of
/// `weight`, and as torchao has it `_weight_scale` of `_weight_qdata`.
pub(crate) fn scale_names(name: &str) -> [String; 4] {
    let folder = name.rfind('.').map_or("", |dot| &name[..=dot]);
    let stem = name.strip_suffix("_qdata").unwrap_or(name);
    [
        format!("{name}_scale"),
        format!("{stem}_scale"),
        format!("{name}.scale"),
        format!("{folder}scale"),
    ]
}

/// What the scales of blocks of rows and columns are called, which a table has no place for.
fn block_scale_names(name: &str) -> [String; 2] {
    let folder = name.rfind('.').map_or("", |dot| &name[..=dot]);
    [format!("{name}_scale_inv"), format!("{folder}scale_inv")]
}

/// Whether a tensor may be the scales of another.
pub(crate) fn is_scale_name(name: &str) -> bool {
    name.ends_with("scale") || name.ends_with("scale_inv")
}

/// The names of all tensors that are scales of others.
pub(crate) fn scales_among<'a>(
    tensors: impl Iterator<Item = &'a TensorInfo> + Clone,
) -> HashSet<String> {
    let is_float8 = |info: &&TensorInfo| info.element.is_some_and(Element::is_float8);
    let named: HashSet<String> =
        tensors.clone().filter(is_float8).flat_map(|info| scale_names(&info.name)).collect();
    tensors.map(|info| &info.name).filter(|name| named.contains(*name)).cloned().collect()
}

/// Which of the tensors are the scales of `of`; none where it has none.
///
/// # Errors
/// [`SourceError::BlockScales`] where it has some that a table has no place for.
pub(crate) fn scales_of<'a>(
    of: &TensorInfo,
    mut tensors: impl Iterator<Item = &'a TensorInfo> + Clone,
) -> Result<Option<usize>, SourceError> {
    if !of.element.is_some_and(Element::is_float8) {
        return Ok(None);
    }
    let (names, blocks) = (scale_names(&of.name), block_scale_names(&of.name));
    if let Some(info) = tensors.clone().find(|info| blocks.contains(&info.name)) {
        let (name, scale) = (of.name.clone(), info.name.clone());
        return Err(SourceError::BlockScales { name, scale });
    }
    Ok(tensors.position(|info| names.contains(&info.name)))
}

/// A tensor that a file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Its name; empty when the file holds one tensor without a name.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// What its values are called in the file's format.
    pub dtype: String,
    /// Its values' type, if a table can be built from them.
    pub element: Option<Element>,
}

impl TensorInfo {
    /// Whether a table can be built from this tensor.
    pub fn is_table(&self) -> bool {
        self.element.is_some() && self.shape.len() == 2
    }
}

/// How values are kept in a safetensors file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The type's name there.
    pub(crate) name: &'static str,
    pub(crate) value_bytes: u64,
}

impl Kind {
    const ALL: [(&'static str, &'static str, &'static str, u64); 16] = [
        // safetensors, torch, NumPy, bytes
        ("BF16", "bfloat16", "", 2),
        ("BOOL", "bool", "b1", 1),
        ("C64", "complex64", "c8", 8),
        ("F16", "float16", "f2", 2),
        ("F32", "float32", "f4", 4),
        ("F64", "float64", "f8", 8),
        ("F8_E4M3", "float8_e4m3fn", "", 1),
        ("F8_E5M2", "float8_e5m2", "", 1),
        ("I16", "int16", "i2", 2),
        ("I32", "int32", "i4", 4),
        ("I64", "int64", "i8", 8),
        ("I8", "int8", "i1", 1),
        ("U16", "uint16", "u2", 2),
        ("U8", "uint8", "u1", 1),
        ("U32", "uint32", "u4", 4),
        ("U64", "uint64", "u8", 8),
    ];

    /// Of the type that safetensors calls so.
    pub(crate) fn of_safetensors(name: &str) -> Option<Self> {
        Self::find(|(safetensors, _, _, _)| *safetensors == name)
    }

    /// Of the type that torch calls so.
    pub(crate) fn of_torch(name: &str) -> Option<Self> {
        Self::find(|(_, torch, _, _)| *torch == name)
    }

    /// Of the type that NumPy calls so, little-endian.
    pub(crate) fn of_numpy(descr: &str) -> Option<Self> {
        let kind = Self::find(|(_, _, numpy, _)| {
            !numpy.is_empty() && descr.get(1..).is_some_and(|rest| rest == *numpy)
        })?;
        let order = descr.as_bytes()[0];
        (order == b'<' || (order == b'|' && kind.value_bytes == 1)).then_some(kind)
    }

    fn find(
        matches: impl Fn(&(&'static str, &'static str, &'static str, u64)) -> bool,
    ) -> Option<Self> {
        let found = Self::ALL.iter().find(|names| matches(names));
        found.map(|(name, _, _, value_bytes)| Self { name, value_bytes: *value_bytes })
    }
}

/// A tensor and where its values lie.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) info: TensorInfo,
    /// Byte offset of the first value in the file.
    pub(crate) offset: u64,
    /// Bytes from `offset` on that belong to the tensor's storage; within the file.
    pub(crate) byte_count: u64,
    /// Values from one index to the next, of each dimension; as many as the shape has.
    pub(crate) strides: Vec<u64>,
    /// How the values are kept elsewhere; `None` for a type that nothing of ours keeps.
    pub(crate) kind: Option<Kind>,
}

impl Entry {
    /// A tensor of values that nothing of ours reads, without a name; its shape is not known.
    pub(crate) fn unread(dtype: String) -> Self {
        let info = TensorInfo { name: String::new(), shape: Vec::new(), dtype, element: None };
        Self { info, offset: 0, byte_count: 0, strides: Vec::new(), kind: None }
    }

    /// Values from one row of a table to the next, if values of a row are adjacent.
    fn row_stride(&self) -> Option<u64> {
        let ([rows, dim], [row_stride, stride]) = (&self.info.shape[..], &self.strides[..]) else {
            return None;
        };
        // A stride along one row or one column is never used, and torch writes anything there.
        let adjacent = *dim <= 1 || *stride == 1;
        adjacent.then_some(if *rows <= 1 { *dim } else { *row_stride })
    }
}

/// The strides of values that lie in order without gaps.
pub(crate) fn strides_in_order(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1_u64; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i]);
    }
    strides
}

/// Picks the table among a file's tensors.
pub(crate) fn select(entries: Vec<Entry>, key: Option<&str>) -> Result<Entry, SourceError> {
    let tensor_count = entries.len();
    let tables = || entries.iter().filter(|entry| entry.info.is_table());
    let candidate_count = tables().count();
    let candidates: Vec<String> =
        tables().take(CANDIDATES_LISTED_MAX).map(|entry| entry.info.name.clone()).collect();
    let found = match key {
        Some(key) => entries.iter().position(|entry| entry.info.name == key).ok_or_else(|| {
            let key = key.chars().take(256).collect();
            SourceError::MissingKey { key, candidates, candidate_count }
        })?,
        // A file of one tensor: say what is wrong with it rather than that there is none.
        None if tensor_count == 1 => 0,
        None => match candidate_count {
            0 => return Err(SourceError::NoTable { tensor_count }),
            1 => entries.iter().position(|entry| entry.info.is_table()).unwrap_or_default(),
            _ => return Err(SourceError::AmbiguousKey { candidates, candidate_count }),
        },
    };
    entries.into_iter().nth(found).ok_or(SourceError::NoTable { tensor_count })
}

/// A two-dimensional float tensor whose rows can be read.
#[derive(Debug)]
pub(crate) struct Tensor<R> {
    file: R,
    path: PathBuf,
    name: String,
    element: Element,
    rows: u64,
    dim: usize,
    offset: u64,
    row_stride_bytes: u64,
    /// Of 8-bit floats: one for all, or some a row.
    scales: Option<Box<Self>>,
}

impl<R: ReadAt> Tensor<R> {
    /// Checks that `entry` is a table and that all of it is in its storage.
    pub(crate) fn new(file: R, path: &Path, entry: Entry) -> Result<Self, SourceError> {
        let row_stride = entry.row_stride();
        let Entry { info, offset, byte_count, .. } = entry;
        let TensorInfo { name, shape, dtype, element } = info;
        let Some(element) = element else {
            return Err(SourceError::Element { name, dtype });
        };
        let [rows, dim] = shape[..] else {
            return Err(SourceError::Rank { name, shape });
        };
        let Some(row_stride) = row_stride.filter(|stride| *stride >= dim || rows <= 1) else {
            return Err(SourceError::Strides { name });
        };
        // In 128 bits nothing below can wrap; an empty tensor needs no bytes (and is refused
        // as a shape later).
        let wide = u128::from;
        let span = match (rows, dim) {
            (0, _) | (_, 0) => 0,
            _ => (wide(rows - 1) * wide(row_stride) + wide(dim)) * wide(element.size()),
        };
        if span > wide(byte_count) {
            let expected = u64::try_from(wide(offset) + span).unwrap_or(u64::MAX);
            return Err(SourceError::Truncated { expected, found: offset + byte_count });
        }
        let row_stride_bytes = if rows <= 1 { 0 } else { row_stride * element.size() };
        Ok(Self {
            file,
            path: path.to_owned(),
            name,
            element,
            rows,
            dim: usize::try_from(dim).unwrap_or(usize::MAX),
            offset,
            row_stride_bytes,
            scales: None,
        })
    }

    /// The tensor of 8-bit floats with the scales beside it, which the file has as `entry`: one number, or
    /// for each row one or one for each 32, 64 or 128 of its values.
    ///
    /// # Errors
    /// [`SourceError::Scales`] for any others, and the errors of [`new`](Self::new).
    pub(crate) fn with_scales(mut self, file: R, entry: Entry) -> Result<Self, SourceError> {
        let Entry { mut info, mut strides, .. } = entry.clone();
        let (scale, shape) = (info.name.clone(), info.shape.clone());
        let count = shape.iter().fold(1_u64, |count, size| count.saturating_mul(*size));
        match shape[..] {
            _ if count == 1 => (info.shape, strides) = (vec![1, 1], vec![1, 1]),
            [rows] if rows == self.rows => {
                (info.shape, strides) = (vec![rows, 1], vec![strides[0], 1]);
            }
            _ => {}
        }
        if info.shape.len() != 2 {
            return Err(SourceError::Scales { name: self.name, scale, shape });
        }
        let scales = Self::new(file, &self.path, Entry { info, strides, ..entry })?;
        let one = scales.rows == 1 && scales.dim == 1;
        self.scales = Some(Box::new(scales));
        match one || self.dtype().is_some() {
            true => Ok(self),
            false => Err(SourceError::Scales { name: self.name, scale, shape }),
        }
    }

    /// The table dtype that keeps these values, as far as one does; `None` for scales that none has.
    pub(crate) fn dtype(&self) -> Option<DType> {
        let Some(scales) =
            self.scales.as_ref().filter(|scales| (scales.rows, scales.dim) != (1, 1))
        else {
            return Some(self.element.dtype());
        };
        let fits = |group: &Group| scales.rows == self.rows && scales.dim == group.count(self.dim);
        let group = Group::ALL.into_iter().find(fits)?;
        Some(match self.element {
            Element::Fp8E4m3 => DType::Fp8E4m3(group),
            _ => DType::Fp8E5m2(group),
        })
    }

    /// Whether a table of `dtype` holds the very codes of the source, with its scales before them.
    pub(crate) fn keeps_codes(&self, dtype: DType) -> bool {
        self.element.is_float8() && self.dtype() == Some(dtype)
    }

    /// Puts the scales of whole rows of codes before them, as a table serves them.
    pub(crate) fn serve_codes(
        &self,
        first: u64,
        raw: &[u8],
        served: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut scales = vec![1.0_f32];
        let mut each = 0;
        if let Some(found) = &self.scales {
            let is_one = found.rows == 1 && self.rows != 1;
            each = if is_one { 0 } else { found.dim };
            let (from, count) = if is_one { (0, 1) } else { (first, raw.len() / self.dim) };
            let mut bytes = Vec::new();
            found.read_rows(from, count, &mut bytes)?;
            found.convert(from, &bytes, &mut scales)?;
        }
        served.clear();
        for (row, codes) in raw.chunks_exact(self.dim).enumerate() {
            let scales = if each == 0 { &scales[..] } else { &scales[row * each..][..each] };
            served.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
            served.extend_from_slice(codes);
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn element(&self) -> Element {
        self.element
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    /// Reads the bytes of rows `first` .. `first + count`, without gaps, into `raw`.
    ///
    /// The caller has made a [`Shape`](crate::shape::Shape) of the tensor's rows and dim, which
    /// bounds a row.
    pub(crate) fn read_rows(
        &self,
        first: u64,
        count: usize,
        raw: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let wrong = |source| Error::Source { path: self.path.clone(), source };
        let row_bytes = self.dim * self.element.size() as usize;
        raw.resize(count * row_bytes, 0);
        let start = self.offset + first * self.row_stride_bytes;
        if count == 1 || self.row_stride_bytes == row_bytes as u64 {
            return self.file.read_into(raw, start).map_err(wrong);
        }
        for (i, row) in raw.chunks_exact_mut(row_bytes).enumerate() {
            let offset = start + i as u64 * self.row_stride_bytes;
            self.file.read_into(row, offset).map_err(wrong)?;
        }
        Ok(())
    }

    /// Converts the bytes of whole rows from `first` on to float32.
    pub(crate) fn convert(
        &self,
        first: u64,
        raw: &[u8],
        values: &mut Vec<f32>,
    ) -> Result<(), Error> {
        values.clear();
        match self.element {
            Element::Fp8E4m3 | Element::Fp8E5m2 => {
                let mut served = Vec::new();
                self.serve_codes(first, raw, &mut served)?;
                values.resize(raw.len(), 0.0);
                let dtype = self.dtype().unwrap_or(self.element.dtype());
                decode_rows(dtype, self.dim, &served, values)?;
            }
            Element::Bf16 => values
                .extend(raw.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32())),
            Element::F16 => values
                .extend(raw.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32())),
            Element::F32 => {
                values.extend(raw.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
            Element::F64 => {
                for (i, bytes) in raw.as_chunks().0.iter().enumerate() {
                    let value = f64::from_le_bytes(*bytes);
                    let narrow = value as f32;
                    if narrow.is_infinite() && value.is_finite() {
                        return Err(CodecError::Overflow {
                            row: first + (i / self.dim) as u64,
                            column: i % self.dim,
                            value,
                            dtype: "f32",
                        }
                        .into());
                    }
                    values.push(narrow);
                }
            }
        }
        Ok(())
    }
}
