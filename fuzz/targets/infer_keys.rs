#![no_main]

use std::sync::OnceLock;

use hushtable_fuzz::small_inference;
use hushtable_infer::dlrm::{Engine, Error};
use libfuzzer_sys::fuzz_target;

// What a server does with keys.
fuzz_target!(|bytes: &[u8]| {
    static WORLD: OnceLock<(Engine, Vec<u8>)> = OnceLock::new();
    let (engine, good) = WORLD.get_or_init(|| {
        let (client, engine) = small_inference();
        let keys = client.keys().collect::<Vec<_>>().concat();
        (engine, keys)
    });
    let mut told = good.clone();
    for (out, byte) in told[32..].iter_mut().zip(bytes) {
        *out = *byte;
    }
    for bytes in [bytes, &told] {
        match engine.keys(bytes) {
            Ok(keys) => assert!(keys.memory_bytes() > bytes.len() / 2),
            Err(
                Error::Bytes { .. } | Error::OtherPlan { .. } | Error::Ckks(_) | Error::Core(_),
            ) => {}
            Err(other) => panic!("{other}"),
        }
    }
});
