//! Nanoseconds per node of every generator on every platform of this machine.
//!
//! Run with `cargo run --release -p hushtable-prg --example prg_speed [NODES] [KIND]`. Each figure
//! is the best of many short runs over `NODES` nodes (64 unless given) that stay in L1: one
//! `expand` writes two children a node, one `convert` one 512-bit leaf.

use hushtable_prg::{Platform, Prg, PrgKind};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let nodes_count = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let kinds = match arguments.next() {
        Some(name) => vec![name.parse()?],
        None => PrgKind::ALL.to_vec(),
    };
    println!("{:<12} {:<9} {:>16} {:>16}", "kind", "platform", "expand ns/node", "convert ns/node");
    for kind in kinds {
        for platform in Platform::available() {
            let (expand_ns, convert_ns) = measure(Prg::new(kind, platform), nodes_count);
            let name = platform.name();
            println!("{kind:<12} {name:<9} {expand_ns:>16.3} {convert_ns:>16.3}");
        }
    }
    Ok(())
}

fn measure(prg: Prg, nodes_count: usize) -> (f64, f64) {
    let nodes: Vec<u128> =
        (1..=nodes_count as u128).map(|i| i.wrapping_mul(u128::MAX / 3)).collect();
    let mut children = vec![0; 2 * nodes_count];
    let mut leaves = vec![0; 4 * nodes_count];
    let expand_ns = best_ns(|| prg.expand(black_box(&nodes), &[7, 8], black_box(&mut children)));
    let convert_ns =
        best_ns(|| prg.convert(black_box(&nodes), &[9, 10, 11, 12], black_box(&mut leaves)));
    (expand_ns / nodes_count as f64, convert_ns / nodes_count as f64)
}

/// Nanoseconds a call: the best of 60 runs of about a millisecond, so that what else runs on the
/// machine is left out.
fn best_ns(mut call: impl FnMut()) -> f64 {
    const RUN: Duration = Duration::from_millis(1);
    let mut calls_per_run = 1u32;
    loop {
        let start = Instant::now();
        (0..calls_per_run).for_each(|_| call());
        if start.elapsed() >= RUN {
            break;
        }
        calls_per_run *= 2;
    }
    (0..60)
        .map(|_| {
            let start = Instant::now();
            (0..calls_per_run).for_each(|_| call());
            start.elapsed().as_nanos() as f64 / f64::from(calls_per_run)
        })
        .fold(f64::INFINITY, f64::min)
}
