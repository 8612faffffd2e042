//! Model bundles: the manifest, what is in the folder, and what a hostile one gets.

use std::fs;
use std::path::{Path, PathBuf};

use hushtable_table::model::{
    self, DenseRef, FEATURE_COUNT_MAX, Feature, Model, ModelError, ModelManifest, ModelSpec,
    Pooling, TableRef, places,
};
use hushtable_table::{DType, Error, Shape, Table, Version};

fn table(name: &str, rows: u64, dim: usize, start: f32) -> Table {
    let values: Vec<f32> = (0..rows as usize * dim).map(|i| start + i as f32).collect();
    Table::from_weight(name, rows, dim, DType::F32, &values).unwrap()
}

fn feature(name: &str, table: usize, max_ids: usize) -> Feature {
    Feature { name: name.to_owned(), table, pooling: Pooling::Sum, max_ids }
}

/// Two tables, three features and a dense file.
fn write_model(folder: &Path) -> (PathBuf, ModelManifest) {
    let out = folder.join("clicks");
    let dense = folder.join("rest.safetensors");
    fs::write(&dense, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    let (users, items) = (table("users", 300, 4, 0.5), table("items", 70, 2, -3.0));
    let features = [feature("user", 0, 1), feature("cart", 1, 20), feature("item", 1, 3)];
    let tables = [("users", &users), ("items", &items)];
    let manifest = model::write(&out, "clicks", &tables, &features, Some(&dense)).unwrap();
    (out, manifest)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn model_error(error: Error) -> ModelError {
    match error {
        Error::Model { source, .. } => *source,
        other => panic!("{other}"),
    }
}

fn spec() -> ModelSpec {
    let table = |name: &str, layout| TableRef {
        name: name.to_owned(),
        version: Version::from([7; 32]),
        shape: Shape::new(1_000, 16, DType::F16).unwrap(),
        layout,
    };
    ModelSpec {
        name: "clicks".to_owned(),
        tables: vec![table("users", None), table("items", Some(Version::from([9; 32])))],
        features: vec![feature("user", 0, 1), feature("item", 1, 20)],
        dense: Some(DenseRef { blake3: [1; 32], bytes: 10 }),
    }
}

#[test]
fn a_model_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let (out, written) = write_model(folder.path());
    assert_eq!(names(&out), [places::DENSE, places::MANIFEST, places::TABLES]);
    assert_eq!(names(folder.path()), ["clicks", "rest.safetensors"], "nothing is left beside it");
    let bytes = fs::read(out.join(places::MANIFEST)).unwrap();
    assert_eq!(written.version().as_bytes(), blake3::hash(&bytes).as_bytes());

    for path in [out.clone(), out.join(places::MANIFEST)] {
        let model = Model::open(&path).unwrap();
        assert_eq!(*model.manifest(), written);
        assert_eq!(model.path(), out);
        let users = model.table(model.manifest().features()[0].table).unwrap();
        assert_eq!((users.name(), users.rows()), ("users", 300));
        assert_eq!(model.manifest().feature("item"), Some(2));
        assert_eq!(model.manifest().features()[2].table, 1);
        assert_eq!(model.prepared_path(1), out.join("prepared/items.onion"));
        assert_eq!(fs::read(model.dense_path().unwrap()).unwrap(), b"\x02\0\0\0\0\0\0\0{}");
    }
    // The same parts make the same model; another pooling makes another.
    let again = ModelManifest::new(written.spec().clone()).unwrap();
    assert_eq!(again.version(), written.version());
    let mut other = written.spec().clone();
    other.features[1].pooling = Pooling::Mean;
    assert_ne!(ModelManifest::new(other).unwrap().version(), written.version());
}

#[test]
fn a_table_is_replaced_and_the_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (out, written) = write_model(folder.path());
    let model = Model::open(&out).unwrap();
    let trained = table("items", 70, 2, 8.0);
    let replaced = model.replace_table("items", &trained, &out).unwrap();
    assert_ne!(replaced.version(), written.version());
    assert_eq!(replaced.tables()[0], written.tables()[0]);
    assert_eq!(replaced.features(), written.features());
    assert_eq!(replaced.dense(), written.dense());
    let opened = Model::open(&out).unwrap();
    assert_eq!(opened.table(1).unwrap().version(), trained.version());
    opened.table(0).unwrap();
    // A model that was opened before the swap says so instead of handing out the new rows.
    let error = model_error(model.table(1).err().unwrap());
    assert!(matches!(error, ModelError::Table { table, .. } if table == "items"));

    let error = model_error(opened.replace_table("item", &trained, &out).unwrap_err());
    assert!(error.to_string().contains("users, items"), "{error}");
}

