//! A bundle on a disk: what goes in comes out, and damage is found and named.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use hushtable_table::{
    CodecError, DType, Error, HeaderError, Manifest, ManifestError, RowsError, Table, decode_rows,
    verify,
};
use proptest::prelude::*;

const FILES: [&str; 3] = ["manifest.json", "rows.safetensors", "rows.sums"];
const HEADER_BYTES: usize = 4_096;

fn verify_quietly(path: &Path) -> Result<hushtable_table::Report, Error> {
    verify(path, &mut |_, _| {})
}

/// Every row of the table as served.
fn served(table: &Table) -> Vec<u8> {
    let mut bytes = vec![0; table.rows() as usize * table.row_bytes()];
    table.copy_rows(0, &mut bytes).unwrap();
    bytes
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 % 251) as f32 - 125.0) / 16.0).collect()
}

fn table(rows: u64, dim: usize, dtype: DType) -> Table {
    Table::from_weight("films", rows, dim, dtype, &values(rows as usize * dim)).unwrap()
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(&DType::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_saved_is_opened(rows in 1_u64..300, dim in 1_usize..70, dtype in dtypes()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let memory = table(rows, dim, dtype);
        memory.save(&path).unwrap();
        let opened = Table::open(&path).unwrap();
        prop_assert_eq!(opened.manifest(), memory.manifest());
        prop_assert_eq!(opened.path(), Some(&*path));
        prop_assert_eq!(memory.path(), None);
        prop_assert_eq!((opened.rows(), opened.dim(), opened.dtype()), (rows, dim, dtype));
        prop_assert_eq!(opened.row_bytes(), dtype.row_bytes(dim));
        prop_assert_eq!(served(&opened), served(&memory));

        // Any run of rows is that slice of all rows.
        let first = rows / 3;
        let mut some = vec![0; (rows - first) as usize / 2 * opened.row_bytes()];
        opened.copy_rows(first, &mut some).unwrap();
        let start = first as usize * opened.row_bytes();
        prop_assert_eq!(&some[..], &served(&memory)[start..start + some.len()]);

        let report = verify_quietly(&path).unwrap();
        prop_assert!(report.ok && report.damaged.is_empty() && report.damaged_count == 0);
        prop_assert_eq!(report.rows, rows);
    }
}

#[test]
fn tables_of_many_chunks_keep_their_order() {
    // Over 1 MiB of rows, so that the writer, the reader and the sums all cross chunks.
    let folder = tempfile::tempdir().unwrap();
    for (dtype, dim) in [(DType::F32, 33), (DType::Int8, 129), (DType::F16, 1)] {
        let rows = 3 * (1 << 20) / dtype.row_bytes(dim) as u64 + 5;
        let path = folder.path().join("t");
        let memory = table(rows, dim, dtype);
        memory.save(&path).unwrap();
        assert_eq!(served(&Table::open(&path).unwrap()), served(&memory));
        let mut calls = Vec::new();
        assert!(verify(&path, &mut |done, all| calls.push((done, all))).unwrap().ok);
        assert_eq!(calls.first(), Some(&(0, rows)));
        assert_eq!(calls.last(), Some(&(rows, rows)));
        assert!(calls.len() > 4 && calls.is_sorted());
    }
}

#[test]
fn rows_decode_to_what_was_given() {
    for dtype in DType::ALL {
        let table = table(17, 9, dtype);
        let mut back = vec![0.0; 17 * 9];
        decode_rows(dtype, 9, &served(&table), &mut back).unwrap();
        // Half a step of a row that reaches to 8, of the next float, or of what least squares may choose.
        let bound = match dtype {
            DType::Bf16 | DType::F16 | DType::F32 => 0.0,
            DType::Int8 => 8.0 / 254.0,
            DType::Fp8E4m3(_) => 0.5,
            DType::Fp8E5m2(_) => 1.0,
            DType::Int4(_) => 0.75,
            DType::Int2(_) => 4.0,
        };
        for (value, back) in values(17 * 9).iter().zip(&back) {
            assert!((value - back).abs() <= bound, "{dtype}: {value} came back as {back}");
        }
    }
}

#[test]
fn a_version_is_of_content_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (left, right) = (folder.path().join("left"), folder.path().join("right"));
    table(9, 4, DType::F16).save(&left).unwrap();
    let renamed = Table::from_weight("other", 9, 4, DType::F16, &values(36)).unwrap();
    renamed.save(&right).unwrap();
    let versions = [&left, &right].map(|path| Table::open(path).unwrap().version());
    assert_eq!(versions[0], versions[1]);
    let mut changed = values(36);
    changed[35] += 0.5;
    let changed = Table::from_weight("films", 9, 4, DType::F16, &changed).unwrap();
    assert_ne!(changed.version(), versions[0]);
}

