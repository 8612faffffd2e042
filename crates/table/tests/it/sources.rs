//! Files that torch, NumPy and safetensors wrote (`fixtures/make.py`), built into tables.

use std::path::{Path, PathBuf};

use hushtable_table::{
    BuildSpec, Checkpoint, CodecError, DType, Error, Manifest, NpyError, PickleError, Source,
    SourceError, Table, TorchError, ZipError, build, decode_rows, verify,
};
use proptest::prelude::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The value at `index` of the tables that `make.py` writes.
fn value(index: usize) -> f32 {
    ((index * 37 % 251) as f32 - 125.0) / 16.0
}

fn source(name: &str, key: Option<&str>) -> Source {
    Source::from_path(fixture(name), key.map(str::to_owned)).unwrap()
}

fn build_as(
    name: &str,
    key: Option<&str>,
    dtype: Option<DType>,
) -> Result<(Manifest, Vec<f32>), Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let spec = BuildSpec { name: "t".to_owned(), dtype, created_from: None };
    let manifest = build(&source(name, key), &spec, &path, &mut |_, _| {})?;
    assert!(verify(&path, &mut |_, _| {}).unwrap().ok);
    let table = Table::open(&path).unwrap();
    assert_eq!(*table.manifest(), manifest);
    let (rows, dim) = (table.rows() as usize, table.dim());
    let mut served = vec![0; rows * table.row_bytes()];
    table.copy_rows(0, &mut served).unwrap();
    let mut values = vec![0.0; rows * dim];
    decode_rows(table.dtype(), dim, &served, &mut values).unwrap();
    Ok((manifest, values))
}

fn fault(name: &str, key: Option<&str>) -> SourceError {
    match build_as(name, key, None).unwrap_err() {
        Error::Source { path, source } => {
            assert_eq!(path, fixture(name));
            source
        }
        other => panic!("{name}: {other}"),
    }
}

#[track_caller]
fn assert_table(
    (manifest, values): (Manifest, Vec<f32>),
    rows: u64,
    dim: usize,
    dtype: DType,
    expected: impl Fn(usize, usize) -> f32,
) {
    let shape = manifest.shape();
    assert_eq!((shape.rows(), shape.dim(), shape.dtype()), (rows, dim, dtype));
    for (i, value) in values.iter().enumerate() {
        assert_eq!(*value, expected(i / dim, i % dim), "row {}, column {}", i / dim, i % dim);
    }
}

#[test]
fn npy_of_every_version_and_float() {
    for (name, dtype) in [
        ("f2.npy", DType::F16),
        ("f4.npy", DType::F32),
        ("f8.npy", DType::F32),
        ("version2.npy", DType::F32),
        ("version3.npy", DType::F32),
    ] {
        assert_table(build_as(name, None, None).unwrap(), 6, 4, dtype, |r, c| value(4 * r + c));
    }
}

#[test]
fn every_source_float_becomes_every_table_float() {
    for name in ["f2.npy", "f4.npy", "f8.npy"] {
        for dtype in [DType::F16, DType::Bf16, DType::F32] {
            let built = build_as(name, None, Some(dtype)).unwrap();
            assert_table(built, 6, 4, dtype, |r, c| value(4 * r + c));
        }
        let (_, values) = build_as(name, None, Some(DType::Int8)).unwrap();
        for (i, back) in values.iter().enumerate() {
            assert!((back - value(i)).abs() <= 8.0 / 254.0);
        }
    }
}

#[test]
fn safetensors_with_and_without_a_key() {
    let of_items = |r, c| value(4 * r + c);
    let (manifest, values) = build_as("one.safetensors", None, None).unwrap();
    assert_eq!(manifest.created_from(), "one.safetensors#items");
    assert_table((manifest, values), 6, 4, DType::F32, of_items);
    let items = build_as("two.safetensors", Some("items"), None).unwrap();
    assert_table(items, 6, 4, DType::F32, of_items);
    let users = build_as("two.safetensors", Some("users"), None).unwrap();
    assert_table(users, 3, 2, DType::F16, |r, c| value(2 * r + c));

    match fault("two.safetensors", None) {
        SourceError::AmbiguousKey { mut candidates, candidate_count: 2 } => {
            candidates.sort();
            assert_eq!(candidates, ["items", "users"]);
        }
        other => panic!("{other}"),
    }
    match fault("one.safetensors", Some("item")) {
        SourceError::MissingKey { key, candidates, candidate_count: 1 } => {
            assert_eq!((key.as_str(), candidates), ("item", vec!["items".to_owned()]));
        }
        other => panic!("{other}"),
    }
    assert!(matches!(
        fault("one.safetensors", Some("bias")),
        SourceError::Rank { shape, .. } if shape == [4]
    ));
    assert!(matches!(
        fault("one.safetensors", Some("ids")),
        SourceError::Element { dtype, .. } if dtype == "I64"
    ));
}

