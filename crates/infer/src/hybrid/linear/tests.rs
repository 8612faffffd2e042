//! Linear layers against convolutions in the clear.

use std::sync::Arc;

use hushtable_rlwe::ring::{NoiseSource, Platform};
use proptest::prelude::*;

use super::super::program::{Convolution, Shape};
use super::*;

/// Numbers below 2^bits.
fn numbers(seed: u8, count: usize, bits: u32) -> Vec<u64> {
    let mut out = vec![0; count];
    NoiseSource::from_seed(&[seed; 32]).words(&mut out);
    out.iter().map(|word| word >> (64 - bits)).collect()
}

/// Weights of about `bits` bits and both signs.
fn weights(seed: u8, count: usize, bits: u32) -> Vec<i32> {
    let draw = numbers(seed, count, bits + 1);
    draw.iter().map(|&word| word as i32 - (1 << bits)).collect()
}

/// `out` += the convolution, by its definition, modulo 2^64.
fn clear(convolution: &Convolution, weights: &[i32], input: &[u64], out: &mut [u64]) {
    let Convolution { input: shape, kernel, stride, pad, .. } = *convolution;
    let output = convolution.output();
    for (index, out) in out.iter_mut().enumerate() {
        let (plane, y, x) = (
            index / (output.height * output.width),
            index / output.width % output.height,
            index % output.width,
        );
        for tap in 0..shape.channels * kernel[0] * kernel[1] {
            let (channel, a, b) =
                (tap / (kernel[0] * kernel[1]), tap / kernel[1] % kernel[0], tap % kernel[1]);
            let row = (y * stride[0] + a).wrapping_sub(pad[0]);
            let column = (x * stride[1] + b).wrapping_sub(pad[1]);
            if row < shape.height && column < shape.width {
                let weight = weights[plane * (shape.channels * kernel[0] * kernel[1]) + tap];
                let value = input[(channel * shape.height + row) * shape.width + column];
                *out = out.wrapping_add(value.wrapping_mul(i64::from(weight) as u64));
            }
        }
    }
}

/// Both halves of one convolution; W · r − s, and what it should be.
fn run(lattice: &str, bits: u32, convolution: Convolution, weights: &[i32]) -> [Vec<u64>; 2] {
    let layers = Layers::new(lattice, bits, &[convolution], Platform::detect()).unwrap();
    let layers = Arc::new(layers);
    let prepared = Arc::new(Prepared::new(Arc::clone(&layers), &[weights.to_vec()]).unwrap());
    let client = LinearClient::new(Arc::clone(&layers), &[1; 32]).unwrap();
    let key = client.public_key();
    assert_eq!(key.len(), layers.public_key_bytes());
    let server = LinearServer::new(Arc::clone(&layers), prepared, &[2; 32], &key).unwrap();
    let masks = numbers(3, convolution.input.count(), bits);
    for chunk in 0..layers.uploads(0) {
        let bytes = client.upload(0, chunk, &masks).unwrap();
        assert_eq!(bytes.len(), layers.upload_bytes(0, chunk));
        server.accept(0, chunk, &bytes).unwrap();
    }
    let share = numbers(4, convolution.output().count(), bits);
    let mut found = vec![u64::MAX; share.len()];
    for unit in 0..layers.units(0) {
        let reply = server.answer(0, unit, &share).unwrap();
        assert_eq!(reply.len(), layers.unit_bytes(0, unit));
        client.open(0, unit, &reply, &mut found).unwrap();
    }
    let mut expected: Vec<u64> = share.iter().map(|s| s.wrapping_neg()).collect();
    clear(&convolution, weights, &masks, &mut expected);
    let mask = u64::MAX >> (64 - bits);
    expected.iter_mut().for_each(|value| *value &= mask);
    [found, expected]
}

prop_compose! {
    fn any_convolution()(
        channels in 1usize..20,
        sizes in [1usize..24, 1usize..24],
        outputs in 1usize..20,
        kernel in [1usize..6, 1usize..6],
        stride in [1usize..4, 1usize..4],
        pad in [0usize..4, 0usize..4, 0usize..4, 0usize..4],
    ) -> Convolution {
        let [height, width] = sizes;
        let kernel =
            [kernel[0].min(height + pad[0] + pad[2]), kernel[1].min(width + pad[1] + pad[3])];
        let input = Shape { channels, height, width };
        Convolution { input, outputs, kernel, stride, pad }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn convolutions_in_the_clear_follow_the_definition(
        convolution in any_convolution(),
        bits in 16u32..=64,
    ) {
        let weights: Vec<_> = numbers(7, convolution.weights(), 32).iter().map(|&w| w as i32).collect();
        let input = numbers(8, convolution.input.count(), bits);
        let start = numbers(9, convolution.output().count(), bits);
        for platform in Platform::available() {
            let mut found = start.clone();
            convolve_modulo(platform, bits, &convolution, &weights, &input, &mut found);
            let mut expected = start.clone();
            clear(&convolution, &weights, &input, &mut expected);
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(found << (64 - bits), expected << (64 - bits));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_convolution_is_computed(convolution in any_convolution(), bits in 16u32..=41) {
        let weights = weights(5, convolution.weights(), 6);
        let [found, expected] = run("linear_4096", bits, convolution, &weights);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_convolution_of_long_numbers_is_computed(
        convolution in any_convolution(),
        bits in 16u32..=64,
    ) {
        let weights = weights(6, convolution.weights(), 14);
        let [found, expected] = run("linear_8192", bits, convolution, &weights);
        prop_assert_eq!(found, expected);
    }
}
