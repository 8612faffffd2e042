//! What [`Prg`] promises its callers, for every kind on every platform of this machine.

use hushtable_prg::{Platform, Prg, PrgKind, fill_random};
use std::panic::catch_unwind;

fn every_prg() -> impl Iterator<Item = Prg> {
    PrgKind::ALL.into_iter().flat_map(|kind| {
        Platform::available().into_iter().map(move |platform| Prg::new(kind, platform))
    })
}

fn random(count: usize) -> Vec<u128> {
    let mut bytes = vec![0; 16 * count];
    fill_random(&mut bytes).unwrap();
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| u128::from_le_bytes(word)).collect()
}

#[test]
fn a_control_bit_adds_the_correction_and_nothing_else() {
    let nodes = random(37);
    let (plain, controlled): (Vec<_>, Vec<_>) = nodes.iter().map(|x| (x & !1, x | 1)).unzip();
    let correction = random(4);
    let (two, four) = ([correction[0], correction[1]], correction[..].try_into().unwrap());
    for prg in every_prg() {
        let (mut bare, mut corrected) = (vec![0; 74], vec![0; 74]);
        prg.expand(&plain, &two, &mut bare);
        prg.expand(&controlled, &two, &mut corrected);
        for (i, (a, b)) in bare.iter().zip(&corrected).enumerate() {
            assert_eq!(a ^ b, two[i % 2], "{prg:?} child {i}");
        }
        let (mut bare, mut corrected) = (vec![0; 148], vec![0; 148]);
        prg.convert(&plain, &four, &mut bare);
        prg.convert(&controlled, &four, &mut corrected);
        for (i, (a, b)) in bare.iter().zip(&corrected).enumerate() {
            assert_eq!(a ^ b, four[i % 4], "{prg:?} word {i}");
        }
    }
}

#[test]
fn a_nodes_output_does_not_depend_on_its_neighbours() {
    let nodes = random(67);
    let correction = random(4);
    let (two, four) = ([correction[0], correction[1]], correction[..].try_into().unwrap());
    for prg in every_prg() {
        let (mut children, mut leaves) = (vec![0; 134], vec![0; 268]);
        prg.expand(&nodes, &two, &mut children);
        prg.convert(&nodes, &four, &mut leaves);
        for (i, node) in nodes.iter().enumerate() {
            let (mut pair, mut leaf) = ([0; 2], [0; 4]);
            prg.expand(&[*node], &two, &mut pair);
            prg.convert(&[*node], &four, &mut leaf);
            assert_eq!(pair, children[2 * i..][..2], "{prg:?} node {i}");
            assert_eq!(leaf, leaves[4 * i..][..4], "{prg:?} node {i}");
        }
    }
}

/// No constant, repeated or copied word, and every bit position near half ones: what a swapped
/// index or a forgotten round would show.
#[test]
fn every_output_bit_is_balanced_and_no_word_repeats() {
    const NODES: usize = 4096;
    // Spread seeds: `aes128` repeats words, by design, under seeds that differ in bits 1 and 2 only.
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let nodes: Vec<u128> = (0..NODES as u128).map(|i| i.wrapping_mul(ODD) & !1).collect();
    for kind in PrgKind::ALL {
        let prg = Prg::new(kind, Platform::detect());
        let (mut children, mut leaves) = (vec![0; 2 * NODES], vec![0; 4 * NODES]);
        prg.expand(&nodes, &[0; 2], &mut children);
        prg.convert(&nodes, &[0; 4], &mut leaves);
        for (words, width) in [(&children, 2), (&leaves, 4)] {
            for column in 0..width {
                for bit in 0..128 {
                    let ones = words
                        .iter()
                        .skip(column)
                        .step_by(width)
                        .filter(|&&word| word >> bit & 1 == 1)
                        .count();
                    // Seven standard deviations (32 each) over 6,144 fixed, reproducible draws.
                    assert!(ones.abs_diff(NODES / 2) < 7 * 32, "{kind} word {column} bit {bit}");
                }
            }
        }
        let mut words = [children, leaves, nodes.clone()].concat();
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count, "{kind} repeats a word");
    }
}

#[test]
fn a_wrong_output_length_panics() {
    for prg in every_prg() {
        for length in [0, 1, 5, 7, 12] {
            assert!(catch_unwind(|| prg.expand(&[0; 3], &[0; 2], &mut vec![0; length])).is_err());
            if length != 12 {
                let convert = || prg.convert(&[0; 3], &[0; 4], &mut vec![0; length]);
                assert!(catch_unwind(convert).is_err());
            }
        }
    }
}
