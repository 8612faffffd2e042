//! Checkpoints that torch, NumPy and safetensors wrote (`fixtures/make_sharded.py`), built into
//! models.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use hushtable_table::model::{
    self, BuildSpec, FeatureSpec, Model, ModelError, ModelManifest, Pooling, TableSpec,
};
use hushtable_table::{
    Checkpoint, CheckpointFormat, DType, DistributedError, Error, PickleError, SourceError, Table,
    ZipError, decode_rows, scan_checkpoint,
};
use safetensors::SafeTensors;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The values of the fixtures, from the one at `start` on.
fn values(count: usize, start: usize) -> Vec<f32> {
    (start..start + count).map(|index| ((index * 37 % 251) as f32 - 125.0) / 16.0).collect()
}

fn spec() -> BuildSpec {
    BuildSpec { name: "m".to_owned(), ..BuildSpec::default() }
}

fn build(from: &Path, spec: &BuildSpec, out: &Path) -> Result<ModelManifest, Error> {
    let checkpoint = Checkpoint::open(from)?;
    let planned = model::plan(&checkpoint, spec)?;
    let (mut last, mut calls) = ((0, 1), 0);
    let manifest = model::build(&checkpoint, spec, out, &mut |done, total| {
        assert!(done <= total, "{done} of {total}");
        last = (done, total);
        calls += 1;
    })?;
    assert_eq!(last.0, last.1, "progress reaches its end");
    assert!(calls > 1);
    let report = model::verify(out, &mut |_, _| {}).unwrap();
    assert!(report.ok, "{report:?}");
    // What was planned is what was made.
    let names: Vec<_> = planned.tables.iter().map(|table| &table.name).collect();
    assert!(manifest.tables().iter().map(|table| &table.name).eq(names));
    assert_eq!(planned.features, manifest.features());
    assert_eq!(planned.dense.is_empty(), manifest.dense().is_none());
    Ok(manifest)
}

fn rows(table: &Table) -> Vec<f32> {
    let mut served = vec![0; table.rows() as usize * table.row_bytes()];
    table.copy_rows(0, &mut served).unwrap();
    let mut values = vec![0.0; table.rows() as usize * table.dim()];
    decode_rows(table.dtype(), table.dim(), &served, &mut values).unwrap();
    values
}

/// Tables by name, and the dense file's tensors as (type, shape, bytes).
type Dense = BTreeMap<String, (String, Vec<usize>, Vec<u8>)>;

fn contents(out: &Path) -> (BTreeMap<String, Table>, Dense) {
    let model = Model::open(out).unwrap();
    let names = model.manifest().tables().iter().enumerate();
    let tables = names.map(|(i, table)| (table.name.clone(), model.table(i).unwrap())).collect();
    let Some(path) = model.dense_path() else { return (tables, Dense::new()) };
    let bytes = fs::read(path).unwrap();
    let dense = SafeTensors::deserialize(&bytes).unwrap();
    let dense = dense.iter().map(|(name, tensor)| {
        let facts = (tensor.dtype().to_string(), tensor.shape().to_vec(), tensor.data().to_vec());
        (name.to_owned(), facts)
    });
    (tables, dense.collect())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn source_error(error: Error) -> SourceError {
    match error {
        Error::Source { source, .. } => source,
        other => panic!("{other}"),
    }
}

fn model_error(error: Error) -> ModelError {
    match error {
        Error::Model { source, .. } => *source,
        other => panic!("{other}"),
    }
}

#[test]
fn a_state_dict_becomes_tables_and_the_dense_rest() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    let manifest = build(&fixture("dlrm.pt"), &spec(), &out).unwrap();
    let (tables, dense) = contents(&out);
    assert_eq!(tables.keys().collect::<Vec<_>>(), ["emb_l.0", "emb_l.1"]);
    assert_eq!(rows(&tables["emb_l.0"]), values(24, 0));
    assert_eq!(rows(&tables["emb_l.1"]), values(20, 24));
    assert_eq!(tables["emb_l.1"].dtype(), DType::Bf16);
    assert_eq!(tables["emb_l.0"].manifest().created_from(), "dlrm.pt#state_dict.emb_l.0.weight");
    assert_eq!(manifest.features()[1].name, "emb_l.1");
    assert_eq!((manifest.features()[1].max_ids, manifest.features()[1].pooling), (1, Pooling::Sum));

    let names: Vec<_> = dense.keys().map(|name| name.trim_start_matches("state_dict.")).collect();
    let expected = ["bot_l.0.bias", "bot_l.0.weight", "mask", "steps", "top_l.0.weight"];
    assert_eq!(names, expected);
    let (dtype, shape, bytes) = &dense["state_dict.bot_l.0.weight"];
    assert_eq!((dtype.as_str(), &shape[..]), ("F32", &[6, 4][..]));
    let odd = values(24, 0);
    let transposed: Vec<f32> = (0..24).map(|i| odd[i % 4 * 6 + i / 4]).collect();
    assert_eq!(floats(bytes), transposed, "a transposed tensor is put in order");
    let sliced: Vec<f32> = (0..12).map(|i| odd[i / 3 * 6 + 1 + i % 3]).collect();
    assert_eq!(floats(&dense["state_dict.top_l.0.weight"].2), sliced);
    assert_eq!(dense["state_dict.mask"], ("BOOL".to_owned(), vec![2], vec![1, 0]));
    assert_eq!(dense["state_dict.steps"].0, "I64");
    assert_eq!(dense["state_dict.steps"].2, 41_u64.to_le_bytes());
}

