//! Sealed messages: sizes, bindings, known answers, hostile bytes.

use hushtable_prg::Secret;
use proptest::prelude::*;
use serde::Deserialize;

use std::collections::HashSet;

use super::*;
use crate::fdp::MechanismSpec;
use crate::fdp::Shape::Uniform;
use crate::round::ControllerSpec;

const ROWS: u64 = 1000;

fn shape() -> Shape {
    Shape::new(4, 3).unwrap()
}

fn spec() -> ControllerSpec {
    ControllerSpec::new("films", (ROWS, 3), (10, 4))
}

fn terms() -> Terms {
    Terms::of(&spec()).unwrap()
}

fn context(user: u32) -> Context {
    Context::new(&terms(), 77, user)
}

fn key() -> ControllerKey {
    ControllerKey::from_seed(&[9; 32])
}

fn pin() -> Pin {
    Pin::new(key().public(), &terms())
}

fn session(context: Context) -> UserSession {
    UserSession::new(&Pin::new(key().public(), context.terms()), context, None).unwrap()
}

fn is_refused<T>(result: Result<T, Error>, message: &str) -> bool {
    matches!(result, Err(Error::Refused { what, .. }) if what == message)
}

/// A round of three users in which user 1 has asked for `ids`.
fn round(ids: &[u32]) -> (SealedRound, UserSession, Vec<u8>) {
    let mut round = SealedRound::new(&terms(), 77, 3).unwrap();
    let mut user = session(context(1));
    let sealed = user.request(ids).unwrap();
    round.request(&key(), 1, &sealed).unwrap();
    (round, user, sealed)
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|index| index as f32 * 0.5 - 1.0).collect()
}

#[test]
fn a_round_trip_brings_back_what_was_sealed() {
    let (mut round, mut user, request) = round(&[5, 999, 0]);
    assert_eq!(request.len(), terms().request_bytes());
    assert_eq!(round.requested(), 1);
    let mut expected = vec![DUMMY; 12];
    expected[4..7].copy_from_slice(&[5, 999, 0]);
    assert_eq!(round.close(), expected);

    let sealed = round.reply(1, &numbers(12), &[true, false, true, false]).unwrap();
    assert_eq!(sealed.len(), shape().reply_bytes());
    let reply = user.reply(&sealed).unwrap();
    assert_eq!(reply.rows, numbers(12));
    assert_eq!(reply.found, [true, false, true, false]);

    // Two rows' gradients; those of the other slots are zero.
    let sealed = user.upload(&numbers(6), 3.5).unwrap();
    assert_eq!(sealed.len(), shape().upload_bytes());
    let upload = round.upload(1, &sealed).unwrap().unwrap();
    assert_eq!(upload.weight, 3.5);
    assert_eq!(upload.gradients, [numbers(6), vec![0.0; 6]].concat());
    assert_eq!(round.uploaded(), 1);
}

#[test]
fn sizes_are_those_of_the_table_in_the_docs() {
    let (slots, dim) = (100, 16);
    let shape = Shape::new(slots, dim).unwrap();
    let mut spec = ControllerSpec::new("films", (ROWS, dim), (10, slots));
    assert_eq!(Terms::of(&spec).unwrap().request_bytes(), 32 + 12 + 4 * slots + 16);
    spec.authority = Some(key().public());
    assert_eq!(Terms::of(&spec).unwrap().request_bytes(), 80 + 32 + 12 + 4 * slots + 16);
    assert_eq!(shape.reply_bytes(), 24 + slots * (1 + 4 * dim) + 16);
    assert_eq!(shape.upload_bytes(), 24 + 4 + 4 * slots * dim + 16);
}

#[test]
fn what_is_sealed_twice_does_not_repeat_a_nonce() {
    let (mut round, mut user, _) = round(&[1]);
    round.close();
    let replies = [0, 1].map(|_| round.reply(1, &numbers(12), &[true; 4]).unwrap());
    assert_ne!(replies[0][..24], replies[1][..24]);
    let uploads = [0, 1].map(|_| user.upload(&numbers(12), 1.0).unwrap());
    assert_ne!(uploads[0][..24], uploads[1][..24]);
}

