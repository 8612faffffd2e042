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
    convolve(&convolution, weights, &masks, &mut expected);
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
