//! What networks become: the same function, in few stages.

use hushtable_infer::hybrid::network::{
    CompileSpec, FloatActivation, FloatTerm, Lowered, Post, compile, decode, encode, lower,
    reference,
};
use hushtable_infer::hybrid::program::{Pool, Rounding, Shape, Term};
use hushtable_rlwe::largest;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;
use serde_json::json;

use super::graphs::{Graph, made_up};

/// The lowered network's answer, with what is left to the client done.
fn run(lowered: &Lowered, input: &[f32]) -> Vec<f32> {
    let mut answer = lowered.run(input, &mut vec![0.0; lowered.stages.len()]);
    lowered.post.iter().for_each(|post| post.apply(&mut answer));
    answer
}

fn most(values: &[f32]) -> f32 {
    largest(values.iter().map(|&value| f64::from(value)).chain([1.0])) as f32
}

fn worst(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    largest(found.iter().zip(expected).map(|(a, b)| f64::from(a - b))) as f32
}

/// Lowers, and looks that it computes the same.
fn lowered(graph: &mut Graph) -> Lowered {
    let (network, input) = (graph.network(), graph.input());
    let lowered = lower(&network).unwrap();
    let (expected, found) = (network.evaluate(&input).unwrap(), run(&lowered, &input));
    let error = worst(&found, &expected);
    assert!(error < 1e-4 * most(&expected), "{error}: {}", network.json());
    lowered
}

fn rectified(pool: Pool) -> FloatActivation {
    FloatActivation { rectify: true, most: None, pool }
}

