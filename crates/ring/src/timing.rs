//! Dudect-style checks (Reparaz, Balasch, Verbauwhede, DATE 2017): is time independent of secrets?
//!
//! A fixed seed and random ones are timed one by one, mixed; Welch's t over the times, without the
//! slowest tenth, must stay small. On a shared machine one run may be disturbed, so a check fails
//! only if three fail, and a planted leak must be seen.

use std::hint::black_box;
use std::time::Instant;

use hushtable_prg::Platform;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::{NoiseSource, Ring, ntt_primes};

/// Dudect's bound for "leaks beyond doubt" is 10 on |t|; 4.5 already is suspicious.
const T_MAX: f64 = 10.0;

/// |t| between `run` on the sources of a fixed seed and of random ones, the least of three rounds.
fn leakage(run: impl Fn(&mut NoiseSource)) -> f64 {
    let mut rng = ChaCha12Rng::seed_from_u64(6);
    let mut round = || {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..4000 {
            let (class, random): (bool, [u8; 32]) = (rng.random(), rng.random());
            // By index: a branch here would be mispredicted into what is timed.
            let seeds = black_box([[7; 32], random]);
            let mut source = NoiseSource::from_seed(&seeds[usize::from(class)]);
            let start = Instant::now();
            run(&mut source);
            times[usize::from(class)].push(start.elapsed().as_nanos() as f64);
        }
        let mut all: Vec<f64> = times.concat();
        all.sort_by(f64::total_cmp);
        let cut = all[all.len() * 9 / 10];
        let [a, b] = times.map(|times| moments(times.into_iter().filter(|time| *time <= cut)));
        (a.0 - b.0).abs() / (a.1 + b.1).sqrt().max(1e-9)
    };
    (0..3).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Mean, and variance over count.
fn moments(times: impl Iterator<Item = f64>) -> (f64, f64) {
    let times: Vec<f64> = times.collect();
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, variance / count)
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
