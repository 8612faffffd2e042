#![no_main]

use hushtable_table::model::{MapError, ShardMap};
use libfuzzer_sys::fuzz_target;

const CHECKSUM: &[u8] = b"\"checksum\": \"";
const HEX_BYTES: usize = 64;

/// `bytes` with the checksum that they have without it.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let at = bytes.windows(CHECKSUM.len()).rposition(|it| it == CHECKSUM)? + CHECKSUM.len();
    let (head, tail) = (&bytes[..at], bytes.get(at + HEX_BYTES..)?);
    let sum = blake3::hash(&[head, tail].concat());
    Some([head, sum.to_string().as_bytes(), tail].concat())
}

fuzz_target!(|bytes: &[u8]| {
    let map = match ShardMap::from_json(bytes) {
        Ok(map) => map,
        // A text that hashes to what it says is out of a fuzzer's reach, so the hash is made.
        Err(MapError::Checksum) => {
            let sealed = sealed(bytes).map(|bytes| ShardMap::from_json(&bytes));
            let Some(Ok(map)) = sealed else { return };
            map
        }
        Err(_) => return,
    };
    assert_eq!(ShardMap::from_json(&map.to_json()).expect("its own text"), map);
    // Every row of every table is on one shard.
    for (index, table) in map.tables().iter().enumerate() {
        let rows = (0..map.shards().len()).filter_map(|shard| map.rows_of(shard, index));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable_by_key(|rows| rows.start);
        let mut next = 0;
        for own in rows {
            assert_eq!(own.start, next);
            next = own.end;
        }
        assert_eq!(next, table.rows);
    }
});
