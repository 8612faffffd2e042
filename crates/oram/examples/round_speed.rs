//! A whole round on a real file, every step timed.
//!
//!     cargo run --release -p hushtable-oram --example round_speed -- FOLDER 1000000 64 10000 1 3
//!
//! (rows, bytes of a row, requests, ε, rounds.) Requests follow a Zipf law of exponent 1.05.

use std::path::Path;
use std::time::Instant;

use hushtable_oram::fdp::FdpSpec;
use hushtable_oram::round::{Controller, ControllerSpec};
use hushtable_oram::seal::Key;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments[at].parse::<f64>().expect("a number");
    let folder = Path::new(&arguments[0]);
    let (rows, row_bytes, requests) = (number(1) as u64, number(2) as usize, number(3) as usize);
    let (epsilon, rounds) = (number(4), number(5) as usize);
    let key = Key::from_bytes([1; 32]);
    let counter = folder.with_extension("counter");
    let (users, slots) = (requests / 100, 100);
    let mut spec = ControllerSpec::new("speed", (rows, row_bytes / 4), (users, slots));
    spec.fdp = FdpSpec { epsilon, ..FdpSpec::default() };
    if let Some(levels) = arguments.get(6) {
        spec.cached_levels = levels.parse().expect("a number");
    }
    let clock = Instant::now();
    let mut controller = if folder.exists() {
        Controller::open(folder, &key, &counter, &mut |_, _| {}).expect("a controller")
    } else {
        Controller::create(
            folder,
            &key,
            &counter,
            &spec,
            &mut |_, rows| {
                rows.fill(1.0);
                Ok(())
            },
            &mut |_, _| {},
        )
        .expect("a new controller")
    };
    eprintln!("ready in {:.1} s", clock.elapsed().as_secs_f64());
    let mut random = ChaCha12Rng::seed_from_u64(1);
    // Inverse of the Zipf distribution function, 1 - x^(1 - a) over 1 - rows^(1 - a).
    let power = 1.0 - 1.05;
    let span = 1.0 - (rows as f64).powf(power);
    let mut zipf = || {
        ((1.0 - random.random::<f64>() * span).powf(1.0 / power) as u32).clamp(1, rows as u32) - 1
    };
    let (mut served, mut found) = (vec![0.0; slots * row_bytes / 4], vec![false; slots]);
    for _ in 0..rounds {
        let ids: Vec<u32> = (0..requests).map(|_| zipf()).collect();
        let clock = Instant::now();
        let start = controller.begin(users, &ids).expect("a round");
        for user in 0..users {
            controller.rows(user, &mut served, &mut found).expect("rows");
        }
        for user in 0..users {
            controller.add(user, &served, 1.0).expect("an upload");
        }
        let report = controller.commit().expect("a commit");
        let us = clock.elapsed().as_micros() as f64 / requests as f64;
        let steps: Vec<String> = report
            .steps_us
            .iter()
            .map(|(name, step)| format!("{name} {:.2}", *step as f64 / requests as f64))
            .collect();
        println!(
            "{us:.1} us/request, k {} of {requests}; {}; read {} written {} journal {} bytes/row of k",
            start.accesses,
            steps.join(", "),
            report.read_bytes / start.accesses,
            report.written_bytes / start.accesses,
            report.journal_bytes / start.accesses,
        );
    }
    controller.close().expect("closing");
}