#[test]
fn a_message_opens_only_where_it_belongs() {
    let seal = |context: Context| session(context).request(&[3]).unwrap();
    let open = |sealed: &[u8]| ControllerSession::open(&key(), &context(1), sealed).map(|_| ());
    open(&seal(context(1))).unwrap();
    let others = [context(2), Context::new(&terms(), 78, 1)];
    for other in others {
        assert!(is_refused(open(&seal(other.clone())), "request"), "{other:?}");
    }
    let stranger = ControllerKey::from_seed(&[1; 32]);
    let sealed = seal(context(1));
    assert!(is_refused(ControllerSession::open(&stranger, &context(1), &sealed), "request"));
}

/// Everything that a controller is: told otherwise, a user shares no key with it.
#[test]
fn a_user_that_was_told_other_terms_shares_no_key_with_the_controller() {
    let others: [fn(&mut ControllerSpec); 9] = [
        |spec| spec.name = "film".into(),
        |spec| spec.rows -= 1,
        |spec| spec.dim = 2,
        |spec| spec.slots = 5,
        |spec| spec.users_max = 11,
        |spec| spec.fdp.epsilon = 0.5,
        |spec| spec.fdp.mechanism = MechanismSpec::Exponential { shape: Uniform },
        |spec| spec.aggregate = crate::aggregate::AggregateSpec::FedAvg { learning_rate: 0.5 },
        |spec| spec.authority = Some(key().public()),
    ];
    let (mut round, mut user, _) = round(&[3]);
    round.close();
    for (number, change) in others.into_iter().enumerate() {
        let mut other = spec();
        change(&mut other);
        let other = Terms::of(&other).unwrap();
        // The user has the pin: nothing is sealed.
        let told = Context::new(&other, 77, 1);
        let refused = UserSession::new(&pin(), told.clone(), None);
        assert!(matches!(refused, Err(Error::Pinned)), "{number}");
        assert!(matches!(Terms::pinned(other.text(), &pin()), Err(Error::Pinned)), "{number}");
        // A user that has none: neither end opens the other's messages.
        let credential = Credential::new(UserKey::from_seed(&[1; 32]), no_ticket());
        let believed = Pin::new(key().public(), &other);
        let mut fooled = UserSession::new(&believed, told, Some(&credential)).unwrap();
        let sealed = fooled.request(&[3]).unwrap();
        assert!(is_refused(ControllerSession::open(&key(), &context(2), &sealed), "request"));
        let width = other.shape().numbers();
        let reply = round.reply(1, &numbers(12), &[true; 4]).unwrap();
        assert!(is_refused(fooled.reply(&reply), "reply"), "{number}");
        let upload = fooled.upload(&vec![1.0; width], 1.0).unwrap();
        assert!(is_refused(round.upload(1, &upload), "upload"), "{number}");
    }
    assert_eq!(Terms::pinned(terms().text(), &pin()).unwrap(), terms());
    let upload = user.upload(&numbers(12), 1.0).unwrap();
    assert!(round.upload(1, &upload).unwrap().is_some());
}

#[test]
fn pins_and_tickets_are_read_back_and_nothing_else_is() {
    let text = pin().to_string();
    assert_eq!(text.parse::<Pin>().unwrap(), pin());
    assert_eq!(format!("{text}\n").parse::<Pin>().unwrap(), pin());
    for bad in ["", "pin1:", &text[..text.len() - 1], &text[5..], &text.replace("pin1", "pin2")] {
        assert!(matches!(bad.parse::<Pin>(), Err(Error::Pin)), "{bad}");
        assert!(matches!(bad.parse::<Ticket>(), Err(Error::Ticket)), "{bad}");
    }
    assert!("pin1:é".parse::<Pin>().is_err());
    let (_, ticket) = enrolled(1);
    assert_eq!(ticket.to_string().parse::<Ticket>().unwrap(), ticket);
}

fn no_ticket() -> Ticket {
    format!("ticket1:{}", "0".repeat(96)).parse().unwrap()
}

fn authority() -> AuthorityKey {
    AuthorityKey::from_seed(&[4; 32])
}

fn closed_terms() -> Terms {
    Terms::of(&ControllerSpec { authority: Some(authority().public()), ..spec() }).unwrap()
}

fn enrolled(seed: u8) -> (UserKey, Ticket) {
    let user = UserKey::from_seed(&[seed; 32]);
    let pin = Pin::new(key().public(), &closed_terms());
    let ticket = authority().enrol(&pin, &user.public()).unwrap();
    (user, ticket)
}

