#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_pir::TableShape;
use hushtable_pir::onion::{
    Client, Engine, Error, EvaluationKeys, Geometry, OnionSpec, ParameterSet, Server,
};
use hushtable_table::Version;
use libfuzzer_sys::fuzz_target;

// What a server does with uploaded keys: read them, and answer queries by whatever they hold.
fuzz_target!(|bytes: &[u8]| {
    static WORLD: OnceLock<(Geometry, Server, Vec<u8>)> = OnceLock::new();
    let (geometry, server, query) = WORLD.get_or_init(world);
    // With the right length and header, the numbers are read.
    let mut told = bytes.to_vec();
    told.resize(geometry.key_bytes(), 0);
    told[..4].copy_from_slice(&[1, 255, geometry.levels() as u8, 0]);
    for bytes in [bytes, &told] {
        let keys = match EvaluationKeys::parse(geometry, bytes) {
            Ok(keys) => Arc::new(keys),
            Err(Error::KeyBytes { .. } | Error::KeyParameters { .. } | Error::Residue { .. }) => {
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(bytes.len(), geometry.key_bytes());
        assert!(keys.memory_bytes() <= 8 * bytes.len());
        let asked = server.accept(&keys, query).expect("keys of this geometry");
        let mut response = vec![0; geometry.response_bytes()];
        server.answer(&[asked], &mut response).expect("accepted queries have answers");
    }
});

fn world() -> (Geometry, Server, Vec<u8>) {
    let shape = TableShape::new(100, 64).expect("a small table");
    let geometry = Geometry::with_levels(ParameterSet::N256Test, shape, 3).expect("a small one");
    let version = Version::from([1; 32]);
    let spec = OnionSpec { threads: 1, ..OnionSpec::new() };
    let engine = Engine::from_rows(geometry.clone(), version, &spec, &|first, out| {
        out.fill(first as u8);
        Ok(())
    });
    let client = Client::new(geometry.clone(), version).expect("randomness");
    let (mut queries, _) = client.query(&[99], 1).expect("a row of the table");
    let server = Server::new(Arc::new(engine.expect("a small engine")));
    (geometry, server, queries.remove(0))
}
