//! What becomes of gradients: they, their weights, the rows, their state and the noise are secret.

use crate::secret::{SecretRng, secret};
use hushtable_oram::aggregate::{AggregateSpec, Batch, check_gradients, check_weights};
use hushtable_prg::valgrind::mark_public;

const SPECS: &str = r#"[
    { "name": "fed_avg" }, { "name": "fed_adam" }, { "name": "fed_adagrad" },
    { "name": "dp_fed_avg", "clip": 1, "noise_multiplier": 0.5, "users": 10 },
    { "name": "eana", "clip": 1, "clip_per": "user", "noise_multiplier": 0.5 },
    { "name": "lazy_dp", "clip": 1, "noise_multiplier": 0.5 }
]"#;
const DIM: usize = 16;
const ROWS: usize = 9;
/// The row that nobody sent, and the one whose sum is too large for a float.
const UNSENT: usize = 2;
const HUGE: usize = 5;

pub fn aggregates() {
    let specs: Vec<AggregateSpec> = serde_json::from_str(SPECS).expect("specs");
    let mut random = SecretRng::new(1);
    for spec in specs {
        let aggregate = spec.build().expect("an aggregate");
        let mut gradients = vec![0.5f32; ROWS * DIM];
        gradients[HUGE * DIM..][..DIM].fill(f32::MAX);
        let mut weights = vec![3.0f32; ROWS];
        weights[UNSENT] = 0.0;
        let (mut gradients, mut weights) = (secret(gradients), secret(weights));
        check_gradients(&gradients, DIM, ROWS).expect("finite numbers");
        check_weights(&weights, ROWS).expect("weights");
        aggregate.pre(&mut gradients, &mut weights).expect("sums");
        let mut rows = secret(vec![0.25f32; ROWS * DIM]);
        let mut state = secret(vec![0u8; ROWS * aggregate.state_bytes(DIM)]);
        let (sums, weights) = (&gradients[..], &weights[..]);
        let mut batch = |round: u32, rows: &mut [f32], state: &mut [u8], is_last: bool| {
            let noise = &mut random;
            let mut batch = Batch { dim: DIM, round, rows, state, sums, weights, noise };
            if is_last { aggregate.settle(&mut batch) } else { aggregate.post(&mut batch) }
        };
        batch(1, &mut rows, &mut state, false).expect("an update");
        let mut updated = rows.clone();
        mark_public(&mut updated);
        assert!(updated.iter().all(|value| value.is_finite()));
        let of = |row: usize| &updated[row * DIM..][..DIM];
        let has_noise = aggregate.owes_noise();
        assert!(of(UNSENT).iter().all(|value| (*value == 0.25) != has_noise));
        assert!(of(0).iter().all(|value| *value != 0.25));
        batch(2, &mut rows, &mut state, true).expect("what is owed");
        mark_public(&mut rows);
        assert_eq!(rows[UNSENT * DIM] != updated[UNSENT * DIM], has_noise);
    }
}