#[test]
fn who_is_not_enrolled_gets_no_place() {
    let terms = closed_terms();
    let pin = Pin::new(key().public(), &terms);
    let mut round = SealedRound::new(&terms, 77, 4).unwrap();
    let asks = |place: u32, user: &UserKey, ticket: Ticket| {
        let credential = Credential::new(user.clone(), ticket);
        let context = Context::new(&terms, 77, place);
        let mut session = UserSession::new(&pin, context, Some(&credential)).unwrap();
        let sealed = session.request(&[5]).unwrap();
        (session, sealed)
    };
    let (alice, ticket) = enrolled(1);
    let (mallory, other_ticket) = (UserKey::from_seed(&[66; 32]), enrolled(2).1);
    // Without a credential, nothing is even sealed.
    let bare = UserSession::new(&pin, Context::new(&terms, 77, 0), None);
    assert!(matches!(bare, Err(Error::NoCredential)));
    // A stranger by its own key, by another's ticket, by a ticket of an authority of its own, or of
    // another controller; and another's public key with its ticket, without the secret.
    let own = AuthorityKey::from_seed(&[67; 32]).enrol(&pin, &mallory.public()).unwrap();
    let elsewhere = Pin::new(ControllerKey::from_seed(&[8; 32]).public(), &terms);
    let elsewhere = authority().enrol(&elsewhere, &mallory.public()).unwrap();
    let older = Pin::new(key().public(), &self::terms());
    let older = authority().enrol(&older, &mallory.public()).unwrap();
    for stolen in [no_ticket(), ticket, other_ticket, own, elsewhere, older] {
        let (_, sealed) = asks(0, &mallory, stolen);
        assert!(is_refused(round.request(&key(), 0, &sealed), "request"));
    }
    let (_, mut sealed) = asks(0, &mallory, ticket);
    sealed[..32].copy_from_slice(alice.public().as_bytes());
    assert!(is_refused(round.request(&key(), 0, &sealed), "request"));
    // Requests as they were before there were authorities.
    let open = Context::new(&self::terms(), 77, 0);
    let sealed = self::session(open).request(&[5]).unwrap();
    assert!(is_refused(round.request(&key(), 0, &sealed), "request"));
    assert_eq!(round.requested(), 0);

    let (mut session, sealed) = asks(0, &alice, ticket);
    round.request(&key(), 0, &sealed).unwrap();
    round.request(&key(), 0, &sealed).unwrap();
    // Neither a copy of a message nor the same user has a second place.
    assert!(is_refused(round.request(&key(), 1, &sealed), "request"));
    let (_, again) = asks(1, &alice, ticket);
    let refused = round.request(&key(), 1, &again);
    assert!(matches!(refused, Err(Error::Order(OrderError::AlreadySeated))));
    let (bob, ticket) = enrolled(2);
    round.request(&key(), 1, &asks(1, &bob, ticket).1).unwrap();
    // Nor does it do in the next round.
    let mut next = SealedRound::new(&terms, 78, 4).unwrap();
    assert!(is_refused(next.request(&key(), 0, &sealed), "request"));
    assert_eq!((round.requested(), next.requested()), (2, 0));
    round.close();
    let reply = round.reply(0, &numbers(12), &[true; 4]).unwrap();
    assert_eq!(session.reply(&reply).unwrap().rows, numbers(12));
    let upload = session.upload(&numbers(12), 1.0).unwrap();
    assert!(is_refused(round.upload(1, &upload), "upload"));
    assert!(round.upload(0, &upload).unwrap().is_some());
}

#[test]
fn replies_and_uploads_of_one_user_are_no_others() {
    let mut round = SealedRound::new(&terms(), 77, 2).unwrap();
    let mut users = [0, 1].map(|user| session(context(user)));
    for (number, user) in (0..).zip(&mut users) {
        round.request(&key(), number, &user.request(&[7]).unwrap()).unwrap();
    }
    round.close();
    let reply = round.reply(0, &numbers(12), &[true; 4]).unwrap();
    assert!(users[0].reply(&reply).is_ok());
    assert!(is_refused(users[1].reply(&reply), "reply"));
    let upload = users[1].upload(&numbers(12), 1.0).unwrap();
    assert!(is_refused(round.upload(0, &upload), "upload"));
    assert!(round.upload(1, &upload).unwrap().is_some());
    // With four slots a reply has as many bytes as an upload, but another key.
    assert_eq!(shape().reply_bytes(), shape().upload_bytes());
    assert!(is_refused(users[0].reply(&upload), "reply"));
    assert!(is_refused(round.upload(0, &reply), "upload"));
}

