#![no_main]

use hushtable_infer::dlrm::{Error, Terms};
use hushtable_rlwe::ring::Platform;
use libfuzzer_sys::fuzz_target;

// What a client does with what a server announces, before anything secret leaves it.
fuzz_target!(|bytes: &[u8]| {
    match Terms::parse(bytes, Platform::detect()) {
        Ok(terms) => {
            // What was accepted is announced again as it was.
            let again = Terms::parse(&terms.to_bytes(), Platform::detect()).expect("terms");
            assert_eq!(again.plan(), terms.plan());
            assert_eq!(again.query_bytes(), terms.query_bytes());
        }
        Err(Error::Terms { .. } | Error::Layout { .. } | Error::Ckks(_)) => {}
        Err(other) => panic!("{other}"),
    }
});
