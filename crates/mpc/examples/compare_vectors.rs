//! Prints `vectors/compare.json`: comparison keys from roots, and both servers' shares, by the portable path.
//!
//! `cargo run -p hushtable-mpc --example compare_vectors > vectors/compare.json`. Bytes are hexadecimal, and so are
//! roots: 128-bit numbers.

use hushtable_mpc::Platform;
use hushtable_mpc::compare::{Comparisons, Half, Prg, PrgKind, deal, reference};
use serde_json::{Value, json};

fn main() {
    let kinds = [PrgKind::Aes128, PrgKind::ChaCha20];
    let vectors: Vec<Value> = kinds
        .into_iter()
        .flat_map(|kind| [0, 5, 7, 12, 31].map(|bits| vector(kind, bits)))
        .collect();
    let file = json!({ "format": 1, "vectors": vectors });
    println!("{}", serde_json::to_string_pretty(&file).expect("plain values"));
}

fn vector(kind: PrgKind, bits: u32) -> Value {
    let keys = Comparisons::new(10, bits);
    let mask = (1_u64 << bits) - 1;
    let points: Vec<u64> = (0..10).map(|key| (0x9E37_79B9 * (key + 1)) & mask).collect();
    // Each point, its neighbours, and some number.
    let at: Vec<u64> = (0_u64..)
        .zip(&points)
        .map(|(key, point)| {
            let numbers = [*point, point.wrapping_sub(1), point + 1, 0x85EB_CA6B * (key + 1)];
            numbers[key as usize % 4] & mask
        })
        .collect();
    let roots: Vec<[u128; 2]> = (1_u128..=10)
        .map(|key| {
            [key * 0x0123_4567_89AB_CDEF_1122_3344, (key << 96) ^ (key * 0xFEDC_BA98_7654_3211)]
        })
        .collect();
    let words = deal(Prg::new(kind, Platform::PORTABLE), keys, &points, &roots);
    let shares = |half, side: usize| -> Vec<u8> {
        let of = |key: usize| {
            reference::evaluate(kind, half, keys, (key, roots[key][side]), &words, at[key])
        };
        (0..10).map(of).collect()
    };
    json!({
        "prg": kind.name(),
        "bits": bits,
        "points": points,
        "roots": roots.iter().map(|roots| roots.map(|root| format!("{root:032x}"))).collect::<Vec<_>>(),
        "at": at,
        "words": hex::encode(&words),
        "left_shares": shares(Half::Left, 0),
        "right_shares": shares(Half::Right, 1),
    })
}
