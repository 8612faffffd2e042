//! Prints `vectors/rows.json`: rows of every type with scales, and the values that they stand for.
//!
//! `cargo run -p hushtable-table --example row_vectors > vectors/rows.json`. Values are float32, rows are as
//! served; both as little-endian bytes in hexadecimal.

use hushtable_table::{DType, decode_rows, encode_rows};

/// Values of a row: a part of a byte's, a group and a part, and so many that codes carry their scale.
const DIMS: [usize; 3] = [3, 37, 256];

fn main() -> Result<(), hushtable_table::Error> {
    println!("{{\n  \"format\": 1,\n  \"vectors\": [");
    let plain = [DType::Bf16, DType::F16, DType::F32];
    let scaled = DType::ALL.into_iter().filter(|dtype| !plain.contains(dtype));
    let rows: Vec<(DType, usize)> = scaled.flat_map(|dtype| DIMS.map(|dim| (dtype, dim))).collect();
    for (place, &(dtype, dim)) in rows.iter().enumerate() {
        let drawn = |i: usize| ((i * i * 31 + i * 17 + dim) % 257) as f32 / 128.0 - 1.0;
        let values: Vec<f32> = (0..dim).map(|i| drawn(i).powi(3)).collect();
        let (mut row, mut decoded) = (vec![0; dtype.row_bytes(dim)], vec![0.0; dim]);
        encode_rows(dtype, dim, &values, &mut row)?;
        decode_rows(dtype, dim, &row, &mut decoded)?;
        let comma = if place + 1 < rows.len() { "," } else { "" };
        println!("    {{\n      \"dtype\": \"{dtype}\",\n      \"dim\": {dim},");
        println!("      \"values\": \"{}\",", hex(&bytes(&values)));
        println!("      \"row\": \"{}\",", hex(&row));
        println!("      \"decoded\": \"{}\"\n    }}{comma}", hex(&bytes(&decoded)));
    }
    println!("  ]\n}}");
    Ok(())
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
