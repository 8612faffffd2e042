//! Linear layers against convolutions in the clear.

use std::sync::Arc;

use hushtable_rlwe::linear::{Client, Parameters};
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
    prove(&layers, &client, &server, &masks).unwrap();
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

/// Proves all batches, of convolutions of one input.
fn prove(
    layers: &Layers,
    client: &LinearClient,
    server: &LinearServer,
    masks: &[u64],
) -> Result<(), Error> {
    let tensor = |_| Ok(Arc::new(masks.to_vec()));
    for batch in 0..layers.batches().len() {
        let seed = server.proof_seed(batch)?;
        let commitment = client.commit(batch, &seed, tensor)?;
        assert_eq!(commitment, client.commit(batch, &seed, tensor)?);
        let seed = server.commit(batch, &commitment)?;
        assert_eq!(seed, server.commit(batch, &commitment)?);
        for row in 0..ROWS {
            let bytes = client.prove(batch, &seed, row)?;
            assert_eq!(bytes.len(), layers.proof_row_bytes(batch));
            server.verify(batch, row, &bytes)?;
            server.verify(batch, row, &bytes)?;
        }
        client.forget_proof(batch);
    }
    Ok(())
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn any_convolution_of_proven_uploads_is_computed(
        convolution in any_convolution(),
        bits in 16u32..=62,
    ) {
        let weights = weights(6, convolution.weights(), 14);
        let set = if bits < 40 { "linear_8192_verified" } else { "linear_8192_4_verified" };
        let [found, expected] = run(set, bits, convolution, &weights);
        prop_assert_eq!(found, expected);
    }
}

const SMALL: Convolution = Convolution {
    input: Shape { channels: 40, height: 12, width: 12 },
    outputs: 50,
    kernel: [3, 3],
    stride: [1, 1],
    pad: [1; 4],
};

/// Both halves of [`SMALL`] and its weights.
fn halves() -> (Arc<Layers>, LinearClient, LinearServer) {
    halves_in("linear_4096")
}

fn halves_in(lattice: &str) -> (Arc<Layers>, LinearClient, LinearServer) {
    let layers = Layers::new(lattice, 37, &[SMALL], Platform::detect()).unwrap();
    let layers = Arc::new(layers);
    let weights = weights(5, SMALL.weights(), 8);
    let prepared = Arc::new(Prepared::new(Arc::clone(&layers), &[weights]).unwrap());
    let client = LinearClient::new(Arc::clone(&layers), &[1; 32]).unwrap();
    let key = client.public_key();
    let server = LinearServer::new(Arc::clone(&layers), prepared, &[2; 32], &key).unwrap();
    (layers, client, server)
}

#[test]
fn repeated_steps_have_the_same_bytes() {
    let (layers, client, server) = halves();
    let masks = numbers(3, SMALL.input.count(), 37);
    let share = numbers(4, SMALL.output().count(), 37);
    assert_eq!(client.public_key(), client.public_key());
    for chunk in 0..layers.uploads(0) {
        let bytes = client.upload(0, chunk, &masks).unwrap();
        assert_eq!(bytes, client.upload(0, chunk, &masks).unwrap());
        server.accept(0, chunk, &bytes).unwrap();
        server.accept(0, chunk, &bytes).unwrap();
    }
    for unit in 0..layers.units(0) {
        let bytes = server.answer(0, unit, &share).unwrap();
        assert!(bytes == server.answer(0, unit, &share).unwrap());
    }
    server.forget(0);
    let refused = server.answer(0, 0, &share);
    assert!(matches!(refused, Err(Error::Incomplete { convolution: 0 })));
}

