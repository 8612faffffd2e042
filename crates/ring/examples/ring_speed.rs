//! Microseconds of the kernels, one JSON line each, for every instruction set of this machine.
//!
//! Run pinned: `taskset -c 0 cargo run --release -p hushtable-ring --example ring_speed [ISA]`. Each
//! figure is the best of many runs of about a millisecond.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hushtable_ring::{Kernel, Modulus, NttTable, Platform, ntt_primes};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let only = std::env::args().nth(1);
    let logs = std::env::args().nth(3).map_or(Ok(12), |text| text.parse())?
        ..=std::env::args().nth(2).map_or(Ok(16), |text| text.parse())?;
    let mut seen = Vec::new();
    for platform in Platform::available().into_iter().rev() {
        let kernel = Kernel::new(platform);
        if seen.contains(&kernel.isa()) || only.as_deref().is_some_and(|only| only != kernel.isa())
        {
            continue;
        }
        seen.push(kernel.isa());
        for bits in [50, 51] {
            for log in logs.clone() {
                transforms(kernel, bits, 1 << log)?;
            }
        }
    }
    Ok(())
}

fn report(kernel: Kernel, op: &str, bits: u32, degree: usize, value_us: f64) {
    let isa = kernel.isa();
    let params = json!({ "op": op, "degree": degree, "modulus_bits": bits });
    println!(
        "{}",
        json!({ "bench": "ring", "params": params, "value": (value_us * 1e3).round() / 1e3, "unit": "us", "threads": 1, "isa": isa })
    );
}

fn transforms(kernel: Kernel, bits: u32, degree: usize) -> Result<(), Box<dyn std::error::Error>> {
    let prime = ntt_primes(bits, degree, 1)[0];
    let table = NttTable::new(Modulus::new(prime)?, degree)?;
    let mut values = aligned(degree, prime);
    report(
        kernel,
        "forward",
        bits,
        degree,
        best_us(|| kernel.forward(&table, black_box(&mut values))),
    );
    report(
        kernel,
        "inverse",
        bits,
        degree,
        best_us(|| kernel.inverse(&table, black_box(&mut values))),
    );
    Ok(())
}

/// `length` numbers below `modulus`.
fn aligned(length: usize, modulus: u64) -> hushtable_ring::Buffer {
    let mut buffer = hushtable_ring::Buffer::zeroed(length);
    for (index, value) in buffer.iter_mut().enumerate() {
        *value = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % modulus;
    }
    buffer
}

/// Microseconds a call.
fn best_us(mut call: impl FnMut()) -> f64 {
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
    (0..100)
        .map(|_| {
            let start = Instant::now();
            (0..calls_per_run).for_each(|_| call());
            start.elapsed().as_nanos() as f64 / 1e3 / f64::from(calls_per_run)
        })
        .fold(f64::INFINITY, f64::min)
}