#[test]
fn a_round_takes_each_message_once_and_in_turn() {
    let (mut round, mut user, request) = round(&[5]);
    // The network repeats what it carries.
    round.request(&key(), 1, &request).unwrap();
    let other = session(context(1)).request(&[6]).unwrap();
    let order = |error| match error {
        Error::Order(order) => order,
        other => panic!("{other}"),
    };
    let refused = round.request(&key(), 1, &other).map_err(order);
    assert_eq!(refused, Err(OrderError::AlreadyRequested { user: 1 }));
    assert_eq!(round.upload(1, &[]).map_err(order), Err(OrderError::Open));
    assert_eq!(round.check_member(1).map_err(order), Err(OrderError::Open));
    round.close();
    let late = session(context(2)).request(&[6]).unwrap();
    let refused = round.request(&key(), 2, &late).map_err(order);
    assert_eq!(refused, Err(OrderError::Closed { user: 2 }));
    assert_eq!(round.upload(2, &[]).map_err(order), Err(OrderError::NotRequested { user: 2 }));
    let upload = user.upload(&numbers(3), 1.0).unwrap();
    assert!(round.upload(1, &upload).unwrap().is_some());
    assert_eq!(round.upload(1, &upload).unwrap(), None);
    let again = user.upload(&numbers(3), 1.0).unwrap();
    let refused = round.upload(1, &again).map_err(order);
    assert_eq!(refused, Err(OrderError::AlreadyUploaded { user: 1 }));
    assert!(matches!(round.request(&key(), 3, &late), Err(Error::UserRange { user: 3, users: 3 })));
}

#[test]
fn one_bad_user_leaves_the_others_unharmed() {
    let (mut round, _, request) = round(&[5]);
    let mut flipped = session(context(2)).request(&[1]).unwrap();
    flipped[40] ^= 1;
    let mut texts = Vec::new();
    for bad in [&flipped[..], &request, &[0; 7], &[]] {
        texts.push(round.request(&key(), 2, bad).unwrap_err().to_string());
    }
    // One text, whatever it was.
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    let expected = [vec![DUMMY; 4], vec![5], vec![DUMMY; 7]].concat();
    // After its mistakes the place is still free.
    assert_eq!(round.requested(), 1);
    let good = session(context(0)).request(&[]).unwrap();
    round.request(&key(), 0, &good).unwrap();
    assert_eq!(round.close(), expected);
}

#[test]
fn ids_that_are_no_rows_are_refused_at_both_ends_without_naming_them() {
    let mut user = session(context(1));
    let (one, many) = (user.request(&[1, 1000]).unwrap_err(), user.request(&[999; 5]).unwrap_err());
    assert!(matches!(one, Error::IdRange { rows: ROWS }));
    assert!(matches!(many, Error::TooManyIds { slots: 4 }));
    let others = [user.request(&[7777]), user.request(&[2, 3, 1_234_567])];
    for other in others {
        assert_eq!(other.unwrap_err().to_string(), one.to_string());
    }
    assert_eq!(user.request(&[1; 77]).unwrap_err().to_string(), many.to_string());
    // Neither used the session up; a hole among the ids is none.
    user.request(&[DUMMY, 999]).unwrap();
    assert!(matches!(user.request(&[1]), Err(Error::Order(OrderError::Requested))));

    for (id, is_row) in [(999, true), (1000, false), (4999, false), (u32::MAX, true)] {
        assert_eq!(controller::are_rows(&[0, id, 3], ROWS), is_row, "{id}");
    }
    assert!(controller::are_rows(&[u32::MAX - 1], u64::from(u32::MAX)));
    assert!(!controller::are_rows(&[u32::MAX - 1], u64::from(u32::MAX) - 1));

    // A user that does not check gets the answer that any other bad request gets.
    let mut round = SealedRound::new(&terms(), 77, 3).unwrap();
    let sealed = session(context(1)).seal(&[1, 1000, 2, 3]).unwrap();
    assert!(is_refused(round.request(&key(), 1, &sealed), "request"));
    assert_eq!(round.requested(), 0);
}