#[test]
fn a_table_can_be_built_from_a_bundle_s_own_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let values: Vec<f32> = (0..35).map(value).collect();
    let first = Table::from_weight("t", 7, 5, DType::Bf16, &values).unwrap();
    first.save(&path).unwrap();
    let source = Source::from_path(path.join("rows.safetensors"), None).unwrap();
    let spec = BuildSpec { name: "again".to_owned(), ..BuildSpec::default() };
    let again = build(&source, &spec, &folder.path().join("u"), &mut |_, _| {}).unwrap();
    assert_eq!(again.version(), first.version());
}

#[test]
fn what_a_tensor_s_storage_is_the_negative_of_is_no_table() {
    let error = fault("beside.pt", Some("negated"));
    assert!(
        matches!(&error, SourceError::Element { dtype, .. } if dtype.contains("negated")),
        "{error}"
    );
}

#[test]
fn an_array_of_an_npz_is_chosen_by_its_name() {
    let users = build_as("model.npz", Some("user_embedding.weight"), None).unwrap();
    assert_eq!(users.0.created_from(), "model.npz#user_embedding.weight");
    assert_table(users, 6, 4, DType::F32, |row, column| value(row * 4 + column));
    let error = fault("model.npz", None);
    assert!(matches!(error, SourceError::AmbiguousKey { candidate_count: 2, .. }), "{error}");
    assert!(matches!(fault("compressed.npz", None), SourceError::Zip(ZipError::Compressed { .. })));
}

#[test]
fn torch_state_dicts_checkpoints_and_tensors() {
    for name in ["state_dict.pt", "protocol4.pt", "zip64.pt"] {
        let built = build_as(name, None, None).unwrap();
        assert_eq!(built.0.created_from(), format!("{name}#items.weight"));
        assert_table(built, 7, 5, DType::F32, |r, c| value(5 * r + c));
    }
    let users = build_as("checkpoint.pth", Some("model.users.weight"), None).unwrap();
    assert_table(users, 4, 3, DType::F16, |r, c| value(3 * r + c));
    let items = build_as("checkpoint.pth", Some("model.items.weight"), None).unwrap();
    assert_table(items, 4, 3, DType::Bf16, |r, c| 2.0 * value(3 * r + c));
    let double = build_as("tensor_f64.pt", None, None).unwrap();
    assert_eq!(double.0.created_from(), "tensor_f64.pt");
    assert_table(double, 6, 2, DType::F32, |r, c| value(2 * r + c));
    let parameter = build_as("parameter.pt", None, None).unwrap();
    assert_table(parameter, 6, 2, DType::F32, |r, c| value(2 * r + c));
}

#[test]
fn torch_views_keep_their_strides() {
    let sliced = build_as("sliced.pt", None, None).unwrap();
    assert_table(sliced, 7, 4, DType::F32, |r, c| value(6 * (r + 2) + c + 1));
    assert!(matches!(fault("transposed.pt", None), SourceError::Strides { name } if name == "w"));
    assert!(matches!(fault("expanded.pt", None), SourceError::Strides { .. }));
}

#[test]
fn torch_tensors_are_listed_with_their_kinds() {
    let tensors = source("state_dict.pt", None).tensors().unwrap();
    let listed: Vec<_> = tensors
        .iter()
        .map(|it| (it.name.as_str(), &it.shape[..], it.dtype.as_str(), it.is_table()))
        .collect();
    assert_eq!(
        listed,
        [
            ("items.weight", &[7, 5][..], "float32", true),
            ("norm.weight", &[5], "float32", false),
            ("norm.bias", &[5], "float32", false),
            ("norm.running_mean", &[5], "float32", false),
            ("norm.running_var", &[5], "float32", false),
            ("norm.num_batches_tracked", &[], "int64", false),
        ]
    );
}

#[test]
fn torch_files_that_are_not_tensors_are_refused() {
    match fault("evil.pt", None) {
        SourceError::Pickle(PickleError::Global { module, name }) => {
            assert_eq!((module.as_str(), name.as_str()), ("posix", "system"));
        }
        other => panic!("{other}"),
    }
    assert!(!Path::new("/tmp/hushtable-fixture-was-executed").exists());
    assert!(matches!(
        fault("deflated.pt", None),
        SourceError::Zip(ZipError::Compressed { method: 8, .. })
    ));
    assert!(matches!(fault("legacy.pt", None), SourceError::Torch(TorchError::Legacy)));
    assert!(matches!(fault("script.pt", None), SourceError::Torch(TorchError::TorchScript)));
    assert!(matches!(
        fault("integers.pt", None),
        SourceError::Element { dtype, .. } if dtype == "int64"
    ));
    assert!(matches!(
        fault("checkpoint.pth", None),
        SourceError::AmbiguousKey { candidate_count: 2, .. }
    ));
}

