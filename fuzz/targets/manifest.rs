#![no_main]

use hushtable_table::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::from_json(bytes) {
        let again = Manifest::from_json(manifest.to_json().as_bytes()).expect("its own text");
        assert_eq!(again, manifest);
        assert!(manifest.shape().row_bytes() <= 65_536);
    }
});
