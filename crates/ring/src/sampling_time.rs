//! Is the time of the samplers independent of what they draw? By [`hushtable_prg::timing`].

use std::hint::black_box;

use crate::timing::T_MAX;
use hushtable_prg::Platform;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::{NoiseSource, Ring, ntt_primes};

/// |t| between `run` on the sources of a fixed seed and of random ones.
fn leakage(run: impl Fn(&mut NoiseSource)) -> f64 {
    let mut classes = ChaCha12Rng::seed_from_u64(6);
    let mut state = (ChaCha12Rng::seed_from_u64(7), NoiseSource::from_seed(&[7; 32]));
    crate::timing::leakage(
        4000,
        &mut state,
        || classes.random(),
        |(rng, source), class| {
            // By index: a branch here would be mispredicted into what is timed.
            let seeds = black_box([[7; 32], rng.random()]);
            *source = NoiseSource::from_seed(&seeds[usize::from(class)]);
        },
        |(_, source)| run(source),
    )
}

#[test]
fn noise_takes_the_same_time_for_every_seed() {
    let ring = Ring::new(64, &ntt_primes(50, 64, 2), Platform::detect()).unwrap();
    let ternary = leakage(|source| {
        black_box(source.ternary(&ring));
    });
    assert!(ternary < T_MAX, "ternary: |t| = {ternary}");
    let gaussian = leakage(|source| {
        black_box(source.gaussian(&ring));
    });
    assert!(gaussian < T_MAX, "gaussian: |t| = {gaussian}");
    // What a sampler that draws until it is content would show: a few draws more or less.
    let rejection = leakage(|source| while black_box(source.seed())[0] > 4 {});
    assert!(rejection > T_MAX, "the planted leak went unseen: |t| = {rejection}");
}