#[test]
fn gradients_and_weights_that_teach_nothing_are_refused() {
    let mut user = session(context(1));
    let mut bad = numbers(12);
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN] {
        bad[11] = value;
        assert!(matches!(user.upload(&bad, 1.0), Err(Error::NotFinite)), "{value}");
    }
    for value in [f32::MAX, f32::MIN, f32::MIN_POSITIVE / 2.0, -0.0] {
        bad[11] = value;
        assert!(user.upload(&bad, 1.0).is_ok(), "{value}");
    }
    for weight in [f32::NAN, f32::INFINITY, -1.0, 16_777_218.0] {
        assert!(matches!(user.upload(&[], weight), Err(Error::Weight)), "{weight}");
    }
    for count in [13, 4, 24] {
        let refused = user.upload(&numbers(count), 1.0).unwrap_err();
        assert!(matches!(refused, Error::Gradients { dim: 3, slots: 4 }), "{refused}");
    }
}

fn reason<T>(result: Result<T, Error>) -> RefusedReason {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.reason(),
    }
}

#[test]
fn the_operator_is_told_why_a_message_is_refused_and_the_user_is_not() {
    let (mut round, mut user, sealed) = round(&[1, 2]);
    let key = key();
    let mut changed = sealed.clone();
    changed[50] ^= 1;
    for (sent, place, expected) in [
        (&sealed, 3, RefusedReason::Place),
        (&changed, 1, RefusedReason::Repeated),
        (&changed, 0, RefusedReason::NotOpened),
        (&sealed, 0, RefusedReason::NotOpened),
        (&session(context(0)).seal(&[1, 1000, 2, 3]).unwrap(), 0, RefusedReason::Ids),
    ] {
        assert_eq!(reason(round.request(&key, place, sent)), expected);
    }
    assert_eq!(reason(round.upload(1, &sealed)), RefusedReason::Order);
    round.close();
    assert_eq!(reason(round.request(&key, 0, &sealed)), RefusedReason::Order);
    assert_eq!(reason(round.upload(0, &sealed)), RefusedReason::Order);
    let mut texts = HashSet::new();
    for (gradient, weight, expected) in [
        (f32::NAN, 1.0, RefusedReason::NotFinite),
        (f32::INFINITY, -1.0, RefusedReason::NotFinite),
        (1.0, f32::NAN, RefusedReason::Weight),
        (1.0, 16_777_218.0, RefusedReason::Weight),
    ] {
        let mut gradients = numbers(12);
        gradients[7] = gradient;
        let refused = round.upload(1, &user.seal_upload(&gradients, weight).unwrap()).unwrap_err();
        texts.insert(refused.to_string());
        assert_eq!(refused.reason(), expected);
        assert!(refused.reason().is_proven());
    }
    let refused = round.upload(1, &sealed).unwrap_err();
    texts.insert(refused.to_string());
    assert_eq!((texts.len(), refused.reason()), (1, RefusedReason::NotOpened));
    // What was refused has not used up the place.
    let good = user.upload(&numbers(12), 1.0).unwrap();
    assert!(round.upload(1, &good).unwrap().is_some());

    let terms = closed_terms();
    let mut round = SealedRound::new(&terms, 77, 2).unwrap();
    let request = |place, ticket| {
        let credential = Credential::new(enrolled(1).0, ticket);
        let context = Context::new(&terms, 77, place);
        let pin = Pin::new(key.public(), &terms);
        UserSession::new(&pin, context, Some(&credential)).unwrap().request(&[5]).unwrap()
    };
    let stranger = round.request(&key, 0, &request(0, enrolled(2).1));
    assert_eq!(reason(stranger), RefusedReason::Enrolment);
    round.request(&key, 0, &request(0, enrolled(1).1)).unwrap();
    let second = round.request(&key, 1, &request(1, enrolled(1).1));
    assert_eq!(reason(second), RefusedReason::Seated);
    let names: HashSet<_> = RefusedReason::ALL.map(RefusedReason::name).into();
    assert_eq!(names.len(), RefusedReason::ALL.len());
}

