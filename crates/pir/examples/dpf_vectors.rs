//! Prints `vectors/dpf.json`: keys from given seeds, and shares of some rows by the reference.
//!
//! `cargo run -p hushtable-pir --example dpf_vectors > vectors/dpf.json`

use hushtable_pir::dpf::{Domain, Group, KeyPair, reference};
use hushtable_prg::{Platform, Prg, PrgKind};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut vectors = Vec::new();
    for (prg_number, prg) in PrgKind::ALL.into_iter().enumerate() {
        for group in Group::ALL {
            for (rows, index) in [(1, 0), (3, 1), (1300, 777), (1 << 20, 1_000_003)] {
                if rows == 1 << 20 && prg_number > 1 {
                    continue;
                }
                let seeds = [0u8, 1].map(|side| {
                    std::array::from_fn(|i| (17 * i + 91 * prg_number) as u8 ^ side.wrapping_neg())
                });
                vectors.push(vector(prg, group, rows, index, &seeds)?);
            }
        }
    }
    println!("{}", serde_json::to_string_pretty(&json!({ "format": 1, "vectors": vectors }))?);
    Ok(())
}

fn vector(
    prg: PrgKind,
    group: Group,
    rows: u64,
    index: u64,
    seeds: &[[u8; 16]; 2],
) -> Result<Value, Box<dyn std::error::Error>> {
    let domain = Domain::new(rows, group)?;
    let pair = KeyPair::from_seeds(Prg::new(prg, Platform::PORTABLE), domain, index, seeds)?;
    // The point, its neighbours, and the ends.
    let mut at = vec![0, index.saturating_sub(1), index, (index + 1).min(rows - 1), rows - 1];
    at.dedup();
    let shares = |key| at.iter().map(|&row| reference::share(key, row)).collect::<Vec<_>>();
    Ok(json!({
        "prg": prg.name(),
        "group": group.name(),
        "rows": rows,
        "index": index,
        "seeds": seeds.map(hex),
        "left_key": hex(pair.left.to_bytes()),
        "right_key": hex(pair.right.to_bytes()),
        "share_rows": at,
        "left_shares": shares(&pair.left),
        "right_shares": shares(&pair.right),
    }))
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
