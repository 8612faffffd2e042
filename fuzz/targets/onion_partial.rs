#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_fuzz::small_onion;
use hushtable_pir::onion::{Asked, Engine, Error, Geometry, OnionSpec, Partial};
use libfuzzer_sys::fuzz_target;

// What a front does with a shard's part of an answer: read it, and join it with whatever else it has.
fuzz_target!(|bytes: &[u8]| {
    static WORLD: OnceLock<(Geometry, Engine, Vec<Asked>)> = OnceLock::new();
    let (geometry, front, asked) = WORLD.get_or_init(world);
    // With the right head and length, the numbers are read.
    let columns = 0..geometry.columns();
    let mut told = bytes.to_vec();
    told.resize(geometry.partial_bytes(&columns), 0);
    told[..4].copy_from_slice(&[1, 0, geometry.levels() as u8, geometry.games() as u8]);
    told[4..36].fill(1);
    told[36..44].copy_from_slice(&columns.start.to_le_bytes());
    told[44..52].copy_from_slice(&columns.end.to_le_bytes());
    for bytes in [bytes, &told] {
        let part = match Partial::parse(geometry, 1, bytes) {
            Ok(part) => part,
            Err(
                Error::PartialBytes { .. }
                | Error::PartialParameters { .. }
                | Error::Residue { .. }
                | Error::ShardColumns { .. },
            ) => continue,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(part.to_bytes(), bytes);
        let mut response = vec![0; geometry.response_bytes()];
        match front.combine(&front.expansions(asked), vec![part], &mut response) {
            Ok(()) | Err(Error::ShardColumns { .. } | Error::ShardVersion { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
});

fn world() -> (Geometry, Engine, Vec<Asked>) {
    let (geometry, client, server) = small_onion();
    let spec = OnionSpec { threads: 1, ..OnionSpec::new() };
    let front = Engine::without_rows(geometry.clone(), server.version(), &spec);
    let keys = Arc::new(server.accept_keys(client.keys()).expect("keys of this geometry"));
    let (queries, _) = client.query(&[99], 1).expect("a row of the table");
    let asked = server.accept(&keys, &queries[0]).expect("a query of this geometry");
    (geometry, front.expect("threads"), vec![asked])
}
