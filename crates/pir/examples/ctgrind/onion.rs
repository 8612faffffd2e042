//! Lookups from one server: the id, the secret and all noise are secret.

use hushtable_pir::TableShape;
use hushtable_pir::onion::{Client, Geometry, ParameterSet};
use hushtable_prg::valgrind::mark_public;
use hushtable_rlwe::ring::NoiseSource;
use hushtable_table::Version;

use crate::secret::{below, bytes, secret};
use crate::{Check, Work};

const ROWS: u64 = 3_000;
const VERSION: [u8; 32] = [9; 32];

/// Five rows share a plaintext, in 22 rows of the matrix. The test set takes the same steps as the
/// others, fewer of them.
fn geometry() -> Geometry {
    let shape = TableShape::new(ROWS, 100).expect("a shape");
    Geometry::with_levels(ParameterSet::N256Test, shape, 5).expect("a geometry")
}

/// Randomness all of which is secret.
fn source(number: u64, index: u64) -> NoiseSource {
    NoiseSource::from_seed(&secret(bytes(number, index)))
}

/// The same randomness for all to see.
fn public_source(number: u64, index: u64) -> NoiseSource {
    NoiseSource::from_seed(&bytes(number, index))
}

pub fn keys(number: u64) -> Work {
    // A short key: two levels.
    let shape = TableShape::new(10, 100).expect("a shape");
    let geometry = Geometry::with_levels(ParameterSet::N256Test, shape, 2).expect("a geometry");
    Box::new(move || {
        let version = Version::from(VERSION);
        let client = Client::draw(geometry.clone(), version, &mut source(number, 5));
        Box::new(move || {
            let mut keys = client.keys().to_vec();
            mark_public(&mut keys);
            let same = Client::draw(geometry, version, &mut public_source(number, 5));
            assert_eq!(keys, same.keys());
        }) as Check
    })
}

pub fn query(number: u64) -> Work {
    let client = Client::draw(geometry(), Version::from(VERSION), &mut source(number, 6));
    let id = below(ROWS, number);
    Box::new(move || {
        let (mut queries, _) = client.query_from(&secret([id]), 1, &mut source(number, 7));
        Box::new(move || {
            mark_public(&mut queries[0]);
            let version = Version::from(VERSION);
            let client = Client::draw(geometry(), version, &mut public_source(number, 6));
            let (same, _) = client.query_from(&[id], 1, &mut public_source(number, 7));
            assert_eq!(queries, same);
            let (other, _) = client.query_from(&[ROWS / 2], 1, &mut public_source(number, 7));
            assert_ne!(queries, other, "the id is in the query");
        }) as Check
    })
}

pub fn decode(number: u64) -> Work {
    let version = Version::from(VERSION);
    let client = Client::draw(geometry(), version, &mut source(number, 8));
    let id = below(ROWS, number);
    let (_, pending) = client.query_from(&secret([id]), 1, &mut source(number, 9));
    let responses = vec![0x5a; client.geometry().response_bytes()];
    Box::new(move || {
        let mut rows = client.decode(&pending, version, &responses).expect("a response");
        Box::new(move || {
            mark_public(&mut rows);
            let client = Client::draw(geometry(), version, &mut public_source(number, 8));
            let (_, pending) = client.query_from(&[id], 1, &mut public_source(number, 9));
            let same = client.decode(&pending, version, &responses).expect("a response");
            assert_eq!(rows, same);
        }) as Check
    })
}
