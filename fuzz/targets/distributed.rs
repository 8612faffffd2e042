#![no_main]

use hushtable_table::{CheckpointFormat, scan_checkpoint};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tensors) = scan_checkpoint(CheckpointFormat::Distributed, bytes) {
        assert!(tensors.len() <= 65_536);
        assert!(tensors.iter().all(|tensor| tensor.name.len() <= 1_024));
    }
});
