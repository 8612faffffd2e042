//! Against plain loops.

use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

use super::{
    Aggregate, AggregateError, AggregateSpec, Batch, ClipPer, ClipSpec, GradientError, TERM_MAX,
    VALUE_MAX, WEIGHT_MAX, check_gradients, check_weights, saturate,
};
use crate::union::SLOTS_COUNT_MAX;

const DIM: usize = 5;

fn rng(seed: u8) -> ChaCha20Rng {
    ChaCha20Rng::from_seed([seed; 32])
}

/// Numbers of about -1 to 1 that look like nothing.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = move || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A row that some users ask for: each user's gradient and weight.
type Sent = Vec<(Vec<f32>, f32)>;

struct Table {
    rows: Vec<f32>,
    state: Vec<u8>,
    round: u32,
    rng: ChaCha20Rng,
}

impl Table {
    fn new(rows: usize, aggregate: &dyn Aggregate) -> Self {
        let state = vec![0; rows * aggregate.state_bytes(DIM)];
        Self { rows: numbers(rows * DIM, 77), state, round: 0, rng: rng(3) }
    }

    /// A round in which row i gets `sent[i]`; each user sends one slot of padding besides.
    fn round(&mut self, aggregate: &dyn Aggregate, sent: &[Sent]) {
        self.round += 1;
        let (mut sums, mut weights) = (vec![0.0; sent.len() * DIM], vec![0.0; sent.len()]);
        for (row, sent) in sent.iter().enumerate() {
            for (gradient, weight) in sent {
                let mut slots = [gradient.as_slice(), &[9.0; DIM]].concat();
                let mut slot_weights = [*weight, 0.0];
                aggregate.pre(&mut slots, &mut slot_weights).expect("pre");
                assert_eq!(slot_weights[1], 0.0);
                assert_eq!(slots[DIM..], [0.0; DIM], "padding adds nothing");
                weights[row] += slot_weights[0];
                for (sum, value) in sums[row * DIM..][..DIM].iter_mut().zip(&slots) {
                    *sum += value;
                }
            }
        }
        self.post(aggregate, &sums, &weights).expect("post");
    }

    fn post(
        &mut self,
        aggregate: &dyn Aggregate,
        sums: &[f32],
        weights: &[f32],
    ) -> Result<(), AggregateError> {
        aggregate.post(&mut self.batch(sums, weights))
    }

    fn batch<'a>(&'a mut self, sums: &'a [f32], weights: &'a [f32]) -> Batch<'a> {
        let Self { rows, state, round, rng } = self;
        Batch { dim: DIM, round: *round, rows, state, sums, weights, noise: rng }
    }
}

fn build(spec: AggregateSpec) -> Box<dyn Aggregate> {
    spec.build().expect("a good spec")
}

fn sent(rows: usize, round: u64) -> Vec<Sent> {
    let user = |row: u64, user: u64| {
        let weight = ((row + user + round) % 4 + 1) as f32;
        (numbers(DIM, 1 + row * 1009 + user * 31 + round), weight)
    };
    // Row 0 is a dummy.
    (0..rows as u64).map(|row| (0..row).map(|index| user(row, index)).collect()).collect()
}

fn mean(sent: &Sent, column: usize) -> f64 {
    let total: f64 = sent.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let sum: f64 = sent.iter().map(|(g, weight)| f64::from(g[column]) * f64::from(*weight)).sum();
    sum / total
}

#[track_caller]
fn assert_near(found: f32, expected: f64) {
    assert!((f64::from(found) - expected).abs() < 2e-5, "{found}, expected {expected}");
}

#[test]
fn fed_avg_is_equation_1() {
    let aggregate = build(AggregateSpec::FedAvg { learning_rate: 0.5 });
    let mut table = Table::new(6, &*aggregate);
    let mut expected: Vec<f64> = table.rows.iter().map(|&value| value.into()).collect();
    let dummy = table.rows[..DIM].to_vec();
    for round in 0..4 {
        let sent = sent(6, round);
        table.round(&*aggregate, &sent);
        for (row, sent) in sent.iter().enumerate().skip(1) {
            for column in 0..DIM {
                expected[row * DIM + column] -= 0.5 * mean(sent, column);
            }
        }
    }
    table.rows.iter().zip(expected).for_each(|(&found, expected)| assert_near(found, expected));
    assert_eq!(table.rows[..DIM], dummy, "to the bit");
}