fn names(lowered: &Lowered) -> Vec<&str> {
    lowered.stages.iter().map(|stage| stage.name.as_str()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn lowering_keeps_what_is_computed(seed in any::<u64>()) {
        let mut graph = made_up(seed);
        let lowered = lowered(&mut graph);
        prop_assert!(lowered.stages.last().unwrap().activation.is_none());
    }

    #[test]
    fn integers_come_near_floats(seed in any::<u64>(), is_nearest in any::<bool>()) {
        let mut graph = made_up(seed);
        let (network, input) = (graph.network(), graph.input());
        let rounding = if is_nearest { Rounding::Nearest } else { Rounding::Stochastic };
        let lattice = Some("linear_8192".to_owned());
        let spec = CompileSpec { fraction: 14, rounding, lattice, ..CompileSpec::default() };
        let compiled = compile(&network, &spec).unwrap();
        let program = &compiled.program;
        let x = encode(program, compiled.input_max, &input).unwrap();
        let expected = network.evaluate(&input).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let dither: Vec<Vec<u64>> = program
            .stages
            .iter()
            .map(|stage| (0..stage.sum.count()).map(|_| rng.random()).collect())
            .collect();
        for dither in [None, Some(dither.as_slice())] {
            let y = reference(program, &compiled.weights, &x, dither);
            prop_assert!(y.iter().all(|&y| y <= program.mask()));
            let mut found = decode(program, &y);
            compiled.post.iter().for_each(|post| post.apply(&mut found));
            let error = worst(&found, &expected);
            let largest = compiled.ranges.stages.iter().map(|range| range.largest).fold(1.0, f64::max);
            prop_assert!(f64::from(error) < 0.01 * largest, "{error} of {largest}: {}", network.json());
        }
    }
}

#[test]
fn convolution_norm_relu_and_pool_are_one_stage() {
    for order in ["relu first", "pool first", "norm last"] {
        let mut own = Graph::new([3, 8, 8], 1);
        own.conv(4, [3, 3], [1, 1], [1, 1, 1, 1], 1);
        match order {
            "relu first" => {
                own.norm(-1.0);
                own.relu();
                own.pool("max_pool", [2, 2], [2, 2]);
            }
            "pool first" => {
                own.norm(-1.0);
                own.pool("max_pool", [2, 2], [2, 2]);
                own.relu();
            }
            _ => {
                // What keeps order may come before or after the largest.
                own.relu();
                own.norm(0.1);
                own.pool("max_pool", [2, 2], [2, 2]);
            }
        }
        own.conv(5, [3, 3], [1, 1], [0; 4], 1);
        let lowered = lowered(&mut own);
        assert_eq!(lowered.stages.len(), 2, "{order}: {:?}", names(&lowered));
        let pool = Pool::side_by_side([2, 2]);
        assert_eq!(lowered.stages[0].activation, Some(rectified(pool)), "{order}");
    }
}

#[test]
fn the_stem_of_a_residual_network_is_one_stage() {
    let mut own = Graph::new([3, 16, 16], 2);
    own.conv(6, [7, 7], [2, 2], [3; 4], 1);
    own.norm(0.2);
    own.relu();
    own.padded_pool("max_pool", [3, 3], [2, 2], [1; 4]);
    own.conv(5, [3, 3], [1, 1], [1; 4], 1);
    let lowered = lowered(&mut own);
    assert_eq!(lowered.stages.len(), 2, "{:?}", names(&lowered));
    let pool = Pool { kernel: [3, 3], stride: [2, 2], pad: [1; 4] };
    assert_eq!(lowered.stages[0].activation, Some(rectified(pool)));
    assert_eq!(lowered.stages[0].output(), Shape { channels: 6, height: 4, width: 4 });
}

#[test]
fn the_largest_number_of_a_relu_is_its_stages_own() {
    let mut own = Graph::new([3, 8, 8], 8);
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.clipped(0.75);
    own.pool("max_pool", [2, 2], [2, 2]);
    own.relu();
    own.clipped(0.5);
    own.conv(4, [3, 3], [1, 1], [1; 4], 4);
    own.clipped(6.0);
    let lowered = lowered(&mut own);
    // At the end too: a client that opened larger numbers would see more than the network's answer.
    assert_eq!(lowered.stages.len(), 3, "{:?}", names(&lowered));
    assert!(lowered.post.is_empty());
    let pool = Pool::side_by_side([2, 2]);
    let first = FloatActivation { most: Some(0.5), ..rectified(pool) };
    assert_eq!(lowered.stages[0].activation, Some(first));
    let compiled = compile(&own.network(), &CompileSpec::default()).unwrap();
    let most = |stage: usize| compiled.program.stages[stage].activation.unwrap().most;
    assert_eq!([most(0), most(1)], [Some(1 << 11), Some(6 << 12)]);
}

#[test]
fn planes_after_each_other_are_read_where_they_are() {
    // Two branches as in a fire module: the next convolution reads each, nothing is moved.
    let mut own = Graph::new([3, 8, 8], 9);
    own.conv(4, [1, 1], [1, 1], [0; 4], 1);
    own.relu();
    let branch = |own: &mut Graph, kernel: usize, pad: usize| {
        let shape = [5, 4, kernel, kernel];
        let weight = own.tensor(&shape, -0.4, 0.4);
        let pad = [pad; 4];
        let conv = json!({"op": "conv", "inputs": ["n1"], "weight": weight, "pad": pad});
        own.push(conv, [5, 8, 8]);
        own.relu();
    };
    branch(&mut own, 1, 0);
    branch(&mut own, 3, 1);
    own.concat(&[3]);
    own.pool("max_pool", [2, 2], [2, 2]);
    own.conv(6, [3, 3], [1, 1], [1; 4], 2);
    own.relu();
    own.flatten();
    own.linear(2);
    let lowered = lowered(&mut own);
    assert_eq!(names(&lowered), ["n1", "n3", "n5", "n9", "n11"]);
    let sources = |stage: usize| -> Vec<usize> {
        let terms = lowered.stages[stage].terms.iter();
        let source = |term: &FloatTerm| match term {
            FloatTerm::Convolution { source, .. } | FloatTerm::Windows { source, .. } => *source,
        };
        terms.map(source).collect()
    };
    assert_eq!(sources(3), [3, 2]);
    let pool = Pool::side_by_side([2, 2]);
    assert_eq!(lowered.stages[1].activation, Some(rectified(pool)));
    assert_eq!(lowered.stages[2].activation, Some(rectified(pool)));
}

#[test]
fn the_largest_after_a_flattening_is_not_that_before_it() {
    // Windows of what was flattened hold one number each, and pads.
    for (kernel, stride, pad) in
        [([3, 3], [1, 1], [1; 4]), ([1, 1], [2, 2], [0; 4]), ([2, 1], [1, 1], [1, 0, 0, 0])]
    {
        let mut own = Graph::new([2, 4, 4], 10);
        own.conv(3, [3, 3], [1, 1], [1; 4], 1);
        own.relu();
        own.norm(0.2);
        own.flatten();
        own.padded_pool("max_pool", kernel, stride, pad);
        own.flatten();
        own.linear(3);
        lowered(&mut own);
        compile(&own.network(), &CompileSpec::default()).unwrap();
    }
}

#[test]
fn the_largest_of_many_is_that_of_rows_first() {
    for (kernel, stride, pad) in
        [([9, 8], [2, 3], [4, 1, 0, 3]), ([12, 12], [12, 12], [0; 4]), ([9, 9], [1, 1], [4; 4])]
    {
        let mut own = Graph::new([2, 12, 12], 11);
        own.conv(3, [3, 3], [1, 1], [1; 4], 1);
        own.relu();
        own.padded_pool("max_pool", kernel, stride, pad);
        own.flatten();
        own.linear(3);
        let lowered = lowered(&mut own);
        assert_eq!(lowered.stages.len(), 3, "{:?}", names(&lowered));
        compile(&own.network(), &CompileSpec::default()).unwrap();
    }
    let mut own = Graph::new([1, 80, 1], 12);
    own.pool("max_pool", [65, 1], [1, 1]);
    let error = lower(&own.network()).unwrap_err().to_string();
    assert!(error.contains("n0") && error.contains("up to 64 rows and columns"), "{error}");
}

#[test]
fn a_largest_number_that_the_fraction_holds_roughly_is_refused() {
    let mut own = Graph::new([1, 2, 2], 13);
    own.conv(1, [1, 1], [1, 1], [0; 4], 1);
    own.clipped(1e-3);
    own.conv(1, [1, 1], [1, 1], [0; 4], 1);
    let error = compile(&own.network(), &CompileSpec::default()).unwrap_err().to_string();
    assert!(error.contains("n1") && error.contains("15 or more are possible"), "{error}");
    compile(&own.network(), &CompileSpec { fraction: 15, ..CompileSpec::default() }).unwrap();
}

#[test]
fn a_program_that_no_client_takes_is_not_compiled() {
    // 60 parts, which each of some hundred convolutions reads.
    let network = |count: usize| {
        let mut own = Graph::new([1, 1, 1], 14);
        let weight = own.tensor(&[1, 1, 1, 1], 0.5, 0.6);
        let parts: Vec<String> = (0..60)
            .map(|_| {
                own.push(json!({"op": "conv", "inputs": ["input"], "weight": weight}), [1, 1, 1]);
                own.push(json!({"op": "relu"}), [1, 1, 1])
            })
            .collect();
        let whole = own.push(json!({"op": "concat", "inputs": parts}), [60, 1, 1]);
        let weight = own.tensor(&[1, 60, 1, 1], 0.01, 0.02);
        let mut sum = "input".to_owned();
        for _ in 0..count {
            own.push(json!({"op": "conv", "inputs": [whole], "weight": weight}), [1, 1, 1]);
            let relu = own.push(json!({"op": "relu"}), [1, 1, 1]);
            sum = own.push(json!({"op": "add", "inputs": [sum, relu]}), [1, 1, 1]);
        }
        own.network()
    };
    compile(&network(100), &CompileSpec::default()).unwrap();
    let error = compile(&network(800), &CompileSpec::default()).unwrap_err().to_string();
    assert!(error.contains("bytes, at most 4194304"), "{error}");
}

#[test]
fn of_many_steps_at_the_end_the_last_are_the_clients() {
    let mut own = Graph::new([2, 4, 4], 15);
    own.conv(2, [3, 3], [1, 1], [0; 4], 1);
    (0..20).for_each(|_| own.relu());
    let lowered = lowered(&mut own);
    assert_eq!(lowered.post, [Post::Relu; 8]);
    compile(&own.network(), &CompileSpec::default()).unwrap();
}

#[test]
fn a_norm_after_relu_goes_where_it_can() {
    // Into the next weights, but its shift not past zeros around the image, nor its sign past a largest.
    let cases: [(f32, &str, [usize; 4], usize); 5] = [
        (-1.0, "", [0; 4], 2),
        (-1.0, "", [1, 0, 0, 0], 3),
        (0.1, "max_pool", [0; 4], 2),
        (-1.0, "max_pool", [0; 4], 3),
        (-1.0, "average_pool", [0; 4], 3),
    ];
    for (low, pool, pad, stages) in cases {
        let mut own = Graph::new([2, 8, 8], 3);
        own.conv(6, [3, 3], [1, 1], [1; 4], 1);
        own.relu();
        own.norm(low);
        if !pool.is_empty() {
            own.pool(pool, [2, 2], [2, 2]);
        }
        own.conv(3, [2, 2], [1, 1], pad, 1);
        let lowered = lowered(&mut own);
        assert_eq!(lowered.stages.len(), stages, "{low} {pool} {pad:?}: {:?}", names(&lowered));
    }
}

#[test]
fn a_residual_block_is_two_stages() {
    let mut own = Graph::new([3, 8, 8], 4);
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.relu();
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.norm(-1.0);
    own.relu();
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.norm(-1.0);
    own.add(1);
    own.relu();
    own.flatten();
    own.linear(5);
    let lowered = lowered(&mut own);
    assert_eq!(names(&lowered), ["n1", "n4", "n8", "n10"]);
    let block = &lowered.stages[2];
    assert!(matches!(block.terms[0], FloatTerm::Convolution { source: 2, .. }));
    let FloatTerm::Windows { source: 1, window: [1, 1], log: 0, .. } = block.terms[1] else {
        panic!("{:?}", block.terms[1])
    };
    let compiled = compile(&own.network(), &CompileSpec::default()).unwrap();
    let Term::Windows { shift, .. } = compiled.program.stages[2].terms[1] else { panic!() };
    assert_eq!((shift, compiled.program.stages[2].fraction), (12, 24));
    assert_eq!(compiled.program.relus(), 3 * 4 * 8 * 8);
}

#[test]
fn groups_are_zeros_between() {
    let mut own = Graph::new([4, 6, 6], 5);
    own.conv(6, [3, 3], [2, 1], [0, 1, 1, 0], 2);
    let lowered = lowered(&mut own);
    let FloatTerm::Convolution { weights, .. } = &lowered.stages[0].terms[0] else { panic!() };
    let own: Vec<bool> = weights.chunks(9).map(|tap| tap.iter().any(|&w| w != 0.0)).collect();
    let expected = (0..6).flat_map(|plane| (0..4).map(move |channel| plane / 3 == channel / 2));
    assert_eq!(own, expected.collect::<Vec<bool>>());
}

#[test]
fn what_the_end_of_a_network_does_is_left_to_the_client() {
    let mut own = Graph::new([2, 4, 4], 6);
    own.conv(2, [3, 3], [1, 1], [0; 4], 1);
    own.flatten();
    own.relu();
    own.push(json!({"op": "softmax"}), [8, 1, 1]);
    let lowered = lowered(&mut own);
    assert_eq!(lowered.post, [Post::Relu, Post::Softmax]);
    assert_eq!((lowered.stages.len(), lowered.notes.len()), (1, 2));
    assert_eq!(lowered.stages[0].sum, Shape { channels: 2, height: 2, width: 2 });
}

#[test]
fn what_is_not_read_is_not_computed() {
    let mut own = Graph::new([2, 4, 4], 7);
    own.conv(2, [3, 3], [1, 1], [1; 4], 1);
    own.relu();
    own.conv(9, [3, 3], [1, 1], [1; 4], 1);
    let after = own.nodes.len();
    own.push(json!({"op": "relu", "inputs": ["n1"]}), [2, 4, 4]);
    own.conv(3, [1, 1], [1, 1], [0; 4], 1);
    let lowered = lowered(&mut own);
    assert_eq!(lowered.stages.len(), 2, "node n{} is not read", after - 1);
}