#[test]
fn the_same_checkpoint_makes_the_same_version() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["dlrm.pt", "distributed", "distributed_safetensors", "sharded_safetensors"] {
        let versions = ["a", "b", "a"]
            .map(|out| build(&fixture(name), &spec(), &folder.path().join(out)).unwrap().version());
        assert!(versions.iter().all(|version| *version == versions[0]), "{name}");
        let dense = ["a", "b"]
            .map(|out| fs::read(folder.path().join(out).join("dense.safetensors")).unwrap());
        assert_eq!(dense[0], dense[1]);
    }
}

/// The tables and tensors that `make_sharded.py` cuts over two processes.
fn assert_distributed(out: &Path, prefix: &str) {
    let (tables, dense) = contents(out);
    assert_eq!(tables.keys().collect::<Vec<_>>(), ["t_item", "t_user"]);
    assert_eq!(rows(&tables["t_user"]), values(36, 0), "cut by rows");
    assert_eq!(rows(&tables["t_item"]), values(24, 0), "cut by columns");
    assert_eq!(tables["t_item"].dtype(), DType::F16);
    for (name, shape) in
        [("over.0.weight", &[4, 6][..]), ("over.0.bias", &[5]), ("over.1.weight", &[3, 2])]
    {
        let (dtype, found, bytes) = &dense[&format!("{prefix}{name}")];
        assert_eq!((dtype.as_str(), &found[..]), ("F32", shape), "{name}");
        assert_eq!(floats(bytes), values(shape.iter().product(), 0), "{name}");
    }
}

#[test]
fn a_distributed_checkpoint_is_put_together() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    build(&fixture("distributed"), &spec(), &out).unwrap();
    assert_distributed(&out, "model.");
    let (_, dense) = contents(&out);
    // Numbers and strings beside the tensors are pickles, and are left alone.
    assert_eq!(dense.len(), 4);
    assert_eq!(dense["model.steps"].2, 41_u64.to_le_bytes());

    build(&fixture("distributed_safetensors"), &spec(), &out).unwrap();
    assert_distributed(&out, "");
}

#[test]
fn an_index_of_shards_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    let index = fixture("sharded_safetensors/model.safetensors.index.json");
    let versions = [fixture("sharded_safetensors"), index].map(|from| {
        let version = build(&from, &spec(), &out).unwrap().version();
        let (tables, dense) = contents(&out);
        assert_eq!(rows(&tables["emb_l.0"]), values(24, 0));
        assert_eq!(rows(&tables["emb_l.1"]), values(20, 24));
        assert_eq!(dense.keys().collect::<Vec<_>>(), ["bot_l.0.bias", "steps"]);
        version
    });
    assert_eq!(versions[0], versions[1]);
}

