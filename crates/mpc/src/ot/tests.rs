//! Both parties in one process.

use proptest::prelude::*;

use super::*;
use crate::{Block, Platform};

fn pair(seed: u8, delta: Block) -> (CotReceiver, CotSender) {
    let (receiver, opening) = ReceiverSetup::new(&[seed; 32]);
    assert_eq!(opening.len(), OPENING_BYTES);
    let (sender, points) = SenderSetup::new(&[!seed; 32], delta, &opening).unwrap();
    assert_eq!(points.len(), POINTS_BYTES);
    let (receiver, corrections) = receiver.finish(&points).unwrap();
    assert_eq!(corrections.len(), CORRECTIONS_BYTES);
    (receiver, sender.finish(&corrections).unwrap())
}

/// Bits that follow from a seed.
fn bits(seed: u64, groups: usize) -> Vec<u16> {
    let mut bytes = vec![0; 2 * groups];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn each_label_is_the_one_that_its_bit_chooses(
        seed: u8, delta: u128, batch: u64, groups in 0..300_usize, choices: u64,
    ) {
        let (receiver, sender) = pair(seed, delta);
        let choices = bits(choices, groups);
        let mut expected = None;
        for platform in Platform::available() {
            let (mut labels, mut zeros) = (vec![0; 16 * groups], vec![1; 16 * groups]);
            let corrections = receiver.extend(platform, batch, &choices, &mut labels);
            prop_assert_eq!(corrections.len(), correction_bytes(16 * groups));
            sender.extend(platform, batch, &corrections, &mut zeros).unwrap();
            for (i, (label, zero)) in labels.iter().zip(&zeros).enumerate() {
                let bit = u128::from(choices[i / 16] >> (i % 16) & 1);
                prop_assert_eq!(label ^ zero, delta * bit, "label {}", i);
            }
            let mut again = vec![2; 16 * groups];
            receiver.labels(platform, batch, &mut again);
            prop_assert!(again == labels);
            // One specification for all platforms.
            let all = (labels, zeros, corrections);
            prop_assert!(expected.get_or_insert_with(|| all.clone()) == &all);
        }
    }
}

#[test]
fn what_is_kept_makes_the_same_labels() {
    let (receiver, sender) = pair(3, 77);
    let again = (
        CotReceiver::from_bytes(&receiver.to_bytes()).unwrap(),
        CotSender::from_bytes(&sender.to_bytes()).unwrap(),
    );
    let choices = bits(1, 3);
    let mut labels = [[0; 48]; 4];
    let corrections = receiver.extend(Platform::detect(), 5, &choices, &mut labels[0]);
    again.0.labels(Platform::detect(), 5, &mut labels[1]);
    sender.extend(Platform::detect(), 5, &corrections, &mut labels[2]).unwrap();
    again.1.extend(Platform::detect(), 5, &corrections, &mut labels[3]).unwrap();
    assert_eq!(labels[0], labels[1]);
    assert_eq!(labels[2], labels[3]);
    assert_eq!(again.1.delta(), 77);
}
