#![no_main]

use std::sync::OnceLock;

use hushtable_fuzz::small_inference;
use hushtable_infer::dlrm::{Engine, Error, Keys};
use libfuzzer_sys::fuzz_target;

// What a server does with a query: read it, and answer whatever it holds.
fuzz_target!(|bytes: &[u8]| {
    static WORLD: OnceLock<(Engine, Keys, Vec<u8>)> = OnceLock::new();
    let (engine, keys, good) = WORLD.get_or_init(world);
    // With the right length and header, the numbers are read.
    let mut told = good.clone();
    let start = if bytes.first().is_some_and(|byte| byte % 2 == 0) { 32 } else { 32 + 56 };
    for (out, byte) in told[start..].iter_mut().zip(bytes) {
        *out = *byte;
    }
    for bytes in [bytes, &told] {
        match engine.answer(keys, bytes) {
            Ok(answer) => assert_eq!(answer.len(), engine.terms().answer_bytes()),
            Err(
                Error::Bytes { .. } | Error::OtherPlan { .. } | Error::Ckks(_) | Error::Core(_),
            ) => {}
            Err(other) => panic!("{other}"),
        }
    }
});

fn world() -> (Engine, Keys, Vec<u8>) {
    let (client, engine) = small_inference();
    let keys = engine.keys(&client.keys().collect::<Vec<_>>().concat()).expect("its keys");
    let query = client.query(&[0.5, -0.5], &[1, 42]).expect("features in bounds");
    (engine, keys, query)
}
