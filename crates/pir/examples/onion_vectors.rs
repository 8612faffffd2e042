//! Prints `vectors/onion.json`: keys, a query, its response and the row in it, from given seeds.
//!
//! `cargo run -p hushtable-pir --release --example onion_vectors > vectors/onion.json`

use std::sync::Arc;

use hushtable_pir::TableShape;
use hushtable_pir::onion::{
    Client, Engine, EvaluationKeys, Geometry, Mask, OnionSpec, ParameterSet, Server,
};
use hushtable_rlwe::ring::NoiseSource;
use hushtable_table::Version;
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Rows that share a plaintext, a row of several, and each set with a tournament.
    let vectors: Vec<Value> = [
        (ParameterSet::N256Test, 5, 2_000, 64, 1_999),
        (ParameterSet::N256Test, 4, 60, 1_300, 31),
        (ParameterSet::N4096128, 4, 1_500, 256, 1_027),
        (ParameterSet::IvePaper, 5, 4_000, 256, 2_700),
    ]
    .into_iter()
    .enumerate()
    .map(|(number, (set, levels, rows, row_bytes, id))| {
        let shape = TableShape::new(rows, row_bytes)?;
        vector(Geometry::with_levels(set, shape, levels)?, [number as u8 + 1; 32], id)
    })
    .collect::<Result<_, Box<dyn std::error::Error>>>()?;
    let file = json!({ "format": 2, "vectors": vectors });
    println!("{}", serde_json::to_string_pretty(&file)?);
    Ok(())
}

fn vector(
    geometry: Geometry,
    seed: [u8; 32],
    id: u64,
) -> Result<Value, Box<dyn std::error::Error>> {
    // One source gives the secret, the keys and then the query.
    let mut source = NoiseSource::from_seed(&seed);
    let version = Version::from(seed);
    let client = Client::draw(geometry.clone(), version, &mut source);
    let (queries, pending) = client.query_from(&[id], 1, &mut source);
    let row_bytes = geometry.shape().row_bytes();
    let engine = Engine::from_rows(geometry.clone(), version, &OnionSpec::new(), &|first, out| {
        let first = first as usize * row_bytes;
        out.iter_mut().enumerate().for_each(|(index, byte)| *byte = table_byte(first + index));
        Ok(())
    })?;
    let keys = Arc::new(EvaluationKeys::parse(&geometry, client.keys())?);
    let server = Server::new(Arc::new(engine));
    let mut response = vec![0; server.backend().geometry().response_bytes()];
    server.answer(&[server.accept(&keys, &queries[0])?], &mut response)?;
    let row = client.decode(&pending, version, &response)?;
    let plaintext = id / geometry.rows_per_item() as u64 * geometry.chunks() as u64;
    let mut mask = vec![0; geometry.plaintext_bytes()];
    Mask::new(version, geometry.set()).apply(plaintext, &mut mask);
    Ok(json!({
        "parameter_set": geometry.set().name(),
        "levels": geometry.levels(),
        "rows": geometry.shape().rows(),
        "row_bytes": row_bytes,
        "geometry": hex(&geometry.to_bytes()),
        "seed": hex(&seed),
        "id": id,
        "keys": digest(client.keys()),
        "query": digest(&queries[0]),
        "response": digest(&response),
        "plaintext": plaintext,
        "mask": digest(&mask),
        "row": hex(&row),
    }))
}

/// Byte `index` of every vector's table, row after row.
fn table_byte(index: usize) -> u8 {
    ((index ^ (index >> 8)) as u8).wrapping_mul(167).wrapping_add(13)
}

fn digest(bytes: &[u8]) -> Value {
    json!({
        "bytes": bytes.len(),
        "blake3": blake3::hash(bytes).to_hex().as_str(),
        "first_bytes": hex(&bytes[..32]),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
