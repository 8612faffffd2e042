//! Client and engine, in bytes.

use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::spec::{Activation, DlrmSpec, Interaction};
use hushtable_infer::dlrm::{
    Client, Dlrm, Engine, Goal, KEY_CHUNK_BYTES, Terms, Weights, plan, shareable,
};
use hushtable_rlwe::largest;
use hushtable_rlwe::ring::Platform;

use crate::models::{features, logits, model, spec};

/// The largest error of a logit, of as many users as a ciphertext has (at most 5).
fn error(dlrm: &Dlrm, weights: &Weights, goal: Goal, map_bytes_max: usize) -> f64 {
    let plan = plan(dlrm, weights, goal, &CostTable::shipped().unwrap()).unwrap();
    let platform = Platform::detect();
    let engine = Engine::with_memory(&plan, weights, platform, map_bytes_max).unwrap();
    let announced = engine.terms().to_bytes();
    let client = Client::new(Terms::parse(&announced, platform).unwrap()).unwrap();
    assert!(client.keys().all(|piece| piece.len() <= KEY_CHUNK_BYTES));
    let uploaded = client.keys().collect::<Vec<_>>().concat();
    assert_eq!(uploaded.len(), client.terms().key_bytes().unwrap());
    assert_eq!(*blake3::hash(&uploaded).as_bytes(), client.key_id());
    let keys = engine.keys(&uploaded).unwrap();
    let count = plan.users.min(5);
    let (dense, indices) = features(dlrm, count, 3);
    let query = client.query(&dense, &indices).unwrap();
    assert_eq!(query.len(), client.terms().query_bytes());
    let answer = engine.answer(&keys, &query).unwrap();
    assert_eq!(answer.len(), client.terms().answer_bytes());
    let found = client.open(&answer).unwrap();
    assert_eq!(found.len(), plan.users);
    let expected = logits(dlrm, weights, &dense, &indices);
    largest(found.iter().zip(&expected).map(|(x, y)| x - y))
}

const ERROR_MAX: f64 = 1.0 / 1024.0;

#[test]
fn squares_by_concatenation() {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Concat), 1);
    for users in [1, 8] {
        let goal = Goal { users, ..Goal::default() };
        let found = error(&dlrm, &weights, goal, usize::MAX);
        assert!(found <= ERROR_MAX, "{users} users: {found}");
    }
}

#[test]
fn squares_by_dot_products() {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Dot), 1);
    let goal = Goal { users: 2, ..Goal::default() };
    let found = error(&dlrm, &weights, goal, usize::MAX);
    assert!(found <= ERROR_MAX, "{found}");
}

#[test]
fn polynomials_and_maps_made_at_each_use() {
    let own = DlrmSpec {
        bottom_activates_last: true,
        ..spec(Activation::Polynomial, Interaction::Concat)
    };
    let (dlrm, weights) = model(own, 1);
    let found = error(&dlrm, &weights, Goal::default(), 0);
    assert!(found <= ERROR_MAX, "{found}");
}

#[test]
fn silu() {
    let own = DlrmSpec { bottom: vec![4], ..spec(Activation::Silu, Interaction::Concat) };
    let (dlrm, weights) = model(own, 1);
    let found = error(&dlrm, &weights, Goal::default(), usize::MAX);
    assert!(found <= ERROR_MAX, "{found}");
}

#[test]
fn relu_s_one_polynomial() {
    let own = DlrmSpec {
        bottom: vec![4],
        relu_degree: Some(63),
        ..spec(Activation::Relu, Interaction::Concat)
    };
    let (dlrm, weights) = model(own, 1);
    let found = error(&dlrm, &weights, Goal::default(), usize::MAX);
    assert!(found <= ERROR_MAX, "{found}");
}

#[test]
fn what_is_shared_is_rounded() {
    for logit in [-3.3, 0.0, 0.7] {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..64 {
            let shared = shareable(logit).unwrap();
            assert_eq!(shared * 64.0, (shared * 64.0).round());
            assert!((shared - logit).abs() <= 1.0 / 64.0 + 1e-12);
            seen.insert((shared * 64.0) as i64);
        }
        assert!(seen.len() <= 2);
    }
}
