//! Which table of a bundle is whose: by name, never by place.

use std::path::{Path, PathBuf};

use hushtable_infer::dlrm::spec::{Activation, DlrmSpec, FeatureSpec, Interaction};
use hushtable_infer::dlrm::weights::{Tensor, Tensors};
use hushtable_infer::dlrm::{Dlrm, Error, Weights};
use hushtable_table::Checkpoint;
use hushtable_table::model::{BuildSpec, Model, build};

use crate::models::{spec, tensors};

/// A bundle of these tensors, and the bytes of the file that it was built from.
fn bundle(folder: &Path, tensors: &Tensors) -> (PathBuf, Vec<u8>) {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, Tensor { shape, values })| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            (name.clone(), shape.clone(), bytes)
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        let kind = safetensors::Dtype::F32;
        (name, safetensors::tensor::TensorView::new(kind, shape.clone(), bytes).unwrap())
    });
    let file = safetensors::serialize(views, None).unwrap();
    let path = folder.join("model.safetensors");
    std::fs::write(&path, &file).unwrap();
    let out = folder.join("bundle");
    let named = BuildSpec { name: "heart".into(), ..BuildSpec::default() };
    build(&Checkpoint::open(&path).unwrap(), &named, &out, &mut |_, _| {}).unwrap();
    (out, file)
}

/// The small model with this many features of equal tables, which read these of the bundle's.
fn equal_tables(tables: &[Option<usize>]) -> DlrmSpec {
    let feature = |(at, table): (usize, &Option<usize>)| FeatureSpec {
        name: format!("f{at}"),
        rows: 5,
        table: table.map(|table| format!("emb_l.{table}")),
        bag: 1,
    };
    let features = tables.iter().enumerate().map(feature).collect();
    DlrmSpec { features, ..spec(Activation::Square, Interaction::Concat) }
}

/// A bundle's weights by a description of these tables.
fn read(
    tables: &[Option<usize>],
    change: impl Fn(&mut Tensors),
) -> (Tensors, Result<Weights, Error>) {
    let dlrm = Dlrm::new(equal_tables(tables)).unwrap();
    let mut own = tensors(&dlrm, 9, 2);
    change(&mut own);
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = bundle(folder.path(), &own);
    let found = Weights::from_bundle(&dlrm, &Model::open(&out).unwrap());
    (own, found)
}

#[test]
fn a_bundle_gives_the_weights_of_its_file() {
    let plain = spec(Activation::Square, Interaction::Concat);
    let named = plain
        .features
        .iter()
        .enumerate()
        .map(|(at, feature)| FeatureSpec { table: Some(format!("emb_l.{at}")), ..feature.clone() });
    let dlrm = Dlrm::new(DlrmSpec { features: named.collect(), ..plain }).unwrap();
    let own = tensors(&dlrm, 9, 2);
    let folder = tempfile::tempdir().unwrap();
    let (out, file) = bundle(folder.path(), &own);
    let expected = Weights::new(&dlrm, own).unwrap();
    assert_eq!(Weights::from_safetensors(&dlrm, &file).unwrap(), expected);
    assert_eq!(Weights::from_bundle(&dlrm, &Model::open(&out).unwrap()).unwrap(), expected);
}

#[test]
fn a_feature_reads_the_table_that_it_names() {
    for count in [12, 26] {
        // Any order but that of their numbers or of their names.
        let tables: Vec<_> = (0..count).map(|at| Some(at * 7 % count)).collect();
        let (own, found) = read(&tables, |_| ());
        for (table, rows) in tables.iter().zip(&found.unwrap().tables) {
            let name = format!("emb_l.{}.weight", table.unwrap());
            assert_eq!(*rows, own[&name].values, "{name}");
        }
    }
}

#[test]
fn a_feature_without_a_table_is_refused() {
    let (_, found) = read(&[None; 12], |_| ());
    let text = found.unwrap_err().to_string();
    for part in ["\"f0\"", "f9, f10, f11", "emb_l.9, emb_l.10, emb_l.11", "table = "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut tables = [Some(0); 3];
    tables[2] = Some(9);
    let text = read(&tables, |_| ()).1.unwrap_err().to_string();
    assert!(text.contains("emb_l.9"), "{text}");
}

#[test]
fn what_a_description_has_no_place_for_is_refused() {
    // Two features may read one table; a table that none reads has a part in no answer.
    let text = read(&[Some(0), Some(2), Some(2)], |_| ()).1.unwrap_err().to_string();
    assert!(text.contains("tables emb_l.1:"), "{text}");
    for name in ["wide.weight", "top_l.4.weight", "top_l.1.running_mean", "bot_a.0.coefficients"] {
        let one = || Tensor { shape: vec![1], values: vec![1.0] };
        let add = |tensors: &mut Tensors| drop(tensors.insert(name.into(), one()));
        let text = read(&[Some(0), Some(1)], add).1.unwrap_err().to_string();
        assert!(text.contains(&format!("tensors {name}:")), "{text}");
    }
}
