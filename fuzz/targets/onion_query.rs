#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_pir::TableShape;
use hushtable_pir::onion::{
    Client, Engine, Error, EvaluationKeys, Geometry, OnionSpec, ParameterSet, Query, Server,
};
use hushtable_table::Version;
use libfuzzer_sys::fuzz_target;

// What a server does with a query: read it, and answer whatever it holds.
fuzz_target!(|bytes: &[u8]| {
    static WORLD: OnceLock<(Geometry, Server, Arc<EvaluationKeys>)> = OnceLock::new();
    let (geometry, server, keys) = WORLD.get_or_init(world);
    // With the right length and header, the numbers are read.
    let mut told = bytes.to_vec();
    told.resize(geometry.query_bytes(), 0);
    told[..4].copy_from_slice(&[1, 255, geometry.levels() as u8, 0]);
    for bytes in [bytes, &told] {
        match Query::parse(geometry, bytes) {
            Ok(_) => assert_eq!(bytes.len(), geometry.query_bytes()),
            Err(Error::QueryBytes { .. } | Error::Residue { .. }) => continue,
            Err(other) => panic!("{other}"),
        }
        let asked = server.accept(keys, bytes).expect("what was parsed");
        let mut response = vec![0; geometry.response_bytes()];
        server.answer(&[asked], &mut response).expect("accepted queries have answers");
    }
});

fn world() -> (Geometry, Server, Arc<EvaluationKeys>) {
    let shape = TableShape::new(100, 64).expect("a small table");
    let geometry = Geometry::with_levels(ParameterSet::N256Test, shape, 3).expect("a small one");
    let version = Version::from([1; 32]);
    let spec = OnionSpec { threads: 1, ..OnionSpec::new() };
    let engine = Engine::from_rows(geometry.clone(), version, &spec, &|first, out| {
        out.fill(first as u8);
        Ok(())
    });
    let client = Client::new(geometry.clone(), version).expect("randomness");
    let server = Server::new(Arc::new(engine.expect("a small engine")));
    let keys = server.accept_keys(client.keys()).expect("keys of this geometry");
    (geometry, server, Arc::new(keys))
}