#[test]
fn messages_that_are_none_are_refused() {
    let (layers, client, server) = halves();
    let masks = numbers(3, SMALL.input.count(), 37);
    let share = numbers(4, SMALL.output().count(), 37);
    let mut out = share.clone();
    let index = |refused: Result<(), Error>| assert!(matches!(refused, Err(Error::Index { .. })));
    index(client.upload(1, 0, &masks).map(drop));
    index(client.upload(0, layers.uploads(0), &masks).map(drop));
    index(client.open(0, layers.units(0), &[], &mut out));
    index(server.accept(7, 0, &[]));
    index(server.accept(0, layers.uploads(0), &[]));
    index(server.answer(0, layers.units(0), &share).map(drop));
    let count = |refused: Result<(), Error>| assert!(matches!(refused, Err(Error::Count { .. })));
    count(client.upload(0, 0, &masks[1..]).map(drop));
    count(client.open(0, 0, &[], &mut out[1..]));
    count(server.answer(0, 0, &share[1..]).map(drop));
    let bytes = client.upload(0, 0, &masks).unwrap();
    for length in [0, 1, bytes.len() - 1] {
        let refused = server.accept(0, 0, &bytes[..length]);
        assert!(matches!(refused, Err(Error::Bytes { .. })), "{length}");
    }
    let refused = server.accept(0, 0, &vec![0xff; bytes.len()]);
    assert!(matches!(refused, Err(Error::Encryption(_))));
    server.accept(0, 0, &bytes).unwrap();
    let mut other = bytes;
    other[3] ^= 1;
    assert!(matches!(server.accept(0, 0, &other), Err(Error::Changed { chunk: 0, .. })));
    assert!(
        layers.uploads(0) == 1
            || matches!(server.answer(0, 0, &share), Err(Error::Incomplete { .. }))
    );
    let unit = layers.unit_bytes(0, 0);
    for length in [0, unit - 1, unit + 1] {
        let refused = client.open(0, 0, &vec![0; length], &mut out);
        assert!(matches!(refused, Err(Error::Bytes { .. })), "{length}");
    }
    client.open(0, 0, &vec![0xff; unit], &mut out).unwrap();
    let key = client.public_key();
    let prepared =
        Prepared::new(Arc::clone(&layers), &[vec![0; SMALL.weights()]]).map(Arc::new).unwrap();
    for length in [0, 40, key.len() - 1] {
        let (layers, prepared) = (Arc::clone(&layers), Arc::clone(&prepared));
        let refused = LinearServer::new(layers, prepared, &[2; 32], &key[..length]);
        assert!(matches!(refused, Err(Error::Encryption(_))), "{length}");
    }
}

#[test]
fn convolutions_that_cannot_be_are_refused() {
    let new = |convolution| Layers::new("linear_4096", 37, &[convolution], Platform::detect());
    let shape = |channels, height, width| Shape { channels, height, width };
    for convolution in [
        Convolution { input: shape(0, 8, 8), ..SMALL },
        Convolution { input: shape(usize::MAX, 8, 8), ..SMALL },
        Convolution { input: shape(1 << 20, 1 << 20, 8), ..SMALL },
        Convolution { input: shape(1, 2, 2), kernel: [5, 1], ..SMALL },
        Convolution { outputs: 0, ..SMALL },
        Convolution { outputs: 1 << 24, ..SMALL },
        Convolution { kernel: [0, 1], ..SMALL },
        Convolution { stride: [1, 0], ..SMALL },
        Convolution { stride: [usize::MAX, 1], ..SMALL },
        Convolution { pad: [0, usize::MAX, 0, 0], ..SMALL },
    ] {
        let refused = new(convolution);
        assert!(matches!(refused, Err(Error::Shape { .. })), "{convolution:?}");
    }
    let large = Convolution { input: shape(1, 99, 99), kernel: [70, 70], ..SMALL };
    assert!(matches!(new(large), Err(Error::Kernel { .. })));
    let none = Layers::new("linear_1", 37, &[], Platform::detect());
    assert!(matches!(none, Err(Error::Encryption(_))));
}

#[test]
fn the_fastest_set_that_hides_the_noise_is_chosen() {
    let choose =
        |bits, weights: &[i32]| choose(bits, &[(SMALL, weights)], false, Platform::detect());
    let small = weights(5, SMALL.weights(), 8);
    assert_eq!(choose(37, &small).unwrap(), "linear_4096");
    assert_eq!(choose(60, &small).unwrap(), "linear_8192");
    let large = vec![1 << 28; SMALL.weights()];
    assert_eq!(choose(37, &large).unwrap(), "linear_8192");
    assert!(matches!(choose(64, &vec![i32::MIN; SMALL.weights()]), Ok("linear_8192")));
    assert!(matches!(choose(37, &small[1..]), Err(Error::Count { .. })));
    let layers = Layers::new("linear_4096", 37, &[SMALL], Platform::detect()).unwrap();
    let refused = Prepared::new(Arc::new(layers), &[large]);
    assert!(matches!(refused, Err(Error::Noise { convolution: 0, .. })));
}

#[test]
fn messages_are_of_bounded_size_and_no_tile_is_left_out() {
    for (channels, size, outputs, kernel, stride) in
        [(3, 64, 64, 3, 1), (64, 64, 128, 3, 2), (512, 8, 512, 3, 1), (4096, 1, 4096, 1, 1)]
    {
        let input = Shape { channels, height: size, width: size };
        let pad = [kernel / 2; 4];
        let convolution =
            Convolution { input, outputs, kernel: [kernel; 2], stride: [stride; 2], pad };
        let layers = Layers::new("linear_4096", 37, &[convolution], Platform::detect()).unwrap();
        let chunks = (0..layers.uploads(0)).map(|chunk| layers.upload_bytes(0, chunk));
        let units = (0..layers.units(0)).map(|unit| layers.unit_bytes(0, unit));
        assert!(chunks.chain(units).all(|bytes| (1..=1 << 20).contains(&bytes)));
        let layout = layers.layout(0).unwrap();
        let mut seen = vec![0; convolution.output().count()];
        for unit in 0..layers.units(0) {
            for (tile, group, _) in layers.answers(0, unit) {
                layout.outputs(tile, group).1.into_iter().for_each(|index| seen[index] += 1);
            }
        }
        assert!(seen.iter().all(|&seen| seen == 1));
    }
}

