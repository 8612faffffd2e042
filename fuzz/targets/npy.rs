#![no_main]

use hushtable_fuzz::scan_and_build;
use hushtable_table::SourceFormat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| scan_and_build(SourceFormat::Npy, bytes));