#[test]
fn rows_out_of_range_and_odd_buffers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    table(10, 3, DType::Int8).save(&folder.path().join("t")).unwrap();
    for table in [table(10, 3, DType::Int8), Table::open(&folder.path().join("t")).unwrap()] {
        let mut out = vec![0; 2 * table.row_bytes()];
        table.copy_rows(8, &mut out).unwrap();
        table.copy_rows(10, &mut []).unwrap();
        for first in [9, 10, 11, u64::MAX] {
            let error = table.copy_rows(first, &mut out).unwrap_err();
            assert!(matches!(error, Error::RowRange { count: 2, rows: 10, .. }), "{error}");
        }
        assert!(matches!(
            table.copy_rows(0, &mut out[1..]),
            Err(Error::Codec(CodecError::PartialRow { byte_count: 13, row_bytes: 7 }))
        ));
    }
}

#[test]
fn weights_of_the_wrong_form_are_refused() {
    let make = |name: &str, rows, dim, values: &[f32]| {
        Table::from_weight(name, rows, dim, DType::F16, values).unwrap_err()
    };
    assert!(matches!(
        make("t", 3, 2, &[0.0; 5]),
        Error::Codec(CodecError::ValueCount { expected: 6, found: 5 })
    ));
    assert!(matches!(make("t", 0, 2, &[]), Error::Shape(_)));
    assert!(matches!(make("t", 1 << 40, 2, &[]), Error::Shape(_)));
    assert!(matches!(make("t", 1 << 32, 16, &[]), Error::Codec(CodecError::ValueCount { .. })));
    assert!(matches!(make("", 1, 1, &[0.0]), Error::Name { byte_count: 0, control: false }));
    assert!(matches!(make("a\u{7}", 1, 1, &[0.0]), Error::Name { control: true, .. }));
    assert!(matches!(make(&"x".repeat(129), 1, 1, &[0.0]), Error::Name { byte_count: 129, .. }));
    assert!(matches!(make("t", 1, 1, &[1e30]), Error::Codec(CodecError::Overflow { .. })));
}

#[test]
fn nonfinite_values_are_kept_and_counted() {
    let values = [1.0, f32::NAN, f32::NEG_INFINITY, 0.0];
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let table = Table::from_weight("t", 2, 2, dtype, &values).unwrap();
        assert_eq!(table.manifest().nonfinite_count(), 2);
        let mut back = [0.0; 4];
        decode_rows(dtype, 2, &served(&table), &mut back).unwrap();
        assert!(back[1].is_nan() && back[2] == f32::NEG_INFINITY);
    }
    assert!(matches!(
        Table::from_weight("t", 2, 2, DType::Int8, &values),
        Err(Error::Codec(CodecError::NonFinite { row: 0, column: 1, .. }))
    ));
}

