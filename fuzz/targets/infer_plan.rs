#![no_main]

use hushtable_infer::dlrm::{Error, Plan};
use libfuzzer_sys::fuzz_target;

// A plan in a bundle: one that is read is the one that would be planned.
fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Plan::parse(text) {
        Ok(plan) => assert_eq!(Plan::parse(&plan.to_json()).expect("a plan"), plan),
        Err(Error::Plan { .. } | Error::Spec { .. } | Error::Layout { .. }) => {}
        Err(other) => panic!("{other}"),
    }
});
