//! Garbling: Δ, labels, shares and choices are secret.

use hushtable_mpc::garble::{Activation, ActivationSpec, evaluate, garble, labels, select};
use hushtable_mpc::{Block, LANES, Platform};
use hushtable_prg::valgrind::{Plain, mark_public, mark_secret};
use std::hint::black_box;

const DELTA: Block = 0x9d02_7f0e_8a4c_11b3_5c6e_02d9_f0a1_7735;
const COUNT: usize = 40;

fn secret<T: Plain>(mut values: Vec<T>) -> Vec<T> {
    mark_secret(&mut values);
    values
}

/// Δ, of which all but the lowest bit is secret.
fn secret_delta() -> Block {
    let mut delta = [DELTA >> 1];
    mark_secret(&mut delta);
    delta[0] << 1 | 1
}

/// Rectified and not, a window, a largest number, and a row of each piece.
fn activations() -> Vec<Activation> {
    let specs = [
        (37, 12, 12, 1, true, None),
        (56, 20, 22, 2, false, None),
        (64, 32, 32, 3, true, None),
        (37, 12, 12, 1, true, Some(0x6000)),
    ];
    let activation = |(bits, dropped, shift, window, rectify, most)| {
        let spec = ActivationSpec { bits, dropped, shift, window, rectify, most };
        Activation::new(spec).expect("in range")
    };
    specs.map(activation).into()
}

fn zeros(activation: &Activation, seed: u8) -> Vec<Block> {
    let mut zeros = vec![0; COUNT.div_ceil(LANES) * activation.wires() * LANES];
    labels(Platform::PORTABLE, &[seed; 16], 0, &mut zeros);
    zeros
}

fn shares(activation: &Activation, factor: u64) -> Vec<u64> {
    (0..(COUNT * activation.spec().window) as u64).map(|i| (i + 1).wrapping_mul(factor)).collect()
}

pub fn garbles() {
    for platform in Platform::available() {
        for activation in activations() {
            let [a, b] = [1, 2].map(|seed| secret(zeros(&activation, seed)));
            let mut tables = vec![0; COUNT.div_ceil(LANES) * LANES * activation.table_bytes()];
            let mut masks = vec![0; COUNT];
            garble(&activation, platform, secret_delta(), 7, &a, &b, &mut tables, &mut masks);
            mark_public(&mut tables);
            mark_public(&mut masks);
            assert!(tables.iter().any(|byte| *byte != 0) && masks.iter().any(|mask| *mask != 0));
        }
    }
}

pub fn evaluates() {
    for platform in Platform::available() {
        for activation in activations() {
            let [a, b] = [1, 2].map(|seed| zeros(&activation, seed));
            let mut tables = vec![0; COUNT.div_ceil(LANES) * LANES * activation.table_bytes()];
            let mut masks = vec![0; COUNT];
            garble(&activation, platform, DELTA, 7, &a, &b, &mut tables, &mut masks);
            let own = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]
                .map(|factor| shares(&activation, factor));
            let mut active = [a.clone(), b.clone()];
            for ((active, zeros), own) in active.iter_mut().zip([&a, &b]).zip(&own) {
                select(platform, DELTA, zeros, &activation.choices(own), active);
            }
            let [a, b] = active.map(secret);
            let mut out = vec![0; COUNT];
            evaluate(&activation, platform, 7, &a, &b, &secret(tables), &mut out);
            mark_public(&mut out);
            let mask = u64::MAX >> (64 - activation.spec().bits);
            let results: Vec<u64> =
                out.iter().zip(&masks).map(|(out, m)| out.wrapping_sub(*m) & mask).collect();
            assert_eq!(results, activation.clear(&own[1], &own[0]));
        }
    }
}

/// Labels and choice bits of a chunk.
fn chunk() -> (Vec<Block>, Vec<u16>) {
    let zeros = zeros(&activations()[0], 3);
    let choices = (0..zeros.len() / LANES).map(|i| (i as u16).wrapping_mul(0x9e37)).collect();
    (zeros, choices)
}

pub fn selects() {
    let (zeros, choices) = chunk();
    for platform in Platform::available() {
        let mut out = vec![0; zeros.len()];
        select(platform, secret_delta(), &zeros, &secret(choices.clone()), &mut out);
        mark_public(&mut out);
        for (i, (out, zero)) in out.iter().zip(&zeros).enumerate() {
            let is_chosen = choices[i / LANES] >> (i % LANES) & 1 == 1;
            assert_eq!(out ^ zero, if is_chosen { DELTA } else { 0 });
        }
    }
}

pub fn chooses() {
    for activation in activations() {
        let own = shares(&activation, 0x9e37_79b9_7f4a_7c15);
        let expected = activation.choices(&own);
        let mut found = activation.choices(&secret(own));
        mark_public(&mut found);
        assert_eq!(found, expected);
    }
}

pub fn labels_of_a_seed() {
    let mut expected = vec![0; 200];
    labels(Platform::detect(), &[5; 16], 9, &mut expected);
    let mut seed = [5u8; 16];
    mark_secret(&mut seed);
    let mut found = vec![0; 200];
    labels(Platform::detect(), &seed, 9, &mut found);
    mark_public(&mut found);
    assert_eq!(found, expected);
}

/// A branch on a choice bit.
pub fn selects_by_branch() {
    let (zeros, choices) = chunk();
    let choices = secret(choices);
    for (i, zero) in zeros.iter().enumerate() {
        if choices[i / LANES] >> (i % LANES) & 1 == 1 {
            black_box(zero ^ DELTA);
        } else {
            black_box(zero);
        }
    }
}

/// A pair of labels, of which one is looked up.
pub fn selects_by_address() {
    let (zeros, choices) = chunk();
    let choices = secret(choices);
    for (i, zero) in zeros.iter().enumerate() {
        let pair = black_box([*zero, zero ^ DELTA]);
        black_box(pair[usize::from(choices[i / LANES] >> (i % LANES) & 1)]);
    }
}
