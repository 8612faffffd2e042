//! The checker that every backend's test calls.

use super::{Hash, evaluate, garble, select};
use crate::garble::{Activation, ActivationSpec, Circuit, Delphi, Inputs, groups};
use crate::{Block, LANES, Platform};
use hushtable_prg::Tier;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// Compares garbling, evaluation and selection on `tier` with the portable path, bit for bit: every
/// kind of step, every size of row, and partly filled groups. Says so and returns where the machine
/// lacks the tier.
pub(super) fn agrees_with_portable(tier: Tier) {
    let Some(platform) = Platform::available().into_iter().find(|p| p.tier() == tier) else {
        eprintln!("this machine has no {tier:?}: nothing to compare");
        return;
    };
    let mut rng = ChaCha12Rng::seed_from_u64(5);
    for (bits, count) in (16..=64).step_by(6).zip([1, 2, 15, 16, 17, 31, 32, 33, 48]) {
        for (window, rectify, most) in [
            (1, true, None),
            (1, false, None),
            (3, true, None),
            (2, false, None),
            (1, true, Some(0x1a8)),
        ] {
            for dropped in [0, 5] {
                let spec = ActivationSpec { bits, dropped, shift: 5, window, rectify, most };
                let activation = Activation::new(spec).unwrap();
                agrees(platform, activation.circuit(), count, &mut rng);
            }
        }
    }
    agrees(platform, Delphi::new().circuit(), 20, &mut rng);
}

fn agrees(platform: Platform, circuit: &Circuit, count: usize, rng: &mut ChaCha12Rng) {
    let delta = rng.random::<Block>() | 1;
    // Instances are numbered modulo 2^64.
    let first_instance = if count.is_multiple_of(2) { u64::MAX - 7 } else { rng.random() };
    let groups = groups(count);
    let [garbler, evaluator] = [circuit.garbler_wires, circuit.evaluator_wires]
        .map(|wires| (0..groups * wires * LANES).map(|_| rng.random()).collect::<Vec<Block>>());
    let inputs = Inputs { circuit, first_instance, garbler: &garbler, evaluator: &evaluator };
    for hash in [Hash::Tmmo, Hash::Mmo] {
        let [garbled, expected] = [platform, Platform::PORTABLE].map(|platform| {
            let mut tables = vec![0x5a; groups * circuit.group_bytes];
            let mut masks = vec![7; count];
            garble(platform, hash, &inputs, delta, &mut tables, &mut masks);
            (tables, masks)
        });
        assert_eq!(garbled, expected, "{platform:?} garbles {hash:?} {circuit:?}");
        // Evaluation under labels that belong to nothing must agree too.
        let tables: Vec<u8> = garbled.0.iter().map(|byte| byte ^ rng.random::<u8>()).collect();
        for tables in [&garbled.0, &tables] {
            let [evaluated, expected] = [platform, Platform::PORTABLE].map(|platform| {
                let mut out = vec![7; count];
                evaluate(platform, hash, &inputs, tables, &mut out);
                out
            });
            assert_eq!(evaluated, expected, "{platform:?} evaluates {hash:?} {circuit:?}");
        }
    }
    let choices: Vec<u16> = (0..garbler.len() / LANES).map(|_| rng.random()).collect();
    let [selected, expected] = [platform, Platform::PORTABLE].map(|platform| {
        let mut out = vec![7; garbler.len()];
        select(platform, delta, &garbler, &choices, &mut out);
        out
    });
    assert_eq!(selected, expected, "{platform:?} selects");
}
