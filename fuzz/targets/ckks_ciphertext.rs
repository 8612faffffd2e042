#![no_main]

use std::sync::OnceLock;

use hushtable_fuzz::{CkksWorld, ckks_world};
use hushtable_rlwe::ckks::wire::{Form, ciphertext_bytes};
use hushtable_rlwe::ckks::{Ciphertext, Encrypted, Error, Evaluate, EvaluationKeys, decrypt};
use libfuzzer_sys::fuzz_target;

// What a server does with a ciphertext, and a client with an answer: read it, and compute on whatever
// it holds.
fuzz_target!(|bytes: &[u8]| {
    static WORLD: OnceLock<(CkksWorld, EvaluationKeys)> = OnceLock::new();
    let (world, keys) = WORLD.get_or_init(|| {
        let world = ckks_world();
        let keys = EvaluationKeys::parse(&world.parameters, &world.keys, &world.key_bytes);
        (world, keys.expect("keys of these parameters"))
    });
    let parameters = &world.parameters;
    // With the right header and length, the numbers are read.
    let form =
        if bytes.first().is_some_and(|byte| byte % 2 == 1) { Form::Computed } else { Form::Fresh };
    let mut told = bytes.to_vec();
    told.resize(ciphertext_bytes(parameters, 2, form), 0);
    told[..8].copy_from_slice(&[1, form as u8, 2, 0, 0, 0, 0, 0]);
    told[8..16].copy_from_slice(&parameters.scale().to_le_bytes());
    for bytes in [bytes, &told] {
        let ciphertext = match Ciphertext::parse(parameters, bytes) {
            Ok(ciphertext) => ciphertext,
            Err(Error::Bytes { .. } | Error::Scale { .. } | Error::Core(_)) => continue,
            Err(other) => panic!("{other}"),
        };
        let level = ciphertext.level();
        let lengths =
            [Form::Fresh, Form::Computed].map(|form| ciphertext_bytes(parameters, level, form));
        assert!(lengths.contains(&bytes.len()));
        let again = Ciphertext::parse(parameters, &ciphertext.to_bytes(parameters));
        assert_eq!(
            again.expect("its own bytes").parts().body.values(),
            ciphertext.parts().body.values()
        );
        // Any values, any level and any scale: computed, or refused.
        let mut evaluator = Encrypted::new(&world.encoder, keys);
        let _ = evaluator.square_rescale(&ciphertext);
        let rotated = evaluator.rotate(&ciphertext, 1).expect("a key for it");
        let slots =
            world.encoder.decode(&decrypt(parameters, &world.secret, &rotated).expect("a level"));
        assert!(slots.iter().all(|slot| slot.re.is_finite() && slot.im.is_finite()));
    }
});
