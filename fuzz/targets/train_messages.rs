#![no_main]

use std::sync::OnceLock;

use hushtable_oram::round::ControllerSpec;
use hushtable_oram::wire::{
    AuthorityKey, Context, ControllerKey, Credential, Error, Pin, PublicKey, SealedRound, Terms,
    Ticket, UserKey, UserSession,
};
use libfuzzer_sys::fuzz_target;

// What users and controllers do with each other's bytes, and a user with its own kept ones.
fuzz_target!(|bytes: &[u8]| {
    static MADE: OnceLock<Made> = OnceLock::new();
    let Made { key, terms, closed, authority } = MADE.get_or_init(Made::new);
    let shape = terms.shape();
    let pin = Pin::new(key.public(), terms);
    let mut round = SealedRound::new(terms, 1, 2).expect("a small one");
    let mut user = UserSession::new(&pin, Context::new(terms, 1, 0), None).expect("randomness");
    let request = user.request(&[9]).expect("a row");
    round.request(key, 0, &request).expect("a request");

    let sized = |length: usize| {
        let mut sized = bytes.to_vec();
        sized.resize(length, 0);
        sized
    };
    for bytes in [bytes.to_vec(), sized(terms.request_bytes())] {
        assert!(round.request(key, 1, &bytes).is_err());
    }
    // Where users are enrolled: as they are, and behind a credential that is good.
    let mut enrolled = SealedRound::new(closed, 1, 2).expect("a small one");
    let closed_pin = Pin::new(key.public(), closed);
    let own = UserKey::from_seed(&[7; 32]);
    let ticket = authority.enrol(&closed_pin, &own.public()).expect("a usable key");
    let context = Context::new(closed, 1, 0);
    let mut session =
        UserSession::new(&closed_pin, context, Some(&Credential::new(own, ticket))).expect("all");
    let request = session.request(&[9]).expect("a row");
    let mut behind = request[..80].to_vec();
    behind.extend_from_slice(bytes);
    behind.resize(closed.request_bytes(), 0);
    for bytes in [bytes.to_vec(), sized(closed.request_bytes()), behind] {
        assert!(enrolled.request(key, 1, &bytes).is_err());
    }
    enrolled.request(key, 0, &request).expect("an enrolled user's");

    round.close();
    for bytes in [bytes.to_vec(), sized(shape.upload_bytes())] {
        assert!(round.upload(0, &bytes).is_err());
    }
    for bytes in [bytes.to_vec(), sized(shape.reply_bytes())] {
        assert!(user.reply(&bytes).is_err());
    }

    if let Ok(public) = PublicKey::from_bytes(bytes) {
        match UserSession::new(&Pin::new(public, terms), Context::new(terms, 1, 0), None) {
            Ok(_) | Err(Error::PublicKey { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    if let Ok(terms) = Terms::read(bytes) {
        assert_eq!(Terms::pinned(bytes, &Pin::new(key.public(), &terms)).expect("its own"), terms);
    }
    assert!(matches!(Terms::pinned(bytes, &pin), Err(Error::Pinned)));
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(pin) = text.parse::<Pin>() {
            assert_eq!(pin.to_string().parse::<Pin>().expect("its own"), pin);
        }
        if let Ok(ticket) = text.parse::<Ticket>() {
            assert_eq!(ticket.to_string().parse::<Ticket>().expect("its own"), ticket);
        }
    }
    // A kept session: the bytes as they are, and behind what such bytes begin with.
    let mut told = user.to_bytes().expect("a request was made").to_vec();
    told.truncate(20 + 64 + 12);
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

struct Made {
    key: ControllerKey,
    terms: Terms,
    closed: Terms,
    authority: AuthorityKey,
}

impl Made {
    fn new() -> Self {
        let (key, authority) =
            (ControllerKey::from_seed(&[5; 32]), AuthorityKey::from_seed(&[6; 32]));
        let mut spec = ControllerSpec::new("films", (10, 2), (2, 3));
        let terms = Terms::of(&spec).expect("a small one");
        spec.authority = Some(authority.public());
        let closed = Terms::of(&spec).expect("a small one");
        Self { key, terms, closed, authority }
    }
}