#[test]
fn shards_may_lie_in_folders() {
    let folder = tempfile::tempdir().unwrap();
    let (from, out) = (folder.path().join("c"), folder.path().join("m"));
    copy_folder(&fixture("sharded_safetensors"), &from);
    let index = from.join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap().replace("\"model-0", "\"parts/of/model-0");
    fs::write(&index, text).unwrap();
    fs::create_dir_all(from.join("parts/of")).unwrap();
    for name in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        fs::rename(from.join(name), from.join("parts/of").join(name)).unwrap();
    }
    build(&from, &spec(), &out).unwrap();
    assert_eq!(rows(&contents(&out).0["emb_l.1"]), values(20, 24));
}

#[test]
fn tensors_that_no_table_is_made_of_spoil_none() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    // Quantised tensors are nothing that a dense part keeps.
    let error = model_error(build(&fixture("beside.pt"), &spec(), &out).unwrap_err());
    assert!(
        matches!(&error, ModelError::DenseType { tensor } if tensor.contains("quint8")),
        "{error}"
    );
    let tables = BuildSpec { dense: false, ..spec() };
    for name in ["beside.pt", "beside.ckpt"] {
        let from = folder.path().join(name);
        fs::copy(fixture("beside.pt"), &from).unwrap();
        build(&from, &tables, &out).unwrap();
        assert_eq!(rows(&contents(&out).0["emb_l.0"]), values(24, 0));
    }
    let listed = Checkpoint::open(&fixture("beside.pt")).unwrap();
    let dtypes: Vec<_> = listed.tensors().map(|info| info.dtype.as_str()).collect();
    let view = "negated or conjugated";
    assert_eq!(dtypes, ["float32", "uint16", "float8_e4m3fn", "quint8", "qint8", view, view]);
}

#[test]
fn an_npz_is_read_and_columns_are_put_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    build(&fixture("model.npz"), &spec(), &out).unwrap();
    let (tables, dense) = contents(&out);
    assert_eq!(rows(&tables["user_embedding"]), values(24, 0));
    assert_eq!(floats(&dense["dense/kernel"].2), values(6, 0), "stored in Fortran order");
    assert_eq!(dense["steps"].0, "I64");
    assert!(matches!(
        source_error(Checkpoint::open(&fixture("compressed.npz")).unwrap_err()),
        SourceError::Zip(ZipError::Compressed { .. })
    ));
}

#[test]
fn a_folder_of_tables_becomes_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("tables");
    fs::create_dir(&tables).unwrap();
    fs::copy(fixture("f4.npy"), tables.join("users.npy")).unwrap();
    fs::copy(fixture("vector.npy"), tables.join("bias.npy")).unwrap();
    let items = Table::from_weight("items", 30, 2, DType::Int8, &values(60, 0)).unwrap();
    items.save(&tables.join("items")).unwrap();
    let out = folder.path().join("m");
    let manifest = build(&tables, &spec(), &out).unwrap();
    let (found, dense) = contents(&out);
    assert_eq!(found["items"].version(), items.version(), "an int8 table is taken as it is");
    assert_eq!(rows(&found["users"]), values(24, 0));
    assert_eq!(dense.keys().collect::<Vec<_>>(), ["bias"]);

    let wide = BuildSpec { dtype: Some(DType::F32), ..spec() };
    let other = build(&tables, &wide, &out).unwrap();
    assert_ne!(other.version(), manifest.version());
    assert_eq!(rows(&contents(&out).0["items"]), rows(&items));

    // What was built is a folder of tables too.
    let again = build(&out.join("tables"), &spec(), &folder.path().join("n")).unwrap();
    assert_eq!(again.tables(), other.tables());
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let error = source_error(Checkpoint::open(&empty).unwrap_err());
    assert!(matches!(error, SourceError::EmptyFolder));
}