#[test]
fn a_session_goes_on_where_it_was_kept() {
    let (mut round, user, _) = round(&[5]);
    round.close();
    let kept = user.to_bytes().unwrap();
    let mut elsewhere = UserSession::from_bytes(&kept).unwrap();
    assert_eq!(elsewhere.context(), user.context());
    let reply = round.reply(1, &numbers(12), &[true; 4]).unwrap();
    assert_eq!(elsewhere.reply(&reply).unwrap(), user.reply(&reply).unwrap());
    let upload = elsewhere.upload(&numbers(3), 1.0).unwrap();
    assert!(round.upload(1, &upload).unwrap().is_some());
    assert!(matches!(elsewhere.request(&[1]), Err(Error::Order(OrderError::Requested))));
    let early = session(context(1));
    assert!(matches!(early.to_bytes(), Err(Error::Order(OrderError::NotYetRequested))));
    for cut in 0..kept.len() {
        let read = UserSession::from_bytes(&kept[..cut]);
        assert!(read.is_err(), "{cut}");
    }
    let mut other = kept.to_vec();
    other[3] ^= 1;
    assert!(matches!(UserSession::from_bytes(&other), Err(Error::Kept { .. })));
}

#[test]
fn keys_that_share_no_secret_are_refused() {
    assert!(matches!(PublicKey::from_bytes(&[0; 31]), Err(Error::PublicKey { bytes: 31 })));
    // A point of small order: whoever seals to it shares its secret with everyone.
    let zero = PublicKey::from_bytes(&[0; 32]).unwrap();
    let refused = UserSession::new(&Pin::new(zero, &terms()), context(1), None);
    assert!(matches!(refused, Err(Error::PublicKey { .. })));
    assert!(authority().enrol(&Pin::new(zero, &terms()), &key().public()).is_err());
    let public = key().public();
    assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);
    assert!("zz".repeat(32).parse::<PublicKey>().is_err());
    assert!("é".repeat(32).parse::<PublicKey>().is_err());
    assert_ne!(ControllerKey::generate().unwrap().public(), public);
}

#[test]
fn settings_are_bounded() {
    for (slots, dim) in [(0, 1), (1, 0), ((1 << 20) + 1, 1), (1, (1 << 16) + 1), (1 << 20, 512)] {
        assert!(matches!(Shape::new(slots, dim), Err(Error::Setting { .. })), "{slots} {dim}");
    }
    for rows in [0, 1 << 32] {
        let terms = Terms::of(&ControllerSpec { rows, ..spec() });
        assert!(matches!(terms, Err(Error::Setting { name: "rows", .. })), "{rows}");
    }
    let long = Terms::of(&ControllerSpec { name: "t".repeat(4097), ..spec() });
    assert!(matches!(long, Err(Error::Name { bytes: 4097, .. })));
    let text = spec().to_text().unwrap();
    for bad in [&b""[..], b"{}", &text[..text.len() - 1], &[b' '; (1 << 16) + 1]] {
        assert!(matches!(Terms::read(bad), Err(Error::Terms)));
    }
    for users in [0, (1 << 30) + 1, usize::MAX] {
        assert!(SealedRound::new(&terms(), 0, users).is_err());
    }
}

