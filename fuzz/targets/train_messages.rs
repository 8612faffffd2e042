#![no_main]

use std::sync::OnceLock;

use hushtable_oram::wire::{
    Context, ControllerKey, Error, PublicKey, SealedRound, Shape, UserSession,
};
use libfuzzer_sys::fuzz_target;

// What users and controllers do with each other's bytes, and a user with its own kept ones.
fuzz_target!(|bytes: &[u8]| {
    static KEY: OnceLock<ControllerKey> = OnceLock::new();
    let key = KEY.get_or_init(|| ControllerKey::from_seed(&[5; 32]));
    let shape = Shape::new(3, 2).expect("a small one");
    let context = Context::new("films", 10, shape, 1, 0).expect("a small one");
    let mut round = SealedRound::new("films", 10, shape, 1, 2).expect("a small one");
    let mut user = UserSession::new(&key.public(), context).expect("randomness");
    let request = user.request(&[9]).expect("a row");
    round.request(key, 0, &request).expect("a request");

    let sized = |length: usize| {
        let mut sized = bytes.to_vec();
        sized.resize(length, 0);
        sized
    };
    for bytes in [bytes.to_vec(), sized(shape.request_bytes())] {
        assert!(round.request(key, 1, &bytes).is_err());
    }
    round.close();
    for bytes in [bytes.to_vec(), sized(shape.upload_bytes())] {
        assert!(round.upload(0, &bytes).is_err());
    }
    for bytes in [bytes.to_vec(), sized(shape.reply_bytes())] {
        assert!(user.reply(&bytes).is_err());
    }

    if let Ok(public) = PublicKey::from_bytes(bytes) {
        let context = Context::new("t", 1, shape, 1, 0).expect("a small one");
        match UserSession::new(&public, context) {
            Ok(_) | Err(Error::PublicKey { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    // A kept session: the bytes as they are, and behind what such bytes begin with.
    let mut told = user.to_bytes().expect("a request was made").to_vec();
    told.truncate(20 + 64 + 18);
    told.extend_from_slice(bytes);
    for bytes in [bytes, &told] {
        match UserSession::from_bytes(bytes) {
            Ok(mut session) => {
                assert_eq!(*session.to_bytes().expect("a kept one"), bytes);
                let shape = session.context().shape();
                if shape.numbers() <= 1 << 16 {
                    let upload = session.upload(&[], 1.0).expect("an upload");
                    assert_eq!(upload.len(), shape.upload_bytes());
                }
                assert!(session.request(&[]).is_err());
            }
            Err(Error::Kept { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
});