#[test]
fn missing_and_foreign_parts_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = write_model(folder.path());
    let items = out.join(places::table("items"));

    table("items", 70, 2, 99.0).save(&items).unwrap();
    let error = model_error(Model::open(&out).unwrap().table(1).err().unwrap());
    assert!(matches!(&error, ModelError::Table { table, .. } if table == "items"), "{error}");

    table("items", 71, 2, 99.0).save(&items).unwrap();
    let error = model_error(Model::open(&out).unwrap().table(1).err().unwrap());
    assert!(error.to_string().contains("71 rows of 2 f32 values"), "{error}");

    fs::remove_dir_all(&items).unwrap();
    let error = model_error(Model::open(&out).unwrap_err());
    assert!(matches!(&error, ModelError::MissingTable { table } if table == "items"), "{error}");

    let (out, _) = write_model(folder.path());
    fs::write(out.join(places::DENSE), b"short").unwrap();
    let error = model_error(Model::open(&out).unwrap_err());
    assert!(matches!(error, ModelError::DenseBytes { expected: 10, found: 5 }));
    fs::remove_file(out.join(places::DENSE)).unwrap();
    assert!(matches!(model_error(Model::open(&out).unwrap_err()), ModelError::MissingDense));

    fs::remove_file(out.join(places::MANIFEST)).unwrap();
    assert!(matches!(Model::open(&out), Err(Error::NotAModel { path }) if path == out));
    assert!(matches!(Model::open(&out.join("no")), Err(Error::Io { .. })));
}

#[test]
fn only_models_and_empty_folders_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = write_model(folder.path());
    let small = table("t", 3, 1, 0.0);
    let features = [feature("t", 0, 1)];
    let write = || model::write(&out, "t", &[("t", &small)], &features, None);
    fs::create_dir(out.join(places::PREPARED)).unwrap();
    fs::write(out.join("prepared/items.onion"), "derived").unwrap();
    fs::write(out.join("prepared/items.onion.partial"), "derived").unwrap();
    write().unwrap();
    assert_eq!(names(&out), [places::MANIFEST, places::TABLES]);

    for place in ["thesis.tex", "tables/notes.txt", "tables/t/notes.txt", "prepared/notes.txt"] {
        let path = out.join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(matches!(write(), Err(Error::Occupied { .. })), "{place}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_file(&path).unwrap();
    }
    write().unwrap();
    // A table bundle is not replaced by a model, nor a model by a table.
    assert!(matches!(small.save(&out), Err(Error::Occupied { .. })));
    let bundle = folder.path().join("bundle");
    small.save(&bundle).unwrap();
    let error = model::write(&bundle, "t", &[("t", &small)], &features, None).unwrap_err();
    assert!(matches!(error, Error::Occupied { .. }), "{error}");
}

#[test]
fn a_refused_model_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let (out, written) = write_model(folder.path());
    let small = table("t", 3, 1, 0.0);
    let refused = |tables: &[(&str, &Table)], features: &[Feature]| {
        model_error(model::write(&out, "t", tables, features, None).unwrap_err())
    };
    let one = [feature("t", 0, 1)];
    assert!(matches!(refused(&[("../t", &small)], &one), ModelError::Name { what: "table", .. }));
    assert!(matches!(refused(&[("t", &small), ("t", &small)], &one), ModelError::Twice { .. }));
    assert!(matches!(refused(&[("t", &small)], &[]), ModelError::FeatureCount { count: 0 }));
    assert_eq!(*Model::open(&out).unwrap().manifest(), written);
    assert_eq!(names(folder.path()), ["clicks", "rest.safetensors"]);
}

