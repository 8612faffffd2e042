//! Prints `vectors/ring.json`: transforms, seeded streams and digits.
//!
//! `cargo run -p hushtable-ring --example ring_vectors > vectors/ring.json`

use hushtable_ring::{Gadget, GadgetSpec, NoiseSource, Platform, Poly, Ring, ntt_primes};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut lines = Vec::new();
    for (name, vectors) in [
        ("transforms", transforms()?),
        ("uniform", uniform()?),
        ("noise", noise()?),
        ("digits", digits()?),
    ] {
        let vectors: Vec<_> = vectors.iter().map(|vector| format!("    {vector}")).collect();
        lines.push(format!("  {:?}: [\n{}\n  ]", name, vectors.join(",\n")));
    }
    println!("{{\n  \"format\": 1,\n{}\n}}", lines.join(",\n"));
    Ok(())
}

/// Input i is 7 i² + 3 i + 1 modulo the modulus.
fn transforms() -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let mut vectors = Vec::new();
    for (degree, bits) in [(16, 27), (16, 50), (16, 51), (1024, 28), (1024, 50)] {
        let ring = ring(degree, bits, 1)?;
        let modulus = ring.modulus(0).value();
        let mut poly = ring.zero();
        for (i, value) in (0..).zip(poly.limb_mut(0)) {
            *value = (7 * i * i + 3 * i + 1) % modulus;
        }
        let psi = ring.table(0).psi();
        let evaluations = ring.forward(poly);
        vectors.push(json!({
            "degree": degree, "modulus": modulus, "psi": psi, "evaluations": evaluations.values(),
        }));
    }
    Ok(vectors)
}

fn uniform() -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let mut vectors = Vec::new();
    for (bits, limbs, index) in [(27, 4, 0u64), (50, 2, 1), (51, 1, 1 << 40)] {
        let ring = ring(16, bits, limbs)?;
        let seed: [u8; 32] = std::array::from_fn(|i| i as u8 * 3 + limbs as u8);
        vectors.push(json!({
            "degree": 16, "moduli": moduli(&ring), "seed": hex(&seed), "index": index,
            "evaluations": ring.uniform(&seed, index).values(),
        }));
    }
    Ok(vectors)
}

/// One source draws a ternary polynomial, a Gaussian one and a seed, in this order.
fn noise() -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let ring = ring(64, 50, 1)?;
    let vector = |number: u8| {
        let seed: [u8; 32] = std::array::from_fn(|i| (i as u8).wrapping_mul(7) ^ number);
        let mut source = NoiseSource::from_seed(&seed);
        let signed = |poly: Poly<_>| -> Vec<i64> {
            poly.limb(0).iter().map(|&value| ring.modulus(0).to_signed(value)).collect()
        };
        json!({
            "seed": hex(&seed),
            "ternary": signed(source.ternary(&ring)),
            "gaussian": signed(source.gaussian(&ring)),
            "next_seed": hex(&source.seed()),
        })
    };
    Ok(vec![vector(0), vector(0xc3)])
}

fn digits() -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let mut vectors = Vec::new();
    for (bits, limbs, digits, base_bits, dropped_bits) in
        [(50, 1, 3, 17, 0), (50, 2, 4, 20, 20), (27, 4, 6, 18, 0), (51, 2, 2, 50, 2)]
    {
        let ring = ring(16, bits, limbs)?;
        let spec = GadgetSpec { digits, base_bits, dropped_bits };
        let gadget = Gadget::new(spec, ring.modulus_log2().ceil() as u32)?;
        let poly = ring.inverse(ring.uniform(&[limbs as u8; 32], 0));
        let digit = |index: usize, j: usize| {
            gadget.digit(ring.crt().compose_signed(|limb| poly.limb(limb)[index]), j)
        };
        let cut: Vec<Vec<i64>> =
            (0..digits).map(|j| (0..16).map(|index| digit(index, j)).collect()).collect();
        vectors.push(json!({
            "moduli": moduli(&ring), "base_bits": base_bits, "dropped_bits": dropped_bits,
            "coefficients": (0..limbs).map(|limb| poly.limb(limb)).collect::<Vec<_>>(),
            "digits": cut,
        }));
    }
    Ok(vectors)
}

/// The specification's ring.
fn ring(degree: usize, bits: u32, limbs: usize) -> Result<Ring, hushtable_ring::Error> {
    Ring::new(degree, &ntt_primes(bits, degree, limbs), Platform::PORTABLE)
}

fn moduli(ring: &Ring) -> Vec<u64> {
    ring.moduli().map(|modulus| modulus.value()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