#[test]
fn arrays_that_are_no_tables_are_refused() {
    let npy = |name| match fault(name, None) {
        SourceError::Npy(error) => error,
        other => panic!("{other}"),
    };
    assert!(matches!(npy("big_endian.npy"), NpyError::BigEndian { descr } if descr == ">f4"));
    assert_eq!(npy("fortran.npy"), NpyError::FortranOrder);
    assert!(matches!(npy("integers.npy"), NpyError::Descr { descr } if descr == "<i8"));
    assert!(matches!(npy("fields.npy"), NpyError::Descr { descr } if descr == "structured"));
    assert!(matches!(fault("vector.npy", None), SourceError::Rank { shape, .. } if shape == [4]));
}

#[test]
fn paths_that_name_no_source_are_refused() {
    let refused =
        |name: &str, key: Option<&str>| match Source::from_path(name, key.map(str::to_owned))
            .unwrap_err()
        {
            Error::Source { source, .. } => source,
            other => panic!("{other}"),
        };
    assert!(matches!(
        refused("table.csv", None),
        SourceError::Extension { extension } if extension == "csv"
    ));
    assert!(matches!(refused("table", None), SourceError::Extension { .. }));
    assert!(matches!(refused("table.npy", Some("w")), SourceError::KeyOfArray));
    assert!(matches!(build_as("absent.npy", None, None), Err(Error::Io { action: "open", .. })));
    // The extension says one thing and the bytes another.
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in
        [("f4.npy", "a.safetensors"), ("one.safetensors", "a.pt"), ("state_dict.pt", "a.npy")]
    {
        let path = folder.path().join(to);
        std::fs::copy(fixture(from), &path).unwrap();
        let source = Source::from_path(&path, None).unwrap();
        assert!(matches!(source.tensors(), Err(Error::Source { .. })), "{from} as {to}");
    }
    // A folder; and a pipe that nobody writes to, which must not be waited for.
    let pipe = folder.path().join("pipe.npy");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    for path in [folder.path().to_owned(), pipe] {
        let tensors = Source::Npy { path }.tensors();
        assert!(matches!(tensors, Err(Error::Source { source: SourceError::NotAFile, .. })));
    }
}

/// Cuts every fixture short at every length: always an error, never a panic or a table.
#[test]
fn truncated_sources_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["f4.npy", "two.safetensors", "checkpoint.pth", "sliced.pt", "zip64.pt"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        let path = folder.path().join(name);
        for keep in 0..bytes.len() {
            std::fs::write(&path, &bytes[..keep]).unwrap();
            let source = Source::from_path(&path, None).unwrap();
            let error = source.tensors().err().unwrap_or_else(|| panic!("{name} cut to {keep}"));
            assert!(matches!(error, Error::Source { .. }), "{name} cut to {keep}: {error}");
        }
    }
}

/// Flips every bit of every small fixture: whatever comes out, nothing panics.
#[test]
fn damaged_sources_do_not_panic() {
    use hushtable_table::{SourceFormat, scan};
    let mut accepted = 0;
    let mut refused = 0;
    for (name, format) in [
        ("f4.npy", SourceFormat::Npy),
        ("model.npz", SourceFormat::Npz),
        ("beside.pt", SourceFormat::Torch),
        ("two.safetensors", SourceFormat::Safetensors),
        ("checkpoint.pth", SourceFormat::Torch),
        ("zip64.pt", SourceFormat::Torch),
    ] {
        let good = std::fs::read(fixture(name)).unwrap();
        for bit in 0..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            match scan(format, &bad) {
                Ok(_) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
    }
    // Bits of values change no header; bits of headers mostly do.
    assert!(accepted > 1_000 && refused > 1_000, "{accepted} accepted, {refused} refused");
}

/// A `.npy` of any shape, with `data` for values.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..Default::default() })]

    /// Streaming from a file and encoding in memory are two paths to the same bytes.
    #[test]
    fn a_built_table_is_the_table_made_in_memory(
        rows in 1_usize..200,
        dim in 1_usize..300,
        dtype in prop::sample::select(&DType::ALL[..]),
        seed in any::<u32>(),
    ) {
        let mut state = seed;
        let values: Vec<f32> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 65_536.0 - 128.0
        }).take(rows * dim).collect();
        let memory = Table::from_weight("t", rows as u64, dim, dtype, &values).unwrap();

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.npy");
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(&path, npy("<f4", &format!("({rows}, {dim})"), &data)).unwrap();
        let spec = BuildSpec { name: "t".to_owned(), dtype: Some(dtype), created_from: Some("memory".to_owned()) };
        let out = folder.path().join("t");
        let built = build(&Source::Npy { path }, &spec, &out, &mut |_, _| {}).unwrap();
        prop_assert_eq!(&built, memory.manifest());
        let report = verify(&out, &mut |_, _| {}).unwrap();
        prop_assert!(report.ok);
    }
}

