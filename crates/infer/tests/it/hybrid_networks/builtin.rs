//! The paper's networks.

use hushtable_infer::hybrid::architectures::Architecture;
use hushtable_infer::hybrid::network::{CompileSpec, compile, decode, encode, reference};
use hushtable_rlwe::largest;

/// ReLUs of the paper's Figure 3; VGG-16's fully connected layers have 8,192 more.
const RELUS: [(Architecture, usize, usize); 7] = [
    (Architecture::Resnet18, 32, 557_056),
    (Architecture::Resnet18, 64, 2_228_224),
    (Architecture::Resnet32, 32, 303_104),
    (Architecture::Resnet32, 64, 1_212_416),
    (Architecture::Vgg16, 32, 276_480 + 8_192),
    (Architecture::Vgg16, 64, 1_105_920 + 8_192),
    (Architecture::Lenet, 32, 6 * 28 * 28 + 16 * 10 * 10 + 120 + 84),
];

#[test]
fn networks_have_the_papers_relus() {
    for (architecture, size, relus) in RELUS {
        let network = architecture.build(size, 1).unwrap();
        let spec = CompileSpec::default();
        let before = std::time::Instant::now();
        let compiled = compile(&network, &spec).unwrap();
        let program = &compiled.program;
        let weights: usize = compiled.weights.convolutions.iter().map(Vec::len).sum();
        println!(
            "{architecture} {size}: k {} {} stages {} relus {} activations {} weights {weights} {:?}",
            program.bits,
            program.lattice,
            program.stages.len(),
            program.relus(),
            program.activations(),
            before.elapsed()
        );
        assert_eq!(program.relus(), relus, "{architecture} {size}");
        if size == 32 {
            let before = std::time::Instant::now();
            let input: Vec<f32> = (0..program.input.count())
                .map(|at| ((at * 37 % 101) as f32 / 50.0 - 1.0) * 1.5)
                .collect();
            let encoded = encode(program, compiled.input_max, &input).unwrap();
            let output = decode(program, &reference(program, &compiled.weights, &encoded, None));
            let float = network.evaluate(&input).unwrap();
            let worst = largest(output.iter().zip(&float).map(|(a, b)| f64::from(a - b)));
            let most = largest(float.iter().map(|&a| f64::from(a)));
            println!("  worst {worst} of {most} {:?}", before.elapsed());
            assert!(worst < 0.02 * most.max(1.0), "{architecture}: {worst} of {most}");
        }
    }
}
