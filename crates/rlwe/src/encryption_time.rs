//! Does encryption take as long whatever is encrypted, and whatever the secret is? By
//! [`hushtable_ring::timing`].

use std::hint::black_box;

use hushtable_ring::timing::{T_MAX, leakage};
use hushtable_ring::{NoiseSource, Platform};

use crate::SecretKey;
use crate::ckks::{Encoder, ModulusBits, ParameterSpec, Parameters, encrypt};

/// What is encrypted, and the sources of the secret and of the errors.
struct Draws {
    features: Vec<f64>,
    secret: SecretKey,
    errors: NoiseSource,
    turns: NoiseSource,
}

/// |t| of `run` between zeros under one secret with one choice of errors, and one-hot features under
/// secrets and errors that change.
fn between_classes(parameters: &Parameters, run: impl Fn(&mut Draws)) -> f64 {
    let ring = parameters.lattice().key_ring();
    let mut state = Draws {
        features: vec![0.0; 64],
        secret: SecretKey::draw(ring, &mut NoiseSource::from_seed(&[1; 32])),
        errors: NoiseSource::from_seed(&[2; 32]),
        turns: NoiseSource::from_seed(&[3; 32]),
    };
    let mut classes = NoiseSource::from_seed(&[4; 32]);
    let prepare = |state: &mut Draws, class: bool| {
        // By index: a branch here would be mispredicted into what is timed.
        let (drawn, index) = (state.turns.seed(), usize::from(class));
        state.features.fill(0.0);
        state.features[usize::from(drawn[0]) % 64] = [0.0, 1.0][index];
        let seed = [[5; 32], drawn][index];
        state.secret = SecretKey::draw(ring, &mut NoiseSource::from_seed(&seed));
        state.errors = NoiseSource::from_seed(&seed);
    };
    leakage(2000, &mut state, || classes.seed()[0] & 1 == 1, prepare, run)
}

#[test]
fn features_are_encrypted_in_the_same_time_whatever_they_are() {
    let bits = ModulusBits { first: 50, level: 40, special: 50 };
    let spec = ParameterSpec::of_bits("timing_test", 256, bits, 2, 1).unwrap();
    let parameters = Parameters::new(spec, Platform::detect()).unwrap();
    let encoder = Encoder::new(&parameters);
    let (levels, scale) = (parameters.levels(), parameters.scale());
    let send = |state: &mut Draws| {
        let plaintext = encoder.encode_real(&state.features, levels, scale).unwrap();
        // One mask for all: its time depends on its seed, which is public.
        let (secret, errors) = (&state.secret, &mut state.errors);
        black_box(encrypt(&parameters, secret, &plaintext, &[6; 32], 0, errors).unwrap());
    };
    let t = between_classes(&parameters, send);
    assert!(t < T_MAX, "|t| = {t}");
    // What skips features that are zero would show.
    let t = between_classes(&parameters, |state| {
        send(state);
        if black_box(&state.features).iter().any(|&feature| feature != 0.0) {
            black_box(encoder.encode_real(&state.features, levels, scale).unwrap());
        }
    });
    assert!(t > T_MAX, "the planted leak went unseen: |t| = {t}");
}
