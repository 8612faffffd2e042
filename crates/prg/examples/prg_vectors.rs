//! Prints `vectors/prg.json`: what every generator makes of some nodes, by the portable path.
//!
//! `cargo run -p hushtable-prg --example prg_vectors > vectors/prg.json`. Numbers are 128-bit, in
//! hexadecimal; as bytes they are little-endian.

use hushtable_prg::{Platform, Prg, PrgKind};

fn main() {
    let words: Vec<u128> = (0..12u128)
        .map(|i| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
        .collect();
    // Control bits off and on, and the seeds at both ends.
    let nodes = [0, 1, u128::MAX - 1, u128::MAX, words[0] & !1, words[1] | 1];
    let two = [words[2], words[3]];
    let four = [words[4], words[5], words[6], words[7]];
    println!("{{\n  \"format\": 1,");
    println!("  \"nodes\": {},", list(&nodes));
    println!("  \"child_correction\": {},\n  \"leaf_correction\": {},", list(&two), list(&four));
    println!("  \"generators\": [");
    for (i, kind) in PrgKind::ALL.into_iter().enumerate() {
        let prg = Prg::new(kind, Platform::PORTABLE);
        let (mut children, mut leaves) = ([0; 12], [0; 24]);
        prg.expand(&nodes, &two, &mut children);
        prg.convert(&nodes, &four, &mut leaves);
        let comma = if i + 1 < PrgKind::ALL.len() { "," } else { "" };
        println!("    {{\n      \"name\": \"{}\",\n      \"id\": {},", kind.name(), kind.id());
        println!(
            "      \"children\": {},\n      \"leaves\": {}\n    }}{comma}",
            list(&children),
            list(&leaves)
        );
    }
    println!("  ]\n}}");
}

fn list(words: &[u128]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word:032x}\"")).collect();
    format!("[{}]", words.join(", "))
}
