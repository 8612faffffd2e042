//! Prints `vectors/ot.json`: setups from seeds, and what they are extended to, by the portable path.
//!
//! `cargo run -p hushtable-mpc --example ot_vectors > vectors/ot.json`. Bytes are hexadecimal; labels are
//! 128-bit numbers, in hexadecimal; of what is long, `blake3` of the bytes (of labels, little-endian).

use hushtable_mpc::Platform;
use hushtable_mpc::ot::{ANSWER_BYTES, ReceiverSetup, SenderSetup};
use serde_json::{Value, json};

fn main() {
    let vectors: Vec<Value> = [(1, 0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6979), (2, u128::MAX)]
        .into_iter()
        .map(|(number, delta)| vector(number, delta))
        .collect();
    let file = json!({ "format": 1, "vectors": vectors });
    println!("{}", serde_json::to_string_pretty(&file).expect("plain values"));
}

fn vector(number: u8, delta: u128) -> Value {
    let (receiver_seed, sender_seed) = ([number; 32], [!number; 32]);
    let (receiver, opening) = ReceiverSetup::new(&receiver_seed);
    let (sender, points) = SenderSetup::new(&sender_seed, delta, &opening).expect("an opening");
    let (receiver, setup) = receiver.finish(&points).expect("points");
    let sender = sender.finish(&setup).expect("corrections");
    // Less than a tile, and a tile and less than another.
    let batches: Vec<Value> = [(0_u64, 3_usize), (u64::MAX, 131)]
        .into_iter()
        .map(|(batch, groups)| {
            let choices: Vec<u16> = (0..groups).map(|i| (i * 40_503 + 11) as u16).collect();
            let mut labels = vec![0; 16 * groups];
            let mut zeros = labels.clone();
            let corrections = receiver.extend(Platform::PORTABLE, batch, &choices, &mut labels);
            sender.extend(Platform::PORTABLE, batch, &corrections, &mut zeros).expect("a batch");
            json!({
                "batch": batch,
                "groups": groups,
                "corrections": hash(&corrections),
                "answer": hex::encode(&corrections[corrections.len() - ANSWER_BYTES..]),
                "first_label": format!("{:032x}", labels[0]),
                "labels": hash(&bytes(&labels)),
                "zeros": hash(&bytes(&zeros)),
            })
        })
        .collect();
    json!({
        "receiver_seed": hex::encode(receiver_seed),
        "sender_seed": hex::encode(sender_seed),
        "delta": format!("{delta:032x}"),
        "opening": hex::encode(&opening),
        "first_point": hex::encode(&points[..32]),
        "points": hash(&points),
        "setup": hash(&setup),
        "receiver": hash(&receiver.to_bytes()),
        "sender": hash(&sender.to_bytes()),
        // Word i is i · 40503 + 11 modulo 2^16.
        "batches": batches,
    })
}

fn bytes(labels: &[u128]) -> Vec<u8> {
    labels.iter().flat_map(|label| label.to_le_bytes()).collect()
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}