#[test]
fn who_drops_out_counts_in_neither_sum_nor_weight() {
    let aggregate = build(AggregateSpec::default());
    let both = vec![(vec![1.0; DIM], 3.0), (vec![-1.0; DIM], 1.0)];
    for (sent, expected) in [(both.clone(), 0.5), (both[..1].to_vec(), 1.0), (vec![], 0.0)] {
        let mut table = Table::new(1, &*aggregate);
        let before = table.rows.clone();
        table.round(&*aggregate, &[sent]);
        for (&after, before) in table.rows.iter().zip(before) {
            assert_near(before - after, expected);
        }
    }
}

#[test]
fn fed_adam_follows_its_algorithm() {
    let (rate, beta1, beta2, tau) = (0.05, 0.9, 0.99, 1e-3);
    let spec = AggregateSpec::FedAdam { learning_rate: 0.05, beta1: 0.9, beta2: 0.99, tau: 1e-3 };
    let aggregate = build(spec);
    assert_eq!(aggregate.state_bytes(DIM), 8 * DIM);
    let mut table = Table::new(4, &*aggregate);
    let mut expected: Vec<f64> = table.rows.iter().map(|&value| value.into()).collect();
    let (mut m, mut v) = (vec![0.0; 4 * DIM], vec![0.0; 4 * DIM]);
    for round in 0..5 {
        let mut sent = sent(4, round);
        if round == 2 {
            sent[3].clear(); // the moments must stand still
        }
        table.round(&*aggregate, &sent);
        for (row, sent) in sent.iter().enumerate().filter(|(_, sent)| !sent.is_empty()) {
            for column in 0..DIM {
                let at = row * DIM + column;
                let x = mean(sent, column);
                m[at] = beta1 * m[at] + (1.0 - beta1) * x;
                v[at] = beta2 * v[at] + (1.0 - beta2) * x * x;
                expected[at] -= rate * m[at] / (v[at].sqrt() + tau);
            }
        }
    }
    table.rows.iter().zip(expected).for_each(|(&found, expected)| assert_near(found, expected));
    assert_eq!(table.state[..8 * DIM], [0; 8 * DIM]);
}

