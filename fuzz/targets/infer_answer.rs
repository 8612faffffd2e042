#![no_main]

use std::sync::OnceLock;

use hushtable_fuzz::small_inference;
use hushtable_infer::dlrm::{Client, Error};
use libfuzzer_sys::fuzz_target;

// What a client does with an answer: logits that are numbers, or an error.
fuzz_target!(|bytes: &[u8]| {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    let client = CLIENT.get_or_init(|| small_inference().0);
    let mut told = bytes.to_vec();
    told.resize(client.terms().answer_bytes(), 0);
    told[..32].copy_from_slice(&client.terms().plan());
    for bytes in [bytes, &told] {
        match client.open(bytes) {
            Ok(logits) => assert!(logits.iter().all(|logit| logit.is_finite())),
            Err(Error::Bytes { .. } | Error::OtherPlan { .. } | Error::Core(_) | Error::Answer) => {
            }
            Err(other) => panic!("{other}"),
        }
    }
});
