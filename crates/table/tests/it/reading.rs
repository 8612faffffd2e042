//! Checked readings: what is read is what the version says, or an error.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hushtable_table::{BLOCK_ROWS, DType, Error, RowsError, Table};

const ROWS: u64 = 3 * BLOCK_ROWS as u64 + 7;
const DIM: usize = 3;

fn save(folder: &Path, dtype: DType) -> Table {
    let values: Vec<f32> = (0..ROWS as usize * DIM).map(|i| i as f32).collect();
    let path = folder.join("films");
    Table::from_weight("films", ROWS, DIM, dtype, &values).unwrap().save(&path).unwrap();
    Table::open(&path).unwrap()
}

fn flip(file: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// Reads all blocks, the last first.
fn read(table: &Table) -> Result<(), Error> {
    let reading = table.reading()?;
    for block in (0..ROWS.div_ceil(BLOCK_ROWS as u64)).rev() {
        let first = block * BLOCK_ROWS as u64;
        let count = (ROWS - first).min(BLOCK_ROWS as u64) as usize;
        reading.copy_rows(first, &mut vec![0; count * table.row_bytes()])?;
    }
    reading.finish()
}

#[test]
fn every_flipped_bit_of_rows_and_sums_is_found_and_its_row_named() {
    for dtype in [DType::F16, DType::Int8] {
        let folder = tempfile::tempdir().unwrap();
        let table = save(folder.path(), dtype);
        read(&table).unwrap();
        let rows = folder.path().join("films/rows.safetensors");
        let bytes = std::fs::metadata(&rows).unwrap().len();
        // A prime step: in the header, in scales and in codes.
        for at in (4080..bytes).step_by(61) {
            flip(&rows, at);
            let row = |source: RowsError| match source {
                RowsError::Content { row, expected, .. } if expected == table.version() => row,
                RowsError::HeaderBytes if at < 4096 => None,
                other => panic!("{other}"),
            };
            let content = at.checked_sub(4096).map(|at| match dtype {
                DType::Int8 if at < 4 * ROWS => at / 4,
                DType::Int8 => (at - 4 * ROWS) / DIM as u64,
                _ => at / table.row_bytes() as u64,
            });
            match read(&table) {
                Err(Error::Rows { source, path }) => {
                    assert_eq!((row(source), path), (content, rows.clone()));
                }
                other => panic!("byte {at}: {other:?}"),
            }
            if let Some(row) = content {
                let checked = table.checked_rows().unwrap();
                let error = checked.copy_rows(row, &mut vec![0; table.row_bytes()]).unwrap_err();
                assert!(
                    matches!(&error, Error::Rows { source: RowsError::Row { row: r }, .. } if *r == row),
                    "{error}"
                );
            }
            // A bundle that is copied is not given a version of its own by its damage.
            assert!(content.is_none() || table.save(&folder.path().join("copy")).is_err());
            flip(&rows, at);
        }
        read(&table).unwrap();
        let sums = folder.path().join("films/rows.sums");
        for at in [0, 16, 16 + 4 * ROWS - 1] {
            flip(&sums, at);
            let error = read(&table).unwrap_err();
            assert!(
                matches!(&error, Error::Rows { source: RowsError::Sums { .. }, .. }),
                "{error}"
            );
            assert!(table.checked_rows().is_err());
            flip(&sums, at);
        }
        // Of the tree, which a patch is made by: its mark is checked where it opens.
        let tree = folder.path().join("films/rows.tree");
        let bytes = std::fs::metadata(&tree).unwrap().len();
        for at in [16, bytes / 2, bytes - 1] {
            flip(&tree, at);
            let error = read(&table).unwrap_err();
            assert!(
                matches!(&error, Error::Rows { source: RowsError::Tree, .. }),
                "byte {at} of {bytes}: {error}"
            );
            flip(&tree, at);
        }
        read(&table).unwrap();
    }
}

#[test]
fn a_reading_takes_whole_blocks_and_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let table = save(folder.path(), DType::F32);
    let reading = table.reading().unwrap();
    let mut some = vec![0; BLOCK_ROWS * table.row_bytes()];
    let partial = |result| assert!(matches!(result, Err(Error::PartialBlock { .. })), "{result:?}");
    partial(reading.copy_rows(1, &mut some));
    partial(reading.copy_rows(0, &mut some[table.row_bytes()..]));
    reading.copy_rows(0, &mut some).unwrap();
    partial(reading.finish());
    // Changed between two readings of the same block.
    let reading = table.reading().unwrap();
    reading.copy_rows(0, &mut some).unwrap();
    flip(&folder.path().join("films/rows.safetensors"), 4096);
    assert!(reading.copy_rows(0, &mut some).is_err());
}

#[test]
fn a_bundle_cut_short_while_it_is_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let table = save(folder.path(), DType::F32);
    let rows = folder.path().join("films/rows.safetensors");
    let bytes = std::fs::metadata(&rows).unwrap().len();
    // Within the last page what is missing reads as zeros, which no signal tells.
    OpenOptions::new().write(true).open(&rows).unwrap().set_len(bytes - 1).unwrap();
    let error = read(&table).unwrap_err();
    assert!(matches!(&error, Error::Rows { source: RowsError::Content { .. }, .. }), "{error}");
    OpenOptions::new().write(true).open(&rows).unwrap().set_len(4096).unwrap();
    let error = table.copy_rows(0, &mut vec![0; table.row_bytes()]).unwrap_err();
    assert!(matches!(&error, Error::Rows { source: RowsError::Lost, .. }), "{error}");
    assert!(read(&table).is_err());
    assert!(table.save(&folder.path().join("copy")).is_err());
}
