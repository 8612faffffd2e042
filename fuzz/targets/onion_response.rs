#![no_main]

use std::sync::OnceLock;

use hushtable_pir::TableShape;
use hushtable_pir::onion::{Client, Error, Geometry, ParameterSet, Pending};
use hushtable_table::Version;
use libfuzzer_sys::fuzz_target;

// What a client does with the responses to two queries, one of them a dummy's: rows that share a
// plaintext, and rows of several plaintexts.
fuzz_target!(|bytes: &[u8]| {
    static LOOKUPS: OnceLock<[(Client, Pending); 2]> = OnceLock::new();
    for (client, pending) in LOOKUPS.get_or_init(|| [lookup(64), lookup(1300)]) {
        let geometry = client.geometry();
        let mut told = bytes.to_vec();
        told.resize(2 * geometry.response_bytes(), 0);
        for bytes in [bytes, &told] {
            match client.decode(pending, Version::from([1; 32]), bytes) {
                Ok(rows) => {
                    assert_eq!(bytes.len(), told.len());
                    assert_eq!(rows.len(), geometry.shape().row_bytes());
                }
                Err(Error::ResponseBytes { .. }) => assert_ne!(bytes.len(), told.len()),
                Err(other) => panic!("{other}"),
            }
        }
    }
});

fn lookup(row_bytes: usize) -> (Client, Pending) {
    let shape = TableShape::new(100, row_bytes).expect("a small table");
    let geometry = Geometry::new(ParameterSet::N256Test, shape).expect("a small geometry");
    let client = Client::new(geometry, Version::from([1; 32])).expect("randomness");
    let (_, pending) = client.query(&[7], 2).expect("a row of the table");
    (client, pending)
}
