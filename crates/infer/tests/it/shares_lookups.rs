//! From indices to a logit: what left and right answer to lookup keys is what they go on with.

use std::sync::Arc;

use hushtable_infer::dlrm::reference::forward;
use hushtable_infer::dlrm::spec::{ABSENT, Interaction};
use hushtable_infer::dlrm::{Dlrm, DlrmSpec, Weights};
use hushtable_infer::shares::bench::described;
use hushtable_infer::shares::price::{Model, features};
use hushtable_infer::shares::{Session, client};
use hushtable_pir::dpf::{Domain, Group, Key, KeyPair};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Platform, Prg, PrgKind, TableShape};
use hushtable_table::model::{self as bundle, Feature, Pooling};
use hushtable_table::{DType, Table};

#[test]
fn a_logit_comes_out_of_lookup_keys_and_dealt_shares_alone() {
    let model = Model::criteo(700, 12, 5).unwrap();
    for user in 0..5 {
        let (dense, indices) = features(&model.dlrm, user);
        predict(&model, &dense, &indices);
    }
    assert_eq!(Arc::strong_count(&model.network), 1, "nothing of a session is kept");
}

#[test]
fn a_short_history_is_looked_up_like_a_full_one() {
    // The last one's table has a row for each digit's value.
    let features = [("age", 9, 1), ("seen", 256, 20), ("bought", 900, 3)];
    let spec = DlrmSpec {
        interaction: Interaction::Dot,
        bottom_activates_last: false,
        threshold: 500,
        ..described(4, &[32, 8], &[32, 1], &features)
    };
    let model = Model::synthetic(spec, 12, 8, 5).unwrap();
    let (dense, full) = (vec![0.5; 4], (0..24).map(|id| id % 9).collect::<Vec<u64>>());
    let mut short = full.clone();
    short[4..21].fill(ABSENT);
    let mut none = full.clone();
    none[1..].fill(ABSENT);
    let bytes = [full, short, none].map(|indices| predict(&model, &dense, &indices));
    assert_eq!(bytes, [bytes[0]; 3]);
}

#[test]
fn a_bundle_that_means_another_pooling_is_no_history_s() {
    let features = [("age", 9, 1), ("seen", 20, 3)];
    let dlrm = Dlrm::new(described(4, &[8, 4], &[8, 1], &features)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tables = features.map(|(name, rows, _)| {
        let values = vec![0.5; rows as usize * 4];
        (name, Table::from_weight(name, rows, 4, DType::F32, &values).unwrap())
    });
    let tables = tables.each_ref().map(|(name, table)| (*name, table));
    let refused = |poolings: [Pooling; 2]| {
        let features = [0, 1].map(|table| Feature {
            name: features[table].0.to_owned(),
            table,
            pooling: poolings[table],
            max_ids: features[table].2,
        });
        let out = folder.path().join("clicks");
        bundle::write(&out, "clicks", &tables, &features, None).unwrap();
        Weights::from_bundle(&dlrm, &bundle::Model::open(&out).unwrap()).unwrap_err().to_string()
    };
    let text = refused([Pooling::Sum, Pooling::Mean]);
    assert!(text.contains("\"seen\"") && text.contains("mean"), "{text}");
    // What else is missing is said where sums are meant, and one id is its own mean.
    let text = refused([Pooling::Mean, Pooling::Sum]);
    assert!(!text.contains("mean"), "{text}");
}

/// A prediction, held against the float model's; bytes of the keys and of each server's answers.
fn predict(model: &Model, dense: &[f64], indices: &[u64]) -> [usize; 2] {
    let tables = model.network.tables();
    let engines = tables.iter().map(|table| {
        let shape = TableShape::new(table.rows() as u64, table.row_bytes()).unwrap();
        CpuEngine::from_rows(shape, &table.bytes, &EngineSpec::default()).unwrap()
    });
    let engines: Vec<CpuEngine> = engines.collect();
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let outline = model.network.outline();
    // The client.
    let places = model.dlrm.places(indices).unwrap();
    let (mut lefts, mut rights) = (Vec::new(), Vec::new());
    for (feature, (table, places)) in tables.iter().zip(places).enumerate() {
        let domain = Domain::new(table.rows() as u64, Group::Bits).unwrap();
        for place in places {
            let KeyPair { left, right } = KeyPair::generate(prg, domain, place as u64).unwrap();
            lefts.push((feature, left));
            rights.push((feature, right));
        }
    }
    let dealt = client::deal(outline, dense).unwrap();
    let keys = lefts.iter().map(|(_, key)| key.to_bytes().len()).sum();
    // The servers: each looks up what its keys say, and keeps the answers.
    let answers = |keys: Vec<(usize, Key)>| {
        let answers = keys.into_iter().map(|(feature, key)| {
            let mut answer = vec![0; engines[feature].shape().row_bytes()];
            engines[feature].answer(&[key], &mut answer).unwrap();
            answer
        });
        answers.collect::<Vec<_>>().concat()
    };
    let (left, right) = (answers(lefts), answers(rights));
    assert!(left != right, "shares, not rows");
    let mut session = Session::start(&model.network, &dealt, [&left, &right]).unwrap();
    let [share, other] = session.finish().unwrap();
    // The client.
    let found = client::open(outline, &share, &other).unwrap();
    let float = forward(&model.dlrm, &model.weights, dense, indices).unwrap().logit;
    assert!((found - float).abs() <= 1.0 / 256.0, "{found} and {float}");
    [keys, left.len()]
}
