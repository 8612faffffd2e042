//! `vectors/rows.json`: rows with scales are these bytes on every machine, and these values.

use hushtable_table::{DType, decode_rows, encode_rows};
use serde_json::Value;

fn bytes(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn numbers(text: &Value) -> Vec<f32> {
    bytes(text).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn rows_are_the_known_answers() {
    let file: Value = serde_json::from_str(include_str!("../../../../vectors/rows.json")).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 3 * (DType::ALL.len() - 3));
    for vector in vectors {
        let dtype: DType = vector["dtype"].as_str().unwrap().parse().unwrap();
        let dim = vector["dim"].as_u64().unwrap() as usize;
        let mut row = vec![0; dtype.row_bytes(dim)];
        encode_rows(dtype, dim, &numbers(&vector["values"]), &mut row).unwrap();
        assert_eq!(row, bytes(&vector["row"]), "{dtype} of {dim}");
        let mut values = vec![0.0; dim];
        decode_rows(dtype, dim, &row, &mut values).unwrap();
        assert_eq!(values, numbers(&vector["decoded"]), "{dtype} of {dim}");
    }
}
