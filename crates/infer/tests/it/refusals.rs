//! What bad input gets.

use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::planner::Bootstraps;
use hushtable_infer::dlrm::reference::forward;
use hushtable_infer::dlrm::simulate::{Mode, predict};
use hushtable_infer::dlrm::spec::{Activation, DlrmSpec, Interaction};
use hushtable_infer::dlrm::{
    Client, Dlrm, Engine, Error, Goal, Plan, TERMS_BYTES_MAX, Terms, Weights, plan,
};
use hushtable_rlwe::ckks;
use hushtable_rlwe::ring::Platform;
use proptest::prelude::*;

use crate::models::{features, model, spec, tensors};

fn engine(seed: u64) -> (Dlrm, Engine) {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Concat), seed);
    let plan = plan(&dlrm, &weights, Goal::default(), &CostTable::shipped().unwrap()).unwrap();
    let engine = Engine::new(&plan, &weights, Platform::detect()).unwrap();
    (dlrm, engine)
}

#[test]
fn weights_name_the_tensor_and_the_shapes() {
    let dlrm = Dlrm::new(spec(Activation::Square, Interaction::Concat)).unwrap();
    let good = tensors(&dlrm, 1, 2);
    let mut missing = good.clone();
    missing.remove("emb_l.1.weight");
    match Weights::new(&dlrm, missing).unwrap_err() {
        Error::MissingTensor { name, expected } => {
            assert_eq!((name.as_str(), expected), ("emb_l.1.weight", vec![20, 4]));
        }
        other => panic!("{other}"),
    }
    let mut turned = good.clone();
    turned.get_mut("top_l.0.weight").unwrap().shape = vec![16, 7];
    match Weights::new(&dlrm, turned).unwrap_err() {
        Error::TensorShape { name, expected, found } => {
            assert_eq!(
                (name.as_str(), expected, found),
                ("top_l.0.weight", vec![7, 16], vec![16, 7])
            );
        }
        other => panic!("{other}"),
    }
    let mut broken = good;
    broken.get_mut("bot_l.0.bias").unwrap().values[2] = f32::NAN;
    let error = Weights::new(&dlrm, broken).unwrap_err();
    assert!(matches!(error, Error::TensorValue { index: 2, .. }), "{error}");
    // The last of two would be taken, however its name is written.
    for again in ["w", r"\u0077"] {
        let one = r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
        let header = format!(r#"{{"w":{one},"{again}":{one}}}"#);
        let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 4]].concat();
        let error = Weights::from_safetensors(&dlrm, &file).unwrap_err();
        assert!(matches!(&error, Error::RepeatedTensor { name } if name == "w"), "{error}");
    }
    let error = Weights::from_safetensors(&dlrm, b"no file").unwrap_err();
    assert!(matches!(error, Error::Safetensors(_)), "{error}");
}

#[test]
fn features_out_of_bounds_are_refused() {
    let (dlrm, engine) = engine(1);
    let client = Client::new(engine.terms().clone()).unwrap();
    let (dense, indices) = features(&dlrm, 1, 1);
    let query = |dense: &[f32], indices: &[u64]| client.query(dense, indices).unwrap_err();
    let outside = query(&dense, &[0, 1000, 0]);
    assert!(matches!(&outside, Error::Index { feature, rows: 1000, .. } if feature == "town"));
    let nan = query(&[0.0, f32::NAN, 0.0], &indices);
    assert!(matches!(nan, Error::Feature { index: 1, user: 0, .. }), "{nan}");
    assert!(matches!(query(&[0.0, 1e9, 0.0], &indices), Error::Feature { .. }));
    assert!(matches!(query(&dense[..2], &indices), Error::Users { found: 0, .. }));
    assert!(matches!(query(&[0.0; 4], &indices), Error::Count { expected: 3, found: 4, .. }));
    assert!(matches!(query(&dense, &indices[..2]), Error::Count { what: "indices", .. }));
    assert!(matches!(query(&[0.0; 6], &[0; 6]), Error::Users { found: 2, users_max: 1 }));
}

