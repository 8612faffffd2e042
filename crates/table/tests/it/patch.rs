//! Patches: the next version costs what changes, is the one that a rebuild makes, and nothing that is
//! damaged or of another table goes into one.

use std::fs;
use std::path::Path;

use hushtable_table::patch::{Patch, follow, patch, patch_from, patch_with};
use hushtable_table::{DType, Error, PatchError, RowsError, Table, encode_rows, verify};
use tempfile::TempDir;

const ROWS: u64 = 20_011;

fn values(rows: u64, dim: usize) -> Vec<f32> {
    (0..rows as usize * dim).map(|i| (i % 1_009) as f32 * 0.25).collect()
}

fn saved(folder: &Path, rows: u64, dim: usize, dtype: DType) -> Table {
    let path = folder.join("base");
    Table::from_weight("films", rows, dim, dtype, &values(rows, dim)).unwrap().save(&path).unwrap();
    Table::open(&path).unwrap()
}

fn rows_of(dtype: DType, dim: usize, count: usize, value: f32) -> Vec<u8> {
    let mut served = vec![0; count * dtype.row_bytes(dim)];
    encode_rows(dtype, dim, &vec![value; count * dim], &mut served).unwrap();
    served
}

fn served(table: &Table) -> Vec<u8> {
    let mut served = vec![0; table.rows() as usize * table.row_bytes()];
    let reading = table.reading().unwrap();
    reading.copy_rows(0, &mut served).unwrap();
    reading.finish().unwrap();
    served
}

fn is_whole(path: &Path) -> bool {
    verify(path, &mut |_, _| {}).unwrap().ok
}

#[test]
fn a_patched_bundle_is_the_rebuilt_one() {
    for (dtype, dim) in [
        (DType::F32, 16),
        (DType::F32, 5),
        (DType::Int8, 13),
        (DType::F16, 1),
        (DType::Bf16, 700),
        (DType::F32, 1_500),
    ] {
        let folder = TempDir::new().unwrap();
        let rows = if dim > 100 { 600 } else { ROWS };
        let base = saved(folder.path(), rows, dim, dtype);
        let ids = [rows - 1, 0, 255, 256, 17, 512];
        let new = rows_of(dtype, dim, ids.len(), -3.5);
        let next = folder.path().join("next");
        let manifest = patch(&folder.path().join("base"), &ids, &new, &next).unwrap();

        let mut expected = values(rows, dim);
        for id in ids {
            expected[id as usize * dim..][..dim].fill(-3.5);
        }
        let rebuilt = Table::from_weight("films", rows, dim, dtype, &expected).unwrap();
        let table = Table::open(&next).unwrap();
        assert_eq!(manifest.version(), rebuilt.version(), "{dtype} × {dim}");
        assert_eq!(table.base_version(), base.version());
        assert_eq!(served(&table), served(&rebuilt));
        table.check_patch().unwrap();
        assert!(is_whole(&next) && is_whole(&folder.path().join("base")));
        // A patch of the patched one, over a row of the first and back to what was.
        let again = folder.path().join("again");
        let mut old = vec![0; base.row_bytes()];
        base.copy_rows(17, &mut old).unwrap();
        let old = [old, rows_of(dtype, dim, 1, 8.0)].concat();
        patch(&next, &[17, 300], &old, &again).unwrap();
        expected[17 * dim..18 * dim].copy_from_slice(&values(rows, dim)[17 * dim..18 * dim]);
        expected[300 * dim..301 * dim].fill(8.0);
        let rebuilt = Table::from_weight("films", rows, dim, dtype, &expected).unwrap();
        let table = Table::open(&again).unwrap();
        assert_eq!(table.version(), rebuilt.version());
        assert!(is_whole(&again));
        // Written whole again, it is the same version without a patch.
        let whole = folder.path().join("whole");
        table.save(&whole).unwrap();
        let whole = Table::open(&whole).unwrap();
        assert_eq!((whole.version(), whole.patch()), (rebuilt.version(), None));
        // What was sent to another holder of the base makes the same.
        let sent = Patch::from_bytes(&fs::read(again.join("rows.patch")).unwrap()).unwrap();
        let there = folder.path().join("there");
        patch_with(&folder.path().join("base"), &sent, &there).unwrap();
        assert_eq!(Table::open(&there).unwrap().version(), rebuilt.version());
    }
}

