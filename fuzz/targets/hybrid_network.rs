#![no_main]

use hushtable_infer::hybrid::network::{Network, lower};
use libfuzzer_sys::fuzz_target;

// A model's file: its graph and its weights.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(network) = Network::from_safetensors(bytes) {
        let _ = lower(&network);
        let again = network.to_safetensors().expect("what was read can be written");
        assert_eq!(Network::from_safetensors(&again).expect("a network").nodes(), network.nodes());
    }
});
