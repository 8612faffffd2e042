//! Noise of single-server lookups, over many secrets, against what was predicted for any table.

use hushtable_pir::TableShape;
use hushtable_pir::onion::{Geometry, Mask, ParameterSet, Samples, sample_noise};
use hushtable_table::Version;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

const SECRETS: usize = 200;

fn mean(variances: &[f64]) -> f64 {
    variances.iter().sum::<f64>() / variances.len() as f64
}

fn max(variances: &[f64]) -> f64 {
    variances.iter().copied().fold(0.0, f64::max)
}

fn version(byte: u8) -> Version {
    Version::from([byte; 32])
}

/// Small enough for a test, with a tournament, and items that are as large as a plaintext.
fn small() -> Geometry {
    let shape = TableShape::new(1900, 64).unwrap();
    let geometry = Geometry::with_levels(ParameterSet::N256Test, shape, 6).unwrap();
    assert!(geometry.columns() == 4 && geometry.games() == 2 && geometry.rows() == 60);
    assert!(geometry.rows_per_item() * shape.row_bytes() == geometry.plaintext_bytes());
    geometry
}

/// 16-bit coefficients of an item, little-endian.
fn item(coefficients: impl Fn(usize) -> u16, geometry: &Geometry) -> Vec<u8> {
    (0..geometry.plaintext_bytes() / 2).flat_map(|at| coefficients(at).to_le_bytes()).collect()
}

/// Tables that are as far from random as can be, and a row of each to ask for.
fn tables(geometry: &Geometry) -> Vec<(&'static str, Vec<u8>, u64)> {
    let bytes = geometry.shape().table_bytes() as usize;
    let repeat = |item: Vec<u8>| item.into_iter().cycle().take(bytes).collect::<Vec<u8>>();
    // Half a plaintext modulus is the largest that a centred coefficient gets.
    let constant = repeat(item(|_| 0x8000, geometry));
    let column = geometry.rows() * geometry.plaintext_bytes();
    let mut single = vec![0; bytes];
    single[column..2 * column].copy_from_slice(&constant[..column]);
    let row_of_column = (geometry.rows() * geometry.rows_per_item()) as u64;
    let signs = repeat(item(|at| if at % 2 == 0 { 0x8000 } else { 0x7fff }, geometry));
    let low = item(|_| 0x8000, geometry);
    let items = [low, item(|_| 0, geometry)].concat();
    vec![
        ("constant", constant, 5),
        ("zero", vec![0; bytes], 700),
        ("single-column", single, row_of_column + 9),
        ("alternating coefficients", signs, 1899),
        ("alternating items", repeat(items), 123),
    ]
}

/// The table that would be stored as `stored`, were its version `version`: what nobody can make, as a
/// table's version depends on its content.
fn aimed_at_mask(stored: &[u8], version: Version, geometry: &Geometry) -> Vec<u8> {
    let mask = Mask::new(version, geometry.set());
    let mut table = stored.to_vec();
    for (number, plaintext) in (0..).zip(table.chunks_mut(geometry.plaintext_bytes())) {
        mask.apply(number, plaintext);
    }
    table
}

/// log2 of the chance that a response of a table of 1 GiB, in rows of 256 bytes, decodes wrongly where
/// RowSel's noise is this many times what is predicted.
fn failure_log2_at_1_gib(row_select: f64) -> f64 {
    let shape = TableShape::new(1 << 22, 256).unwrap();
    let mut prediction = Geometry::new(ParameterSet::N4096128, shape).unwrap().prediction();
    prediction.row_select *= row_select;
    prediction.failure_log2()
}

fn sample(geometry: &Geometry, table: &[u8], id: u64) -> Samples {
    sample_noise(geometry, table, version(3), &[id; SECRETS], 11).unwrap()
}

