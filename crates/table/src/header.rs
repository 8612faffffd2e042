//! The header of `rows.safetensors`: always one page long, so that the rows start on a page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dtype::{DType, Group};
use crate::error::{HeaderError, RowsError};
use crate::names::repeated_name;
use crate::shape::Shape;

/// Where the tensors' bytes start: the length field (8 bytes) and the space-padded JSON.
pub(crate) const DATA_OFFSET: usize = 4_096;

/// One tensor, as safetensors describes it.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Bytes of all scales, which stand before the weights: 0 of plain values.
pub(crate) fn scales_bytes(shape: Shape) -> u64 {
    shape.rows() * shape.dtype().scales_bytes(shape.dim()) as u64
}

/// The first [`DATA_OFFSET`] bytes of the file.
pub(crate) fn encode_header(shape: Shape) -> Vec<u8> {
    let json = serde_json::to_vec(&tensors(shape))
        .expect("a map of strings and numbers is always representable as JSON");
    assert!(json.len() <= DATA_OFFSET - 8, "two tensors take a few hundred bytes");
    let mut header = ((DATA_OFFSET - 8) as u64).to_le_bytes().to_vec();
    header.extend_from_slice(&json);
    header.resize(DATA_OFFSET, b' ');
    header
}

/// Checks that the first [`DATA_OFFSET`] bytes and the size of a file are those of this shape.
pub(crate) fn check_header(shape: Shape, head: &[u8], file_bytes: u64) -> Result<(), RowsError> {
    let expected = DATA_OFFSET as u64 + shape.content_bytes();
    if file_bytes != expected || head.len() != DATA_OFFSET {
        return Err(RowsError::FileSize { expected, found: file_bytes });
    }
    check_tensors(shape, head).map_err(|source| RowsError::Header { source })
}

fn check_tensors(shape: Shape, head: &[u8]) -> Result<(), HeaderError> {
    let (length, json) = head.split_at(8);
    let mut found = [0; 8];
    found.copy_from_slice(length);
    let (expected, found) = ((DATA_OFFSET - 8) as u64, u64::from_le_bytes(found));
    if found != expected {
        return Err(HeaderError::Length { expected, found });
    }
    let found: BTreeMap<String, TensorEntry> =
        serde_json::from_slice(json).map_err(|source| HeaderError::Json { source })?;
    if found != tensors(shape) || repeated_name(json).is_some() {
        return Err(HeaderError::Tensors { shape });
    }
    Ok(())
}

/// The tensors of a table of this shape, by name.
fn tensors(shape: Shape) -> BTreeMap<String, TensorEntry> {
    let (scales_end, end) = (scales_bytes(shape), shape.content_bytes());
    let (rows, dim, dtype) = (shape.rows(), shape.dim(), shape.dtype());
    let width = match dtype {
        // Packed: as many bytes.
        DType::Int4(_) | DType::Int2(_) => dtype.codes_bytes(dim),
        _ => dim,
    };
    let weight = TensorEntry {
        dtype: dtype.safetensors_name().to_owned(),
        shape: vec![rows, width as u64],
        data_offsets: [scales_end, end],
    };
    let mut tensors = BTreeMap::from([("weight".to_owned(), weight)]);
    if let Some((code, group)) = dtype.coding().filter(|_| scales_end > 0) {
        let shape = match group {
            Group::Row => vec![rows],
            _ => vec![rows, group.count(dim) as u64],
        };
        let scale = TensorEntry {
            dtype: if code.scale_bytes() == 2 { "BF16" } else { "F32" }.to_owned(),
            shape,
            data_offsets: [0, scales_end],
        };
        tensors.insert("scale".to_owned(), scale);
    }
    tensors
}

#[cfg(test)]
mod tests {
    use safetensors::{Dtype, SafeTensors};

    use super::*;

    #[test]
    fn the_reference_reader_agrees() {
        for dtype in DType::ALL {
            let shape = Shape::new(5, 70, dtype).unwrap();
            let mut file = encode_header(shape);
            file.resize(DATA_OFFSET + shape.content_bytes() as usize, 0);
            let tensors = SafeTensors::deserialize(&file).unwrap();
            check_header(shape, &file[..DATA_OFFSET], file.len() as u64).unwrap();
            let weight = tensors.tensor("weight").unwrap();
            let width = match dtype {
                DType::Int4(_) => 35,
                DType::Int2(_) => 18,
                _ => 70,
            };
            assert_eq!(weight.shape(), [5, width]);
            let Some((_, group)) = dtype.coding() else {
                assert_eq!(tensors.len(), 1);
                continue;
            };
            let scale = tensors.tensor("scale").unwrap();
            match group {
                Group::Row => assert_eq!(scale.shape(), [5]),
                Group::Of32 => assert_eq!(scale.shape(), [5, 3]),
                Group::Of64 => assert_eq!(scale.shape(), [5, 2]),
                Group::Of128 => assert_eq!(scale.shape(), [5, 1]),
            }
            assert_eq!(weight.dtype() == Dtype::I8, dtype == DType::Int8);
        }
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        let shape = Shape::new(5, 4, DType::F32).unwrap();
        let size = DATA_OFFSET as u64 + shape.content_bytes();
        let header = encode_header(shape);
        let lie = |from: &str, to: &str| {
            let (length, text) = header.split_at(8);
            let text = str::from_utf8(text).unwrap();
            assert!(text.contains(from));
            let lie = [length, text.replace(from, to).as_bytes()].concat();
            check_header(shape, &lie, size).unwrap_err()
        };
        let tensors =
            |error| matches!(error, RowsError::Header { source: HeaderError::Tensors { .. } });
        assert!(tensors(lie("[5,4]", "[4,5]")));
        assert!(tensors(lie("F32", "I32")));
        assert!(tensors(lie("[0,80]", "[8,80]")));
        assert!(tensors(lie("weight", "weighs")));
        // The last of two is the right one.
        let text = str::from_utf8(&header[8..]).unwrap().trim_end();
        let first = r#"{"w\u0065ight":{"dtype":"I32","shape":[],"data_offsets":[0,0]},"#;
        let mut twice = [&header[..8], text.replacen('{', first, 1).as_bytes()].concat();
        twice.resize(DATA_OFFSET, b' ');
        assert!(tensors(check_header(shape, &twice, size).unwrap_err()));
        assert!(matches!(
            lie("\"dtype\"", "\"dtipe\""),
            RowsError::Header { source: HeaderError::Json { .. } }
        ));
        let mut longer = header.clone();
        longer[0] += 1;
        assert!(matches!(
            check_header(shape, &longer, size),
            Err(RowsError::Header {
                source: HeaderError::Length { expected: 4_088, found: 4_089 }
            })
        ));
        assert!(matches!(
            check_header(shape, &header, size - 1),
            Err(RowsError::FileSize { expected, found }) if expected == size && found == size - 1
        ));
    }
}