#[test]
fn nothing_is_computed_on_uploads_that_are_not_proven() {
    let (layers, client, server) = halves_in("linear_8192_verified");
    let masks = numbers(3, SMALL.input.count(), 37);
    let share = numbers(4, SMALL.output().count(), 37);
    let unproven = |server: &LinearServer| {
        assert!(matches!(server.answer(0, 0, &share), Err(Error::Unproven { batch: 0 })));
    };
    // In the order of the protocol, and no other.
    let early = server.proof_seed(0);
    assert!(matches!(early, Err(Error::Incomplete { convolution: 0 })));
    assert!(matches!(server.commit(0, &[]), Err(Error::Incomplete { .. })));
    assert!(matches!(client.prove(0, &[0; 32], 0), Err(Error::ProofOrder { batch: 0, .. })));
    let tensor = |_| Ok(Arc::new(masks.clone()));
    assert!(matches!(client.commit(0, &[0; 32], tensor), Err(Error::ProofOrder { .. })));
    for chunk in 0..layers.uploads(0) {
        server.accept(0, chunk, &client.upload(0, chunk, &masks).unwrap()).unwrap();
    }
    unproven(&server);
    assert!(matches!(server.verify(0, 0, &[]), Err(Error::ProofOrder { batch: 0, .. })));
    let seed = server.proof_seed(0).unwrap();
    assert!(matches!(server.commit(0, &[1; 31]), Err(Error::Bytes { .. })));
    assert!(matches!(client.commit(0, &seed[1..], tensor), Err(Error::Bytes { .. })));
    let index = |refused: Result<(), Error>| assert!(matches!(refused, Err(Error::Index { .. })));
    index(client.commit(1, &seed, tensor).map(drop));
    index(server.proof_seed(1).map(drop));
    index(server.verify(0, ROWS, &[]));
    let seed = server.commit(0, &client.commit(0, &seed, tensor).unwrap()).unwrap();
    index(client.prove(0, &seed, ROWS).map(drop));
    for row in 1..ROWS {
        server.verify(0, row, &client.prove(0, &seed, row).unwrap()).unwrap();
        unproven(&server);
    }
    // The masks are used for one seed of each kind.
    let other_seed = |found: Result<Vec<u8>, Error>| {
        assert!(matches!(found, Err(Error::OtherSeed { batch: 0 })), "{found:?}");
    };
    other_seed(client.prove(0, &[9; 32], 0));
    other_seed(client.commit(0, &[9; 32], tensor));
    // A row that does not hold ends it, also where the right one follows.
    let last = client.prove(0, &seed, 0).unwrap();
    let mut other = last.clone();
    other[100] ^= 1;
    assert!(server.verify(0, 0, &other).is_err());
    server.verify(0, 0, &last).unwrap();
    unproven(&server);
}

/// The attack by which weights were read: the masks of one upload in fractions of a plaintext step.
#[test]
fn uploads_of_fractions_of_a_step_are_refused_and_honest_ones_are_not() {
    let masks = numbers(3, SMALL.input.count(), 37);
    for fraction in [None, Some(1), Some(7)] {
        let (layers, client, server) = halves_in("linear_8192_verified");
        let layout = layers.layout(0).unwrap();
        // The same secret and masks, numbers in eighths of a step.
        let fine = Parameters::new("linear_8192", 40, Platform::detect()).unwrap();
        let fine = Client::draw(fine, &mut source(&client.seed, "secret", [0; 3]));
        for chunk in 0..layers.uploads(0) {
            let mut bytes = client.upload(0, chunk, &masks).unwrap();
            if let (Some(fraction), 0) = (fraction, chunk) {
                let mut values = vec![0; fine.parameters().degree()];
                layout.pack(0, &masks, &mut values);
                values.iter_mut().for_each(|value| *value <<= 3);
                values[17] += fraction;
                let mut own = source(&client.seed, "upload", [1, 0, 0]);
                let mut upload = Vec::new();
                let errors = fine.encrypt(1, &values, &mut own, &mut upload);
                client.proofs.keep(1, errors);
                assert_ne!(bytes[..upload.len()], upload);
                bytes[..upload.len()].copy_from_slice(&upload);
            }
            server.accept(0, chunk, &bytes).unwrap();
        }
        let found = prove(&layers, &client, &server, &masks);
        let share = numbers(4, SMALL.output().count(), 37);
        match fraction {
            None => drop((found.unwrap(), server.answer(0, 0, &share).unwrap())),
            Some(_) => {
                assert!(matches!(found, Err(Error::Encryption(_))), "{found:?}");
                let refused = server.answer(0, 0, &share);
                assert!(matches!(refused, Err(Error::Unproven { batch: 0 })));
            }
        }
    }
}