#[test]
fn fed_adagrad_follows_its_algorithm() {
    let aggregate = build(AggregateSpec::FedAdagrad { learning_rate: 0.1, tau: 1e-3 });
    assert_eq!(aggregate.state_bytes(DIM), 4 * DIM);
    let mut table = Table::new(3, &*aggregate);
    let mut expected: Vec<f64> = table.rows.iter().map(|&value| value.into()).collect();
    let mut v = [0.0; 3 * DIM];
    for round in 0..5 {
        let sent = sent(3, round);
        table.round(&*aggregate, &sent);
        for (row, sent) in sent.iter().enumerate().skip(1) {
            for column in 0..DIM {
                let at = row * DIM + column;
                let x = mean(sent, column);
                v[at] += x * x;
                expected[at] -= 0.1 * x / (v[at].sqrt() + 1e-3);
            }
        }
    }
    table.rows.iter().zip(expected).for_each(|(&found, expected)| assert_near(found, expected));
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn clipping_bounds_rows_or_users() {
    let spec = |clip_per| AggregateSpec::Eana {
        learning_rate: 1.0,
        clip: 0.75,
        clip_per,
        noise_multiplier: 0.0,
    };
    let sent = [vec![3.0, -4.0, 0.0], vec![0.1, 0.2, 0.2], vec![5.0, 5.0, 5.0]].concat();
    let (mut rows, mut weights) = (sent.clone(), [2.0, 7.0, 0.0]);
    build(spec(ClipPer::Row)).pre(&mut rows, &mut weights).expect("pre");
    assert_eq!(weights, [1.0, 1.0, 0.0]);
    assert!(norm(&rows[..3]) <= 0.75 && norm(&rows[..3]) > 0.7499);
    assert_near(rows[0] / rows[1], -0.75);
    rows[3..6].iter().zip(&sent[3..6]).for_each(|(&found, &sent)| assert_near(found, sent.into()));
    assert_eq!(rows[6..], [0.0; 3]);

    let (mut rows, mut weights) = (sent.clone(), [2.0, 7.0, 0.0]);
    build(spec(ClipPer::User)).pre(&mut rows, &mut weights).expect("pre");
    assert!(norm(&rows) <= 0.75 && norm(&rows) > 0.7499);
    assert_near(rows[4] / rows[0], f64::from(sent[4] / sent[0]));
    // Nothing, and something huge.
    for value in [0.0, 1e30, f32::MAX] {
        let mut rows = [value; 3];
        build(spec(ClipPer::Row)).pre(&mut rows, &mut [1.0]).expect("pre");
        assert!(rows.iter().all(|value| value.is_finite()) && norm(&rows) <= 0.75);
    }
}

#[test]
fn dp_fed_avg_divides_by_the_users_of_a_round() {
    let aggregate = build(AggregateSpec::DpFedAvg {
        learning_rate: 2.0,
        clip: 100.0,
        clip_per: ClipPer::Row,
        noise_multiplier: 0.0,
        users: 8.0,
    });
    let mut table = Table::new(3, &*aggregate);
    let before = table.rows.clone();
    let sent = sent(3, 0);
    table.round(&*aggregate, &sent);
    for (at, (&after, &before)) in table.rows.iter().zip(&before).enumerate() {
        let sum: f64 = sent[at / DIM].iter().map(|(g, _)| f64::from(g[at % DIM])).sum();
        assert_near(after, f64::from(before) - 2.0 * sum / 8.0);
    }
}

/// The variance of what is added to `rows` rows, over σ² C² η² / users².
fn variance(spec: AggregateSpec, unit: f64, rows: usize, rounds: &[u32], settles: bool) -> f64 {
    let aggregate = build(spec);
    let mut table = Table::new(rows, &*aggregate);
    table.rows.fill(0.0);
    for &round in rounds {
        table.rows.fill(0.0);
        table.round = round;
        let (sums, weights) = (vec![0.0; rows * DIM], vec![1.0; rows]);
        if settles {
            aggregate.settle(&mut table.batch(&[], &[])).expect("settle");
        } else {
            table.post(&*aggregate, &sums, &weights).expect("post");
        }
    }
    norm(&table.rows).powi(2) / (rows * DIM) as f64 / (unit * unit)
}

#[test]
fn noise_has_the_variance_of_the_rounds_since_the_last_update() {
    let rows = 8_000;
    let lazy = AggregateSpec::LazyDp {
        learning_rate: 0.5,
        clip: 3.0,
        clip_per: ClipPer::Row,
        noise_multiplier: 1.1,
        users: 4.0,
    };
    let unit = 0.5 * 3.0 * 1.1 / 4.0;
    let spread = 5.0 * (2.0 / (rows * DIM) as f64).sqrt();
    for (rounds, expected) in [(vec![1], 1.0), (vec![7], 7.0), (vec![2, 5], 3.0), (vec![4, 4], 0.0)]
    {
        for settles in [false, true] {
            let found = variance(lazy, unit, rows, &rounds, settles);
            assert!((found - expected).abs() <= expected * spread, "{found} after {rounds:?}");
        }
    }
    let eana = AggregateSpec::Eana {
        learning_rate: 1.0,
        clip: 2.0,
        clip_per: ClipPer::Row,
        noise_multiplier: 0.3,
    };
    let found = variance(eana, 0.6, rows, &[9], false);
    assert!((found - 1.0).abs() <= spread, "{found}");
    assert_eq!(variance(eana, 0.6, 10, &[9], true), 0.0, "nothing is owed");
}

/// The names by which the mechanism is asked for that gives every row noise.
fn private() -> [AggregateSpec; 2] {
    let text = r#"[{ "name": "dp_fed_avg", "clip": 1, "noise_multiplier": 1, "users": 1 },
        { "name": "lazy_dp", "clip": 1, "noise_multiplier": 1 }]"#;
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn noise_is_owed_whoever_sent_a_row() {
    for spec in private() {
        let aggregate = build(spec);
        assert!(aggregate.owes_noise());
        let mut table = Table::new(2, &*aggregate);
        let before = table.rows.clone();
        table.round = 6;
        table.post(&*aggregate, &[0.0; 2 * DIM], &[0.0, 1.0]).expect("post");
        assert_eq!(table.state, [6, 0, 0, 0, 6, 0, 0, 0]);
        assert!(table.rows.iter().zip(&before).all(|(after, before)| after != before));
        let settled = table.rows.clone();
        aggregate.settle(&mut table.batch(&[], &[])).expect("settle");
        assert_eq!(table.rows, settled, "nothing is owed twice");
        table.round = 7;
        aggregate.settle(&mut table.batch(&[], &[])).expect("settle");
        assert_eq!(table.state, [7, 0, 0, 0, 7, 0, 0, 0]);
        assert!(table.rows.iter().zip(&settled).all(|(after, before)| after != before));
    }
}

#[test]
fn rows_settle_the_same_in_one_batch_and_one_by_one() {
    for spec in private() {
        let aggregate = build(spec);
        let mut together = Table::new(7, &*aggregate);
        let mut apart = Table::new(7, &*aggregate);
        (together.round, apart.round) = (3, 3);
        aggregate.settle(&mut together.batch(&[], &[])).expect("settle");
        let Table { rows, state, rng: noise, .. } = &mut apart;
        for (rows, state) in rows.chunks_exact_mut(DIM).zip(state.chunks_exact_mut(4)) {
            let (sums, weights) = (&[][..], &[][..]);
            let mut batch = Batch { dim: DIM, round: 3, rows, state, sums, weights, noise };
            aggregate.settle(&mut batch).expect("settle");
        }
        assert_eq!((together.rows, together.state), (apart.rows, apart.state));
    }
}

/// Noise is drawn for rows without a weight as well: the generator is as far afterwards.
#[test]
fn as_much_is_drawn_whatever_the_weights() {
    for spec in all() {
        let aggregate = build(spec);
        let after = [[0.0, 0.0], [1.0, 0.0], [2.0, 3.0]].map(|weights| {
            let mut table = Table::new(2, &*aggregate);
            table.post(&*aggregate, &[0.5; 2 * DIM], &weights).expect("post");
            table.rng.get_word_pos()
        });
        assert_eq!(after, [after[0]; 3], "{spec:?}");
    }
}

fn all() -> Vec<AggregateSpec> {
    let text = r#"[{ "name": "fed_avg" }, { "name": "fed_adam" }, { "name": "fed_adagrad" },
        { "name": "dp_fed_avg", "clip": 1, "noise_multiplier": 0.5, "users": 10 },
        { "name": "eana", "clip": 1, "clip_per": "user", "noise_multiplier": 0.5 },
        { "name": "lazy_dp", "clip": 1, "noise_multiplier": 0.5 }]"#;
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn specs_are_read_by_name() {
    let names = ["fed_avg", "fed_adam", "fed_adagrad", "dp_fed_avg", "eana", "lazy_dp"];
    for (spec, name) in all().into_iter().zip(names) {
        assert_eq!(build(spec).name(), name);
        let json = serde_json::to_string(&spec).expect("JSON");
        assert_eq!(serde_json::from_str::<AggregateSpec>(&json).expect("JSON"), spec);
    }
    let toml = "name = 'fed_adam'\nbeta1 = 0.5";
    let read: AggregateSpec = toml::from_str(toml).expect("TOML");
    assert!(matches!(read, AggregateSpec::FedAdam { beta1: 0.5, beta2: 0.99, .. }), "{read:?}");
    for bad in [
        r#"{ "name": "fed_sgd" }"#,
        r#"{ "name": "fed_avg", "rate": 1 }"#,
        r#"{ "name": "dp_fed_avg", "clip": 1 }"#,
    ] {
        serde_json::from_str::<AggregateSpec>(bad).expect_err(bad);
    }
}

#[test]
fn refuses_settings_that_cannot_be() {
    for (json, setting) in [
        (r#"{ "name": "fed_avg", "learning_rate": 0 }"#, "learning_rate"),
        (r#"{ "name": "fed_adam", "beta2": 1.0 }"#, "beta2"),
        (r#"{ "name": "fed_adagrad", "tau": -1 }"#, "tau"),
        (r#"{ "name": "eana", "clip": 0, "noise_multiplier": 1 }"#, "clip"),
        (r#"{ "name": "eana", "clip": 4.3e9, "noise_multiplier": 1 }"#, "clip"),
        (r#"{ "name": "lazy_dp", "clip": 3e38, "noise_multiplier": 1 }"#, "clip"),
        (r#"{ "name": "lazy_dp", "clip": 1, "noise_multiplier": -1 }"#, "noise_multiplier"),
        (r#"{ "name": "dp_fed_avg", "clip": 1, "noise_multiplier": 1, "users": 0 }"#, "users"),
    ] {
        let spec: AggregateSpec = serde_json::from_str(json).expect("JSON");
        let error = spec.build().expect_err(json);
        assert!(matches!(&error, AggregateError::Setting { setting: s, .. } if *s == setting));
        assert!(error.to_string().contains(setting), "{error}");
    }
    let nan = AggregateSpec::FedAvg { learning_rate: f32::NAN };
    assert!(matches!(nan.build(), Err(AggregateError::Setting { .. })));
}

#[test]
fn an_update_that_overflows_leaves_the_row_as_it_was() {
    for spec in all() {
        let aggregate = build(spec);
        let mut table = Table::new(2, &*aggregate);
        table.round = 1;
        let before = (table.rows.clone(), table.state.clone());
        let mut sums = [1.0; 2 * DIM];
        sums[0] = f32::INFINITY;
        table.post(&*aggregate, &sums, &[1.0, 1.0]).expect("post");
        assert_eq!(table.rows[..DIM], before.0[..DIM], "{spec:?}");
        let state_bytes = aggregate.state_bytes(DIM);
        assert_eq!(table.state[..state_bytes], before.1[..state_bytes], "{spec:?}");
        assert_ne!(table.rows[DIM..], before.0[DIM..], "{spec:?}: the other row is unharmed");
    }
}

/// The bound that `clip.rs` works out, in numbers: as many terms as a round can have, each as large as
/// any can be.
#[test]
fn extremes_stay_finite() {
    for sign in [1.0, -1.0] {
        let (mut sum, mut weight) = (0.0_f32, 0.0_f32);
        for _ in 0..SLOTS_COUNT_MAX {
            sum += sign * TERM_MAX;
            weight += WEIGHT_MAX;
        }
        assert!(sum.abs() <= 2.0_f32.powi(78) && weight <= 2.0_f32.powi(46), "{sum}, {weight}");
        // Of as little weight as can be, the mean is as large as can be.
        for (sum, weight) in [(sum, weight), (sum / weight * 1e-45, 1e-45), (sign * TERM_MAX, 1.0)]
        {
            for spec in all() {
                let aggregate = build(spec);
                let mut table = Table::new(1, &*aggregate);
                for round in 0..100 {
                    table.round += 1;
                    let before = (table.rows.clone(), table.state.clone());
                    table.post(&*aggregate, &[sum; DIM], &[weight]).expect("post");
                    assert!(table.rows.iter().all(|value| value.is_finite()), "{spec:?}");
                    // Not frozen: a row whose update is not finite is left as it was.
                    let is_updated = table.rows != before.0 || table.state != before.1;
                    assert!(is_updated, "{spec:?}, round {round}: {sum} of {weight}");
                }
            }
        }
    }
    // What squares come to in all the rounds that can be counted.
    let mean = 2.0 * VALUE_MAX;
    assert!((mean * mean * 2.0_f32.powi(32)).is_finite());
}

#[test]
fn clips_hold_and_leave_what_is_within() {
    let clip = ClipSpec { norm: 5.0, value: 3.0, weight: 7.0 };
    clip.check().expect("a clip");
    for (weight, expected) in [(0.0, 0.0), (6.5, 6.5), (7.0, 7.0), (7.1, 7.0), (WEIGHT_MAX, 7.0)] {
        assert_eq!(clip.weight(weight), expected);
    }
    let apply = |mut gradients: Vec<f32>, weights: &[f32]| {
        clip.apply(&mut gradients, weights).expect("a clip");
        gradients
    };
    assert_eq!(apply(vec![3.0, -2.5, 0.0, 2.0], &[1.0, 4.0]), [3.0, -2.5, 0.0, 2.0]);
    assert_eq!(apply(vec![3.5, -1e30, 9.0, f32::MAX], &[1.0, 0.0]), [3.0, -3.0, 0.0, 0.0]);
    let long = apply(vec![f32::MAX; 8], &[1.0; 4]);
    assert!(norm(&long) <= 5.0 && norm(&long) > 4.9999, "{long:?}");
    assert_eq!(apply(vec![0.0; 4], &[1.0, 1.0]), [0.0; 4]);
    assert_eq!(apply(vec![1e-45, -0.0], &[1.0]), [1e-45, 0.0]);
    apply(vec![], &[]);
    let mut values = [1.0, -8.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0];
    saturate(&mut values, 8.0);
    assert_eq!(values, [1.0, -8.0, 8.0, -8.0, 8.0, 0.0]);
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    for spec in all() {
        let aggregate = build(spec);
        let mut table = Table::new(2, &*aggregate);
        for (sums, weights, part) in [(9, 2, "sums"), (10, 1, "weights"), (10, 3, "weights")] {
            let error = table.post(&*aggregate, &vec![0.0; sums], &vec![0.0; weights]);
            assert!(
                matches!(error, Err(AggregateError::Shape { part: p, .. }) if p == part),
                "{error:?}"
            );
        }
        table.state.push(0);
        let error = table.post(&*aggregate, &[0.0; 10], &[0.0; 2]).expect_err("a long state");
        assert!(error.to_string().starts_with("the batch's state has"), "{error}");
        let mut batch = Batch { dim: 0, ..table.batch(&[], &[]) };
        let error = aggregate.post(&mut batch).expect_err("no dim");
        assert!(matches!(error, AggregateError::Shape { part: "dim", .. }));
        aggregate.pre(&mut [0.0; 7], &mut [1.0; 2]).expect_err("7 numbers of 2 rows");
        aggregate.pre(&mut [0.0; 7], &mut []).expect_err("7 numbers of no rows");
        aggregate.pre(&mut [], &mut []).expect("no rows are no error");
    }
}

#[test]
fn gradients_are_checked() {
    assert_eq!(check_gradients(&[1.0; 6], 3, 2), Ok(()));
    assert_eq!(check_gradients(&[], 3, 0), Ok(()));
    let error = check_gradients(&[1.0; 5], 3, 2).expect_err("too short");
    assert_eq!(error, GradientError::Length { found: 5, expected: 6, rows: 2, dim: 3 });
    for (value, kind) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "infinite")] {
        let gradients = [1.0, 1.0, 1.0, 1.0, value, f32::NAN];
        let error = check_gradients(&gradients, 3, 2).expect_err("not finite");
        assert_eq!(error, GradientError::NotFinite { row: 1, column: 1, kind });
    }
    assert_eq!(check_weights(&[0.0, 1.0, 1e6], 3), Ok(()));
    assert!(matches!(check_weights(&[1.0], 2), Err(GradientError::Weights { .. })));
    for weight in [-1.0, f32::NAN, f32::INFINITY, 1e9] {
        let error = check_weights(&[1.0, weight], 2).expect_err("a bad weight");
        assert!(matches!(error, GradientError::Weight { row: 1, .. }));
        assert!(error.to_string().contains(&format!("is {weight}:")), "{error}");
    }
}