#[test]
fn tables_and_features_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    let of_patterns = |patterns: &[&str]| BuildSpec {
        patterns: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
        ..spec()
    };
    build(&fixture("dlrm.pt"), &of_patterns(&["*emb_l.1*", "*top_l*weight"]), &out).unwrap();
    let (tables, dense) = contents(&out);
    assert_eq!(tables.keys().collect::<Vec<_>>(), ["emb_l.1", "top_l.0"]);
    assert!(dense.contains_key("state_dict.emb_l.0.weight"), "what is not chosen is kept");

    let table = |name: &str, key: &str, dtype| TableSpec {
        name: name.to_owned(),
        key: key.to_owned(),
        dtype,
    };
    let feature = |name: &str, table: &str, pooling, max_ids| FeatureSpec {
        name: name.to_owned(),
        table: table.to_owned(),
        pooling,
        max_ids,
    };
    let spelled = BuildSpec {
        tables: vec![
            table("items", "state_dict.emb_l.1.weight", Some(DType::Int8)),
            table("users", "state_dict.emb_l.0.weight", None),
        ],
        features: vec![
            feature("user", "users", None, None),
            feature("cart", "items", Some(Pooling::Mean), Some(50)),
            feature("item", "items", Some(Pooling::None), None),
        ],
        max_ids: 3,
        dense: false,
        ..spec()
    };
    let manifest = build(&fixture("dlrm.pt"), &spelled, &out).unwrap();
    let (tables, dense) = contents(&out);
    assert!(dense.is_empty());
    assert_eq!(tables["items"].dtype(), DType::Int8);
    let features = manifest.features();
    assert_eq!((features[0].table, features[0].max_ids), (1, 3));
    assert_eq!((features[1].table, features[1].max_ids), (0, 50));
    assert_eq!(features[2].pooling, Pooling::None);

    let refused =
        |spec: &BuildSpec| model_error(build(&fixture("dlrm.pt"), spec, &out).unwrap_err());
    let error = refused(&of_patterns(&["emb_*"]));
    assert!(matches!(&error, ModelError::NoMatch { tensor_count: 4, .. }), "{error}");
    assert!(error.to_string().contains("state_dict.emb_l.0.weight [6, 4] float32"), "{error}");
    let error = refused(&of_patterns(&["*emb_l*", "*bias"]));
    assert!(matches!(&error, ModelError::NotATable { tensor } if tensor.contains("bias [3]")));
    let mut unknown = spelled.clone();
    unknown.tables[0].key = "emb".to_owned();
    assert!(matches!(refused(&unknown), ModelError::UnknownTensor { .. }));
    let mut unknown = spelled.clone();
    unknown.features[1].table = "item".to_owned();
    assert!(matches!(refused(&unknown), ModelError::UnknownTable { .. }));
    let many = BuildSpec { max_ids: 65_537, ..spec() };
    assert!(matches!(refused(&many), ModelError::MaxIds { .. }));
    let unnamed = BuildSpec { name: "a/b".to_owned(), ..spec() };
    assert!(matches!(refused(&unnamed), ModelError::Name { what: "model", .. }));
    // Refused before anything was touched.
    assert_eq!(*Model::open(&out).unwrap().manifest(), manifest);
}

#[test]
fn a_checkpoint_without_embeddings_says_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    let error = model_error(build(&fixture("two.safetensors"), &spec(), &out).unwrap_err());
    assert!(matches!(error, ModelError::NoEmbeddings { tensor_count: 2, .. }));
    let text = error.to_string();
    assert!(text.contains("--tables") && text.contains("users [3, 2] F16"), "{text}");
    let error = model_error(build(&fixture("vector.npy"), &spec(), &out).unwrap_err());
    assert!(error.to_string().contains("no tensor could be a table"), "{error}");
    assert!(!out.exists());
    assert!(matches!(
        source_error(Checkpoint::open(Path::new("model.onnx")).unwrap_err()),
        SourceError::CheckpointExtension { extension } if extension == "onnx"
    ));
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// A copy of the distributed checkpoint whose metadata has one text replaced by another of its length.
fn with_metadata(folder: &Path, name: &str, from: &[u8], to: &[u8]) -> PathBuf {
    let path = folder.join(name);
    copy_folder(&fixture("distributed"), &path);
    let metadata = path.join(".metadata");
    let mut bytes = fs::read(&metadata).unwrap();
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    fs::write(&metadata, bytes).unwrap();
    path
}

