//! The checker that every backend's test calls.

use hushtable_prg::Platform;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::*;
use crate::ntt_primes;

/// Moduli around every threshold between paths.
const BITS: [u32; 6] = [27, 28, 30, 49, 50, 51];

/// Random residues, the extremes among them.
fn residues(rng: &mut ChaCha12Rng, modulus: Modulus, length: usize) -> Vec<u64> {
    let top = modulus.value() - 1;
    (0..length)
        .map(|_| match rng.random_range(0..6u32) {
            0 => 0,
            1 => top,
            _ => rng.random_range(0..=top),
        })
        .collect()
}

#[test]
fn transforms_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    for platform in Platform::available() {
        let kernel = Kernel::new(platform);
        for (bits, log) in
            BITS.into_iter().flat_map(|bits| (3..=13).chain([17]).map(move |log| (bits, log)))
        {
            let degree = 1 << log;
            let Some(&prime) = ntt_primes(bits, degree, 1).first() else { continue };
            let modulus = Modulus::new(prime).unwrap();
            let table = NttTable::new(modulus, degree).unwrap();
            let top = modulus.value() - 1;
            for values in [residues(&mut rng, modulus, degree), vec![0; degree], vec![top; degree]]
            {
                let (mut found, mut expected) = (values.clone(), values.clone());
                kernel.forward(&table, &mut found);
                portable::forward(&table, &mut expected);
                assert!(found == expected, "{} forward {bits} bits {degree}", kernel.isa());
                let (mut found, mut expected) = (values.clone(), values);
                kernel.inverse(&table, &mut found);
                portable::inverse(&table, &mut expected);
                assert!(found == expected, "{} inverse {bits} bits {degree}", kernel.isa());
            }
        }
    }
}
