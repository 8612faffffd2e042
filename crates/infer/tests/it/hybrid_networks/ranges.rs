//! How many bits numbers need, and what does not fit.

use hushtable_infer::hybrid::network::{
    CompileSpec, Error, Network, compile, decode, encode, reference,
};
use hushtable_infer::hybrid::program::Rounding;
use serde_json::json;

use super::graphs::Graph;

fn small(seed: u64) -> (Network, Graph) {
    let mut own = Graph::new([2, 6, 6], seed);
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.relu();
    own.pool("average_pool", [2, 2], [2, 2]);
    own.flatten();
    own.linear(3);
    (own.network(), own)
}

#[test]
fn the_least_bits_are_chosen_and_fewer_are_refused() {
    let (network, mut graph) = small(1);
    let samples: Vec<Vec<f32>> = (0..4).map(|_| graph.input()).collect();
    for samples in [Vec::new(), samples] {
        let spec = CompileSpec { samples, ..CompileSpec::default() };
        let compiled = compile(&network, &spec).unwrap();
        let bits = compiled.program.bits;
        let margin = if spec.samples.is_empty() { 2 } else { 1 };
        assert_eq!(compiled.ranges.margin, margin);
        for range in &compiled.ranges.stages {
            // The bound of the issue, with the margin.
            let least = f64::from(range.fraction + margin + 1) + range.largest.log2();
            assert!(f64::from(bits) >= least, "{range:?} {bits}");
        }
        assert!(compiled.ranges.stages.iter().any(|range| range.needed == bits));
        for given in [16, bits - 1] {
            let error =
                compile(&network, &CompileSpec { bits: Some(given), ..spec.clone() }).unwrap_err();
            let Error::Range { needed, bits: found, stage, .. } = &error else { panic!() };
            assert_eq!((*needed, *found), (bits, given));
            let text = error.to_string();
            assert!(text.contains(&format!("bits = {bits}")) && text.contains(stage), "{text}");
        }
        for given in [bits, bits + 1, 41] {
            let spec = CompileSpec { bits: Some(given), ..spec.clone() };
            assert_eq!(compile(&network, &spec).unwrap().program.bits, given);
        }
    }
}

#[test]
fn specs_that_make_no_sense_say_so() {
    let (network, mut graph) = small(2);
    let good = graph.input();
    let base = CompileSpec::default();
    let specs = [
        CompileSpec { fraction: 0, ..base.clone() },
        CompileSpec { fraction: 29, ..base.clone() },
        CompileSpec { fraction: u32::MAX, ..base.clone() },
        CompileSpec { bits: Some(15), ..base.clone() },
        CompileSpec { bits: Some(65), ..base.clone() },
        CompileSpec { range: Some([1.0, 1.0]), ..base.clone() },
        CompileSpec { range: Some([f32::NAN, 1.0]), ..base.clone() },
        CompileSpec { samples: vec![good.clone(), vec![f32::NAN; good.len()]], ..base.clone() },
    ];
    for spec in specs {
        let error = compile(&network, &spec).unwrap_err();
        assert!(matches!(error, Error::Spec { .. }), "{error}");
    }
    let spec = CompileSpec { samples: vec![good[1..].to_vec()], ..base.clone() };
    let error = compile(&network, &spec).unwrap_err();
    assert!(matches!(error, Error::Input { expected: 72, found: 71, .. }), "{error}");
    let spec = CompileSpec { lattice: Some("../x".into()), ..base };
    assert!(matches!(compile(&network, &spec).unwrap_err(), Error::Program(_)));
}

#[test]
fn weights_that_do_not_fit_are_named() {
    let mut own = Graph::new([1, 1, 1], 3);
    own.linear(1);
    own.tensors.get_mut("t0").unwrap().values = vec![3e7];
    let error = compile(&own.network(), &CompileSpec::default()).unwrap_err();
    let Error::Weight { place, fraction: 12, .. } = &error else { panic!("{error}") };
    assert!(place.contains("n0"), "{error}");
    // With fewer bits of fraction they fit.
    let lattice = Some("linear_8192".to_owned());
    let spec = CompileSpec { fraction: 4, lattice, ..CompileSpec::default() };
    compile(&own.network(), &spec).unwrap();
}

#[test]
fn inputs_beyond_the_range_are_refused() {
    let (network, mut graph) = small(4);
    let good = graph.input();
    let spec = CompileSpec { samples: vec![good.clone()], ..CompileSpec::default() };
    let compiled = compile(&network, &spec).unwrap();
    let encode = |input: &[f32]| encode(&compiled.program, compiled.input_max, input);
    let most = good.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    encode(&good).unwrap();
    for wrong in [3.0 * most, -3.0 * most, f32::NAN, f32::INFINITY, f32::MIN] {
        let mut input = good.clone();
        input[5] = wrong;
        let error = encode(&input).unwrap_err();
        assert!(matches!(error, Error::InputRange { index: 5, .. }), "{error}");
    }
    let error = encode(&good[2..]).unwrap_err();
    assert!(matches!(error, Error::Input { found: 70, .. }), "{error}");
}

#[test]
fn stochastic_rounding_has_the_right_mean() {
    // One number through an activation: y = x / 3 to 4 fraction bits, over all dithers.
    let mut own = Graph::new([1, 1, 1], 5);
    own.linear(1);
    own.relu();
    own.linear(1);
    own.tensors.get_mut("t0").unwrap().values = vec![0.3125];
    own.tensors.get_mut("t1").unwrap().values = vec![0.0];
    own.tensors.get_mut("t2").unwrap().values = vec![1.0];
    own.tensors.get_mut("t3").unwrap().values = vec![0.0];
    let rounding = Rounding::Stochastic;
    let lattice = Some("linear_8192".to_owned());
    let spec = CompileSpec { fraction: 4, rounding, lattice, ..CompileSpec::default() };
    let compiled = compile(&own.network(), &spec).unwrap();
    let program = &compiled.program;
    let x = encode(program, compiled.input_max, &[0.6875]).unwrap();
    let answers = (0..16).map(|u| {
        let dither = vec![vec![u], vec![u]];
        decode(program, &reference(program, &compiled.weights, &x, Some(&dither)))[0]
    });
    let answers: Vec<f32> = answers.collect();
    assert!(answers.iter().all(|&y| y == 0.1875 || y == 0.25), "{answers:?}");
    assert_eq!(answers.iter().sum::<f32>() / 16.0, 0.6875 * 0.3125);
}

#[test]
fn a_network_says_between_what_inputs_lie() {
    let (network, graph) = small(6);
    assert_eq!(network.range(), Some([-1.0, 1.0]));
    let mut json = graph.json();
    json["input"]["range"] = json!([0.0, 255.0]);
    let wide = Network::parse(&json.to_string(), graph.tensors.clone()).unwrap();
    let spec = CompileSpec::default();
    let [narrow, wide] = [&network, &wide].map(|own| compile(own, &spec).unwrap());
    assert!(wide.program.bits >= narrow.program.bits + 6);
    assert!(wide.input_max == 4 * 255 * 4096 && narrow.input_max <= 4 * 4096);
}
