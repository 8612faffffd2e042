//! Costs measured on this machine.

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Ciphertext, Diagonals, Encoder, Encrypted, Error as CkksError, Evaluate, EvaluationKeys,
    KeySpec, ModulusBits, ParameterSpec, Parameters, Split, encrypt,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};

use super::super::error::Error;
use super::clock::thread_ms;
use super::table::{CostTable, Entry, FORMAT};

/// Measures operations at `degree` with `limbs` limbs and `special` primes in P.
///
/// Parts of a map, which cannot be asked for by themselves, are what one map takes more than another.
///
/// # Errors
/// [`Error::Ckks`] for a set that there is not, or that is below 128 bits.
pub fn measure(
    degree: usize,
    limbs: usize,
    special: usize,
    platform: Platform,
) -> Result<Entry, Error> {
    let most = hushtable_rlwe::modulus_log2_max(degree);
    let level = ((most - 12.0) / (limbs + special) as f64).min(LEVEL_BITS_MAX) as u32;
    let bits = ModulusBits { first: level + 2, level, special: level + 1 };
    let spec = ParameterSpec::of_bits("calibration", degree, bits, limbs - 1, special)?;
    let parameters = Parameters::new(spec, platform)?;
    let encoder = Encoder::new(&parameters);
    let mut source = NoiseSource::from_os()?;
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let own = KeySpec::at_every_level(&parameters, 1..ROTATED);
    let seed = source.seed();
    let keys = EvaluationKeys::generate(&parameters, &secret, &own, &seed, &mut source)?;
    let (top, slots, scale) = (parameters.levels(), parameters.slots(), parameters.scale());
    let values: Vec<f64> = (0..slots).map(|slot| (slot % 7) as f64 / 7.0).collect();
    let plain = encoder.encode_real(&values, top, scale)?;
    let seed = source.seed();
    let x = encrypt(&parameters, &secret, &plain, &seed, 0, &mut source)?;
    let bytes = x.to_fresh_bytes(&parameters, &seed, 0)?;
    let mut evaluator = Encrypted::new(&encoder, &keys);

    let read_ms = time_ms(|| Ciphertext::parse(&parameters, &bytes).map(drop))?;
    let rotate_ms = time_ms(|| evaluator.rotate(&x, 1).map(|out| evaluator.recycle(out)))?;
    let multiply_ms = time_ms(|| evaluator.square(&x).map(|out| evaluator.recycle(out)))?;
    let multiply_rescale_ms =
        time_ms(|| evaluator.square_rescale(&x).map(|out| evaluator.recycle(out)))?;
    let copy_ms = time_ms(|| evaluator.lowered(&x, top).map(|out| evaluator.recycle(out)))?;
    // What changes a ciphertext is done to a copy.
    let rescale_ms = time_ms(|| {
        let mut out = evaluator.lowered(&x, top)?;
        evaluator.rescale(&mut out)?;
        evaluator.recycle(out);
        Ok(())
    })?;
    let constant_ms = time_ms(|| {
        let mut out = evaluator.lowered(&x, top)?;
        evaluator.multiply_constant(&mut out, 0.5, scale)?;
        evaluator.recycle(out);
        Ok(())
    })?;
    let mut sum = x.clone();
    let add_ms = time_ms(|| evaluator.add_assign(&mut sum, &x))?;

    // Diagonals by 0, 1, ..., of all slots or of few numbers that repeat.
    let diagonals = |values: &[f64], count: usize| {
        let mut map = Diagonals::new(slots);
        (0..count).try_for_each(|steps| map.insert(steps, values.to_vec()))?;
        Ok::<_, CkksError>(map)
    };
    let few = &values[..(slots / REPEATED).max(8)];
    let prepared = |values: &[f64], count: usize, baby_steps: usize| {
        let map = diagonals(values, count)?;
        Encrypted::new(&encoder, &keys).prepare(&map, Split::new(baby_steps), top, scale)
    };
    let mut map_ms = |maps: &[&_], xs: &[&_]| {
        time_ms(|| {
            let out = evaluator.transform_rescale(maps, xs)?;
            evaluator.recycle(out);
            Ok(())
        })
    };
    let one = prepared(few, 1, 1)?;
    let one_ms = map_ms(&[&one], &[&x])?;
    // Many diagonals of one ciphertext, without rotations.
    let many_ms = map_ms(&[&one; MANY], &[&x; MANY])?;
    let repeated_ms = (many_ms - one_ms) / (MANY - 1) as f64;
    let close_ms = one_ms - repeated_ms;
    let giants_ms = map_ms(&[&prepared(few, ROTATED, 1)?], &[&x])?;
    let rotated = (ROTATED - 1) as f64;
    let giant_ms = (giants_ms - close_ms - (rotated + 1.0) * repeated_ms) / rotated;
    let over_p_ms = repeated_ms * (limbs + special) as f64 / limbs as f64;
    let two_ms = map_ms(&[&prepared(few, 2, ROTATED)?], &[&x])?;
    let babies_ms = map_ms(&[&prepared(few, ROTATED, ROTATED)?], &[&x])?;
    let hoisted_ms = (babies_ms - two_ms) / (rotated - 1.0) - over_p_ms;
    let cut_ms = two_ms - hoisted_ms - 2.0 * over_p_ms - close_ms;

    // Maps and ciphertexts of their own, as those of many one-hots are: they come from memory.
    let whole = prepared(&values, ROTATED, 1)?;
    let single_ms = map_ms(&[&whole], &[&x])?;
    let count = (MAPS_BYTES / whole.memory_bytes()).clamp(2, 128);
    let maps = (0..count).map(|_| prepared(&values, ROTATED, 1)).collect::<Result<Vec<_>, _>>()?;
    let xs = vec![x.clone(); count];
    let (maps, xs): (Vec<_>, Vec<_>) = (maps.iter().collect(), xs.iter().collect());
    let apart_ms = map_ms(&maps, &xs)?;
    let diagonal_ms = (apart_ms - single_ms) / ((count - 1) * ROTATED) as f64;

    // A difference of two times can be off by what else the machine does: nothing is free, and what reads
    // more takes no less.
    let least = rotate_ms / 512.0;
    let repeated_ms = repeated_ms.max(least);
    Ok(Entry {
        degree,
        limbs,
        special,
        rotate_ms,
        cut_ms: cut_ms.max(least),
        hoisted_ms: hoisted_ms.max(least),
        giant_ms: giant_ms.max(least),
        close_ms: close_ms.max(least),
        multiply_ms,
        multiply_rescale_ms,
        rescale_ms: (rescale_ms - copy_ms).max(least),
        diagonal_ms: diagonal_ms.max(repeated_ms),
        repeated_ms,
        constant_ms: (constant_ms - copy_ms).max(least / 4.0),
        add_ms: add_ms.max(least / 4.0),
        copy_ms: copy_ms.max(least / 4.0),
        read_ms,
    })
}

