//! The server's view of single-server lookups must not tell ids apart; views with a planted leak
//! must be caught.

use crate::classifier;

use classifier::{CHANCE_MAX, accuracy};
use hushtable_pir::TableShape;
use hushtable_pir::onion::{Client, Geometry, ParameterSet, Query};
use hushtable_rlwe::pack::pack_poly;
use hushtable_rlwe::ring::{Coefficients, Evaluations, NoiseSource, Poly};
use hushtable_rlwe::{Ciphertext, SecretKey};
use hushtable_table::Version;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

const ROWS: u64 = 2_000;

fn geometry() -> Geometry {
    let shape = TableShape::new(ROWS, 64).unwrap();
    // Few levels make short keys, and still both dimensions are asked for.
    let geometry = Geometry::with_levels(ParameterSet::N256Test, shape, 5).unwrap();
    assert!(geometry.rows() > 1 && geometry.games() > 2);
    geometry
}

fn client() -> Client {
    Client::new(geometry(), Version::from([0; 32])).unwrap()
}

#[test]
fn a_query_tells_nothing_of_its_id() {
    let client = client();
    for (a, b) in [(0, ROWS - 1), (123, 124), (0, 500)] {
        let score =
            accuracy(|class| client.query(&[if class { b } else { a }], 1).unwrap().0.concat());
        assert!(score < CHANCE_MAX, "{a} {b}: {score}");
    }
}

#[test]
fn keys_with_a_query_tell_nothing_of_the_id() {
    let score = accuracy(|class| {
        let client = client();
        let (queries, _) = client.query(&[if class { ROWS - 1 } else { 0 }], 1).unwrap();
        [client.keys(), &queries[0]].concat()
    });
    assert!(score < CHANCE_MAX, "{score}");
}

#[test]
fn differences_between_queries_tell_nothing_of_their_ids() {
    // Two queries of one client, for one id twice or for two: what is equal in them must not show.
    let client = client();
    let score = accuracy(|class| {
        let ids = [77, if class { 77 } else { 1_500 }];
        let (queries, _) = client.query(&ids, 2).unwrap();
        queries[0].iter().zip(&queries[1]).map(|(a, b)| a ^ b).collect()
    });
    assert!(score < CHANCE_MAX, "{score}");
}

#[test]
fn queries_tell_nothing_of_the_number_of_ids_unless_dummies_are_skipped() {
    let client = client();
    let mut rng = ChaCha12Rng::seed_from_u64(21);
    let mut view = |ids: u64, max_ids: usize| {
        let ids: Vec<u64> = (0..ids).map(|_| rng.random_range(0..ROWS)).collect();
        client.query(&ids, max_ids).unwrap().0.concat()
    };
    let score = accuracy(|class| view(if class { 3 } else { 0 }, 3));
    assert!(score < CHANCE_MAX, "padded lookups differ: {score}");
    let score = accuracy(|class| if class { view(3, 3) } else { view(1, 1) });
    assert!(score > 0.99, "skipped dummies went unseen: {score}");
}

#[test]
fn every_query_has_the_same_length_and_header() {
    for set in [ParameterSet::N256Test, ParameterSet::N4096128, ParameterSet::IvePaper] {
        let shape = TableShape::new(ROWS, 64).unwrap();
        let geometry = Geometry::with_levels(set, shape, 4).unwrap();
        let client = Client::new(geometry.clone(), Version::from([0; 32])).unwrap();
        let ids: Vec<u64> = (0..ROWS).step_by(97).chain([ROWS - 1]).collect();
        // The last three are dummies.
        let (queries, _) = client.query(&ids, ids.len() + 3).unwrap();
        assert_eq!(queries.len(), ids.len() + 3);
        for query in &queries {
            assert_eq!(query.len(), geometry.query_bytes());
            assert_eq!(query[..4], queries[0][..4]);
        }
        assert_eq!(client.keys().len(), geometry.key_bytes());
        // Seeds of masks are never used twice, by queries or by the keys.
        let mut seeds: Vec<&[u8]> = queries.iter().map(|query| &query[4..36]).collect();
        seeds.push(&client.keys()[4..36]);
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), queries.len() + 1);
    }
}

/// What a query without limbs to drop holds, on the wire: Δ at `row`, and some mask and error.
fn view(
    geometry: &Geometry,
    row: usize,
    seed: [u8; 32],
    encrypt: impl FnOnce([u8; 32], &Poly<Evaluations>) -> Poly<Evaluations>,
) -> Vec<u8> {
    let params = geometry.params();
    let ring = params.ring();
    let delta = params.delta();
    let delta = params.query_residues(|limb| delta[limb], geometry.levels());
    let mut message: Poly<Coefficients> = ring.zero();
    for (limb, &delta) in delta.iter().enumerate() {
        message.limb_mut(limb)[row] = delta;
    }
    let body = encrypt(seed, &ring.forward(message));
    let mut bytes = vec![1, 0, geometry.levels() as u8, 0];
    bytes.extend(seed);
    pack_poly(params.answer_ring(), &ring.drop_last_limb(&body), &mut bytes);
    Query::parse(geometry, &bytes).unwrap();
    bytes
}

#[test]
fn a_mask_that_is_used_again_is_caught() {
    let geometry = geometry();
    let ring = geometry.params().ring();
    let mut source = NoiseSource::from_seed(&[1; 32]);
    let secret = SecretKey::draw(geometry.params().ring(), &mut source);
    let mut encrypt = |seed: [u8; 32], message: &Poly<Evaluations>| {
        secret.encrypt(ring, &seed, 0, message, &mut source).body
    };
    // The planted queries differ from sound ones in the seed alone.
    let score = accuracy(|class| view(&geometry, usize::from(class), rand::random(), &mut encrypt));
    assert!(score < CHANCE_MAX, "fresh masks: {score}");
    let score = accuracy(|class| view(&geometry, usize::from(class), [9; 32], &mut encrypt));
    assert!(score > 0.99, "a mask used twice went unseen: {score}");
    // Without an error, the difference of two such queries is the difference of their messages.
    let exact = |seed: [u8; 32], message: &Poly<Evaluations>| {
        let mask = ring.uniform(&seed, 0);
        let product = ring.forward(secret.phase(ring, &Ciphertext { mask, body: ring.zero() }));
        let mut body = message.clone();
        ring.sub_assign(&mut body, &product);
        body
    };
    let score = accuracy(|class| view(&geometry, usize::from(class), [9; 32], exact));
    assert!(score > 0.99, "a mask used twice without an error went unseen: {score}");
}

#[test]
fn a_body_without_its_mask_is_caught() {
    let geometry = geometry();
    let score = accuracy(|class| {
        view(&geometry, usize::from(class), rand::random(), |_, message| message.clone())
    });
    assert!(score > 0.99, "a bare message went unseen: {score}");
}
