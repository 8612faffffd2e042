//! Do encoding and opening take as long whatever is encoded, and whatever the secret is? By
//! [`hushtable_ring::timing`]. Errors and transforms have their own checks (`hushtable_ring`); short runs are
//! disturbed less.

use std::hint::black_box;

use hushtable_ring::timing::{T_MAX, leakage};
use hushtable_ring::{NoiseSource, Platform};

use super::{Client, Parameters};

/// What is encoded, and whose secret opens.
struct Draws {
    values: Vec<u64>,
    client: Client,
    turns: NoiseSource,
}

/// |t| of `run` between zeros under one secret, and random numbers under secrets that change.
fn between_classes(parameters: &Parameters, run: impl Fn(&mut Draws)) -> f64 {
    let draw = |seed| Client::draw(parameters.clone(), &mut NoiseSource::from_seed(&seed));
    let mut state = Draws {
        values: vec![0; parameters.degree()],
        client: draw([1; 32]),
        turns: NoiseSource::from_seed(&[3; 32]),
    };
    let mut classes = NoiseSource::from_seed(&[4; 32]);
    let prepare = |state: &mut Draws, class: bool| {
        let (drawn, index) = (state.turns.seed(), usize::from(class));
        // By index or product: a branch here would be mispredicted into what is timed.
        state.turns.words(&mut state.values);
        let bits = parameters.bits();
        for value in &mut state.values {
            *value = (*value >> (64 - bits)) * u64::from(class);
        }
        state.client = draw([[5; 32], drawn][index]);
    };
    leakage(2000, &mut state, || classes.seed()[0] & 1 == 1, prepare, run)
}

#[test]
fn numbers_are_encoded_and_opened_in_the_same_time_whatever_they_are() {
    let parameters = Parameters::new("linear_4096", 37, Platform::detect()).unwrap();
    let answer: Vec<u8> = (0..parameters.answer_bytes(64)).map(|i| (i * 37 + 11) as u8).collect();
    let wanted: Vec<usize> = (0..64).map(|i| i * 63).collect();
    let both = |state: &mut Draws| {
        black_box(parameters.encode(&state.values));
        let mut out = [0; 64];
        state.client.open(&answer, &wanted, &mut out).unwrap();
        black_box(out);
    };
    let t = between_classes(&parameters, both);
    assert!(t < T_MAX, "|t| = {t}");
    // What goes twice over numbers that are not 0 would show.
    let t = between_classes(&parameters, |state| {
        both(state);
        if black_box(&state.values).iter().any(|&value| value != 0) {
            both(state);
        }
    });
    assert!(t > T_MAX, "the planted leak went unseen: |t| = {t}");
}
