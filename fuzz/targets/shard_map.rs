#![no_main]

use hushtable_table::model::ShardMap;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(map) = ShardMap::from_json(bytes) else { return };
    assert_eq!(ShardMap::from_json(&map.to_json()).expect("its own text"), map);
    // Every row of every table is on one shard.
    for (index, table) in map.tables().iter().enumerate() {
        let rows = (0..map.shards().len()).filter_map(|shard| map.rows_of(shard, index));
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows.iter().map(|rows| rows.end - rows.start).sum::<u64>(), table.rows);
        for (place, own) in rows.iter().enumerate() {
            let meets = |other: &std::ops::Range<u64>| other.start < own.end && own.start < other.end;
            assert!(!rows[place + 1..].iter().any(meets));
        }
    }
});
