//! What the evaluator of a garbled circuit sees must not tell the garbler's numbers apart; a view with a
//! planted leak must be caught.

use crate::classifier;

use classifier::{CHANCE_MAX, accuracy};
use hushtable_mpc::garble::{Activation, ActivationSpec, evaluate, garble, select};
use hushtable_mpc::{Block, LANES, Platform};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// What goes wrong in a view.
#[derive(Clone, Copy, PartialEq)]
enum Leak {
    None,
    /// Labels of 0 have colour 0, so that active colours are the bits themselves.
    Colours,
    /// The evaluator is told the result instead of its share.
    Result,
    /// The evaluator is given the labels of 0 of the garbler's wires beside the active ones.
    Zeros,
}

/// All that an evaluator of sixteen instances sees.
fn view(
    activation: &Activation,
    garbler: &[u64],
    evaluator: &[u64],
    leak: Leak,
    rng: &mut ChaCha12Rng,
) -> Vec<u8> {
    let platform = Platform::detect();
    let delta = rng.random::<Block>() | 1;
    let count = garbler.len() / activation.spec().window;
    let [garbler_zeros, evaluator_zeros] = [(); 2].map(|()| {
        let hidden = if leak == Leak::Colours { !1 } else { !0 };
        let draw = |_| rng.random::<Block>() & hidden;
        (0..activation.wires() * LANES).map(draw).collect::<Vec<_>>()
    });
    let mut tables = vec![0; LANES * activation.table_bytes()];
    let mut masks = vec![0; count];
    let zeros = [&garbler_zeros, &evaluator_zeros];
    garble(activation, platform, delta, 0, zeros[0], zeros[1], &mut tables, &mut masks);
    let mut active = [garbler_zeros.clone(), evaluator_zeros.clone()];
    for ((active, zeros), shares) in active.iter_mut().zip(zeros).zip([garbler, evaluator]) {
        select(platform, delta, zeros, &activation.choices(shares), active);
    }
    let mut out = vec![0; count];
    evaluate(activation, platform, 0, &active[0], &active[1], &tables, &mut out);
    if leak == Leak::Result {
        out.iter_mut().zip(&masks).for_each(|(out, mask)| *out = out.wrapping_sub(*mask));
    }
    let mut bytes: Vec<u8> = out.iter().flat_map(|out| out.to_le_bytes()).collect();
    for (active, zeros) in active.iter().zip(zeros) {
        let beside = if leak == Leak::Zeros { !0 } else { 0 };
        let blocks = active.iter().zip(zeros).map(|(active, zero)| active ^ (zero & beside));
        bytes.extend(blocks.flat_map(Block::to_le_bytes));
    }
    bytes.extend(tables);
    bytes
}

/// How well views tell x from y, where the evaluator's share is the same.
fn score(spec: ActivationSpec, [x, y]: [u64; 2], leak: Leak) -> f64 {
    let activation = Activation::new(spec).unwrap();
    let mut rng = ChaCha12Rng::seed_from_u64(21);
    let evaluator: Vec<u64> = (0..LANES * spec.window).map(|_| rng.random()).collect();
    accuracy(|class| {
        let number = if class { y } else { x };
        let garbler: Vec<u64> = evaluator.iter().map(|share| number.wrapping_sub(*share)).collect();
        view(&activation, &garbler, &evaluator, leak, &mut rng)
    })
}

const SPEC: ActivationSpec =
    ActivationSpec { bits: 16, dropped: 11, shift: 12, window: 1, rectify: true, most: None };

#[test]
fn a_view_tells_nothing_of_the_garblers_numbers() {
    for spec in [
        SPEC,
        ActivationSpec { rectify: false, ..SPEC },
        ActivationSpec { most: Some(3), ..SPEC },
        ActivationSpec { dropped: 12, shift: 12, window: 2, ..SPEC },
    ] {
        // A positive and a negative number, and two positive ones.
        for pair in [[0x5000, 0xb000], [0x1000, 0x7000]] {
            let score = score(spec, pair, Leak::None);
            assert!(score < CHANCE_MAX, "{spec:?} {pair:x?}: {score}");
        }
    }
}

#[test]
fn planted_leaks_are_caught() {
    for leak in [Leak::Colours, Leak::Result, Leak::Zeros] {
        assert!(score(SPEC, [0x5000, 0xb000], leak) > 0.95);
    }
}