#[test]
fn hostile_and_damaged_distributed_checkpoints_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    let refused = |path: &Path| source_error(build(path, &spec(), &out).unwrap_err());

    let evil = with_metadata(folder.path(), "evil", b"PosixPath", b"PosixEvil");
    assert!(matches!(
        refused(&evil),
        SourceError::Pickle(PickleError::Global { module, name })
            if module == "pathlib" && name == "PosixEvil"
    ));
    let outside = with_metadata(folder.path(), "outside", b"__0_0.distcp", b"../../passwd");
    assert!(matches!(refused(&outside), SourceError::Index { .. }));
    // One piece says that it is elsewhere in the tensor: five rows of nine would be missing.
    let (size, other) = (b"\x8c\x06chunks", b"\x8c\x06chunkz");
    let no_chunks = with_metadata(folder.path(), "chunks", size, other);
    assert!(matches!(
        refused(&no_chunks),
        SourceError::Distributed(DistributedError::Metadata { .. })
    ));
    // The table's nine rows become eight: its pieces are then more than the whole of it.
    let nine = with_metadata(folder.path(), "nine", b"K\x09K\x04\x86", b"K\x08K\x04\x86");
    assert!(matches!(refused(&nine), SourceError::Pieces { name } if name.contains("t_user")));
    let ten = with_metadata(folder.path(), "ten", b"K\x09K\x04\x86", b"K\x0aK\x04\x86");
    assert!(matches!(refused(&ten), SourceError::Pieces { .. }));

    let cut = folder.path().join("cut");
    copy_folder(&fixture("distributed"), &cut);
    let file = fs::OpenOptions::new().write(true).open(cut.join("__1_0.distcp")).unwrap();
    file.set_len(4_000).unwrap();
    assert!(matches!(refused(&cut), SourceError::Truncated { .. }));
    fs::remove_file(cut.join("__1_0.distcp")).unwrap();
    let error = build(&cut, &spec(), &out).unwrap_err();
    assert!(error.to_string().contains("__1_0.distcp"), "{error}");
    assert!(!out.exists());
    assert!(!Path::new("/tmp/hushtable-fixture-was-executed").exists());
}

#[test]
fn every_damaged_byte_of_the_metadata_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c");
    copy_folder(&fixture("distributed"), &path);
    let metadata = path.join(".metadata");
    let whole = fs::read(&metadata).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x41;
        fs::write(&metadata, &damaged).unwrap();
        // Either it is refused, or it lists tensors: it must not panic or allocate wildly.
        if let Ok(checkpoint) = Checkpoint::open(&path) {
            let _ = model::plan(&checkpoint, &spec());
        }
        fs::write(&metadata, &whole[..at]).unwrap();
        assert!(Checkpoint::open(&path).is_err(), "cut at {at}");
    }
}

