#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_fuzz::small_onion;
use hushtable_pir::onion::{Error, EvaluationKeys, Geometry, Query, Server};
use libfuzzer_sys::fuzz_target;

// What a server does with a query: read it, and answer whatever it holds.
fuzz_target!(|bytes: &[u8]| {
    static WORLD: OnceLock<(Geometry, Server, Arc<EvaluationKeys>)> = OnceLock::new();
    let (geometry, server, keys) = WORLD.get_or_init(world);
    // With the right length and header, the numbers are read.
    let mut told = bytes.to_vec();
    told.resize(geometry.query_bytes(), 0);
    told[..4].copy_from_slice(&[1, 0, geometry.levels() as u8, 0]);
    for bytes in [bytes, &told] {
        match Query::parse(geometry, bytes) {
            Ok(_) => assert_eq!(bytes.len(), geometry.query_bytes()),
            Err(
                Error::QueryBytes { .. } | Error::QueryParameters { .. } | Error::Residue { .. },
            ) => continue,
            Err(other) => panic!("{other}"),
        }
        let asked = server.accept(keys, bytes).expect("what was parsed");
        let mut response = vec![0; geometry.response_bytes()];
        server.answer(&[asked], &mut response).expect("accepted queries have answers");
    }
});

fn world() -> (Geometry, Server, Arc<EvaluationKeys>) {
    let (geometry, client, server) = small_onion();
    let keys = server.accept_keys(client.keys()).expect("keys of this geometry");
    (geometry, server, Arc::new(keys))
}
