#![no_main]

use hushtable_pir::dpf::{Key, reference};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(key) = Key::parse(bytes) {
        assert_eq!(key.to_bytes(), bytes, "one key, one encoding");
        assert!(bytes.len() <= 1024, "a key is short");
        let rows = key.params().domain.rows();
        // Any words are a key: evaluating it anywhere must be defined.
        for row in [0, rows / 2, rows - 1] {
            let _ = reference::share(&key, row);
        }
    }
});