#[test]
fn every_damaged_byte_of_an_npz_is_survived() {
    let whole = fs::read(fixture("model.npz")).unwrap();
    let scan = |bytes: &[u8]| scan_checkpoint(CheckpointFormat::Npz, bytes);
    assert_eq!(scan(&whole).unwrap().len(), 4);
    for at in 0..whole.len() {
        for mask in [1, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= mask;
            // Either it is refused, or it lists arrays that are all within the file.
            let Ok(tensors) = scan(&damaged) else { continue };
            for tensor in tensors {
                assert!(tensor.shape.iter().product::<u64>() <= whole.len() as u64, "byte {at}");
            }
        }
        assert!(scan(&whole[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn hostile_indexes_and_shards_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c");
    copy_folder(&fixture("sharded_safetensors"), &path);
    let index = path.join("model.safetensors.index.json");
    let refused = |text: &str| {
        fs::write(&index, text).unwrap();
        source_error(Checkpoint::open(&path).unwrap_err())
    };
    for text in [
        "",
        "[]",
        r#"{"weight_map": {"a": 3}}"#,
        r#"{"weight_map": {"a": "../c/model-00001-of-00002.safetensors"}}"#,
        r#"{"weight_map": {"a": "/etc/passwd"}}"#,
        r#"{"weight_map": {"a": ""}}"#,
        r#"{"weight_map": {"a": "parts/../../c/model-00001-of-00002.safetensors"}}"#,
        r#"{"weight_map": {"a": "parts//model-00001-of-00002.safetensors"}}"#,
        r#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#,
    ] {
        assert!(matches!(refused(text), SourceError::Index { .. }), "{text}");
    }
    // Without an index, one tensor in two files that say nothing of pieces.
    fs::remove_file(&index).unwrap();
    fs::copy(fixture("one.safetensors"), path.join("x.safetensors")).unwrap();
    fs::copy(fixture("one.safetensors"), path.join("y.safetensors")).unwrap();
    let error = source_error(Checkpoint::open(&path).unwrap_err());
    assert!(error.to_string().contains("x.safetensors and y.safetensors"), "{error}");

    // A shard is missing: the rest is not the whole table.
    let pieces = folder.path().join("p");
    copy_folder(&fixture("distributed_safetensors"), &pieces);
    fs::remove_file(pieces.join("shard-00001-model-00001-of-00001.safetensors")).unwrap();
    let error = source_error(build(&pieces, &spec(), &folder.path().join("m")).unwrap_err());
    assert!(matches!(error, SourceError::Pieces { .. }), "{error}");
}

#[test]
fn one_name_is_one_tensor() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixture("f4.npy"), folder.path().join("items.npy")).unwrap();
    let items = Table::from_weight("items", 6, 4, DType::F32, &values(24, 0)).unwrap();
    items.save(&folder.path().join("items")).unwrap();
    let error = source_error(Checkpoint::open(folder.path()).unwrap_err());
    assert!(matches!(error, SourceError::RepeatedName { name } if name == "items"));
}

#[test]
fn damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    build(&fixture("dlrm.pt"), &spec(), &out).unwrap();
    let flip = |place: &str, at: usize| {
        let path = out.join(place);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    let check = || model::verify(&out, &mut |_, _| {}).unwrap();

    flip("tables/emb_l.0/rows.safetensors", 4_096 + 16 * 2);
    let report = check();
    assert!(!report.ok);
    let damage = report.tables[0].damaged[0];
    assert_eq!((damage.file, damage.row), ("rows.safetensors", Some(2)));
    assert!(report.tables[1].ok());
    flip("tables/emb_l.0/rows.safetensors", 4_096 + 16 * 2);
    assert!(check().ok);

    let size = fs::metadata(out.join("dense.safetensors")).unwrap().len() as usize;
    flip("dense.safetensors", size - 1);
    let report = check();
    assert!(!report.ok && report.tables.iter().all(model::TableReport::ok));
    assert!(report.dense.unwrap().contains("dense.safetensors"));
    flip("dense.safetensors", size - 1);

    fs::rename(out.join("tables/emb_l.0"), folder.path().join("aside")).unwrap();
    assert!(check().tables[0].error.as_ref().unwrap().contains("emb_l.0"));
    Table::from_weight("t", 6, 4, DType::F32, &values(24, 7))
        .unwrap()
        .save(&out.join("tables/emb_l.0"))
        .unwrap();
    assert!(check().tables[0].error.as_ref().unwrap().contains("is not the model's"));

    flip("model.json", 40);
    assert!(matches!(model::verify(&out, &mut |_, _| {}), Err(Error::Model { .. })));
}

const ROLE: &str = "HUSHTABLE_MODEL_CRASH_FOLDER";
const STEPS: &str = "HUSHTABLE_MODEL_CRASH_STEPS";

#[test]
fn a_killed_build_leaves_the_old_model() {
    if let Some(folder) = std::env::var_os(ROLE) {
        // Waits for the kill at the step that the test wants.
        let mut left: usize = std::env::var(STEPS).unwrap().parse().unwrap();
        let checkpoint = Checkpoint::open(&fixture("sharded_safetensors")).unwrap();
        let out = Path::new(&folder).join("m");
        model::build(&checkpoint, &spec(), &out, &mut |done, all| {
            println!("at {done} of {all}");
            left -= 1;
            if left == 0 {
                loop {
                    thread::park();
                }
            }
        })
        .unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    let old = build(&fixture("dlrm.pt"), &spec(), &out).unwrap();
    for steps in [1, 2, 4, 6] {
        let mut builder = Command::new(std::env::current_exe().unwrap())
            .args(["checkpoints::a_killed_build_leaves_the_old_model", "--exact", "--nocapture"])
            .env(ROLE, folder.path())
            .env(STEPS, steps.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(builder.stdout.take().unwrap()).lines();
        let seen = lines.map(Result::unwrap).filter(|line| line.contains("at "));
        assert_eq!(seen.take(steps).count(), steps);
        builder.kill().unwrap();
        assert!(!builder.wait().unwrap().success());
        assert_eq!(*Model::open(&out).unwrap().manifest(), old, "killed at step {steps}");
        assert!(model::verify(&out, &mut |_, _| {}).unwrap().ok);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "only the last one's rest");
    }
    build(&fixture("sharded_safetensors"), &spec(), &out).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