/// Measures what planning needs on this machine; `seen` gets each entry as soon as it is there.
///
/// # Errors
/// As [`measure`].
pub fn calibrate(
    machine: &str,
    platform: Platform,
    mut seen: impl FnMut(&Entry),
) -> Result<CostTable, Error> {
    let mut entries = Vec::with_capacity(POINTS.len());
    for (degree, limbs, special) in POINTS {
        let entry = measure(degree, limbs, special, platform)?;
        seen(&entry);
        entries.push(entry);
    }
    Ok(CostTable { format: FORMAT, machine: machine.to_owned(), entries })
}

/// Degrees, limbs and primes of P that are measured: about those of plans, and of bootstraps' sets at the
/// levels that they go through.
const POINTS: [(usize, usize, usize); 21] = [
    (4096, 2, 1),
    (8192, 2, 1),
    (8192, 4, 1),
    (16_384, 2, 1),
    (16_384, 4, 1),
    (16_384, 6, 2),
    (16_384, 10, 2),
    (16_384, 10, 3),
    (32_768, 2, 2),
    (32_768, 6, 2),
    (32_768, 14, 2),
    (32_768, 14, 4),
    (32_768, 20, 3),
    (65_536, 2, 6),
    (65_536, 6, 6),
    (65_536, 6, 10),
    (65_536, 14, 6),
    (65_536, 14, 10),
    (65_536, 28, 6),
    (65_536, 28, 10),
    (65_536, 34, 8),
];

/// Rotations of a measured map, that by 0 among them: a power of two.
const ROTATED: usize = 8;
/// Diagonals of one ciphertext.
const MANY: usize = 17;
/// How often the numbers of a repeated diagonal repeat.
const REPEATED: usize = 64;
/// Bits of a level's prime, about those of plans.
const LEVEL_BITS_MAX: f64 = 40.0;
/// Bytes of the maps that a diagonal's cost is measured with: more than caches hold of them.
const MAPS_BYTES: usize = 384 << 20;

/// The least of some means of runs, each over enough time.
fn time_ms(mut run: impl FnMut() -> Result<(), CkksError>) -> Result<f64, Error> {
    run()?;
    let mut least = f64::INFINITY;
    for _ in 0..REPEATS {
        let (start, mut runs, mut batch) = (thread_ms(), 0u32, 1);
        let mean = loop {
            // The clock takes as long as a small operation: the more of them are between two looks.
            for _ in 0..batch {
                run()?;
            }
            runs += batch;
            let spent = thread_ms() - start;
            if spent >= MEASURED_MS {
                break spent / f64::from(runs);
            }
            if spent < MEASURED_MS / 8.0 {
                batch *= 2;
            }
        };
        least = least.min(mean);
    }
    Ok(least)
}

const REPEATS: usize = 3;
const MEASURED_MS: f64 = 40.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_a_table() {
        let entry = measure(4096, 2, 1, Platform::detect()).unwrap();
        let table = CostTable { format: FORMAT, machine: "m".into(), entries: vec![entry] };
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(CostTable::parse(&text).unwrap().entries.len(), 1);
        let refused = measure(4096, 9, 3, Platform::detect()).unwrap_err();
        assert!(matches!(refused, Error::Ckks(_)), "{refused}");
    }
}
