//! Oblivious transfer and shares.

use hushtable_mpc::ot::{ReceiverSetup, SenderSetup};
use hushtable_mpc::{Platform, share};
use hushtable_prg::valgrind::{mark_public, mark_secret};

const DELTA: u128 = 0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6979;
const CHOICES: [u16; 130] = [0xA5C3; 130];

/// The receiver's seed and choices.
pub fn choices() {
    let mut seed = [1; 32];
    mark_secret(&mut seed);
    let (receiver, mut opening) = ReceiverSetup::new(&seed);
    mark_public(&mut opening);
    let (sender, points) = SenderSetup::new(&[2; 32], DELTA, &opening).expect("an opening");
    let (receiver, mut corrections) = receiver.finish(&points).expect("points");
    mark_public(&mut corrections);
    let sender = sender.finish(&corrections).expect("corrections");
    let mut choices = CHOICES;
    mark_secret(&mut choices);
    let mut labels = [0; 16 * CHOICES.len()];
    let mut corrections = receiver.extend(Platform::detect(), 1, &choices, &mut labels);
    mark_public(&mut corrections);
    let mut zeros = labels;
    sender.extend(Platform::detect(), 1, &corrections, &mut zeros).expect("corrections");
    check(&mut labels, &mut zeros);
}

/// The sender's seed and Δ.
pub fn delta() {
    let (receiver, opening) = ReceiverSetup::new(&[1; 32]);
    let (mut seed, mut delta) = ([2; 32], [DELTA]);
    mark_secret(&mut seed);
    mark_secret(&mut delta);
    let (sender, mut points) = SenderSetup::new(&seed, delta[0], &opening).expect("an opening");
    mark_public(&mut points);
    let (receiver, corrections) = receiver.finish(&points).expect("points");
    let sender = sender.finish(&corrections).expect("corrections");
    let mut labels = [0; 16 * CHOICES.len()];
    let corrections = receiver.extend(Platform::detect(), 1, &CHOICES, &mut labels);
    let mut zeros = labels;
    sender.extend(Platform::detect(), 1, &corrections, &mut zeros).expect("corrections");
    check(&mut labels, &mut zeros);
}

fn check(labels: &mut [u128], zeros: &mut [u128]) {
    mark_public(labels);
    mark_public(zeros);
    for (i, (label, zero)) in labels.iter().zip(zeros).enumerate() {
        let bit = u128::from(CHOICES[i / 16] >> (i % 16) & 1);
        assert_eq!(label ^ *zero, DELTA * bit, "label {i}");
    }
}

/// Numbers and their shares.
pub fn shares() {
    let values: Vec<u64> = (0..100).map(|i| i * 0x0123_4567_89AB).collect();
    let mut secrets = values.clone();
    mark_secret(&mut secrets);
    let mut seed = [3; 32];
    mark_secret(&mut seed);
    let mut mask = vec![0; secrets.len()];
    share::random(&seed, 0, 37, &mut mask);
    let other = share::split(37, &secrets, &mask);
    let mut packed = share::pack(37, &share::join(37, &mask, &other));
    // What travels is not secret, and its padding is looked at.
    mark_public(&mut packed);
    let found = share::unpack(37, values.len(), &packed).expect("packed");
    assert!(found.iter().zip(&values).all(|(found, value)| *found == value & share::mask(37)));
}
