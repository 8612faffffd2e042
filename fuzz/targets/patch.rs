//! A patch's file, as another operator sends it: what is taken is whole, and is written as it was read.

#![no_main]

use hushtable_table::patch::{Patch, PatchError};
use libfuzzer_sys::fuzz_target;

const SUM_BYTES: usize = 32;

fuzz_target!(|bytes: &[u8]| {
    // A file that hashes to what it says is out of a fuzzer's reach, so the hash is made.
    let body = bytes.len().saturating_sub(SUM_BYTES);
    let mut bytes = bytes.to_vec();
    if let Err(PatchError::Checksum) = Patch::from_bytes(&bytes) {
        let mut hasher = blake3::Hasher::new_derive_key("hushtable table patch v1");
        bytes.truncate(body);
        let sum = *hasher.update(&bytes).finalize().as_bytes();
        bytes.extend_from_slice(&sum);
    }
    let Ok(patch) = Patch::from_bytes(&bytes) else { return };
    assert_eq!(patch.to_bytes(), bytes);
    assert!(patch.ids().is_sorted() && !patch.ids().is_empty());
    assert!(patch.ids().iter().all(|&id| id < patch.shape().rows()));
    assert_eq!(patch.iter().count(), patch.ids().len());
});