#[test]
fn a_model_may_be_a_dense_part_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (rest, out) = (folder.path().join("rest"), folder.path().join("network"));
    std::fs::write(&rest, b"\x08\0\0\0\0\0\0\0{}      ").unwrap();
    let written = model::write(&out, "network", &[], &[], Some(&rest)).unwrap();
    assert_eq!((written.tables().len(), written.features().len()), (0, 0));
    let found = Model::open(&out).unwrap();
    assert_eq!(*found.manifest(), written);
    let plan = found.write_plan("network", "ckks", "{}").unwrap();
    assert_eq!(found.plan("network").unwrap(), plan);
    assert!(model::verify(&out, &mut |_, _| {}).unwrap().ok);
    let error = model_error(model::write(&out, "network", &[], &[], None).unwrap_err());
    assert!(matches!(error, ModelError::FeatureCount { count: 0 }));
}

#[test]
fn parts_outside_the_limits_are_refused() {
    let error = |edit: &dyn Fn(&mut ModelSpec)| {
        let mut spec = spec();
        edit(&mut spec);
        ModelManifest::new(spec).unwrap_err()
    };
    for bad in ["", ".", "..", "a/b", "-rf", "a b", "ä", "a\0", &"x".repeat(129)] {
        let bad = bad.to_owned();
        for what in ["model", "table", "feature"] {
            let error = error(&|spec| match what {
                "model" => spec.name = bad.clone(),
                "table" => spec.tables[0].name = bad.clone(),
                _ => spec.features[0].name = bad.clone(),
            });
            assert!(matches!(error, ModelError::Name { what: found, .. } if found == what));
        }
    }
    for max_ids in [0, 65_537] {
        let error = error(&|spec| spec.features[1].max_ids = max_ids);
        assert!(
            matches!(&error, ModelError::MaxIds { feature, .. } if feature == "item"),
            "{error}"
        );
    }
    let many = |count: usize, max_ids| {
        let features = (0..count).map(|i| feature(&format!("f{i}"), i % 2, max_ids));
        let features: Vec<_> = features.collect();
        move |spec: &mut ModelSpec| spec.features = features.clone()
    };
    assert!(matches!(error(&many(17, 65_536)), ModelError::MaxIdsSum { sum: 1_114_112 }));
    assert!(matches!(error(&many(1_025, 1)), ModelError::FeatureCount { count: 1_025 }));
    assert!(matches!(error(&|spec| spec.features[1].table = 2), ModelError::Value { .. }));
    assert!(matches!(
        error(&|spec| spec.features[1].table = 0),
        ModelError::UnusedTable { table } if table == "items"
    ));
    assert!(matches!(
        error(&|spec| spec.features[1].name = "user".to_owned()),
        ModelError::Twice { what: "feature", .. }
    ));
}

#[test]
fn the_largest_model_fits_its_manifest() {
    let mut spec = spec();
    let name = |i: usize| format!("{i:0>128}");
    let shape = Shape::new(1 << 32, 32_768, DType::Bf16).unwrap();
    let one = TableRef { shape, layout: Some(Version::from([0; 32])), ..spec.tables[0].clone() };
    spec.tables =
        (0..FEATURE_COUNT_MAX).map(|i| TableRef { name: name(i), ..one.clone() }).collect();
    spec.features = (0..FEATURE_COUNT_MAX).map(|i| feature(&name(i), i, 1_024)).collect();
    let manifest = ModelManifest::new(spec).unwrap();
    let json = manifest.to_json();
    assert!(json.len() < 800 << 10, "{}", json.len());
    assert_eq!(ModelManifest::from_json(&json).unwrap(), manifest);
}

#[test]
fn every_flipped_bit_of_a_manifest_is_noticed() {
    let json = ModelManifest::new(spec()).unwrap().to_json();
    assert!(ModelManifest::from_json(&json).is_ok());
    for at in 0..json.len() {
        for bit in 0..8 {
            let mut damaged = json.clone();
            damaged[at] ^= 1 << bit;
            assert!(ModelManifest::from_json(&damaged).is_err(), "bit {bit} of byte {at}");
        }
        assert!(ModelManifest::from_json(&json[..at]).is_err(), "cut at {at}");
    }
    let spaced = [&json[..], b"\n"].concat();
    assert!(matches!(ModelManifest::from_json(&spaced), Err(ModelError::Form)));
}

