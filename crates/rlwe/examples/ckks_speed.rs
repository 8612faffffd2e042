//! Milliseconds of CKKS operations at the top level of a set, a line each.
//!
//! Run pinned: `taskset -c 0 cargo run --release -p hushtable-rlwe --example ckks_speed OPERATION
//! DEGREE LIMBS SPECIAL FIRST_BITS LEVEL_BITS SPECIAL_BITS [DIAGONALS BABY_STEPS [PERIOD]]`; the
//! operation may be `all`. Each figure is the best of many runs. What switches by keys is timed with keys
//! that hold their masks and with those that draw them.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Diagonals, Encoder, Encrypted, Evaluate, EvaluationKeys, KeySpec, Masks, ModulusBits,
    ParameterSpec, Parameters, Split, encrypt, key_bytes,
};
use hushtable_rlwe::ring::{Evaluations, NoiseSource, Platform, Poly};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().ok_or("which operation?")?;
    let arguments: Vec<usize> =
        arguments.map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let &[degree, limbs, special, first, level, special_bits, ref transform @ ..] =
        arguments.as_slice()
    else {
        return Err("see the head of this file for the arguments".into());
    };
    let bits =
        ModulusBits { first: first as u32, level: level as u32, special: special_bits as u32 };
    let spec = ParameterSpec::of_bits("speed_paper", degree, bits, limbs - 1, special)?;
    let parameters = Parameters::new(spec, Platform::detect())?;
    let top = parameters.levels();
    let mut source = NoiseSource::from_seed(&[1; 32]);
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let encoder = Encoder::new(&parameters);
    let mut steps = vec![1, 2, 3, 4, 5, 6, 7, 8];
    let mut map = Diagonals::new(parameters.slots());
    let mut split = Split::new(1);
    if let &[diagonals, baby_steps, ref period @ ..] = transform {
        let period = period.first().copied().unwrap_or(parameters.slots());
        split = Split::new(baby_steps);
        let (babies, giants) = split.rotations(0..diagonals);
        steps.extend(babies.iter().chain(&giants));
        for step in 0..diagonals {
            let number = |slot: usize| ((slot * 31 + step * 17) % 101) as f64 / 50.0 - 1.0;
            map.insert(step, (0..period).map(number).collect())?;
        }
    }
    let keys_wanted = KeySpec::at_every_level(&parameters, steps);
    let make = |masks| {
        let source = &mut NoiseSource::from_seed(&[4; 32]);
        EvaluationKeys::generate_with(&parameters, &secret, &keys_wanted, &[2; 32], source, masks)
    };
    let (keys, drawn) = (make(Masks::Held)?, make(Masks::Drawn)?);
    let one_key = KeySpec { products: Some(top), ..KeySpec::default() };
    println!(
        "N = {degree}, {limbs} limbs, {special} special, log QP = {:.1}, log Q = {:.1}, a key of {} \
         bytes",
        parameters.lattice().key_ring().modulus_log2(),
        parameters.lattice().ring().modulus_log2(),
        key_bytes(&parameters, &one_key)?,
    );
    let ring = parameters.lattice().ring();
    let table = ring.table(top);
    let mut poly: Poly<Evaluations> = ring.uniform(&[7; 32], 0);
    let limb = poly.limb_mut(top);
    if wanted == "all" {
        println!("forward {:.4} ms", best_ms(|| ring.kernel().forward(table, black_box(limb))));
        println!("inverse {:.4} ms", best_ms(|| ring.kernel().inverse(table, black_box(limb))));
    }
    let mut evaluators = [("", &keys), (", masks drawn", &drawn)]
        .map(|(name, keys)| (name, Encrypted::new(&encoder, keys)));
    let values: Vec<f64> = (0..parameters.slots()).map(|i| (i % 97) as f64 / 97.0).collect();
    let plain = encoder.encode_real(&values, top, parameters.scale())?;
    let x = encrypt(&parameters, &secret, &plain, &[3; 32], 0, &mut source)?;
    let mut run = |name: &str, call: &mut dyn FnMut(&mut Encrypted)| {
        if ![name, "all"].contains(&wanted.as_str()) {
            return;
        }
        for (masks, evaluator) in &mut evaluators {
            println!("{name}{masks} {:.4} ms", best_ms(|| call(evaluator)));
        }
    };
    run("rotate", &mut |evaluator| {
        let y = evaluator.rotate(black_box(&x), 1).expect("a key");
        evaluator.recycle(y);
    });
    run("rotate by 8", &mut |evaluator| {
        let all = evaluator.rotate_many(black_box(&x), &[1, 2, 3, 4, 5, 6, 7, 8]).expect("keys");
        all.into_iter().for_each(|y| evaluator.recycle(y));
    });
    run("multiply, rescale", &mut |evaluator| {
        let mut y = evaluator.multiply(black_box(&x), &x).expect("a key");
        evaluator.rescale(&mut y).expect("a level");
        evaluator.recycle(y);
    });
    run("multiply and rescale", &mut |evaluator| {
        let y = evaluator.multiply_rescale(black_box(&x), &x).expect("a key");
        evaluator.recycle(y);
    });
    run("copy", &mut |evaluator| {
        let y = evaluator.rotate(black_box(&x), 0).expect("a copy");
        evaluator.recycle(y);
    });
    run("copy and rescale", &mut |evaluator| {
        let mut y = evaluator.rotate(black_box(&x), 0).expect("a copy");
        evaluator.rescale(&mut y).expect("a level");
        evaluator.recycle(y);
    });
    if map.steps().len() > 0 {
        let map = Encrypted::new(&encoder, &keys).prepare(&map, split, top, parameters.scale())?;
        println!("prepared {} bytes", map.memory_bytes());
        run("transform", &mut |evaluator| {
            let y = evaluator.transform(&[&map], &[black_box(&x)]).expect("keys");
            evaluator.recycle(y);
        });
    }
    Ok(())
}

/// Milliseconds of the fastest of many calls.
fn best_ms(mut call: impl FnMut()) -> f64 {
    const RUNS: Duration = Duration::from_millis(1500);
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed() < RUNS {
        let start = Instant::now();
        call();
        best = best.min(start.elapsed().as_nanos() as f64 / 1e6);
    }
    best
}
