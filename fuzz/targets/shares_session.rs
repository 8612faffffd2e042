#![no_main]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hushtable_fuzz::small_shared;
use hushtable_infer::shares::exchange::{Exchange, ExchangeSpec, Hello, Question};
use hushtable_infer::shares::joint::{Dealer, Precompute};
use hushtable_infer::shares::price::Model;
use hushtable_infer::shares::{Half, SharesPlan};
use libfuzzer_sys::fuzz_target;

// What the other server says, and what a folder or a bundle holds, from anyone: an error, never a panic, and no memory
// that grows with what a length claims.
fuzz_target!(|input: (bool, Vec<u8>, Vec<Vec<u8>>, Vec<Vec<u8>>)| {
    static MODEL: OnceLock<Model> = OnceLock::new();
    let model = MODEL.get_or_init(small_shared);
    let (is_left, bytes, frames, messages) = input;
    let half = if is_left { Half::Left } else { Half::Right };
    let network = Arc::clone(&model.network);
    let outline = network.outline().clone();
    let _ = Hello::parse(&bytes);
    let _ = Precompute::from_bytes(bytes.clone(), &[7; 16]);
    if let Ok(text) = std::str::from_utf8(&bytes) {
        let _ = SharesPlan::parse(text);
    }
    let hello = |half| Hello::new(half, [1; 32], [2; 32]).expect("randomness");
    let other = if is_left { Half::Right } else { Half::Left };
    let exchange = Exchange::new(network, &hello(half), &hello(other), ExchangeSpec::default());
    let mut exchange: Exchange<Vec<u8>> = exchange.expect("both sides, one model");
    let own = if is_left { outline.left_bytes() } else { outline.right_bytes() };
    let question = Question {
        name: [3; 16],
        common: vec![0; outline.common_bytes()],
        dealt: vec![0; own],
        precompute: None,
        rows: vec![0; outline.looked_bits() / 8],
    };
    exchange.ask(question, Duration::ZERO).expect("it is of this model");
    for frame in &frames {
        if exchange.take(frame, Duration::ZERO).is_err() {
            break;
        }
        while exchange.send(1 << 16).is_some() {}
        exchange.outcomes();
    }
    exchange.close();
    let (mut dealer, _) = Dealer::start(half, &outline).expect("servers can deal for it");
    for message in &messages {
        if dealer.step(message).is_err() {
            return assert!(dealer.step(message).is_err(), "it is over");
        }
    }
});
