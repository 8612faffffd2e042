#![no_main]

use hushtable_infer::hybrid::{Plan, Terms};
use libfuzzer_sys::fuzz_target;

// What a client does with what a server announces, and a server with a bundle's plan.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(terms) = Terms::parse(bytes) {
        assert_eq!(terms.to_bytes(), bytes);
        assert_eq!(Terms::parse(bytes).expect("terms").id(), terms.id());
        let numbers: usize =
            terms.program().stages.iter().map(|stage| stage.output().count()).sum();
        assert!(numbers <= 1 << 28);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Plan::parse(text);
    }
});
