//! Circuits of the builder give what plain bits and numbers give.

use hushtable_mpc::garble::{Builder, Circuit, Wire, select};
use hushtable_mpc::{Block, LANES, Platform};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// The results of one group, whose parties' input bits are `bits`, a u16 for each wire.
fn run(
    circuit: &Circuit,
    platform: Platform,
    bits: [&[u16]; 2],
    rng: &mut ChaCha12Rng,
) -> Vec<u64> {
    let delta = rng.random::<Block>() | 1;
    let zeros =
        bits.map(|bits| (0..bits.len() * LANES).map(|_| rng.random()).collect::<Vec<Block>>());
    let mut tables = vec![0; circuit.group_bytes()];
    let mut masks = vec![0; LANES];
    circuit.garble(platform, delta, 3, &zeros[0], &zeros[1], &mut tables, &mut masks);
    let mut active = zeros.clone();
    for ((active, zeros), bits) in active.iter_mut().zip(&zeros).zip(bits) {
        select(platform, delta, zeros, bits, active);
    }
    let mut out = vec![0; LANES];
    circuit.evaluate(platform, 3, &active[0], &active[1], &tables, &mut out);
    out.iter().zip(&masks).map(|(out, mask)| out.wrapping_sub(*mask)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Gates over wires drawn from all that there are, constants and repetitions among them.
    #[test]
    fn random_circuits(seed: u64, steps in 0usize..120) {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut builder = Builder::new(5, 4);
        let mut wires = vec![Wire::ZERO, Wire::ONE];
        wires.extend(builder.garbler(0, 5));
        wires.extend(builder.evaluator(0, 4));
        let bits: Vec<u16> = (0..9).map(|_| rng.random()).collect();
        let mut values = vec![0, u16::MAX];
        values.extend(&bits);
        for _ in 0..steps {
            let mut draw = || rng.random_range(0..wires.len());
            let at = [draw(), draw(), draw(), draw(), draw()];
            let (w, v) = (at.map(|at| wires[at]), at.map(|at| values[at]));
            let (wire, value) = match rng.random_range(0..4) {
                0 => (builder.xor([w[0], w[1], w[2]]), v[0] ^ v[1] ^ v[2]),
                1 => (builder.and(w[0], w[1]), v[0] & v[1]),
                2 => (builder.not(w[0]), !v[0]),
                _ => {
                    let wire = builder.gate([w[0], w[1]], [w[2], w[3]], w[4]);
                    (wire, (v[0] ^ v[1]) & (v[2] ^ v[3]) ^ v[4])
                }
            };
            wires.push(wire);
            values.push(value);
        }
        let mut expected = vec![0u64; LANES];
        for _ in 0..rng.random_range(1..8) {
            let weight: u64 = rng.random();
            let (at, unless) = (rng.random_range(0..wires.len()), rng.random_range(0..wires.len()));
            let word = match rng.random_range(0..3) {
                0 => { builder.reveal(wires[at], weight); values[at] }
                1 => { builder.project(wires[at], Wire::ZERO, weight); values[at] }
                _ => {
                    builder.project(wires[at], wires[unless], weight);
                    values[at] & !values[unless]
                }
            };
            for (lane, expected) in expected.iter_mut().enumerate() {
                *expected = expected.wrapping_add(weight * u64::from(word >> lane & 1));
            }
        }
        let circuit = builder.finish(64);
        for platform in Platform::available() {
            let found = run(&circuit, platform, [&bits[..5], &bits[5..]], &mut rng);
            prop_assert_eq!(&found, &expected, "{:?}", platform);
        }
    }

    #[test]
    fn words(a: u8, b: u8, c: u8, carry: bool) {
        let mut rng = ChaCha12Rng::seed_from_u64(u64::from(a));
        let mut builder = Builder::new(8, 8);
        let (x, y) = (builder.evaluator(0, 8), builder.garbler(0, 8));
        let constant = builder.constant(u64::from(c), 8);
        let carry_wire = if carry { Wire::ONE } else { Wire::ZERO };
        let mut at = 0;
        let mut show = |builder: &mut Builder, wires: &[Wire]| {
            for wire in wires {
                builder.reveal(*wire, 1 << at);
                at += 1;
            }
        };
        let (sum, over) = builder.add(&x, &y, carry_wire);
        show(&mut builder, &sum);
        show(&mut builder, &[over]);
        let (difference, under) = builder.subtract(&x, &constant);
        show(&mut builder, &difference);
        show(&mut builder, &[under]);
        let is_less = builder.is_less(&x, &y);
        show(&mut builder, &[is_less]);
        let chosen = builder.choose(is_less, &constant, &y);
        show(&mut builder, &chosen);
        let circuit = builder.finish(64);
        let spread = |number: u8| -> Vec<u16> {
            (0..8).map(|bit| if number >> bit & 1 == 1 { u16::MAX } else { 0 }).collect()
        };
        let whole = u16::from(a) + u16::from(b) + u16::from(carry);
        let (sum, over) = (whole as u8, whole > 0xff);
        let (difference, under) = a.overflowing_sub(c);
        let is_less = (a as i8) < b as i8;
        let chosen = if is_less { c } else { b };
        let expected = u64::from(sum)
            | u64::from(over) << 8
            | u64::from(difference) << 9
            | u64::from(under) << 17
            | u64::from(is_less) << 18
            | u64::from(chosen) << 19;
        for platform in Platform::available() {
            let found = run(&circuit, platform, [&spread(b), &spread(a)], &mut rng);
            prop_assert_eq!(found, vec![expected; LANES]);
        }
    }
}

#[test]
fn what_nothing_reads_costs_nothing() {
    let mut builder = Builder::new(8, 8);
    let (x, y) = (builder.evaluator(0, 8), builder.garbler(0, 8));
    let (sum, _) = builder.add(&x, &y, Wire::ZERO);
    builder.subtract(&x, &y);
    builder.reveal(sum[7], 1);
    let circuit = builder.finish(1);
    assert_eq!((circuit.and_gates(), circuit.group_bytes()), (7, 7 * 2 * 16 * LANES + 2));
    assert_eq!(circuit.hashes(), [28, 14]);
}