/// The manifest with one text replaced and the checksum made to fit, as an attacker would.
fn forged(from: &str, to: &str) -> ModelError {
    let json = String::from_utf8(ModelManifest::new(spec()).unwrap().to_json()).unwrap();
    assert!(json.contains(from), "{from}");
    let at = json.find("\"checksum\": \"").unwrap() + "\"checksum\": \"".len();
    let bare = json[..at].replacen(from, to, 1) + &json[at + 64..];
    let checksum = blake3::hash(bare.as_bytes()).to_string();
    let forged = bare.replace("\"checksum\": \"\"", &format!("\"checksum\": \"{checksum}\""));
    ModelManifest::from_json(forged.as_bytes()).unwrap_err()
}

#[test]
fn forged_manifests_are_refused() {
    use ModelError as E;
    assert!(matches!(forged("hushtable-model", "hushtable-table"), E::Format));
    assert!(matches!(
        forged("\"format_version\": 1", "\"format_version\": 2"),
        E::FutureVersion { found: 2, newest: 1 }
    ));
    assert!(matches!(forged("\"format_version\": 1", "\"format_version\": 0"), E::Value { .. }));
    assert!(matches!(
        forged("\"name\": \"users\"", "\"name\": \"../../etc\""),
        E::UnknownTable { .. }
    ));
    assert!(matches!(forged("\"name\": \"user\"", "\"name\": \"/etc\""), E::Name { .. }));
    assert!(matches!(forged("\"table\": \"items\"", "\"table\": \"no\""), E::UnknownTable { .. }));
    assert!(matches!(
        forged("\"table\": \"items\"", "\"table\": \"users\""),
        E::UnusedTable { .. }
    ));
    assert!(
        matches!(forged("\"rows\": 1000", "\"rows\": 0"), E::Shape { table, .. } if table == "users")
    );
    assert!(matches!(forged("\"dim\": 16", "\"dim\": 18446744073709551615"), E::Shape { .. }));
    assert!(matches!(forged("\"max_ids\": 20", "\"max_ids\": 65537"), E::MaxIds { .. }));
    assert!(matches!(forged("\"max_ids\": 20", "\"max_ids\": -1"), E::Json { .. }));
    assert!(matches!(forged("dense.safetensors", "/etc/passwd"), E::Value { key: "dense", .. }));
    assert!(matches!(forged("\"sum\"", "\"max\""), E::Json { .. }));
    assert!(matches!(forged("\"dense\": {", "\"more\": 1,\n  \"dense\": {"), E::Json { .. }));
    let long = vec![b' '; model::MODEL_JSON_BYTES_MAX + 1];
    assert!(matches!(ModelManifest::from_json(&long), Err(E::TooLarge)));
    let deep = "[".repeat(1 << 19);
    assert!(matches!(ModelManifest::from_json(deep.as_bytes()), Err(E::Json { .. })));
}

#[test]
fn a_manifest_of_another_writer_is_read() {
    // Written by Python's json and blake3 from the format's page.
    let json = include_bytes!("../../../../fuzz/seeds/model_manifest/clicks.json");
    let manifest = ModelManifest::from_json(json).unwrap();
    assert_eq!(manifest.features()[1].pooling, Pooling::None);
    assert_eq!(manifest.tables()[1].layout, Some(Version::from([9; 32])));
}

#[test]
fn a_plans_file_ends_with_its_scheme_and_its_name_is_the_only_one() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = write_model(folder.path());
    let model = Model::open(&out).unwrap();
    model.write_plan("fast", "ckks", "{}").unwrap();
    let apart = model.write_plan("apart", "shares", "{}").unwrap();
    let written = model.write_plan("both", "hybrid", "[1]").unwrap();
    let files = ["apart.shares.json", "both.hybrid.json", "fast.ckks.json"];
    assert_eq!(names(&out.join(places::PLANS)), files);
    assert_eq!(model.plan_names().unwrap(), ["apart", "both", "fast"]);
    assert_eq!(model.plan("both").unwrap(), written);
    assert_eq!(model.plan("apart").unwrap(), apart);
    fs::remove_file(model.plan_path("apart", "shares")).unwrap();
    // It may be written again, but not for something else, nor for what nobody reads.
    model.write_plan("both", "hybrid", "[1]").unwrap();
    for (name, scheme) in [("both", "ckks"), ("fast", "hybrid"), ("new", "tfhe"), ("new", "")] {
        let error = model_error(model.write_plan(name, scheme, "{}").unwrap_err());
        assert!(matches!(error, ModelError::PlanScheme { .. }), "{error}");
    }
    assert_eq!(model.plan_names().unwrap(), ["both", "fast"]);

    // Moved by hand, a plan is not what its file says; two of a name are neither.
    let (ckks, hybrid) = (model.plan_path("fast", "ckks"), model.plan_path("fast", "hybrid"));
    fs::copy(&ckks, &hybrid).unwrap();
    assert_eq!(model.plan_names().unwrap(), ["both", "fast"]);
    for _ in 0..2 {
        let error = model_error(model.plan("fast").unwrap_err());
        assert!(matches!(error, ModelError::PlanForm { .. }), "{error}");
        assert!(!model::verify(&out, &mut |_, _| {}).unwrap().ok);
        let _ = fs::remove_file(&ckks);
    }
    // The bundle may be replaced, with plans of both schemes in it.
    write_model(folder.path());
    assert_eq!(Model::open(&out).unwrap().plan_names().unwrap(), Vec::<String>::new());
}

