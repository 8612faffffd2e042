//! Milliseconds of the oblivious building blocks, one JSON line each.
//!
//! Run with `cargo run --release -p hushtable-oram --example oblivious_speed`. Each figure is the
//! best of some runs.

use hushtable_oram::oblivious::{self, Mask, NOWHERE};
use serde_json::json;
use std::time::Instant;

fn main() {
    for (len, stride, runs_count) in
        [(1_400, 72, 200), (1_400, 0, 200), (16_384, 0, 50), (16_384, 72, 10), (1 << 20, 0, 3)]
    {
        let keys: Vec<u64> =
            (0..len as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).collect();
        let payload: Vec<u8> = (0..len * stride).map(|i| i as u8).collect();
        let report = |name: &str, ms: f64| {
            let threads = if len < 1 << 16 { 1 } else { rayon::current_num_threads() };
            println!(
                "{}",
                json!({"bench": name, "len": len, "stride": stride, "ms": ms, "threads": threads})
            );
        };
        let best = |run: &dyn Fn(&mut [u64], &mut [u8])| {
            (0..runs_count).fold(f64::INFINITY, |best, _| {
                let (mut keys, mut payload) = (keys.clone(), payload.clone());
                let start = Instant::now();
                run(&mut keys, &mut payload);
                best.min(start.elapsed().as_secs_f64() * 1e3)
            })
        };
        report("sort", best(&|keys, payload| oblivious::sort(keys, payload, stride)));
        if stride == 0 {
            report(
                "sort_pairs",
                best(&|keys, _| {
                    let mut values = keys.to_vec();
                    oblivious::sort_pairs(keys, &mut values);
                }),
            );
        }
        let flags: Vec<Mask> = keys.iter().map(|key| Mask::from_bit(*key >> 40)).collect();
        report(
            "compact",
            best(&|keys, payload| {
                oblivious::compact(&mut flags.clone(), keys, payload, stride);
            }),
        );
        let mut destinations: Vec<u64> = (0..len as u64).step_by(3).collect();
        destinations.resize(len, NOWHERE);
        report(
            "distribute",
            best(&|keys, payload| {
                oblivious::distribute(&mut destinations.clone(), keys, payload, stride);
            }),
        );
    }
}
