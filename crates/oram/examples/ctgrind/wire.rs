//! Sealed messages at the controller: ids, rows, which of them were found, gradients and weights are secret.

use crate::secret::secret;
use hushtable_oram::round::ControllerSpec;
use hushtable_oram::wire::{
    AuthorityKey, Context, ControllerKey, Credential, DUMMY, Pin, SealedRound, Terms, UserKey,
    UserSession,
};
use hushtable_prg::valgrind::mark_public;
use std::hint::black_box;

const ROWS: u64 = 1_000;

pub fn messages() {
    let (key, authority) = (ControllerKey::from_seed(&[9; 32]), AuthorityKey::from_seed(&[8; 32]));
    let mut spec = ControllerSpec::new("films", (ROWS, 3), (2, 4));
    spec.authority = Some(authority.public());
    let terms = Terms::of(&spec).expect("terms");
    let (pin, own) = (Pin::new(key.public(), &terms), UserKey::from_seed(&[7; 32]));
    let ticket = authority.enrol(&pin, &own.public()).expect("a ticket");
    let credential = Credential::new(own, ticket);
    let context = Context::new(&terms, 77, 1);
    let mut user = UserSession::new(&pin, context, Some(&credential)).expect("a session");
    let mut round = SealedRound::new(&terms, 77, 2).expect("a round");
    let sealed = user.request(&[5, 999, 0]).expect("a request");
    round.request(&key, 1, &sealed).expect("ids that are rows");
    let mut ids = round.close().to_vec();
    mark_public(&mut ids);
    assert_eq!(ids[4..], [5, 999, 0, DUMMY]);

    let rows = secret([0.5f32; 12]);
    let found: Vec<bool> =
        secret([1u8, 1, 0, 0]).iter().map(|flag| black_box(*flag) == 1).collect();
    let sealed = round.reply(1, &rows, &found).expect("a reply");
    let reply = user.reply(&sealed).expect("what was sealed");
    let mut rows = reply.rows.clone();
    let mut found: Vec<u8> = reply.found.iter().map(|found| u8::from(*found)).collect();
    mark_public(&mut rows);
    mark_public(&mut found);
    assert_eq!((&rows[..], &found[..]), (&[0.5; 12][..], &[1, 1, 0, 0][..]));

    let sealed = user.upload(&secret([1.5f32; 12]), secret([2.0f32])[0]).expect("an upload");
    let upload = round.upload(1, &sealed).expect("finite numbers").expect("the first");
    let mut gradients = upload.gradients.to_vec();
    mark_public(&mut gradients);
    assert_eq!(gradients, [1.5; 12]);
}