/// Whoever chooses the table cannot make responses fail more often than is promised.
#[test]
fn tables_chosen_to_add_noise_up_have_no_more_than_a_random_one() {
    let geometry = small();
    let prediction = geometry.prediction();
    // Masked plaintexts have a third of the energy that the bound allows.
    let expected = prediction.row_select / 3.0 + prediction.select;
    let rounding = (2.0 * (50.0 - 20.0f64)).exp2() / 12.0;
    for (name, table, id) in tables(&geometry) {
        let samples = sample(&geometry, &table, id);
        let rows: Vec<f64> =
            samples.row_selects.iter().map(|found| found / prediction.row_select).collect();
        let worst = failure_log2_at_1_gib(max(&rows));
        println!(
            "{name}: row select {:.3} (most {:.3}), answers {:.3} (most {:.3}), responses {:.3}; \
             at 1 GiB 2^{worst:.1}",
            mean(&rows),
            max(&rows),
            mean(&samples.answers) / expected,
            max(&samples.answers) / expected,
            mean(&samples.responses) / (expected + prediction.compress + rounding),
        );
        assert!((0.3..0.37).contains(&mean(&rows)), "{name}: {}", mean(&rows));
        assert!(max(&rows) < 0.6, "{name}: {}", max(&rows));
        assert!(worst <= Geometry::FAILURE_LOG2_MAX, "{name}: 2^{worst}");
        // ColTor's noise and the response's are those of any table, too.
        let answers = mean(&samples.answers) / expected;
        assert!((0.6..1.1).contains(&answers), "{name}: {answers}");
        assert!(max(&samples.answers) / expected < 2.5, "{name}: {}", max(&samples.answers));
        let responses = mean(&samples.responses) / (expected + prediction.compress + rounding);
        assert!((0.85..1.15).contains(&responses), "{name}: {responses}");
    }
}

/// The same tables as they would be without a mask: some secrets break the bound.
#[test]
fn without_the_mask_some_secrets_would_break_the_bound() {
    let geometry = small();
    let prediction = geometry.prediction();
    for (name, stored, id) in tables(&geometry) {
        if name == "zero" {
            continue;
        }
        let table = aimed_at_mask(&stored, version(3), &geometry);
        let samples = sample(&geometry, &table, id);
        let rows: Vec<f64> =
            samples.row_selects.iter().map(|found| found / prediction.row_select).collect();
        let worst = failure_log2_at_1_gib(max(&rows));
        println!("{name}: {:.3}, most {:.3}: 2^{worst:.1}", mean(&rows), max(&rows));
        assert!(worst > Geometry::FAILURE_LOG2_MAX, "{name}: 2^{worst}");
    }
}

/// Noise of the stages, sampled over many secrets, against its prediction.
#[test]
fn noise_is_what_was_predicted() {
    let shape = TableShape::new(1 << 14, 256).unwrap();
    let geometry = Geometry::new(ParameterSet::N4096128, shape).unwrap();
    let prediction = geometry.prediction();
    let mut random = ChaCha20Rng::seed_from_u64(5);
    let mut table = vec![0; shape.table_bytes() as usize];
    random.fill(&mut table[..]);
    let ids: Vec<u64> = (0..12).map(|_| random.random_range(0..shape.rows())).collect();
    let samples = sample_noise(&geometry, &table, version(0), &ids, 5).unwrap();
    let leaf = mean(&samples.leaves) / prediction.leaf;
    assert!((0.8..1.2).contains(&leaf), "{leaf}");
    // The bound allows three times the energy of masked plaintexts.
    let rows = mean(&samples.row_selects) / (prediction.row_select / 3.0);
    assert!((0.7..1.3).contains(&rows), "{rows}");
    let all = mean(&samples.answers) / (prediction.row_select / 3.0 + prediction.select);
    assert!((0.5..1.3).contains(&all), "{all}");
    // And no sample comes near to what flips a coefficient.
    let largest = max(&samples.largest);
    assert!(largest.log2() < prediction.deviation_log2() + prediction.budget_bits() - 0.5);
}
