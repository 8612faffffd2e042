//! safetensors files: the reference crate parses the header, and we read the rows ourselves.

use std::collections::HashMap;

use safetensors::Dtype;
use safetensors::tensor::Metadata as Header;

use super::SourceError;
use super::read_at::ReadAt;
use super::tensor::{Element, Entry, Kind, TensorInfo, strides_in_order};
use crate::names::repeated_name;

const HEADER_BYTES_MAX: u64 = 16 << 20;

/// Lists the tensors of a safetensors file.
pub(super) fn read_entries(file: &impl ReadAt) -> Result<Vec<Entry>, SourceError> {
    Ok(read_header(file)?.0)
}

/// What a safetensors file says beside its tensors.
pub(super) type Metadata = HashMap<String, String>;

/// Lists the tensors of a safetensors file, and what it says beside them.
pub(super) fn read_header(file: &impl ReadAt) -> Result<(Vec<Entry>, Metadata), SourceError> {
    let mut length = [0; 8];
    length.copy_from_slice(&file.read_vec(0, 8)?);
    let byte_count = u64::from_le_bytes(length);
    let byte_count_max = (file.size() - 8).min(HEADER_BYTES_MAX);
    if byte_count > byte_count_max {
        return Err(SourceError::SafetensorsHeaderLength { byte_count, byte_count_max });
    }
    let header = file.read_vec(8, byte_count)?;
    // Metadata checks that the tensors' sizes follow from their shapes and leave no gaps.
    let metadata: Header = serde_json::from_slice(&header)
        .map_err(|source| SourceError::SafetensorsHeader { source })?;
    if let Some(name) = repeated_name(&header) {
        return Err(SourceError::RepeatedName { name });
    }
    let data_offset = 8 + byte_count;
    let expected = data_offset.saturating_add(metadata.data_len() as u64);
    if expected != file.size() {
        return Err(SourceError::Truncated { expected, found: file.size() });
    }

    let mut tensors: Vec<_> = metadata.tensors().into_iter().collect();
    tensors.sort_by(|(a_name, a), (b_name, b)| {
        (a.data_offsets, a_name).cmp(&(b.data_offsets, b_name))
    });
    let entries = tensors.into_iter().map(|(name, tensor)| {
        let shape: Vec<u64> = tensor.shape.iter().map(|size| *size as u64).collect();
        let element = match tensor.dtype {
            Dtype::BF16 => Some(Element::Bf16),
            Dtype::F16 => Some(Element::F16),
            Dtype::F32 => Some(Element::F32),
            Dtype::F64 => Some(Element::F64),
            Dtype::F8_E4M3 => Some(Element::Fp8E4m3),
            Dtype::F8_E5M2 => Some(Element::Fp8E5m2),
            _ => None,
        };
        let (start, end) = tensor.data_offsets;
        let dtype = tensor.dtype.to_string();
        Entry {
            strides: strides_in_order(&shape),
            kind: Kind::of_safetensors(&dtype),
            info: TensorInfo { name, shape, dtype, element },
            offset: data_offset + start as u64,
            byte_count: (end - start) as u64,
        }
    });
    Ok((entries.collect(), metadata.metadata().clone().unwrap_or_default()))
}
