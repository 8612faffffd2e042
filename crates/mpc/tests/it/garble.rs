//! Garbling and evaluating gives what the circuit computes in the clear.

use hushtable_mpc::garble::{
    Activation, ActivationSpec, Delphi, Error, evaluate, garble, groups, labels, select,
};
use hushtable_mpc::{Block, LANES, Platform};
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

fn blocks(rng: &mut impl Rng, count: usize) -> Vec<Block> {
    (0..count).map(|_| rng.random()).collect()
}

/// Results of `activation` on random shares, both by garbling and in the clear.
fn results(activation: &Activation, platform: Platform, count: usize, seed: u64) -> [Vec<u64>; 2] {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let spec = activation.spec();
    let delta = rng.random::<Block>() | 1;
    let first_instance = rng.random();
    let groups = groups(count);
    let zeros = [(); 2].map(|()| blocks(&mut rng, groups * activation.wires() * LANES));
    let mask = u64::MAX >> (64 - spec.bits);
    // Small sums and random ones, and shares whose unused high bits are set.
    let shares: [Vec<u64>; 2] = {
        let mut evaluator = Vec::new();
        let mut garbler = Vec::new();
        for index in 0..count * spec.window {
            let number = match index % 4 {
                0 => rng.random::<u64>(),
                1 => u64::from(rng.random::<u16>()),
                2 => u64::from(rng.random::<u16>()).wrapping_neg(),
                _ => 0,
            };
            let share = rng.random::<u64>();
            evaluator.push(share);
            garbler.push((number.wrapping_sub(share) & mask) | rng.random::<u64>() & !mask);
        }
        [evaluator, garbler]
    };
    let mut tables = vec![0; groups * LANES * activation.table_bytes()];
    let mut masks = vec![0; count];
    garble(
        activation,
        platform,
        delta,
        first_instance,
        &zeros[0],
        &zeros[1],
        &mut tables,
        &mut masks,
    );
    let [evaluator, garbler] =
        [(&shares[0], &zeros[1]), (&shares[1], &zeros[0])].map(|(shares, zeros)| {
            let mut labels = vec![0; zeros.len()];
            select(platform, delta, zeros, &activation.choices(shares), &mut labels);
            labels
        });
    let mut out = vec![0; count];
    evaluate(activation, platform, first_instance, &garbler, &evaluator, &tables, &mut out);
    let found = out.iter().zip(&masks).map(|(out, m)| out.wrapping_sub(*m) & mask).collect();
    [found, activation.clear(&shares[0], &shares[1])]
}

