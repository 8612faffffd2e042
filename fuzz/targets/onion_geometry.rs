#![no_main]

use hushtable_pir::onion::{Geometry, ParameterSet};
use libfuzzer_sys::fuzz_target;

// What a client does with the geometry that a server sends.
fuzz_target!(|bytes: &[u8]| {
    // Sets have two ids among 256, and the format one: told them, the rest is read.
    let mut told = bytes.to_vec();
    if let [format, set, ..] = told.as_mut_slice() {
        *format = 1;
        *set = [1, 2][usize::from(*set) % 2];
    }
    told.resize(16, 0);
    for bytes in [bytes, &told] {
        let Ok(geometry) = Geometry::from_bytes(bytes) else { continue };
        assert_eq!(geometry.to_bytes(), bytes, "one geometry, one encoding");
        let shape = geometry.shape();
        assert!((1..=geometry.leaves()).contains(&geometry.rows()));
        assert!(geometry.columns() <= 1 << geometry.games());
        let cells = geometry.rows() as u64 * geometry.columns();
        assert!(geometry.items() <= cells && geometry.items() > cells - geometry.rows() as u64);
        assert!(shape.rows() <= geometry.items() * geometry.rows_per_item() as u64);
        assert!(shape.row_bytes() <= geometry.chunks() * geometry.plaintext_bytes());
        assert!(geometry.prediction().failure_log2() <= Geometry::FAILURE_LOG2_MAX);
        // What a client allocates by it is bounded, however large the table is said to be.
        assert!(geometry.key_bytes() <= 8 << 20 && geometry.query_bytes() <= 1 << 20);
        assert!(geometry.response_bytes() <= 4 << 20);
        assert!(ParameterSet::ALL.contains(&geometry.set()), "bytes name no other set");
    }
});
