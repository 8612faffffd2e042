//! Prints how fast oblivious transfers are made: `cargo run --release -p hushtable-mpc --example ot_speed`.

use std::time::Instant;

use hushtable_mpc::Platform;
use hushtable_mpc::ot::{ReceiverSetup, SenderSetup, correction_bytes};
use hushtable_mpc::share;

const LABELS: usize = 1 << 16;
const BATCHES: u64 = 200;

fn main() {
    let start = Instant::now();
    let (receiver, opening) = ReceiverSetup::new(&[1; 32]);
    let (sender, points) = SenderSetup::new(&[2; 32], 5 << 64 | 3, &opening).expect("a point");
    let ours = start.elapsed();
    let (receiver, corrections) = receiver.finish(&points).expect("points");
    let sender = sender.finish(&corrections).expect("corrections");
    println!("setup: {:.1} ms, until the points {:.1}", ms(start), ours.as_secs_f64() * 1e3);
    let choices: Vec<u16> = (0..LABELS / 16).map(|i| (i * 40_503) as u16).collect();
    println!("bytes a transfer: {}", correction_bytes(LABELS) as f64 / LABELS as f64);
    for platform in Platform::available() {
        let (mut labels, mut zeros) = (vec![0; LABELS], vec![0; LABELS]);
        let (mut receiving, mut again, mut sending) = (0.0, 0.0, 0.0);
        for batch in 0..BATCHES {
            let start = Instant::now();
            let corrections = receiver.extend(platform, batch, &choices, &mut labels);
            receiving += ms(start);
            let start = Instant::now();
            receiver.labels(platform, batch, &mut labels);
            again += ms(start);
            let start = Instant::now();
            sender.extend(platform, batch, &corrections, &mut zeros).expect("corrections");
            sending += ms(start);
        }
        let rate = |ms: f64| LABELS as f64 * BATCHES as f64 / ms / 1e3;
        println!(
            "{platform:?}: receiver {:.0} M/s, its labels again {:.0} M/s, sender {:.0} M/s",
            rate(receiving),
            rate(again),
            rate(sending)
        );
    }
    let mut values = vec![0; 1 << 20];
    share::random(&[3; 32], 0, 37, &mut values);
    let start = Instant::now();
    let bytes = share::pack(37, &values);
    let packing = ms(start);
    let start = Instant::now();
    let again = share::unpack(37, values.len(), &bytes).expect("packed");
    println!(
        "37 bits: pack {:.0} M/s, unpack {:.0} M/s",
        values.len() as f64 / packing / 1e3,
        values.len() as f64 / ms(start) / 1e3
    );
    assert_eq!(again, values);
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