/// Flips one bit of every byte of every file in turn: nothing goes unnoticed, and a row's bit is
/// pinned to that row.
#[test]
fn every_flipped_bit_is_found() {
    for dtype in [DType::F16, DType::Int8] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let (rows, dim) = (13_usize, 5_usize);
        let memory = table(rows as u64, dim, dtype);
        memory.save(&path).unwrap();
        for file in FILES {
            let good = fs::read(path.join(file)).unwrap();
            for offset in 0..good.len() {
                let mut bad = good.clone();
                bad[offset] ^= 1 << (offset % 8);
                fs::write(path.join(file), &bad).unwrap();
                let place = format!("{dtype}: {file} at {offset}");
                match verify_quietly(&path) {
                    // The manifest is covered whole at open; so are the marks and the header.
                    Err(Error::Manifest { .. } | Error::Rows { .. }) => {}
                    Err(other) => panic!("{place}: {other}"),
                    Ok(report) if report.ok => {
                        // A letter of a hash in the other case means the same.
                        assert_eq!(file, "manifest.json", "{place}");
                        assert_eq!(Manifest::from_json(&bad).unwrap(), *memory.manifest());
                    }
                    Ok(report) => {
                        let data = offset.wrapping_sub(HEADER_BYTES);
                        let row = match (file, dtype) {
                            ("rows.sums", _) => Some((offset - 16) / 4),
                            _ if offset < HEADER_BYTES => None,
                            (_, DType::Int8) if data < 4 * rows => Some(data / 4),
                            (_, DType::Int8) => Some((data - 4 * rows) / dim),
                            _ => Some(data / (2 * dim)),
                        };
                        assert_eq!(report.damaged_count, 1, "{place}");
                        assert_eq!(report.damaged[0].file, file, "{place}");
                        assert_eq!(report.damaged[0].row, row.map(|row| row as u64), "{place}");
                    }
                }
            }
            fs::write(path.join(file), &good).unwrap();
        }
        assert!(verify_quietly(&path).unwrap().ok);
    }
}

#[test]
fn many_damaged_rows_are_counted_and_the_first_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    table(100, 8, DType::F32).save(&path).unwrap();
    let file = path.join("rows.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    for row in 40..90 {
        bytes[HEADER_BYTES + 32 * row + 7] ^= 0x10;
    }
    fs::write(&file, &bytes).unwrap();
    let report = verify_quietly(&path).unwrap();
    assert!(!report.ok);
    assert_eq!(report.damaged_count, 50);
    let rows: Vec<_> = report.damaged.iter().map(|damage| damage.row.unwrap()).collect();
    assert_eq!(rows, (40..56).collect::<Vec<_>>());
    assert!(report.damaged[0].to_string().contains("row 40"));

    // With the sums damaged too, both files are named.
    let sums = path.join("rows.sums");
    let mut bytes = fs::read(&sums).unwrap();
    bytes[20] ^= 1;
    fs::write(&sums, &bytes).unwrap();
    let report = verify_quietly(&path).unwrap();
    assert!(report.damaged.iter().any(|damage| damage.file == "rows.sums"));
    assert!(report.damaged.iter().any(|damage| damage.row == Some(40)));
}

#[test]
fn rows_of_another_table_are_found() {
    // Both files swapped for those of a table of the same shape: every row matches its sum, and
    // only the hash in the manifest can tell.
    let folder = tempfile::tempdir().unwrap();
    let (left, right) = (folder.path().join("left"), folder.path().join("right"));
    table(20, 4, DType::F32).save(&left).unwrap();
    Table::from_weight("films", 20, 4, DType::F32, &[1.5; 80]).unwrap().save(&right).unwrap();
    fs::copy(right.join("rows.safetensors"), left.join("rows.safetensors")).unwrap();
    fs::copy(right.join("rows.sums"), left.join("rows.sums")).unwrap();
    let report = verify_quietly(&left).unwrap();
    assert!(!report.ok);
    let files: Vec<_> = report.damaged.iter().map(|damage| (damage.file, damage.row)).collect();
    assert_eq!(files, [("rows.safetensors", None), ("rows.sums", None)]);
}

