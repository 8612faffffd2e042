//! `vectors/onion.json`, which every implementation reads: keys, queries, responses of single-server
//! lookups.
//!
//! Row selection runs on every platform of the machine here. The ring's kernels run on the machine's
//! best: the named sets are made once, by `Platform::detect`, so `HUSHTABLE_ISA` says which these are.

use std::sync::Arc;

use hushtable_pir::onion::{
    Asked, Client, Engine, Error, EvaluationKeys, Geometry, Mask, OnionBackend, OnionSpec,
    ParameterSet, Partial, Schedule, Server, Shard,
};
use hushtable_pir::{Platform, TableShape};
use hushtable_rlwe::ring::NoiseSource;
use hushtable_table::Version;
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    format: u32,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    parameter_set: String,
    levels: u32,
    rows: u64,
    row_bytes: usize,
    geometry: String,
    seed: String,
    id: u64,
    keys: Digest,
    query: Digest,
    response: Digest,
    /// The number of the row's first plaintext.
    plaintext: u64,
    /// Its mask.
    mask: Digest,
    row: String,
}

#[derive(Deserialize)]
struct Digest {
    bytes: usize,
    blake3: String,
    first_bytes: String,
}

impl Digest {
    fn check(&self, bytes: &[u8], what: &str) {
        assert_eq!(bytes.len(), self.bytes, "{what}");
        assert_eq!(bytes[..32], from_hex(&self.first_bytes), "{what}");
        assert_eq!(blake3::hash(bytes).to_hex().as_str(), self.blake3, "{what}");
    }
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// Byte `index` of every vector's table, row after row.
fn table_byte(index: usize) -> u8 {
    ((index ^ (index >> 8)) as u8).wrapping_mul(167).wrapping_add(13)
}

fn server(geometry: &Geometry, version: Version, spec: &OnionSpec) -> Server {
    let engine = Engine::from_rows(geometry.clone(), version, spec, &copy_rows(geometry));
    Server::new(Arc::new(engine.unwrap()))
}

fn shard(geometry: &Geometry, version: Version, of: (u32, u32), spec: &OnionSpec) -> Shard {
    let copy = copy_rows(geometry);
    Shard::new(Engine::shard_from_rows(geometry.clone(), version, of, spec, &copy).unwrap())
}

fn copy_rows(geometry: &Geometry) -> impl Fn(u64, &mut [u8]) -> Result<(), Error> + Sync {
    let row_bytes = geometry.shape().row_bytes();
    move |first, out| {
        let first = first as usize * row_bytes;
        out.iter_mut().enumerate().for_each(|(index, byte)| *byte = table_byte(first + index));
        Ok(())
    }
}

/// What a front makes of three shards' parts, which it got as bytes.
fn answer_by_shards(
    geometry: &Geometry,
    version: Version,
    spec: &OnionSpec,
    asked: &[Asked],
) -> Vec<u8> {
    let parts = (0..3).map(|index| {
        let shard = shard(geometry, version, (index, 3), spec);
        let mut bytes = vec![0; asked.len() * shard.answer_bytes()];
        shard.answer(asked, &mut bytes).unwrap();
        Partial::parse(geometry, asked.len(), &bytes).unwrap()
    });
    let parts = parts.collect();
    let front = Engine::without_rows(geometry.clone(), version, spec).unwrap();
    let mut responses = vec![0; asked.len() * geometry.response_bytes()];
    front.combine(&front.expansions(asked), parts, &mut responses).unwrap();
    responses
}

#[test]
fn every_platform_reproduces_the_vectors() {
    let file: File = serde_json::from_str(include_str!("../../../../vectors/onion.json")).unwrap();
    assert_eq!(file.format, 2);
    assert!(file.vectors.len() >= 4);
    let sets = [ParameterSet::N256Test, ParameterSet::N4096128, ParameterSet::IvePaper];
    for set in sets {
        assert!(file.vectors.iter().any(|vector| vector.parameter_set == set.name()));
    }
    for vector in &file.vectors {
        let set = sets.into_iter().find(|set| set.name() == vector.parameter_set).unwrap();
        let shape = TableShape::new(vector.rows, vector.row_bytes).unwrap();
        let geometry = Geometry::with_levels(set, shape, vector.levels).unwrap();
        assert_eq!(geometry.to_bytes(), from_hex(&vector.geometry));
        match Geometry::from_bytes(&from_hex(&vector.geometry)) {
            Ok(read) => assert_eq!(read, geometry),
            // No bytes name a test set, so none make a geometry of it.
            Err(error) => assert_eq!(set, ParameterSet::N256Test, "{error}"),
        }
        assert!(geometry.games() > 0 && geometry.columns() > 1, "a tournament is played");

        let seed: [u8; 32] = from_hex(&vector.seed).try_into().unwrap();
        let version = Version::from(seed);
        let mut source = NoiseSource::from_seed(&seed);
        let client = Client::draw(geometry.clone(), version, &mut source);
        vector.keys.check(client.keys(), "keys");
        let (queries, pending) = client.query_from(&[vector.id], 1, &mut source);
        vector.query.check(&queries[0], "query");

        let mut mask = vec![0; geometry.plaintext_bytes()];
        Mask::new(version, set).apply(vector.plaintext, &mut mask);
        vector.mask.check(&mask, "mask");

        let row: Vec<u8> = (0..vector.row_bytes)
            .map(|index| table_byte(vector.id as usize * vector.row_bytes + index))
            .collect();
        assert_eq!(from_hex(&vector.row), row);
        let keys = Arc::new(EvaluationKeys::parse(&geometry, client.keys()).unwrap());
        for (index, platform) in Platform::available().into_iter().enumerate() {
            // Neither the order of the steps nor the number of threads changes a bit.
            let schedules = [Schedule::BreadthFirst, Schedule::DepthFirst];
            let (expand, threads) = (schedules[index % 2], 1 + index);
            let spec = OnionSpec { platform, expand, threads, ..OnionSpec::new() };
            let server = server(&geometry, version, &spec);
            let mut response = vec![0; geometry.response_bytes()];
            let asked = server.accept(&keys, &queries[0]).unwrap();
            server.answer(std::slice::from_ref(&asked), &mut response).unwrap();
            vector.response.check(&response, platform.name());
            let joined = answer_by_shards(&geometry, version, &spec, &[asked]);
            vector.response.check(&joined, "shards");
            assert_eq!(client.decode(&pending, version, &response).unwrap(), row);
        }
    }
}