#[test]
fn a_plan_belongs_to_one_version_of_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let (out, manifest) = write_model(folder.path());
    let model = Model::open(&out).unwrap();
    assert_eq!(model.plan_names().unwrap(), Vec::<String>::new());
    let missing = model_error(model.plan("fast").unwrap_err());
    assert!(matches!(missing, ModelError::UnknownPlan { .. }), "{missing}");

    // Numbers and spaces come back as they were written: the hash is of the text.
    let json = r#"{"levels": 5, "scale": 0.30000000000000004}"#;
    let written = model.write_plan("fast", "ckks", json).unwrap();
    assert_eq!((written.json.as_str(), written.scheme.as_str()), (json, "ckks"));
    assert_eq!(model.plan("fast").unwrap(), written);
    assert_eq!(model.plan_names().unwrap(), ["fast"]);
    let report = model::verify(&out, &mut |_, _| {}).unwrap();
    assert!(report.ok && report.plans[0].error.is_none(), "{report:?}");
    assert_eq!(names(&out.join(places::PLANS)), ["fast.ckks.json"]);
    for (name, text) in [("../out", json), ("", json), ("slow", "{"), ("slow", "")] {
        let error = model_error(model.write_plan(name, "ckks", text).unwrap_err());
        assert!(matches!(error, ModelError::Name { .. } | ModelError::PlanForm { .. }), "{error}");
    }

    // No flipped bit makes another plan, or one of another model.
    let path = model.plan_path("fast", "ckks");
    let honest = fs::read(&path).unwrap();
    for at in 0..honest.len() - 1 {
        let mut bytes = honest.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let is_kept = model.plan("fast").is_ok_and(|plan| plan.version == written.version);
        let is_model = String::from_utf8_lossy(&bytes).contains(&manifest.version().to_string());
        let same = model.plan("fast").is_ok_and(|plan| plan.json == json && is_model);
        assert!(!is_kept || same, "byte {at}");
    }
    fs::write(&path, honest).unwrap();

    // The plan of another version does not pass, and is reported.
    let (users, items) = (table("users", 300, 4, 0.5), table("items", 70, 2, -2.0));
    let other = folder.path().join("other");
    let features = [feature("user", 0, 1), feature("item", 1, 3)];
    model::write(&other, "clicks", &[("users", &users), ("items", &items)], &features, None)
        .unwrap();
    let other = Model::open(&other).unwrap();
    fs::create_dir(other.path().join(places::PLANS)).unwrap();
    fs::copy(&path, other.plan_path("fast", "ckks")).unwrap();
    let error = model_error(other.plan("fast").unwrap_err());
    let ModelError::PlanVersion { found, expected, .. } = &error else { panic!("{error}") };
    assert_eq!((*found, *expected), (manifest.version(), other.manifest().version()));
    let report = model::verify(other.path(), &mut |_, _| {}).unwrap();
    assert!(!report.ok && report.plans[0].error.is_some(), "{report:?}");
    // A bundle with plans may be replaced: what they were made of goes with it.
    model::write(other.path(), "clicks", &[("items", &items)], &[feature("item", 0, 1)], None)
        .unwrap();
    assert_eq!(Model::open(other.path()).unwrap().plan_names().unwrap(), Vec::<String>::new());
}
