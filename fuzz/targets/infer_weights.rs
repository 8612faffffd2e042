#![no_main]

use hushtable_fuzz::small_dlrm;
use hushtable_infer::dlrm::{Dlrm, Weights};
use libfuzzer_sys::fuzz_target;

// A model's description, and its weights.
fuzz_target!(|bytes: &[u8]| {
    let _ = Weights::from_safetensors(&small_dlrm(), bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Dlrm::parse(text);
    }
});
