//! Sealed messages: sizes, bindings, known answers, hostile bytes.

use hushtable_prg::Secret;
use proptest::prelude::*;
use serde::Deserialize;

use super::*;

const ROWS: u64 = 1000;

fn shape() -> Shape {
    Shape::new(4, 3).unwrap()
}

fn context(user: u32) -> Context {
    Context::new("films", ROWS, shape(), 77, user).unwrap()
}

fn key() -> ControllerKey {
    ControllerKey::from_seed(&[9; 32])
}

/// A round of three users in which user 1 has asked for `ids`.
fn round(ids: &[u32]) -> (SealedRound, UserSession, Vec<u8>) {
    let mut round = SealedRound::new("films", ROWS, shape(), 77, 3).unwrap();
    let mut user = UserSession::new(&key().public(), context(1)).unwrap();
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
    assert_eq!(request.len(), shape().request_bytes());
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
    assert_eq!(shape.request_bytes(), 32 + 12 + 4 * slots + 16);
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
    let key = key();
    let seal =
        |context: Context| UserSession::new(&key.public(), context).unwrap().request(&[3]).unwrap();
    let open = |sealed: &[u8]| ControllerSession::open(&key, &context(1), sealed).map(|_| ());
    open(&seal(context(1))).unwrap();
    let others = [
        context(2),
        Context::new("films", ROWS, shape(), 78, 1).unwrap(),
        Context::new("film", ROWS, shape(), 77, 1).unwrap(),
        Context::new("films", ROWS - 1, shape(), 77, 1).unwrap(),
        // The same sizes, another dim.
        Context::new("films", ROWS, Shape::new(4, 2).unwrap(), 77, 1).unwrap(),
    ];
    for other in others {
        let refused = open(&seal(other.clone()));
        assert!(matches!(refused, Err(Error::Forged { what: "request" })), "{other:?}");
    }
    let stranger = ControllerKey::from_seed(&[1; 32]);
    let sealed = seal(context(1));
    let refused = ControllerSession::open(&stranger, &context(1), &sealed);
    assert!(matches!(refused, Err(Error::Forged { .. })));
}

#[test]
fn replies_and_uploads_of_one_user_are_no_others() {
    let mut round = SealedRound::new("films", ROWS, shape(), 77, 2).unwrap();
    let mut users = [0, 1].map(|user| UserSession::new(&key().public(), context(user)).unwrap());
    for (number, user) in (0..).zip(&mut users) {
        round.request(&key(), number, &user.request(&[7]).unwrap()).unwrap();
    }
    round.close();
    let reply = round.reply(0, &numbers(12), &[true; 4]).unwrap();
    assert!(users[0].reply(&reply).is_ok());
    assert!(matches!(users[1].reply(&reply), Err(Error::Forged { what: "reply" })));
    let upload = users[1].upload(&numbers(12), 1.0).unwrap();
    assert!(matches!(round.upload(0, &upload), Err(Error::Forged { what: "upload" })));
    assert!(round.upload(1, &upload).unwrap().is_some());
    // With four slots a reply has as many bytes as an upload, but another key.
    assert_eq!(shape().reply_bytes(), shape().upload_bytes());
    assert!(matches!(users[0].reply(&upload), Err(Error::Forged { what: "reply" })));
    assert!(matches!(round.upload(0, &reply), Err(Error::Forged { what: "upload" })));
}

#[test]
fn a_round_takes_each_message_once_and_in_turn() {
    let (mut round, mut user, request) = round(&[5]);
    // The network repeats what it carries.
    round.request(&key(), 1, &request).unwrap();
    let other = UserSession::new(&key().public(), context(1)).unwrap().request(&[6]).unwrap();
    let order = |error| match error {
        Error::Order(order) => order,
        other => panic!("{other}"),
    };
    let refused = round.request(&key(), 1, &other).map_err(order);
    assert_eq!(refused, Err(OrderError::AlreadyRequested { user: 1 }));
    assert_eq!(round.upload(1, &[]).map_err(order), Err(OrderError::Open));
    assert_eq!(round.check_member(1).map_err(order), Err(OrderError::Open));
    round.close();
    let late = UserSession::new(&key().public(), context(2)).unwrap().request(&[6]).unwrap();
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
    let mut flipped = UserSession::new(&key().public(), context(2)).unwrap().request(&[1]).unwrap();
    flipped[40] ^= 1;
    assert!(matches!(round.request(&key(), 2, &flipped), Err(Error::Forged { .. })));
    assert!(matches!(round.request(&key(), 2, &request), Err(Error::Forged { .. })));
    assert!(matches!(round.request(&key(), 2, &[0; 7]), Err(Error::Length { found: 7, .. })));
    let expected = [vec![DUMMY; 4], vec![5], vec![DUMMY; 7]].concat();
    // After its mistakes the place is still free.
    assert_eq!(round.requested(), 1);
    let good = UserSession::new(&key().public(), context(0)).unwrap().request(&[]).unwrap();
    round.request(&key(), 0, &good).unwrap();
    assert_eq!(round.close(), expected);
}

