#![no_main]

use std::sync::OnceLock;

use hushtable_fuzz::{CkksWorld, ckks_world};
use hushtable_rlwe::ckks::{Encrypted, Error, Evaluate, EvaluationKeys};
use libfuzzer_sys::fuzz_target;

// What a server does with a client's keys: read them, and compute with whatever they hold.
fuzz_target!(|bytes: &[u8]| {
    static WORLD: OnceLock<CkksWorld> = OnceLock::new();
    let world = WORLD.get_or_init(ckks_world);
    // With the right length, the numbers are read: those of good keys, some of them changed.
    let mut told = world.key_bytes.clone();
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % told.len();
        told[place] ^= change[2];
    }
    for bytes in [bytes, &told] {
        let keys = match EvaluationKeys::parse(&world.parameters, &world.keys, bytes) {
            Ok(keys) => keys,
            Err(Error::Core(_)) => continue,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(bytes.len(), world.key_bytes.len());
        let mut evaluator = Encrypted::new(&world.encoder, &keys);
        let rotated = evaluator.rotate(&world.ciphertext, 1).expect("a key for it");
        evaluator.square_rescale(&rotated).expect("a key for products");
    }
});