#[test]
fn truncated_and_missing_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    table(50, 8, DType::F32).save(&path).unwrap();
    for (file, keeps) in
        [("rows.safetensors", &[0, 7, 4_095, 4_096, 5_000][..]), ("rows.sums", &[0, 15, 16, 215])]
    {
        let good = fs::read(path.join(file)).unwrap();
        for keep in keeps {
            fs::write(path.join(file), &good[..*keep]).unwrap();
            for error in [Table::open(&path).unwrap_err(), verify_quietly(&path).unwrap_err()] {
                assert!(
                    matches!(&error, Error::Rows { source: RowsError::FileSize { expected, found }, .. }
                        if *expected == good.len() as u64 && *found == *keep as u64),
                    "{file} cut to {keep}: {error}"
                );
            }
        }
        fs::write(path.join(file), [&good[..], b"x"].concat()).unwrap();
        assert!(matches!(Table::open(&path), Err(Error::Rows { .. })), "a byte too many");
        fs::remove_file(path.join(file)).unwrap();
        assert!(matches!(
            Table::open(&path),
            Err(Error::MissingFile { file: missing, .. }) if missing == file
        ));
        fs::write(path.join(file), &good).unwrap();
    }
    let good = fs::read(path.join("manifest.json")).unwrap();
    for keep in 0..good.len() - 1 {
        fs::write(path.join("manifest.json"), &good[..keep]).unwrap();
        let error = Table::open(&path).unwrap_err();
        assert!(
            matches!(error, Error::Manifest { source: ManifestError::Json { .. }, .. }),
            "{keep}: {error}"
        );
    }
}

#[test]
fn what_is_no_bundle_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    assert!(matches!(Table::open(&path), Err(Error::Io { action: "open", .. })));
    fs::create_dir(&path).unwrap();
    assert!(matches!(Table::open(&path), Err(Error::NotABundle { .. })));
    fs::write(folder.path().join("file"), "x").unwrap();
    assert!(matches!(Table::open(&folder.path().join("file")), Err(Error::NotABundle { .. })));
    // A manifest of 1 GiB is refused by its size, not read.
    let sparse = fs::File::create(path.join("manifest.json")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    assert!(matches!(
        Table::open(&path),
        Err(Error::Manifest { source: ManifestError::TooLarge { .. }, .. })
    ));
}

#[test]
fn a_pipe_or_folder_in_place_of_a_file_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    table(5, 2, DType::F32).save(&path).unwrap();
    let rows = path.join("rows.safetensors");
    fs::remove_file(&rows).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &rows, fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let not_a_file =
        |result| matches!(result, Err(Error::Rows { source: RowsError::NotAFile, .. }));
    assert!(not_a_file(Table::open(&path)));
    fs::remove_file(&rows).unwrap();
    fs::create_dir(&rows).unwrap();
    assert!(not_a_file(Table::open(&path)));
}

#[test]
fn a_lying_manifest_or_header_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    table(6, 4, DType::F32).save(&path).unwrap();
    // A whole manifest of another shape with the same number of bytes: the header gives it away.
    let other = folder.path().join("other");
    table(4, 6, DType::F32).save(&other).unwrap();
    let good = fs::read(path.join("manifest.json")).unwrap();
    fs::copy(other.join("manifest.json"), path.join("manifest.json")).unwrap();
    let error = Table::open(&path).unwrap_err();
    assert!(
        matches!(&error, Error::Rows { source: RowsError::Header { source: HeaderError::Tensors { shape } }, .. }
            if shape.rows() == 4),
        "{error}"
    );
    // An edit: 2^60 rows are refused by the limit, one row more by the checksum.
    for (rows, limit) in [("1152921504606846976", true), ("7", false)] {
        let text = String::from_utf8(good.clone()).unwrap();
        let text = text.replace("\"rows\": 6", &format!("\"rows\": {rows}"));
        fs::write(path.join("manifest.json"), text).unwrap();
        let error = Table::open(&path).unwrap_err();
        match error {
            Error::Manifest { source: ManifestError::Shape(_), .. } => assert!(limit),
            Error::Manifest { source: ManifestError::Checksum, .. } => assert!(!limit),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn an_open_table_outlives_its_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let old = table(2_000, 16, DType::F32);
    old.save(&path).unwrap();
    let opened = Table::open(&path).unwrap();
    let link = folder.path().join("current");
    symlink("t", &link).unwrap();
    Table::from_weight("new", 1, 1, DType::F32, &[1.0]).unwrap().save(&link).unwrap();
    assert_eq!(served(&opened), served(&old));
    assert_eq!(Table::open(&path).unwrap().name(), "new");
    assert_eq!(Table::open(&link).unwrap().name(), "new");
    let entries = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(entries, 2, "the old bundle is gone");
}
