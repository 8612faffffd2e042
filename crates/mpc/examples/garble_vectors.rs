//! Prints `vectors/garble.json`: what garbling gives from known labels, by the portable path.
//!
//! `cargo run -p hushtable-mpc --example garble_vectors > vectors/garble.json`. Blocks are 128-bit numbers
//! in hexadecimal, little-endian as bytes. Zero labels are those of the two seeds from label 0 on; tables
//! are there whole for the smallest case, and as BLAKE3 hashes.

use hushtable_mpc::garble::{Activation, ActivationSpec, evaluate, garble, groups, labels, select};
use hushtable_mpc::{Block, LANES, Platform};

const DELTA: Block = 0x9d02_7f0e_8a4c_11b3_5c6e_02d9_f0a1_7735;
const SEEDS: [[u8; 16]; 2] = [*b"garbler's labels", *b"evaluators label"];
const FIRST_INSTANCE: u64 = 0xffff_ffff_ffff_fffe;

fn main() {
    let shares: Vec<u64> =
        (1..=36u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)).collect();
    println!("{{\n  \"format\": 1,");
    println!("  \"key\": \"a4093822299f31d0082efa98ec4e6c89\",");
    println!("  \"delta\": \"{DELTA:032x}\",");
    println!("  \"first_instance\": {FIRST_INSTANCE},");
    println!("  \"garbler_seed\": \"{}\",", hex::encode(SEEDS[0]));
    println!("  \"evaluator_seed\": \"{}\",", hex::encode(SEEDS[1]));
    println!("  \"shares\": {},", list(&shares));
    println!("  \"cases\": [");
    let specs = [
        (16, 13, 13, 1, true, None, 1),
        (16, 0, 4, 1, false, None, 3),
        (37, 12, 12, 1, true, None, 18),
        (37, 0, 12, 1, true, None, 18),
        (41, 12, 14, 3, true, None, 6),
        (64, 20, 24, 2, false, None, 9),
        (37, 12, 12, 1, true, Some(0x6000), 18),
    ];
    for (case, &(bits, dropped, shift, window, rectify, most, count)) in specs.iter().enumerate() {
        let spec = ActivationSpec { bits, dropped, shift, window, rectify, most };
        let activation = Activation::new(spec).expect("in range");
        let platform = Platform::PORTABLE;
        let groups = groups(count);
        let zeros = SEEDS.map(|seed| {
            let mut zeros = vec![0; groups * activation.wires() * LANES];
            labels(platform, &seed, 0, &mut zeros);
            zeros
        });
        let mut tables = vec![0; groups * LANES * activation.table_bytes()];
        let mut masks = vec![0; count];
        let [garbler, evaluator] = &zeros;
        let first = FIRST_INSTANCE;
        garble(&activation, platform, DELTA, first, garbler, evaluator, &mut tables, &mut masks);
        // The garbler has the first shares, the evaluator the ones after them.
        let numbers = count * window;
        let mut active = zeros.clone();
        for (which, active) in active.iter_mut().enumerate() {
            let own = &shares[which * numbers..][..numbers];
            select(platform, DELTA, &zeros[which], &activation.choices(own), active);
        }
        let mut out = vec![0; count];
        evaluate(&activation, platform, first, &active[0], &active[1], &tables, &mut out);
        println!("    {{");
        println!("      \"bits\": {bits}, \"dropped\": {dropped}, \"shift\": {shift},");
        println!("      \"window\": {window}, \"rectify\": {rectify}, \"count\": {count},");
        if let Some(most) = most {
            println!("      \"most\": {most},");
        }
        println!("      \"and_gates\": {},", activation.and_gates());
        println!("      \"table_bytes\": {},", activation.table_bytes());
        if case == 0 {
            println!("      \"tables\": \"{}\",", hex::encode(&tables));
        }
        println!("      \"tables_blake3\": \"{}\",", blake3::hash(&tables));
        println!("      \"masks\": {},", list(&masks));
        println!("      \"evaluated\": {}", list(&out));
        println!("    }}{}", if case + 1 < specs.len() { "," } else { "" });
    }
    println!("  ]\n}}");
}

fn list(words: &[u64]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word:016x}\"")).collect();
    format!("[{}]", words.join(", "))
}
