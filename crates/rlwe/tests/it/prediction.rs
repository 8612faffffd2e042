//! The chance of failing that is predicted, against arithmetic by hand.

use crate::fixtures;

use fixtures::{offered, parameters};
use hushtable_rlwe::bfv::ParameterSpec;
use hushtable_rlwe::bfv::noise::{Noise, Prediction};

#[test]
fn more_noise_is_a_greater_chance_of_failing() {
    for params in offered() {
        let base = Noise::new(&params).response(200, 8, 8);
        let raises: [fn(&mut Prediction, f64); 3] = [
            |prediction, factor| prediction.row_select *= factor,
            |prediction, factor| prediction.select *= factor,
            |prediction, factor| prediction.compress *= factor,
        ];
        for raise in raises {
            let chances: Vec<(f64, f64, f64)> = (0..200)
                .map(|step| {
                    let mut raised = base;
                    raise(&mut raised, f64::from(step).exp2().powf(0.5));
                    (raised.failure_log2(), raised.budget_bits(), raised.deviation_log2())
                })
                .collect();
            for pair in chances.windows(2) {
                assert!(pair[0].0 <= pair[1].0 && pair[0].1 > pair[1].1 && pair[0].2 < pair[1].2);
            }
            // From what is asked of a geometry to what is certain, never above 1.
            assert!(chances[0].0 < -40.0 && chances[199].0 == 0.0, "{:?}", chances[0]);
        }
    }
}

#[test]
fn more_rows_levels_and_games_are_a_greater_chance_of_failing() {
    for params in offered() {
        let model = Noise::new(&params);
        let chance = |rows, levels, games| model.response(rows, levels, games).failure_log2();
        let base = chance(100, 6, 4);
        assert!(base < chance(101, 6, 4));
        assert!(base < chance(100, 7, 4));
        assert!(base < chance(100, 6, 5));
        assert!(chance(usize::MAX >> 20, 12, 31) == 0.0);
        // Sums of noise are what their parts say.
        let prediction = model.response(100, 6, 4);
        let variance = prediction.row_select + prediction.select + prediction.compress;
        assert!((prediction.deviation_log2() - variance.log2() / 2.0).abs() < 1e-12);
        let one = model.response(1, 6, 1);
        assert!((prediction.row_select / one.row_select - 100.0).abs() < 1e-9);
        assert!((prediction.select / one.select - 4.0).abs() < 1e-9);
        assert_eq!(prediction.compress, one.compress);
    }
}

#[test]
fn predictions_are_what_hands_compute() {
    // Worked out from the definitions of the sets, with 60 digits, apart from this crate.
    for (spec, rows, levels, games, figures) in [
        (
            ParameterSpec::n4096_128(),
            490,
            9,
            11,
            [8.07845, 59.01509, 59.71492, 57.83007, 2.59160, -17.12607],
        ),
        (
            ParameterSpec::n4096_128(),
            242,
            8,
            7,
            [7.95984, 57.87871, 58.07260, 57.83007, 3.14891, -48.22651],
        ),
        (
            ParameterSpec::n256_test(),
            20,
            5,
            6,
            [4.08510, 46.40703, 47.69649, 53.83007, 5.97752, -2862.26881],
        ),
        (
            ParameterSpec::ive_paper(),
            206,
            8,
            10,
            [50.76553, 132.45204, 120.24000, 139.96712, 4.98792, -719.70614],
        ),
        (
            ParameterSpec::ive_paper(),
            4000,
            12,
            2,
            [54.77083, 140.73661, 121.92336, 139.96712, 4.27413, -262.63762],
        ),
    ] {
        let params = parameters(spec);
        let found = Noise::new(&params).response(rows, levels, games);
        let found = [
            found.leaf.log2(),
            found.row_select.log2(),
            found.select.log2(),
            found.compress.log2(),
            found.budget_bits(),
            found.failure_log2(),
        ];
        for (found, expected) in found.into_iter().zip(figures) {
            assert!(
                (found - expected).abs() < 1e-4 * expected.abs().max(1.0),
                "{found} {expected}"
            );
        }
    }
}