/// 20 uploads.
const WIDE: Convolution = Convolution {
    input: Shape { channels: 40, height: 64, width: 64 },
    outputs: 8,
    kernel: [1; 2],
    stride: [1; 2],
    pad: [0; 4],
};

#[test]
fn batches_end_at_256_uploads() {
    let layers = |name| Layers::new(name, 20, &[WIDE; 30], Platform::detect()).unwrap();
    assert!(layers("linear_8192").batches().is_empty());
    let proven = layers("linear_8192_verified");
    assert_eq!(proven.batches(), [0..13, 13..26, 26..30]);
    assert_eq!(proven.columns(0), 1 + 13 * 20);
}

/// A precompute is one attempt: who sees that a proof will not hold does not get to the next one.
#[test]
fn a_batch_is_proven_after_the_one_before_it() {
    let wide = [WIDE; 14];
    let layers = Layers::new("linear_8192_verified", 20, &wide, Platform::detect()).unwrap();
    let layers = Arc::new(layers);
    let weights = vec![weights(5, WIDE.weights(), 8); wide.len()];
    let prepared = Arc::new(Prepared::new(Arc::clone(&layers), &weights).unwrap());
    let client = LinearClient::new(Arc::clone(&layers), &[1; 32]).unwrap();
    let server =
        LinearServer::new(Arc::clone(&layers), prepared, &[2; 32], &client.public_key()).unwrap();
    let masks = Arc::new(numbers(3, WIDE.input.count(), 20));
    for convolution in 0..wide.len() {
        for chunk in 0..layers.uploads(convolution) {
            let bytes = client.upload(convolution, chunk, &masks).unwrap();
            server.accept(convolution, chunk, &bytes).unwrap();
        }
    }
    let tensor = |_| Ok(Arc::clone(&masks));
    assert!(matches!(server.proof_seed(1), Err(Error::Unproven { batch: 0 })));
    assert!(matches!(server.commit(1, &[0; COMMITMENT_BYTES]), Err(Error::Unproven { batch: 0 })));
    let commitment = client.commit(0, &server.proof_seed(0).unwrap(), tensor).unwrap();
    let seed = server.commit(0, &commitment).unwrap();
    let share = numbers(4, WIDE.output().count(), 20);
    for row in 0..ROWS {
        assert!(matches!(server.proof_seed(1), Err(Error::Unproven { batch: 0 })));
        server.verify(0, row, &client.prove(0, &seed, row).unwrap()).unwrap();
    }
    server.answer(0, 0, &share).unwrap();
    // What was proven and used is not uploaded again in another form, nor proven again.
    server.forget(0);
    let bytes = client.upload(0, 0, &masks).unwrap();
    assert!(matches!(server.accept(0, 0, &bytes), Err(Error::Forgotten { convolution: 0 })));
    client.forget_proof(0);
    assert!(matches!(client.prove(0, &seed, 0), Err(Error::ProofOrder { batch: 0, .. })));
    assert!(matches!(client.commit(0, &[3; 32], tensor), Err(Error::OtherSeed { batch: 0 })));
    // A row of the second batch that does not hold ends the first one as well.
    let commitment = client.commit(1, &server.proof_seed(1).unwrap(), tensor).unwrap();
    let seed = server.commit(1, &commitment).unwrap();
    let mut bytes = client.prove(1, &seed, 0).unwrap();
    bytes[60] ^= 1;
    assert!(server.verify(1, 0, &bytes).is_err());
    assert!(matches!(server.answer(1, 0, &share), Err(Error::Unproven { batch: 0 })));
}

#[test]
fn numbers_too_long_for_one_secret_take_the_longer_set() {
    let bare: &[i32] = &vec![1; SMALL.weights()];
    let chosen = |bits| choose(bits, &[(SMALL, bare)], true, Platform::detect()).unwrap();
    assert_eq!(
        [37, 40, 48, 62].map(chosen),
        [
            "linear_8192_verified",
            "linear_8192_verified",
            "linear_8192_4_verified",
            "linear_8192_4_verified",
        ]
    );
    let long = Layers::new("linear_8192_verified", 48, &[SMALL], Platform::detect());
    assert!(matches!(long, Err(Error::ProofBits { bits: 48, .. })));
}
