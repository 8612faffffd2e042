//! Dudect-style checks (Reparaz, Balasch, Verbauwhede, DATE 2017): is time independent of secrets?
//!
//! Two classes of inputs, drawn at random, are timed one by one; Welch's t over the times, without
//! the slowest tenth, must stay small. On a shared machine one run may be disturbed, so a check
//! fails only if three fail, and each has a planted leak that must be seen.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hushtable_prg::{Platform, Prg, PrgKind};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::dpf::{Domain, Group, KeyPair};
use crate::kernel::{BLOCK_GROUPS, Kernel, LANES, UNIT_BYTES};

/// Dudect's bound for "leaks beyond doubt" is 10 on |t|; 4.5 already is suspicious.
const T_MAX: f64 = 10.0;

/// |t| between the two classes' times of `run`, the least of three rounds. `prepare` puts a class's
/// secret where `run` finds it, untimed: both classes at one address, or the caches would tell
/// addresses apart instead of secrets.
fn leakage<S>(
    samples: usize,
    state: &mut S,
    prepare: impl Fn(&mut S, bool),
    run: impl Fn(&mut S),
) -> f64 {
    // One check at a time: two would time each other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rng = ChaCha12Rng::seed_from_u64(5);
    let mut round = || {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..samples {
            let class: bool = rng.random();
            prepare(state, black_box(class));
            let start = Instant::now();
            run(state);
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
fn key_generation_takes_the_same_time_for_every_index() {
    let rows = 1 << 20;
    for group in Group::ALL {
        let domain = Domain::new(rows, group).unwrap();
        for prg in [PrgKind::Aes128, PrgKind::ChaCha20] {
            let prg = Prg::new(prg, Platform::detect());
            let seeds = [[3; 16], [4; 16]];
            // The shallowest contrast: all path bits zero against all one.
            let mut index = 0;
            let t = leakage(
                4000,
                &mut index,
                |index, class| *index = u64::from(class) * (rows - 1),
                |index| {
                    black_box(KeyPair::from_seeds(prg, domain, *index, &seeds).ok());
                },
            );
            assert!(t < T_MAX, "{group:?}: |t| = {t}");
        }
    }
}

#[test]
fn the_answer_kernels_take_the_same_time_for_every_share() {
    let tile = vec![0xA5; BLOCK_GROUPS * 4 * UNIT_BYTES];
    let shares = [[0u8; 64], [0xFF; 64]];
    for platform in Platform::available() {
        let kernel = Kernel::new(platform);
        let mut state = (vec![0; 4 * UNIT_BYTES], [0; 64]);
        let t = leakage(
            4000,
            &mut state,
            |(_, secret), class| *secret = shares[usize::from(class)],
            |(sums, secret)| kernel.scan(&tile, &[], 4, secret, sums),
        );
        assert!(t < T_MAX, "{} scan: |t| = {t}", kernel.name());
        let operands = shares.map(|shares| {
            let mut operand = vec![0; kernel.operand_bytes()];
            kernel.pack(&[&shares; LANES], &mut operand);
            operand
        });
        let mut state = (vec![0; 4 * UNIT_BYTES], vec![0; kernel.operand_bytes()]);
        let t = leakage(
            4000,
            &mut state,
            |(_, secret), class| secret.copy_from_slice(&operands[usize::from(class)]),
            |(sums, secret)| kernel.multiply(&tile, &[], 4, secret, sums),
        );
        assert!(t < T_MAX, "{} multiply: |t| = {t}", kernel.name());
    }
}

#[test]
fn a_scan_that_skips_zero_shares_is_caught() {
    let tile = vec![0xA5u8; 64 * 1024];
    let t = leakage(
        4000,
        &mut false,
        |secret, class| *secret = class,
        |secret| {
            let mut sum = 0u8;
            for (row, group) in tile.chunks_exact(1024).enumerate() {
                // What Google's inner product does: rows whose bit is 0 are not read.
                if black_box(*secret) || row % 2 == 0 {
                    sum ^= group.iter().fold(0, |sum, byte| sum ^ black_box(*byte));
                }
            }
            black_box(sum);
        },
    );
    assert!(t > T_MAX, "the planted leak went unseen: |t| = {t}");
}