#[test]
fn the_projects_own_sizes() {
    let spec =
        ActivationSpec { bits: 37, dropped: 12, shift: 12, window: 1, rectify: true, most: None };
    let stochastic = Activation::new(spec).unwrap();
    assert_eq!((stochastic.and_gates(), stochastic.wires()), (24, 25));
    assert_eq!(stochastic.table_bytes(), 24 * 32 + 24 * 3 * 5);
    let nearest = Activation::new(ActivationSpec { dropped: 0, ..spec }).unwrap();
    assert_eq!((nearest.and_gates(), nearest.wires()), (36, 37));
    assert_eq!(nearest.table_bytes(), 36 * 32 + 24 * 3 * 5);
    for platform in Platform::available() {
        for activation in [&stochastic, &nearest] {
            for count in [0, 1, 15, 16, 17, 100] {
                let [found, expected] = results(activation, platform, count, count as u64);
                assert_eq!(found, expected, "{platform:?} {count}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn garbling_computes_what_is_computed_in_the_clear(
        bits in 16u32..=64,
        shift in 0u32..=62,
        dropped in 0u32..=62,
        window in 1usize..=5,
        rectify: bool,
        most_bits in 0u32..=72,
        count in 1usize..40,
        seed: u64,
    ) {
        let shift = shift % (bits - 1);
        let dropped = dropped % (shift + 1);
        // A largest number of every length, too long ones too, and none.
        let most = (rectify && most_bits < 64)
            .then(|| ((seed | 1) >> (63 - most_bits)).max(1));
        let spec = ActivationSpec { bits, dropped, shift, window, rectify, most };
        let activation = Activation::new(spec).unwrap();
        for platform in Platform::available() {
            let [found, expected] = results(&activation, platform, count, seed);
            prop_assert_eq!(found, expected, "{:?} {:?}", platform, spec);
        }
    }

    #[test]
    fn the_textbook_circuit_is_a_relu_modulo_the_prime(seed: u64) {
        let delphi = Delphi::new();
        let circuit = delphi.circuit();
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let number = |rng: &mut ChaCha12Rng| rng.random_range(0..Delphi::MODULUS);
        let inputs: Vec<[u64; 3]> = (0..LANES)
            .map(|_| [number(&mut rng), number(&mut rng), number(&mut rng)])
            .collect();
        let delta = rng.random::<Block>() | 1;
        let zeros = [circuit.garbler_wires(), circuit.evaluator_wires()]
            .map(|wires| blocks(&mut rng, wires * LANES));
        let words = |from: usize, to: usize| -> Vec<u16> {
            (from..to)
                .flat_map(|which| (0..Delphi::BITS).map(move |bit| (which, bit)))
                .map(|(which, bit)| {
                    let bits = inputs.iter().map(|input| (input[which] >> bit & 1) as u16);
                    bits.zip(0..).fold(0, |word, (bit, lane)| word | bit << lane)
                })
                .collect()
        };
        for platform in Platform::available() {
            let mut tables = vec![0; circuit.group_bytes()];
            let mut masks = vec![1; LANES];
            circuit.garble(platform, delta, 0, &zeros[0], &zeros[1], &mut tables, &mut masks);
            prop_assert_eq!(&masks, &vec![0; LANES]);
            let mut active = zeros.clone();
            select(platform, delta, &zeros[0], &words(1, 3), &mut active[0]);
            select(platform, delta, &zeros[1], &words(0, 1), &mut active[1]);
            let mut out = vec![0; LANES];
            circuit.evaluate(platform, 0, &active[0], &active[1], &tables, &mut out);
            let expected: Vec<u64> =
                inputs.iter().map(|[a, g, r]| Delphi::clear(*a, *g, *r)).collect();
            prop_assert_eq!(out, expected);
        }
    }
}

#[test]
fn choices_are_the_top_bits_in_the_order_of_labels() {
    let spec =
        ActivationSpec { bits: 20, dropped: 3, shift: 5, window: 2, rectify: true, most: None };
    let activation = Activation::new(spec).unwrap();
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let shares: Vec<u64> = (0..37 * 2).map(|_| rng.random()).collect();
    let choices = activation.choices(&shares);
    assert_eq!(choices.len(), 3 * activation.wires());
    for instance in 0..48 {
        for wire in 0..activation.wires() {
            let word = choices[(instance / 16) * activation.wires() + wire];
            let share = shares.get(instance * 2 + wire / 17).copied().unwrap_or(0);
            assert_eq!(u64::from(word >> (instance % 16) & 1), share >> (3 + wire % 17) & 1);
        }
    }
}

#[test]
fn labels_are_the_counter_mode_of_their_seed() {
    let seed = *b"any sixteen byte";
    let mut all = vec![0; 1000];
    labels(Platform::detect(), &seed, 0, &mut all);
    for from in [0, 1, 63, 64, 500] {
        let mut some = vec![0; 129];
        labels(Platform::PORTABLE, &seed, from, &mut some);
        assert_eq!(some, all[from as usize..][..129]);
    }
    let mut sorted = all.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), all.len());
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let spec =
        ActivationSpec { bits: 37, dropped: 12, shift: 12, window: 1, rectify: true, most: None };
    for (bad, error) in [
        (ActivationSpec { bits: 15, ..spec }, Error::Bits(15)),
        (ActivationSpec { bits: 65, ..spec }, Error::Bits(65)),
        (ActivationSpec { dropped: 13, ..spec }, Error::Shift { bits: 37, dropped: 13, shift: 12 }),
        (ActivationSpec { shift: 36, ..spec }, Error::Shift { bits: 37, dropped: 12, shift: 36 }),
        (ActivationSpec { window: 0, ..spec }, Error::Window(0)),
        (ActivationSpec { most: Some(0), ..spec }, Error::Most(0)),
        (ActivationSpec { most: Some(6), rectify: false, ..spec }, Error::Most(6)),
        (ActivationSpec { window: 65, ..spec }, Error::Window(65)),
    ] {
        assert_eq!(Activation::new(bad).unwrap_err(), error);
    }
}

#[test]
fn no_hash_is_made_twice_under_one_delta() {
    // All labels equal: what tables then repeat, they repeat because of a tweak.
    let spec =
        ActivationSpec { bits: 16, dropped: 0, shift: 0, window: 1, rectify: false, most: None };
    let activation = Activation::new(spec).unwrap();
    let zeros = vec![Block::MAX / 3; 2 * activation.wires() * LANES];
    let tables = |first_instance| {
        let mut tables = vec![0; 2 * LANES * activation.table_bytes()];
        let platform = Platform::detect();
        garble(
            &activation,
            platform,
            1 << 100 | 1,
            first_instance,
            &zeros,
            &zeros,
            &mut tables,
            &mut [0; 32],
        );
        tables
    };
    let all: Vec<Vec<u8>> = [0, 32, 1 << 63].into_iter().map(tables).collect();
    let and_bytes = activation.and_gates() * 32 * LANES;
    let mut blocks: Vec<&[u8]> = Vec::new();
    for tables in &all {
        for group in tables.chunks(LANES * activation.table_bytes()) {
            blocks.extend(group[..and_bytes].chunks(16));
        }
    }
    let count = blocks.len();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), count);
    assert_eq!(count, 3 * 32 * activation.and_gates() * 2);
    assert_eq!(tables(0), all[0]);
}

#[test]
#[should_panic(expected = "Δ's lowest bit")]
fn a_delta_that_does_not_change_colours_is_refused() {
    let spec =
        ActivationSpec { bits: 16, dropped: 0, shift: 0, window: 1, rectify: true, most: None };
    let activation = Activation::new(spec).unwrap();
    garble(&activation, Platform::PORTABLE, 2, 0, &[], &[], &mut [], &mut []);
}
