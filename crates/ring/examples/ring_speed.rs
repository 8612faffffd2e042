//! Microseconds of the kernels, one JSON line each, for every instruction set of this machine.
//!
//! Run pinned: `taskset -c 0 cargo run --release -p hushtable-ring --example ring_speed [ISA]`. Each
//! figure is the best of many runs of about a millisecond. `floor` is what the products alone take
//! where a core starts one vector of 52-bit products a cycle at 3.7 GHz (Zen 4).

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use hushtable_ring::{
    Buffer, Gadget, GadgetSpec, Kernel, Modulus, NttTable, Platform, Ring, ntt_primes,
};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let only = std::env::args().nth(1);
    let mut seen = Vec::new();
    for platform in Platform::available().into_iter().rev() {
        let kernel = Kernel::new(platform);
        let is_wanted = only.as_deref().is_none_or(|only| only == kernel.isa());
        if seen.contains(&kernel.isa()) || !is_wanted {
            continue;
        }
        seen.push(kernel.isa());
        for bits in [50, 51] {
            for degree in (12..=16).map(|log| 1 << log) {
                transforms(kernel, bits, degree)?;
            }
        }
        for terms in [8, 16, 256] {
            inner_products(kernel, 50, terms)?;
        }
        for (limbs, digits, base_bits, dropped_bits) in
            [(1, 3, 17, 0), (2, 6, 17, 0), (2, 3, 20, 40)]
        {
            decompositions(platform, limbs, GadgetSpec { digits, base_bits, dropped_bits })?;
        }
    }
    Ok(())
}

fn report(kernel: Kernel, params: Value, products: usize, call: impl FnMut()) {
    let value = (best_us(call) * 1e3).round() / 1e3;
    let floor = products as f64 / 8.0 / 3.7e3;
    println!(
        "{}",
        json!({
            "bench": "ring",
            "params": params,
            "value": value,
            "unit": "us",
            "floor": (floor * 1e3).round() / 1e3,
            "of_floor": (floor / value * 1e3).round() / 1e3,
            "threads": 1,
            "isa": kernel.isa(),
        })
    );
}

fn transforms(kernel: Kernel, bits: u32, degree: usize) -> Result<(), Box<dyn Error>> {
    let prime = ntt_primes(bits, degree, 1)[0];
    let table = NttTable::new(Modulus::new(prime)?, degree)?;
    let mut values = numbers(degree, prime);
    let products = 3 * degree / 2 * degree.ilog2() as usize;
    for name in ["forward", "inverse"] {
        let params = json!({ "op": name, "degree": degree, "modulus_bits": bits });
        report(kernel, params, products, || match name {
            "forward" => kernel.forward(&table, black_box(&mut values)),
            _ => kernel.inverse(&table, black_box(&mut values)),
        });
    }
    Ok(())
}

fn inner_products(kernel: Kernel, bits: u32, terms: usize) -> Result<(), Box<dyn Error>> {
    let modulus = Modulus::new(ntt_primes(bits, DEGREE, 1)[0])?;
    let rows: Vec<_> = (0..2 * terms).map(|_| numbers(DEGREE, modulus.value())).collect();
    let rows: Vec<&[u64]> = rows.iter().map(|row| &row[..]).collect();
    let (xs, ys) = rows.split_at(terms);
    let mut out = numbers(DEGREE, modulus.value());
    let params =
        json!({ "op": "inner_product", "degree": DEGREE, "modulus_bits": bits, "terms": terms });
    report(kernel, params, 2 * terms * DEGREE, || {
        kernel.inner_product(modulus, black_box(xs), black_box(ys), &mut out);
    });
    Ok(())
}

fn decompositions(
    platform: Platform,
    limbs: usize,
    spec: GadgetSpec,
) -> Result<(), Box<dyn Error>> {
    let ring = Ring::new(DEGREE, &ntt_primes(50, DEGREE, limbs), platform)?;
    let gadget = Gadget::new(spec, ring.modulus_log2().ceil() as u32)?;
    let values = numbers(limbs * DEGREE, ring.modulus(limbs - 1).value());
    let mut out = numbers(limbs * DEGREE * spec.digits, 2);
    let params = json!({
        "op": "decompose", "degree": DEGREE, "modulus_bits": 50, "limbs": limbs, "digits": spec.digits,
    });
    // Two products of 52 by 52 bits and one of the reduction for each residue of a pair.
    let products = if limbs == 1 { 0 } else { 8 * DEGREE };
    report(ring.kernel(), params, products, || {
        ring.kernel().decompose(gadget, ring.crt(), black_box(&values), &mut out);
    });
    if limbs > 1 {
        let poly = ring.uniform(&[7; 32], 0);
        let params =
            json!({ "op": "drop_last_limb", "degree": DEGREE, "modulus_bits": 50, "limbs": limbs });
        let transforms = 2 * 3 * DEGREE / 2 * DEGREE.ilog2() as usize;
        report(ring.kernel(), params, transforms, || {
            black_box(ring.drop_last_limb(black_box(&poly)));
        });
    }
    Ok(())
}

const DEGREE: usize = 4096;

/// `length` numbers below `modulus`, on a cache line.
fn numbers(length: usize, modulus: u64) -> Buffer {
    let mut buffer = Buffer::zeroed(length);
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
    (0..60)
        .map(|_| {
            let start = Instant::now();
            (0..calls_per_run).for_each(|_| call());
            start.elapsed().as_nanos() as f64 / 1e3 / f64::from(calls_per_run)
        })
        .fold(f64::INFINITY, f64::min)
}