#[test]
fn ids_that_are_no_rows_are_refused_at_both_ends() {
    let mut user = UserSession::new(&key().public(), context(1)).unwrap();
    let refused = user.request(&[1, ROWS as u32]);
    assert!(matches!(refused, Err(Error::IdRange { id: 1000, rows: ROWS })));
    let refused = user.request(&[1; 5]);
    assert!(matches!(refused, Err(Error::TooManyIds { ids: 5, slots: 4 })));
    // Neither used the session up; a hole among the ids is none.
    user.request(&[DUMMY, 999]).unwrap();
    assert!(matches!(user.request(&[1]), Err(Error::Order(OrderError::Requested))));

    // A user that does not check: the same context but for its rows, which are bound as well.
    let large = Context { rows: 5000, ..context(1) };
    for (id, is_row) in [(999, true), (1000, false), (4999, false), (u32::MAX, true)] {
        let ids = controller::check_ids(&[0, id, 3], ROWS);
        assert_eq!(ids.is_ok(), is_row, "{id}");
    }
    assert!(controller::check_ids(&[u32::MAX - 1], u64::from(u32::MAX)).is_ok());
    assert!(controller::check_ids(&[u32::MAX - 1], u64::from(u32::MAX) - 1).is_err());
    let mut liar = UserSession::new(&key().public(), large.clone()).unwrap();
    let sealed = liar.request(&[4999]).unwrap();
    let narrow = Context { rows: 1000, ..large.clone() };
    assert!(matches!(ControllerSession::open(&key(), &narrow, &sealed), Err(Error::Forged { .. })));
    ControllerSession::open(&key(), &large, &sealed).unwrap();
}

#[test]
fn gradients_and_weights_that_teach_nothing_are_refused() {
    let mut user = UserSession::new(&key().public(), context(1)).unwrap();
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
    let refused = user.upload(&numbers(13), 1.0);
    assert!(matches!(refused, Err(Error::Numbers { expected: 12, found: 13, .. })));
    assert!(matches!(user.upload(&numbers(4), 1.0), Err(Error::Numbers { .. })));
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
    let early = UserSession::new(&key().public(), context(1)).unwrap();
    assert!(matches!(early.to_bytes(), Err(Error::Order(OrderError::NotYetRequested))));
    for cut in 0..kept.len() {
        let read = UserSession::from_bytes(&kept[..cut]);
        // A shorter table name is another context, but a whole one.
        assert!(read.is_err() || cut > kept.len() - 6, "{cut}");
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
    assert!(matches!(UserSession::new(&zero, context(1)), Err(Error::PublicKey { .. })));
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
    assert!(Context::new("t", 0, shape(), 0, 0).is_err());
    assert!(Context::new("t", 1 << 32, shape(), 0, 0).is_err());
    assert!(matches!(
        Context::new(&"t".repeat(4097), 1, shape(), 0, 0),
        Err(Error::Name { bytes: 4097, .. })
    ));
    for users in [0, (1 << 30) + 1, usize::MAX] {
        assert!(SealedRound::new("t", 1, shape(), 0, users).is_err());
    }
}

#[derive(Deserialize)]
struct Vector {
    controller_seed: String,
    controller_public: String,
    user_seed: String,
    table: String,
    rows: u64,
    slots: usize,
    dim: usize,
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
        let shape = Shape::new(v.slots, v.dim).unwrap();
        let context = Context::new(&v.table, v.rows, shape, v.round, v.user).unwrap();
        let user_seed = Secret::new(seed(&v.user_seed));
        let mut user = UserSession::from_seed(&key.public(), context.clone(), &user_seed).unwrap();
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
        for cut in [bytes.clone(), resized(&bytes, shape().request_bytes())] {
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
        let shape = Shape::new(slots, dim).unwrap();
        let context = Context::new("t", 100, shape, 1, 0).unwrap();
        let ids: Vec<u32> = (0..taken.min(slots) as u32).collect();
        let mut user = UserSession::new(&key().public(), context.clone()).unwrap();
        let request = user.request(&ids).unwrap();
        prop_assert_eq!(request.len(), shape.request_bytes());
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