#[test]
fn values_that_do_not_fit_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |values: &[f64]| {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let path = folder.path().join("in.npy");
        std::fs::write(&path, npy("<f8", &format!("({}, 2)", values.len() / 2), &data)).unwrap();
        Source::Npy { path }
    };
    let out = folder.path().join("t");
    let build_as = |source: &Source, dtype| {
        let spec = BuildSpec { name: "t".to_owned(), dtype: Some(dtype), ..BuildSpec::default() };
        build(source, &spec, &out, &mut |_, _| {})
    };
    // Far enough in that the row is counted over chunks.
    let mut values = vec![0.5; 400_000];
    let good = build_as(&write(&values), DType::F32).unwrap();
    values[399_999] = 1e39;
    assert!(matches!(
        build_as(&write(&values), DType::F32),
        Err(Error::Codec(CodecError::Overflow { row: 199_999, column: 1, dtype: "f32", .. }))
    ));
    values[399_999] = 1e5;
    assert!(matches!(
        build_as(&write(&values), DType::F16),
        Err(Error::Codec(CodecError::Overflow { row: 199_999, column: 1, dtype: "f16", .. }))
    ));
    values[399_998] = f64::NAN;
    assert!(matches!(
        build_as(&write(&values), DType::Int8),
        Err(Error::Codec(CodecError::NonFinite { row: 199_999, column: 0, .. }))
    ));
    // After three failed builds the first bundle stands, and nothing lies beside it.
    assert_eq!(Table::open(&out).unwrap().version(), good.version());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    let kept = build_as(&write(&values), DType::F32).unwrap();
    assert_eq!(kept.nonfinite_count(), 1);
}

#[test]
fn shapes_past_the_limits_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.npy");
    for (shape, data) in [("(0, 4)", 0), ("(4, 0)", 0), ("(1, 20000)", 80_000)] {
        std::fs::write(&path, npy("<f4", shape, &vec![0; data])).unwrap();
        let spec = BuildSpec { name: "t".to_owned(), ..BuildSpec::default() };
        let source = Source::Npy { path: path.clone() };
        let result = build(&source, &spec, &folder.path().join("t"), &mut |_, _| {});
        assert!(matches!(result, Err(Error::Shape(_))), "{shape}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Readers of maps take the last of two: a file that shows one table to whoever looks, and builds another.
#[test]
fn a_safetensors_file_with_two_tensors_of_a_name_is_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twice.safetensors");
    for again in ["emb.weight", r"emb\u002eweight", r"\u0065mb.weight"] {
        let entry = |from: u64| {
            let end = from + 8;
            format!(r#"{{"dtype":"F32","shape":[1,2],"data_offsets":[{from},{end}]}}"#)
        };
        for second in [0, 8] {
            let header = format!(r#"{{"emb.weight":{},"{again}":{}}}"#, entry(0), entry(second));
            let data = vec![0; second as usize + 8];
            let length = (header.len() as u64).to_le_bytes();
            std::fs::write(&path, [&length, header.as_bytes(), &data].concat()).unwrap();
            let opened = Checkpoint::open(&path).map(|_| ());
            let built = Source::from_path(&path, None).and_then(|source| {
                let spec = BuildSpec { name: "t".to_owned(), dtype: None, created_from: None };
                build(&source, &spec, &folder.path().join("t"), &mut |_, _| {}).map(|_| ())
            });
            for outcome in [opened, built] {
                let error = outcome.unwrap_err();
                let Error::Source { source, .. } = &error else { panic!("{error}") };
                // The last alone leaves a gap where both have a place.
                let is_named =
                    matches!(source, SourceError::RepeatedName { name } if name == "emb.weight");
                let is_gap = matches!(source, SourceError::SafetensorsHeader { .. });
                assert!(is_named || (second == 8 && is_gap), "{again}: {error}");
            }
        }
    }
}