#[test]
fn a_feature_that_the_plan_cannot_hold_is_refused_and_one_that_it_can_comes_back() {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Concat), 1);
    let plan = plan(&dlrm, &weights, Goal::default(), &CostTable::shipped().unwrap()).unwrap();
    assert_eq!(Plan::parse(&plan.to_json()).unwrap(), plan);
    let engine = Engine::new(&plan, &weights, Platform::detect()).unwrap();
    let client = Client::new(engine.terms().clone()).unwrap();
    let keys = engine.keys(&client.keys().collect::<Vec<_>>().concat()).unwrap();
    let ends = client.terms().dense_max();
    assert_eq!(ends.len(), 3);
    assert!(ends.iter().any(|&end| end < 200.0), "{ends:?}");
    let (_, indices) = features(&dlrm, 1, 1);
    let logit = |dense: &[f32]| {
        let dense: Vec<f64> = dense.iter().map(|&value| f64::from(value)).collect();
        forward(&dlrm, &weights, &dense, &indices).unwrap().logit
    };
    for (at, &end) in ends.iter().enumerate() {
        let mut dense = [0.0; 3];
        dense[at] = end;
        let answer = engine.answer(&keys, &client.query(&dense, &indices).unwrap()).unwrap();
        let (found, expected) = (client.open(&answer).unwrap()[0], logit(&dense));
        assert!((found - expected).abs() < 0.25, "{at}: {found}, {expected}");
        dense[at] = -2.0 * end;
        if end < 256.0 {
            assert!(logit(&dense).abs() > 256.0, "{at}: {end} is too little");
        }
        let refused = client.query(&dense, &indices).unwrap_err();
        assert!(
            matches!(refused, Error::Feature { user: 0, index, max, .. } if (index, max) == (at, end)),
            "{refused}"
        );
    }
}

#[test]
fn keys_and_queries_of_another_plan_are_refused() {
    let (dlrm, own) = engine(1);
    let mut other = spec(Activation::Square, Interaction::Concat);
    other.threshold = 4;
    let (_, weights) = model(other.clone(), 1);
    let made =
        plan(&Dlrm::new(other).unwrap(), &weights, Goal::default(), &CostTable::shipped().unwrap());
    let other = Engine::new(&made.unwrap(), &weights, Platform::detect()).unwrap();
    let client = Client::new(own.terms().clone()).unwrap();
    let uploaded = client.keys().collect::<Vec<_>>().concat();
    let (dense, indices) = features(&dlrm, 1, 1);
    let query = client.query(&dense, &indices).unwrap();
    let keys = own.keys(&uploaded).unwrap();
    let named = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[..32].copy_from_slice(&other.terms().plan());
        bytes
    };
    assert!(matches!(own.keys(&named(&uploaded)), Err(Error::OtherPlan { what: "keys", .. })));
    assert!(matches!(
        own.answer(&keys, &named(&query)),
        Err(Error::OtherPlan { what: "query", .. })
    ));
    assert!(matches!(own.keys(&uploaded[1..]), Err(Error::Bytes { what: "keys", .. })));
    assert!(matches!(own.answer(&keys, &query[1..]), Err(Error::Bytes { what: "query", .. })));
    let answer = own.answer(&keys, &query).unwrap();
    assert!(matches!(client.open(&answer[1..]), Err(Error::Bytes { what: "answer", .. })));
    assert!(matches!(client.open(&named(&answer)), Err(Error::OtherPlan { .. })));
}

#[test]
fn ciphertexts_of_another_level_or_scale_are_refused() {
    let (dlrm, engine) = engine(1);
    let client = Client::new(engine.terms().clone()).unwrap();
    let keys = engine.keys(&client.keys().collect::<Vec<_>>().concat()).unwrap();
    let (dense, indices) = features(&dlrm, 1, 1);
    let query = client.query(&dense, &indices).unwrap();
    // The first ciphertext's header follows the plan: format, kind, level, zeros, scale.
    let mut scaled = query.clone();
    scaled[32 + 8 + 6] ^= 0x10;
    let refused = engine.answer(&keys, &scaled).unwrap_err();
    assert!(matches!(refused, Error::Ckks(ckks::Error::Scale { .. })), "{refused}");
    let mut lower = query;
    lower[32 + 2] -= 1;
    assert!(matches!(engine.answer(&keys, &lower), Err(Error::Ckks(_))));
}