#[test]
fn rows_all_over_a_table_make_the_rebuilt_one() {
    // Enough leaves, blocks and nodes that threads share them.
    let (rows, dim, every) = (800_001, 4, 17);
    let folder = TempDir::new().unwrap();
    saved(folder.path(), rows, dim, DType::F32);
    let ids: Vec<u64> = (0..rows).step_by(every).collect();
    let new = rows_of(DType::F32, dim, ids.len(), 7.5);
    let (base, next) = (folder.path().join("base"), folder.path().join("next"));
    let manifest = patch(&base, &ids, &new, &next).unwrap();
    let mut expected = values(rows, dim);
    expected.chunks_mut(dim).step_by(every).for_each(|row| row.fill(7.5));
    let rebuilt = Table::from_weight("films", rows, dim, DType::F32, &expected).unwrap();
    assert_eq!(manifest.version(), rebuilt.version());
    Table::open(&next).unwrap().check_patch().unwrap();

    // One damaged hash among them, in each level of the tree.
    let tree = next.join("rows.tree");
    let whole = fs::read(&tree).unwrap();
    let length = whole.len();
    for at in [16 + 32 * 5_000, length - 32 * 1_000, length - 32 * 2] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::remove_file(&tree).unwrap();
        fs::write(&tree, bytes).unwrap();
        let error = Table::open(&next).unwrap().check_patch().unwrap_err();
        assert!(matches!(error, Error::Rows { .. }), "{at}: {error}");
    }
}

#[test]
fn values_that_are_no_numbers_are_counted_through_patches() {
    let folder = TempDir::new().unwrap();
    saved(folder.path(), ROWS, 2, DType::F32);
    let at = |name: &str| folder.path().join(name);
    let rows = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let first = patch(&at("base"), &[3, 9], &rows(&[nan, 1.0, inf, nan]), &at("one")).unwrap();
    assert_eq!(first.nonfinite_count(), 3);
    // One of its rows changes again, the other one stays.
    let second = patch(&at("one"), &[9, 12], &rows(&[1.0, inf, 0.0, 0.0]), &at("two")).unwrap();
    assert_eq!(second.nonfinite_count(), 2);
    // A patch of the base, in the place of the second: row 12 and row 9 are the base's again.
    let other = patch(&at("base"), &[3, 7], &rows(&[2.0, nan, nan, nan]), &at("other")).unwrap();
    assert_eq!(other.nonfinite_count(), 3);
    let third = patch_from(&at("two"), &at("other").join("rows.patch"), &at("three")).unwrap();
    assert_eq!((third.version(), third.nonfinite_count()), (other.version(), 3));
}

