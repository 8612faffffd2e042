//! Damages the files of a good bundle: whatever then opens and verifies holds the same rows.

#![no_main]

use std::fs;

use arbitrary::Arbitrary;
use hushtable_fuzz::{Damage, with_folder};
use hushtable_table::{DType, Table, verify};
use libfuzzer_sys::fuzz_target;

const FILES: [&str; 3] = ["manifest.json", "rows.safetensors", "rows.sums"];

#[derive(Arbitrary, Debug)]
struct Input {
    rows: u8,
    dim: u8,
    dtype: u8,
    damages: Vec<(u8, Damage)>,
}

fuzz_target!(|input: Input| {
    let rows = u64::from(input.rows % 8 + 1);
    let dim = usize::from(input.dim % 8 + 1);
    let dtype = DType::ALL[usize::from(input.dtype % 4)];
    let values: Vec<f32> = (0..rows as usize * dim).map(|i| i as f32 / 8.0).collect();
    let table = Table::from_weight("fuzz", rows, dim, dtype, &values).expect("a good table");
    let good = rows_of(&table);

    with_folder(|folder| {
        let path = folder.join("table");
        // A folder that was damaged beyond recognition would be refused as no bundle.
        let _ = fs::remove_dir_all(&path);
        table.save(&path).expect("save a good table");
        for (file, damage) in &input.damages {
            damage.inflict(&path.join(FILES[usize::from(file % 3)]));
        }
        let Ok(opened) = Table::open(&path) else { return };
        let read = rows_of(&opened);
        let report = verify(&path, &mut |_, _| {}).expect("what opens can be read");
        assert_eq!(report.ok, report.damaged_count == 0);
        if report.ok {
            assert_eq!(read, good);
            assert_eq!(opened.manifest(), table.manifest());
        }
    });
});

fn rows_of(table: &Table) -> Vec<u8> {
    let mut bytes = vec![0; table.rows() as usize * table.row_bytes()];
    table.copy_rows(0, &mut bytes).expect("rows that exist");
    bytes
}
