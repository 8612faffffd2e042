//! Dudect-style checks (Reparaz, Balasch, Verbauwhede, DATE 2017): is time independent of secrets?
//!
//! Two classes of inputs, drawn at random, are timed one by one; Welch's t over the times, without
//! the slowest tenth, must stay small. On a shared machine one run may be disturbed, so a check
//! fails only if three fail, and each should have a planted leak that must be seen. For the tests of
//! the crates above.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Dudect's bound for "leaks beyond doubt" is 10 on |t|; 4.5 already is suspicious.
pub const T_MAX: f64 = 10.0;

/// |t| between the two classes' times of `run`, the least of three rounds of `samples` each.
///
/// `class` draws a class. `prepare` puts its secret where `run` finds it, untimed: both classes at
/// one address, or the caches would tell addresses apart instead of secrets.
pub fn leakage<S>(
    samples: usize,
    state: &mut S,
    mut class: impl FnMut() -> bool,
    prepare: impl Fn(&mut S, bool),
    run: impl Fn(&mut S),
) -> f64 {
    // One check at a time: two would time each other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut round = || {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..samples {
            let class = class();
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