#[test]
fn rows_that_were_cut_off_are_noticed() {
    for dtype in [DType::F32, DType::Int8] {
        let folder = TempDir::new().unwrap();
        saved(folder.path(), ROWS, 8, dtype);
        let (base, next) = (folder.path().join("base"), folder.path().join("next"));
        let last = ROWS - 1;
        patch(&base, &[last], &rows_of(dtype, 8, 1, 2.0), &next).unwrap();
        let table = Table::open(&next).unwrap();
        let file = fs::OpenOptions::new().write(true).open(base.join("rows.safetensors")).unwrap();
        file.set_len(file.metadata().unwrap().len() - 8).unwrap();
        let mut row = vec![0; table.row_bytes()];
        for error in
            [table.check_patch().unwrap_err(), table.copy_base_row(last, &mut row).unwrap_err()]
        {
            assert!(matches!(error, Error::Rows { source: RowsError::Lost, .. }), "{error}");
        }
        table.copy_base_row(0, &mut row).unwrap();
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let base = saved(folder.path(), ROWS, 4, DType::F32);
    let (path, out) = (folder.path().join("base"), folder.path().join("next"));
    let refusal =
        |ids: &[u64], bytes: usize| match patch(&path, ids, &vec![0; bytes], &out).unwrap_err() {
            Error::Patch { source, .. } => source,
            other => panic!("{other}"),
        };
    assert!(matches!(refusal(&[ROWS], 16), PatchError::Id { id: ROWS, rows: ROWS }));
    assert!(matches!(refusal(&[3, 4, 3], 48), PatchError::Twice { id: 3 }));
    assert!(matches!(refusal(&[3], 12), PatchError::RowBytes { ids: 1, row_bytes: 16, bytes: 12 }));
    assert!(matches!(refusal(&[], 0), PatchError::Empty));
    let many: Vec<u64> = (0..1_300).collect();
    assert!(matches!(refusal(&many, 16 * 1_300), PatchError::TooMany { found: 1_300, max: 1_250 }));
    assert!(!out.exists());
    // A table in memory has no tree to walk.
    let memory = Table::from_weight("t", 4, 1, DType::F32, &[0.0; 4]).unwrap();
    let error = Patch::new(&memory, &[1], &[0; 4]).unwrap_err();
    assert!(matches!(error, Error::Patch { source: PatchError::NoTree, .. }));
    // Another table's patch.
    let other = TempDir::new().unwrap();
    let table = Table::from_weight("films", ROWS, 4, DType::F32, &vec![1.0; ROWS as usize * 4]);
    table.unwrap().save(&other.path().join("base")).unwrap();
    let table = Table::open(&other.path().join("base")).unwrap();
    let foreign = Patch::new(&table, &[5], &[7; 16]).unwrap();
    let error = patch_with(&path, &foreign, &out).unwrap_err();
    assert!(matches!(error, Error::Patch { source: PatchError::Base { .. }, .. }), "{error}");
    // A patch that says another version than it makes.
    let mut forged = Patch::new(&base, &[5], &[7; 16]).unwrap().to_bytes();
    forged.truncate(forged.len() - 32);
    forged[48] ^= 1;
    let mut hasher = blake3::Hasher::new_derive_key("hushtable table patch v1");
    let sum = hasher.update(&forged).finalize();
    forged.extend_from_slice(sum.as_bytes());
    let error = patch_with(&path, &Patch::from_bytes(&forged).unwrap(), &out).unwrap_err();
    assert!(matches!(error, Error::Patch { source: PatchError::Next { .. }, .. }), "{error}");
    assert!(!out.exists());
}

#[test]
fn every_flipped_bit_is_noticed() {
    let folder = TempDir::new().unwrap();
    let base = saved(folder.path(), ROWS, 4, DType::F32);
    let (path, next) = (folder.path().join("base"), folder.path().join("next"));
    let patched = Patch::new(&base, &[5, 9_000], &[7; 32]).unwrap();
    let bytes = patched.to_bytes();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        assert!(Patch::from_bytes(&flipped).is_err(), "byte {at}");
        assert!(Patch::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
    }
    // A damaged row beside a changed one, and each hash on the way: no next version comes of them.
    let flip = |name: &str, at: usize| {
        let file = path.join(name);
        let mut bytes = fs::read(&file).unwrap();
        bytes[at] ^= 1;
        fs::remove_file(&file).unwrap();
        fs::write(&file, bytes).unwrap();
    };
    let size = fs::metadata(path.join("rows.tree")).unwrap().len() as usize;
    let rows = fs::metadata(path.join("rows.safetensors")).unwrap().len() as usize;
    let data = rows - ROWS as usize * 16;
    for (name, at) in [
        ("rows.safetensors", data + 6 * 16),
        ("rows.tree", 16),
        ("rows.tree", 16 + 32 * 3),
        ("rows.tree", size - 1),
        ("rows.tree", size - 33),
    ] {
        flip(name, at);
        let error = patch(&path, &[5], &[7; 16], &next).unwrap_err();
        assert!(
            matches!(&error, Error::Rows { source: RowsError::Row { .. } | RowsError::Tree, .. }),
            "{name} {at}: {error}"
        );
        assert!(!is_whole(&path), "{name} {at}");
        flip(name, at);
    }
    assert!(is_whole(&path));
    patch(&path, &[5], &[7; 16], &next).unwrap();
    // Without its patch, or with another's, a patched bundle is none.
    let file = next.join("rows.patch");
    fs::write(&file, &bytes).unwrap();
    assert!(Table::open(&next).is_err());
    fs::remove_file(&file).unwrap();
    assert!(matches!(Table::open(&next), Err(Error::MissingFile { file: "rows.patch", .. })));
}

#[test]
fn a_bundle_that_was_made_whole_follows_an_earlier_one() {
    let folder = TempDir::new().unwrap();
    saved(folder.path(), ROWS, 5, DType::Int8);
    let (base, out) = (folder.path().join("base"), folder.path().join("out"));
    let mut changed = values(ROWS, 5);
    for id in [0, 255, 256, 9_000, ROWS as usize - 1] {
        changed[id * 5..][..5].fill(-7.0);
    }
    let next = Table::from_weight("films", ROWS, 5, DType::Int8, &changed).unwrap();
    let manifest = follow(&base, &next, &out).unwrap();
    let table = Table::open(&out).unwrap();
    assert_eq!((manifest.version(), table.version()), (next.version(), next.version()));
    assert_eq!(table.patch().unwrap().ids(), [0, 255, 256, 9_000, ROWS - 1]);
    assert!(is_whole(&out) && served(&table) == served(&next));

    // The same by the file alone, where the earlier bundle is.
    let elsewhere = folder.path().join("elsewhere");
    patch_from(&base, &out.join("rows.patch"), &elsewhere).unwrap();
    assert_eq!(Table::open(&elsewhere).unwrap().version(), next.version());
    let error = patch_from(&base, &base.join("rows.sums"), &elsewhere).unwrap_err();
    assert!(matches!(error, Error::Patch { source: PatchError::Mark, .. }), "{error:?}");

    let refused = |next: &Table| match follow(&base, next, &elsewhere).unwrap_err() {
        Error::Patch { source, .. } => source,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(&Table::open(&base).unwrap()), PatchError::Empty));
    let all = Table::from_weight("films", ROWS, 5, DType::Int8, &vec![1.0; ROWS as usize * 5]);
    assert!(matches!(refused(&all.unwrap()), PatchError::TooMany { .. }));
    let short = Table::from_weight("films", 10, 5, DType::Int8, &[1.0; 50]).unwrap();
    let error = refused(&short);
    assert!(matches!(error, PatchError::Shapes { .. }), "{error:?}");
    assert!(error.to_string().contains("20011 rows of 5 int8"), "{error}");
}
