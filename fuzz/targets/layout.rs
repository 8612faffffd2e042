#![no_main]

use hushtable_pir::batch::Geometry;
use hushtable_table::layout::{Layout, LayoutError, Planner};
use libfuzzer_sys::fuzz_target;

/// What a client does with the layout that a server sends, and a server with its bundle's. The last
/// bytes are a bag of ids.
fuzz_target!(|bytes: &[u8]| {
    // A layout that hashes to what it says is out of a fuzzer's reach, so it is told the hash.
    let layout = match Layout::from_bytes(bytes) {
        Err(LayoutError::Edited { expected, found }) => {
            let (expected, found) = (expected.to_string(), found.to_string());
            match Layout::from_bytes(&replace(bytes, expected.as_bytes(), found.as_bytes())) {
                Ok(layout) => layout,
                // The old hash may stand elsewhere too.
                Err(_) => return,
            }
        }
        Err(_) => return,
        Ok(layout) => layout,
    };
    let copy = Layout::from_bytes(&layout.to_bytes()).expect("what was written can be read");
    assert_eq!(copy, layout);
    // Memory is bounded by the bytes; what servers allocate by a layout is theirs to decide.
    assert!(layout.map_bytes_count() <= bytes.len());
    let geometry = Geometry::new(&layout);
    assert_eq!(geometry.keys(), layout.keys());
    geometry.costs(&layout);
    if layout.keys() > 4096 {
        return;
    }
    let rows = layout.rows();
    let count = layout.ids_max().min(64);
    let ids: Vec<u64> = bytes.iter().rev().take(count).map(|&id| u64::from(id) % rows).collect();
    let plan = Planner::new(layout.into()).plan_vartime(&ids, 7).expect("ids that are rows");
    assert_eq!(plan.offsets.len(), geometry.keys());
    assert_eq!(plan.found.len(), ids.len());
});

fn replace(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    match bytes.windows(old.len()).position(|window| window == old) {
        Some(at) => [&bytes[..at], new, &bytes[at + old.len()..]].concat(),
        None => bytes.to_vec(),
    }
}
