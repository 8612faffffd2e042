//! Prints how fast oblivious transfers are made, at best and by one thread:
//! `cargo run --release -p hushtable-mpc --example ot_speed`.

use std::time::Instant;

use hushtable_mpc::Platform;
use hushtable_mpc::ot::{ReceiverSetup, SenderSetup, correction_bytes};
use hushtable_mpc::share;

const LABELS: usize = 1 << 16;
const BATCHES: u64 = 200;

fn main() {
    let (mut setup, mut pair) = (f64::MAX, None);
    for _ in 0..20 {
        let start = Instant::now();
        let (receiver, opening) = ReceiverSetup::new(&[1; 32]);
        let (sender, points) = SenderSetup::new(&[2; 32], 5 << 64 | 3, &opening).expect("a point");
        let (receiver, corrections) = receiver.finish(&points).expect("points");
        let sender = sender.finish(&corrections).expect("corrections");
        setup = setup.min(ms(start));
        pair = Some((receiver, sender));
    }
    let (receiver, sender) = pair.expect("twenty");
    println!("setup, both parties: {setup:.1} ms");
    let choices: Vec<u16> = (0..LABELS / 16).map(|i| (i * 40_503) as u16).collect();
    println!("bytes a transfer: {}", correction_bytes(LABELS) as f64 / LABELS as f64);
    for platform in Platform::available() {
        let (mut labels, mut zeros) = (vec![0; LABELS], vec![0; LABELS]);
        let (mut receiving, mut again, mut sending) = (f64::MAX, f64::MAX, f64::MAX);
        for batch in 0..BATCHES {
            let start = Instant::now();
            let corrections = receiver.extend(platform, batch, &choices, &mut labels);
            receiving = receiving.min(ms(start));
            let start = Instant::now();
            receiver.labels(platform, batch, &mut labels);
            again = again.min(ms(start));
            let start = Instant::now();
            sender.extend(platform, batch, &corrections, &mut zeros).expect("corrections");
            sending = sending.min(ms(start));
        }
        let rate = |ms: f64| LABELS as f64 / ms / 1e3;
        println!(
            "{platform:?}: receiver {:.0} M/s, its labels again {:.0} M/s, sender {:.0} M/s",
            rate(receiving),
            rate(again),
            rate(sending)
        );
    }
    let mut values = vec![0; 1 << 20];
    share::random(&[3; 32], 0, 37, &mut values);
    let (mut packing, mut unpacking) = (f64::MAX, f64::MAX);
    for _ in 0..20 {
        let start = Instant::now();
        let bytes = share::pack(37, &values);
        packing = packing.min(ms(start));
        let start = Instant::now();
        let again = share::unpack(37, values.len(), &bytes).expect("packed");
        unpacking = unpacking.min(ms(start));
        assert_eq!(again, values);
    }
    let rate = |ms: f64| values.len() as f64 / ms / 1e3;
    println!("37 bits: pack {:.0} M/s, unpack {:.0} M/s", rate(packing), rate(unpacking));
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