#[derive(Deserialize)]
struct Vector {
    controller_seed: String,
    controller_public: String,
    user_seed: String,
    /// `controller.json`.
    terms: String,
    pin: String,
    /// Of an enrolled user: its secret bytes, its ticket, and the authority's secret bytes.
    user_key_seed: Option<String>,
    ticket: Option<String>,
    round: u64,
    user: u32,
    ids: Vec<u32>,
    request: String,
    reply: String,
    rows_of_reply: Vec<f32>,
    found: Vec<bool>,
    gradients: Vec<f32>,
    weight: f32,
    upload: String,
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// `vectors/train_wire.json` comes from an implementation of its own of RFC 9180 and XChaCha20.
#[test]
fn the_messages_are_those_of_the_vectors() {
    let file = include_str!("../../../../vectors/train_wire.json");
    let vectors: Vec<Vector> = serde_json::from_str(file).unwrap();
    assert!(vectors.len() >= 3);
    for v in vectors {
        let seed = |hex: &str| <[u8; 32]>::try_from(bytes(hex)).unwrap();
        let key = ControllerKey::from_seed(&seed(&v.controller_seed));
        assert_eq!(key.public().to_string(), v.controller_public);
        let pin: Pin = v.pin.parse().unwrap();
        let terms = Terms::pinned(v.terms.as_bytes(), &pin).unwrap();
        assert_eq!(Pin::new(key.public(), &terms), pin);
        let context = Context::new(&terms, v.round, v.user);
        let credential = v.ticket.map(|ticket| {
            let key = UserKey::from_seed(&seed(v.user_key_seed.as_ref().unwrap()));
            Credential::new(key, ticket.parse().unwrap())
        });
        assert_eq!(credential.is_some(), terms.authority().is_some());
        let user_seed = Secret::new(seed(&v.user_seed));
        let mut user =
            UserSession::from_seed(&pin, context.clone(), credential.as_ref(), &user_seed).unwrap();
        let request = user.request(&v.ids).unwrap();
        assert_eq!(request, bytes(&v.request));
        let reply = user.reply(&bytes(&v.reply)).unwrap();
        assert_eq!((reply.rows, reply.found), (v.rows_of_reply, v.found));
        let upload = user.upload(&v.gradients, v.weight).unwrap();
        assert_eq!(upload, bytes(&v.upload));
        let (session, ids) = ControllerSession::open(&key, &context, &request).unwrap();
        assert_eq!(ids[..v.ids.len()], v.ids);
        assert!(ids[v.ids.len()..].iter().all(|&id| id == DUMMY));
        let opened = session.upload(&upload).unwrap();
        assert_eq!(opened.gradients[..v.gradients.len()], v.gradients);
        assert_eq!(opened.weight, v.weight);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_change_of_a_message_is_seen(
        ids in prop::collection::vec(0u32..1000, 0..=4),
        flip in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let (mut round, mut user, mut request) = round(&ids);
        let open = |sealed: &[u8]| ControllerSession::open(&key(), &context(1), sealed);
        prop_assert_eq!(&open(&request).unwrap().1[..ids.len()], &ids[..]);
        let at = flip.index(request.len());
        request[at] ^= 1 << bit;
        // The top bit of an X25519 point is not looked at (RFC 7748, section 5), but bound.
        prop_assert!(open(&request).is_err());
        round.close();
        let mut reply = round.reply(1, &numbers(12), &[true; 4]).unwrap();
        let at = flip.index(reply.len());
        reply[at] ^= 1 << bit;
        prop_assert!(user.reply(&reply).is_err());
        let mut upload = user.upload(&numbers(12), 1.0).unwrap();
        let at = flip.index(upload.len());
        upload[at] ^= 1 << bit;
        prop_assert!(round.upload(1, &upload).is_err());
    }

    #[test]
    fn hostile_bytes_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (mut round, user, _) = round(&[1]);
        for cut in [bytes.clone(), resized(&bytes, terms().request_bytes())] {
            prop_assert!(round.request(&key(), 0, &cut).is_err());
        }
        round.close();
        for cut in [bytes.clone(), resized(&bytes, shape().upload_bytes())] {
            prop_assert!(round.upload(1, &cut).is_err());
        }
        for cut in [bytes.clone(), resized(&bytes, shape().reply_bytes())] {
            prop_assert!(user.reply(&cut).is_err());
        }
    }

    #[test]
    fn other_sizes_come_back_whole(slots in 1usize..40, dim in 1usize..20, taken in 0usize..40) {
        let terms = Terms::of(&ControllerSpec::new("t", (100, dim), (1, slots))).unwrap();
        let context = Context::new(&terms, 1, 0);
        let ids: Vec<u32> = (0..taken.min(slots) as u32).collect();
        let mut user = session(context.clone());
        let request = user.request(&ids).unwrap();
        prop_assert_eq!(request.len(), terms.request_bytes());
        let (session, opened) = ControllerSession::open(&key(), &context, &request).unwrap();
        prop_assert_eq!(&opened[..ids.len()], &ids[..]);
        let rows = numbers(slots * dim);
        let found: Vec<bool> = (0..slots).map(|slot| slot % 3 == 0).collect();
        let reply = user.reply(&session.reply(&rows, &found).unwrap()).unwrap();
        prop_assert_eq!((reply.rows, reply.found), (rows.clone(), found));
        let upload = session.upload(&user.upload(&rows, 2.0).unwrap()).unwrap();
        prop_assert_eq!(upload.gradients, rows);
    }
}

fn resized(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(length, 0x5a);
    bytes
}