#[test]
fn a_model_that_is_too_deep_says_what_to_change() {
    let own = DlrmSpec {
        bottom: vec![16, 16, 16, 4],
        top: vec![16, 16, 1],
        ..spec(Activation::Relu, Interaction::Concat)
    };
    let (dlrm, weights) = model(own.clone(), 1);
    let refused = plan(&dlrm, &weights, Goal::default(), &CostTable::shipped().unwrap());
    // With bootstraps alone: where they are not allowed, it says what to change.
    assert!(refused.unwrap().bootstraps() > 0);
    let never = Goal { bootstraps: Bootstraps::Never, ..Goal::default() };
    let refused = plan(&dlrm, &weights, never, &CostTable::shipped().unwrap());
    match refused.unwrap_err() {
        Error::Depth { levels, levels_max, advice, .. } => {
            assert!(levels > levels_max && levels_max > 20, "{levels} {levels_max}");
            assert!(advice.contains("SiLU") && advice.contains("relu_degree"), "{advice}");
        }
        other => panic!("{other}"),
    }
    // By one polynomial the same layers fit.
    let (dlrm, weights) = model(DlrmSpec { relu_degree: Some(63), ..own }, 1);
    let made = plan(&dlrm, &weights, Goal::default(), &CostTable::shipped().unwrap()).unwrap();
    assert_eq!(made.parameters.moduli.len() - 1, 36);
}

#[test]
fn an_activation_without_a_range_is_refused() {
    let dlrm = Dlrm::new(spec(Activation::Silu, Interaction::Concat)).unwrap();
    let mut own = tensors(&dlrm, 1, 2);
    own.remove("bot_a.0.range");
    let weights = Weights::new(&dlrm, own).unwrap();
    let refused = plan(&dlrm, &weights, Goal::default(), &CostTable::shipped().unwrap());
    assert!(refused.unwrap_err().to_string().contains("bottom 0"));
    // A polynomial in ReLU's place is one of its range.
    let own = spec(Activation::Relu, Interaction::Concat);
    let dlrm = Dlrm::new(DlrmSpec { relu_degree: Some(31), ..own }).unwrap();
    let mut own = tensors(&dlrm, 1, 2);
    own.remove("top_a.0.range");
    let refused = Weights::new(&dlrm, own).unwrap_err();
    assert!(matches!(refused, Error::MissingTensor { name, .. } if name == "top_a.0.range"));
}

#[test]
fn an_activation_that_leaves_its_range_is_named() {
    let dlrm = Dlrm::new(spec(Activation::Square, Interaction::Concat)).unwrap();
    let mut own = tensors(&dlrm, 1, 2);
    own.get_mut("top_l.0.bias").unwrap().values[3] = 9.0;
    let weights = Weights::new(&dlrm, own).unwrap();
    let made = plan(&dlrm, &weights, Goal::default(), &CostTable::shipped().unwrap()).unwrap();
    let (dense, indices) = features(&dlrm, 1, 1);
    for mode in [Mode::Clear, Mode::Simulate([1; 32])] {
        let platform = Platform::detect();
        let refused = predict(&made, &weights, platform, mode, &dense, &indices).unwrap_err();
        match refused {
            Error::Range { layer, value, limit } => {
                assert!(layer.contains("top 0") && value > 4.0 && limit == 4.0, "{layer} {value}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn terms_that_no_client_accepts_are_refused() {
    let (_, engine) = engine(1);
    let good = String::from_utf8(engine.terms().to_bytes()).unwrap();
    let platform = Platform::detect();
    let parse = |text: &str| Terms::parse(text.as_bytes(), platform);
    assert_eq!(parse(&good).unwrap().plan(), engine.terms().plan());
    let refused = |from: &str, to: &str| {
        assert!(good.contains(from), "{from} is not in {good}");
        assert!(parse(&good.replacen(from, to, 1)).is_err(), "{to} was accepted");
    };
    refused("\"format\":1", "\"format\":4");
    refused("\"users\":1", "\"users\":3");
    refused("\"users\":1", "\"users\":65536");
    refused("\"dense\":3", "\"dense\":0");
    refused("\"base\":4", "\"base\":1");
    refused("\"rows\":1000", "\"rows\":0");
    refused("\"threshold\":8", "\"threshold\":18446744073709551615");
    refused("\"ciphertexts\":1", "\"ciphertexts\":0");
    refused("\"rotations\":[[", "\"rotations\":[[7,1],[7,1],[");
    refused("\"rotations\":[[", "\"rotations\":[[0,1],[");
    refused("\"name\":\"ckks", "\"leak\":1,\"name\":\"ckks");
    refused(&engine.plan().parameters.name, "toy_paper");
    // A smaller ring under the same primes is not secure.
    let degree = engine.plan().parameters.degree;
    refused(&format!("\"degree\":{degree}"), &format!("\"degree\":{}", degree / 2));
    assert!(parse(&" ".repeat(TERMS_BYTES_MAX + 1)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn terms_of_any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Terms::parse(&bytes, Platform::detect());
    }
}
