#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_fuzz::small_onion;
use hushtable_pir::onion::{Error, EvaluationKeys, Geometry, Server};
use libfuzzer_sys::fuzz_target;

// What a server does with uploaded keys: read them, and answer queries by whatever they hold.
fuzz_target!(|bytes: &[u8]| {
    static WORLD: OnceLock<(Geometry, Server, Vec<u8>)> = OnceLock::new();
    let (geometry, server, query) = WORLD.get_or_init(world);
    // With the right length and header, the numbers are read.
    let mut told = bytes.to_vec();
    told.resize(geometry.key_bytes(), 0);
    told[..4].copy_from_slice(&[1, 0, geometry.levels() as u8, 0]);
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
    let (geometry, client, server) = small_onion();
    let (mut queries, _) = client.query(&[99], 1).expect("a row of the table");
    (geometry, server, queries.remove(0))
}
